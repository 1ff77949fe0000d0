//! What clients know of one key, and which of it must be found once all sites have heard all.
//!
//! A version is a moment of the clock that all sites of a machine share, so a deletion, whose version no client is
//! told, has one between those of the moments at which it was sent and answered.

use std::collections::HashMap;
use std::fmt;

/// A moment of the wall clock, in microseconds of Unix time.
pub(super) type Micros = u64;

/// What a value must be like, as far as its writer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// All of it, or how it ends.
    pub(super) value: Vec<u8>,
    pub(super) is_whole: bool,
    /// `None`: those that the item had.
    pub(super) flags: Option<u32>,
}

/// An item as a site shows it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) value: Vec<u8>,
    pub(super) flags: u32,
    pub(super) version: u64,
    /// In seconds of Unix time, to a second or two; `None`: never.
    pub(super) exptime_secs: Option<u64>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, flags, version, exptime_secs } = self;
        let value = value.escape_ascii();
        write!(f, "\"{value}\", flags {flags}, version {version}, exptime {exptime_secs:?}")
    }
}

/// What is known of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// By version; whether it must be there, or something newer.
    writes: HashMap<u64, (Content, bool)>,
    /// Without a reply: from when to when they were on their way.
    unanswered: Vec<(Content, Micros, Micros)>,
    removals: Vec<Removal>,
    /// That were said, by any command: the first and the last second that it may have meant.
    exptimes_secs: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Removal {
    from: Micros,
    to: Micros,
    is_promised: bool,
}

impl Ledger {
    /// A ledger that begins with what is there.
    pub(super) fn of(seen: Option<&Seen>) -> Self {
        let mut ledger = Self::default();
        if let Some(seen) = seen {
            let content = Content { value: seen.value.clone(), is_whole: true, flags: Some(seen.flags) };
            ledger.writes.insert(seen.version, (content, true));
            ledger.exptimes_secs.extend(seen.exptime_secs.map(|exptime| (exptime, exptime)));
        }
        ledger
    }

    pub(super) fn write(&mut self, version: u64, content: Content, is_promised: bool) {
        self.writes.insert(version, (content, is_promised));
    }

    pub(super) fn write_unanswered(&mut self, content: Content, from: Micros, to: Micros) {
        self.unanswered.push((content, from, to));
    }

    /// A deletion, or a flush, that was on its way from one moment to the other. Unless it is promised, it may not have
    /// been carried out.
    pub(super) fn remove(&mut self, from: Micros, to: Micros, is_promised: bool) {
        self.removals.push(Removal { from, to, is_promised });
    }

    /// A time to live was said, which counts from when the site reads it: that may be long after it was sent.
    pub(super) fn expire_between(&mut self, first_secs: u64, last_secs: u64) {
        self.exptimes_secs.push((first_secs, last_secs));
    }

    /// Compares with what all sites have. Errors: what is wrong with it.
    pub(super) fn check(&self, seen: Option<&Seen>, now_secs: u64) -> Result<(), String> {
        let newest = self
            .writes
            .iter()
            .filter(|(_, (_, is_promised))| *is_promised)
            .map(|(version, _)| *version)
            .max();
        match seen {
            Some(seen) => self.check_item(seen, newest.unwrap_or(0)),
            None => self.check_absence(newest, now_secs),
        }
    }

    fn check_item(&self, seen: &Seen, newest: u64) -> Result<(), String> {
        if seen.version < newest {
            return Err(format!(
                "an acknowledged write of version {newest} is lost to one of {}",
                seen.version
            ));
        }
        let moment = micros_of(seen.version);
        if let Some(removal) =
            self.removals.iter().find(|removal| removal.is_promised && removal.from > moment + STEP_MICROS)
        {
            let late = removal.from - moment;
            return Err(format!("it was deleted {late} us after its version {}, and is back", seen.version));
        }
        let is_known = match self.writes.get(&seen.version) {
            Some((content, _)) => content.fits(seen),
            None => self.unanswered.iter().any(|(content, from, to)| {
                content.fits(seen) && (from.saturating_sub(STEP_MICROS)..=to + SLACK_MICROS).contains(&moment)
            }),
        };
        if !is_known {
            let written = self.writes.get(&seen.version);
            return Err(format!("nobody has written that; with its version {written:?}"));
        }
        match seen.exptime_secs {
            Some(exptime) if !self.has_said(exptime) => {
                Err(format!("nobody has said that it expires at {exptime}: {:?}", self.exptimes_secs))
            }
            _ => Ok(()),
        }
    }

    fn has_said(&self, exptime_secs: u64) -> bool {
        let is_it = |(first, last): &(u64, u64)| {
            (first.saturating_sub(CLOCK_SECS)..=last + CLOCK_SECS).contains(&exptime_secs)
        };
        self.exptimes_secs.iter().any(is_it)
    }

    fn check_absence(&self, newest: Option<u64>, now_secs: u64) -> Result<(), String> {
        let Some(newest) = newest else { return Ok(()) };
        let moment = micros_of(newest);
        if self.removals.iter().any(|removal| removal.to + SLACK_MICROS >= moment)
            || self.exptimes_secs.iter().any(|(first, _)| *first <= now_secs + CLOCK_SECS)
        {
            return Ok(());
        }
        Err(format!("an acknowledged write of version {newest} is lost, and nothing was deleted since"))
    }
}

