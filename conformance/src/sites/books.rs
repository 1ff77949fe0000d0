//! What clients know of all keys.

use super::caches::CacheLedger;
use super::client::{Change, Keys, What};
use super::keys::{ALL_KEYS, KEYS, is_cached, is_the_same_everywhere, keys_of, name};
use super::ledger::{Ledger, Micros, Seen};

/// What clients know of all keys.
pub(super) struct Books {
    ledgers: Vec<Ledger>,
    caches: Vec<CacheLedger>,
}

impl Books {
    pub(super) fn new() -> Self {
        let caches = vec![CacheLedger::default(); ALL_KEYS - KEYS];
        Self { ledgers: vec![Ledger::default(); KEYS], caches }
    }

    /// Of keys in stores what is there is all that matters from here on.
    pub(super) fn begin_with(&mut self, found: &[Option<Seen>]) {
        self.ledgers = found[..KEYS].iter().map(|seen| Ledger::of(seen.as_ref())).collect();
    }

    /// Something was changed, or may have been.
    pub(super) fn note(&mut self, change: &Change) {
        match change.of {
            Keys::One(key) => self.note_one(key, change),
            Keys::Prefix(prefix) => keys_of(prefix).for_each(|key| self.note_one(key, change)),
            Keys::All => (0..ALL_KEYS).for_each(|key| self.note_one(key, change)),
        }
    }

    fn note_one(&mut self, key: usize, change: &Change) {
        let Change { what, sent, done, ttl_secs, is_promised, .. } = change;
        if is_cached(key) {
            let ledger = &mut self.caches[key - KEYS];
            match what {
                What::Write(content, _) => ledger.store(&content.value, *done),
                What::Remove if *is_promised => ledger.remove(*sent),
                What::Remove | What::Touch | What::Get => {}
            }
            return;
        }
        let ledger = &mut self.ledgers[key];
        // It counts from when the site reads it.
        if let Some(ttl_secs) = ttl_secs {
            ledger.expire_between(secs(*sent) + ttl_secs, secs(*done) + ttl_secs);
        }
        match what {
            What::Write(content, Some(version)) => ledger.write(*version, content.clone(), *is_promised),
            What::Write(content, None) => ledger.write_unanswered(content.clone(), *sent, *done),
            What::Remove => ledger.remove(*sent, *done, *is_promised),
            What::Touch | What::Get => {}
        }
    }

    /// What a key's item at each site must not be.
    pub(super) fn check(&self, key: usize, sites: &[Vec<Option<Seen>>], now: Micros) -> Result<(), String> {
        if !is_cached(key) {
            return self.ledgers[key].check(sites[0][key].as_ref(), secs(now));
        }
        let ledger = &self.caches[key - KEYS];
        sites.iter().filter_map(|found| found[key].as_ref()).try_for_each(|seen| ledger.check(&seen.value))
    }
}

/// Errors: sites have not the same of some key.
pub(super) fn agree(sites: &[Vec<Option<Seen>>]) -> Result<(), String> {
    let differs = |key: &usize| {
        let others = sites[1..].iter().map(|other| &other[*key]);
        !others.clone().all(|other| are_same(&sites[0][*key], other, *key))
    };
    let differing: Vec<usize> = (0..ALL_KEYS).filter(differs).collect();
    let Some(&key) = differing.first() else { return Ok(()) };
    let each: Vec<_> = sites.iter().map(|found| &found[key]).collect();
    Err(format!("{} keys differ, such as {}: {each:?}", differing.len(), name(key)))
}

/// Whether two sites show the same of a key, but for what expires while they are asked.
fn are_same(one: &Option<Seen>, other: &Option<Seen>, key: usize) -> bool {
    match (one, other) {
        (_, _) if !is_the_same_everywhere(key) => true,
        (Some(one), Some(other)) if is_cached(key) => one.value == other.value,
        (one, other) if is_cached(key) => one.is_none() || other.is_none(),
        (Some(one), Some(other)) => {
            let exptimes = match (one.exptime_secs, other.exptime_secs) {
                (Some(one), Some(other)) => one.abs_diff(other) <= 2,
                (one, other) => one == other,
            };
            exptimes && (&one.value, one.flags, one.version) == (&other.value, other.flags, other.version)
        }
        (one, other) => one == other,
    }
}

fn secs(micros: Micros) -> u64 {
    micros / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Content, micros_of};
    use super::*;

    const VERSION: u64 = 8_000 << 20;

    fn seen(exptime_secs: Option<u64>) -> Seen {
        Seen { value: b"value".to_vec(), flags: 0, version: VERSION, exptime_secs }
    }

    /// `ms key T100`, to a site that stands still for five seconds: it reads the request, and its clock, after that.
    #[test]
    fn a_request_that_waits_expires_later() {
        let content = Content { value: b"value".to_vec(), is_whole: true, flags: None };
        let sent = micros_of(VERSION);
        let change = Change {
            of: Keys::One(0),
            what: What::Write(content, Some(VERSION)),
            sent,
            done: sent + 5_000_000,
            ttl_secs: Some(100),
            is_promised: true,
        };
        let mut books = Books::new();
        books.note(&change);
        for (delay_secs, is_right) in [(0, true), (5, true), (8, false)] {
            let found = seen(Some(secs(sent) + delay_secs + 100));
            assert_eq!(books.check(0, &[vec![Some(found)]], sent).is_ok(), is_right, "{delay_secs} s");
        }
    }

    #[test]
    fn caches_need_not_have_the_same_keys_but_values() {
        let (values, told) = (ALL_KEYS - 1, KEYS);
        let site = |key: usize, seen: Option<Seen>| {
            let mut found = vec![None; ALL_KEYS];
            found[key] = seen;
            found
        };
        let other = Some(Seen { value: b"other".to_vec(), ..seen(None) });
        for (key, are_right) in [(values, [true, false]), (told, [true, true]), (0, [false, false])] {
            for (second, is_right) in [None, other.clone()].into_iter().zip(are_right) {
                let sites = [site(key, Some(seen(None))), site(key, second)];
                assert_eq!(agree(&sites).is_ok(), is_right, "{}", name(key));
            }
        }
    }
}