impl Content {
    fn fits(&self, seen: &Seen) -> bool {
        let value = if self.is_whole { seen.value == self.value } else { seen.value.ends_with(&self.value) };
        value && self.flags.is_none_or(|flags| flags == seen.flags)
    }
}

/// When a version was given, if its key was not changed twice within a step: docs/replication-protocol.md, "Versions".
pub(super) fn micros_of(version: u64) -> Micros {
    EPOCH_MICROS + (version >> 8) * STEP_MICROS
}

const EPOCH_MICROS: Micros = 1_735_689_600_000_000;
const STEP_MICROS: Micros = 125;
/// How far a version may be ahead of the clock: that of a key that changes faster than there are steps.
pub(super) const SLACK_MICROS: Micros = 20_000;
/// Two clocks of whole seconds, one of which was read to make an exptime, and the other to show it.
const CLOCK_SECS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn content(value: &str) -> Content {
        Content { value: value.into(), is_whole: true, flags: Some(3) }
    }

    fn version(micros: Micros) -> u64 {
        ((micros - EPOCH_MICROS) / STEP_MICROS) << 8 | 1
    }

    fn seen(value: &str, micros: Micros) -> Seen {
        Seen { value: value.into(), flags: 3, version: version(micros), exptime_secs: None }
    }

    const T: Micros = EPOCH_MICROS + 1_000_000_000;

    #[test]
    fn the_newest_promised_write_is_there_or_a_newer_one() {
        let mut ledger = Ledger::default();
        ledger.write(version(T), content("old"), true);
        ledger.write(version(T + 1_000), content("new"), true);
        ledger.write(version(T + 2_000), content("lucky"), false);
        assert_eq!(ledger.check(Some(&seen("new", T + 1_000)), 0), Ok(()));
        assert_eq!(ledger.check(Some(&seen("lucky", T + 2_000)), 0), Ok(()));
        assert!(ledger.check(Some(&seen("old", T)), 0).is_err());
        assert!(ledger.check(Some(&seen("old", T + 1_000)), 0).is_err(), "the value of another version");
        assert!(ledger.check(Some(&seen("new", T + 3_000)), 0).is_err(), "a version that nobody was told");
        assert!(ledger.check(None, 0).is_err());
        assert!(ledger.check(Some(&Seen { flags: 4, ..seen("new", T + 1_000) }), 0).is_err());
    }

    #[test]
    fn what_was_deleted_stays_away_and_explains_an_absence() {
        let mut ledger = Ledger::default();
        ledger.write(version(T), content("old"), true);
        ledger.remove(T + 1_000, T + 9_000, true);
        assert_eq!(ledger.check(None, 0), Ok(()));
        assert!(ledger.check(Some(&seen("old", T)), 0).is_err());
        // Written while it was deleted: either may be the later one.
        ledger.write(version(T + 5_000), content("new"), true);
        assert_eq!(ledger.check(None, 0), Ok(()));
        assert_eq!(ledger.check(Some(&seen("new", T + 5_000)), 0), Ok(()));
        ledger.write(version(T + 90_000), content("last"), true);
        assert!(ledger.check(None, 0).is_err());
    }

    #[test]
    fn what_was_not_answered_may_have_been_carried_out() {
        let mut ledger = Ledger::default();
        ledger.write(version(T), content("old"), true);
        ledger.write_unanswered(content("maybe"), T + 1_000, T + 2_000);
        ledger.remove(T + 1_000, T + 2_000, false);
        for found in [Some(seen("old", T)), Some(seen("maybe", T + 1_500)), None] {
            assert_eq!(ledger.check(found.as_ref(), 0), Ok(()));
        }
        assert!(ledger.check(Some(&seen("maybe", T + 900_000)), 0).is_err());
    }

    #[test]
    fn an_expiry_is_one_that_was_said() {
        let mut ledger = Ledger::default();
        ledger.write(version(T), content("old"), true);
        ledger.expire_between(5_000, 5_000);
        let expiring = |at| Some(Seen { exptime_secs: Some(at), ..seen("old", T) });
        assert_eq!(ledger.check(expiring(5_001).as_ref(), 0), Ok(()));
        assert!(ledger.check(expiring(5_100).as_ref(), 0).is_err());
        assert!(ledger.check(None, 4_000).is_err());
        assert_eq!(ledger.check(None, 5_000), Ok(()));
    }

    /// `mg key T100`, in a queue for five seconds: the time to live begins at its end.
    #[test]
    fn a_time_to_live_counts_from_when_it_is_read() {
        let mut ledger = Ledger::default();
        ledger.write(version(T), content("old"), true);
        ledger.expire_between(5_000, 5_005);
        for (exptime, is_said) in
            [(4_997, false), (4_998, true), (5_003, true), (5_007, true), (5_008, false)]
        {
            let seen = Seen { exptime_secs: Some(exptime), ..seen("old", T) };
            assert_eq!(ledger.check(Some(&seen), 0).is_ok(), is_said, "{exptime}");
        }
    }
}
