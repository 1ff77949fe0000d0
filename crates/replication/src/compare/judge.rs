//! What a difference means, and what is done about it.

use super::Listed;
use super::fingerprint::Fingerprint;
use crate::state::State;
use crate::version::site_of;

/// What this site has of a key that is listed elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ours {
    /// It can be read.
    Known {
        /// Without what was flushed.
        state: State<()>,
        /// Of the state, if there is an item.
        fingerprint: Option<Fingerprint>,
        /// The version of the newest flush that covers the key; 0: none.
        newest_flush: u64,
    },
    /// Its value cannot be read.
    Damaged {
        /// Without what was flushed.
        state: State<()>,
        /// The version of the newest flush that covers the key; 0: none.
        newest_flush: u64,
    },
    /// The store has a record of the key, and cannot read it: it may be a deletion, or newer than what is elsewhere.
    Unreadable {
        /// The other site has confirmed it.
        is_confirmed: bool,
    },
}

/// What a state of another site's list is to this site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No difference: it is the same here, or newer here.
    Nothing,
    /// A difference that the other site finds, since this one's state is the right one.
    TheirsToMend,
    /// This site missed a change.
    Missed,
    /// This site cannot read its own record, which the other one has.
    Unreadable,
    /// This site cannot read its own record, and the other one may have an older one.
    Lost,
    /// The versions are equal and the contents are not, and of two sites the other one has made the value.
    Altered,
    /// Nothing is known of the key here: a change was lost here, or a deletion there. Or the versions are equal and the
    /// contents are not. A majority decides ([`Votes`](super::Votes)).
    Disputed,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing differs",
            Self::TheirsToMend => "this site has the right one",
            Self::Missed => "this site missed a change",
            Self::Unreadable => "this site cannot read its own",
            Self::Lost => "this site cannot read its own, and the peer's may be older",
            Self::Altered => "the contents differ, and the peer made the value",
            Self::Disputed => "nobody can tell which is right",
        })
    }
}

impl Finding {
    /// True if the state is to be asked for.
    pub fn is_mended(self) -> bool {
        matches!(self, Self::Missed | Self::Unreadable | Self::Altered)
    }
}

/// Judges a state that `peer` has listed, as of a horizon. `site`: this one, of so many in all.
pub fn judge(
    listed: &Listed<'_>,
    ours: &Ours,
    horizon: u64,
    site: u8,
    peer: u8,
    all_sites: usize,
) -> Finding {
    let (state, fingerprint, newest_flush, is_damaged) = match *ours {
        Ours::Known { state, fingerprint, newest_flush } => (state, fingerprint, newest_flush, false),
        Ours::Damaged { state, newest_flush } => (state, None, newest_flush, true),
        Ours::Unreadable { is_confirmed: false } => return Finding::Lost,
        // What a third site has made, the peer may not have.
        Ours::Unreadable { .. } if all_sites > 2 => return Finding::Disputed,
        Ours::Unreadable { .. } => return Finding::Unreadable,
    };
    let (our_version, our_expiry) = (state.version(), state.expiry);
    let is_above = our_version.max(our_expiry.version).max(newest_flush) > horizon;
    if is_above || listed.version < newest_flush || fingerprint == Some(listed.fingerprint) {
        return Finding::Nothing;
    }
    if state.is_unknown() {
        return Finding::Disputed;
    }
    let rank = |expiry: &crate::state::Expiry| (expiry.value_version, expiry.version);
    // The expiry of a value that a newer one or a deletion has replaced says nothing.
    let has_newer_expiry =
        rank(&listed.expiry) > rank(&our_expiry) && listed.expiry.value_version >= our_version;
    if listed.version > our_version || has_newer_expiry {
        return Finding::Missed;
    }
    if is_damaged {
        return if listed.version < our_version { Finding::Lost } else { Finding::Unreadable };
    }
    if listed.version < our_version || rank(&listed.expiry) < rank(&our_expiry) {
        return Finding::TheirsToMend;
    }
    match site_of(listed.version) {
        maker if all_sites == 2 && maker == peer => Finding::Altered,
        maker if all_sites == 2 && maker == site => Finding::TheirsToMend,
        _ => Finding::Disputed,
    }
}

/// What a key becomes with the state that was asked for: the join, but of values with one version theirs. `None`: it
/// stays. `ours`: the default, if it cannot be read.
pub fn mend<V>(ours: State<V>, theirs: State<V>) -> Option<State<V>> {
    let is_same = theirs.value.is_some() && theirs.version() == ours.version();
    if !is_same {
        let (joined, outcome) = ours.join(theirs);
        return outcome.is_changed.then_some(joined);
    }
    let rank = |state: &State<V>| (state.expiry.value_version, state.expiry.version);
    let expiry = if rank(&theirs) >= rank(&ours) { theirs.expiry } else { ours.expiry };
    Some(State { expiry, ..theirs })
}

#[cfg(test)]
mod tests {
    use super::super::fingerprint;
    use super::*;
    use crate::state::{Expiry, Item};

    const HORIZON: u64 = 1000 << 8;

    fn version(moment: u64, site: u8) -> u64 {
        moment << 8 | u64::from(site)
    }

    fn set(version: u64, value: &'static [u8]) -> State<&'static [u8]> {
        State::set(version, 0, 0, Item { client_flags: 0, marks: 0, value })
    }

    fn touched(state: State<&'static [u8]>, version: u64, exptime_secs: u64) -> State<&'static [u8]> {
        state.join(State::touched(Expiry { value_version: state.version(), version, exptime_secs })).0
    }

    fn ours(state: State<&'static [u8]>, newest_flush: u64) -> Ours {
        Ours::Known { fingerprint: fingerprint(b"key", &state), state: state.map(|_| ()), newest_flush }
    }

    /// At site 1, of what site 2 lists.
    fn found(state: State<&'static [u8]>, ours: Ours) -> Finding {
        found_of(2, state, ours)
    }

    fn found_of(all_sites: usize, state: State<&'static [u8]>, ours: Ours) -> Finding {
        let fingerprint = fingerprint(b"key", &state).expect("an item is listed");
        let listed = Listed { key: b"key", version: state.version(), expiry: state.expiry, fingerprint };
        judge(&listed, &ours, HORIZON, 1, 2, all_sites)
    }

    #[test]
    fn each_difference_has_its_meaning() {
        let (old, new) = (set(version(10, 3), b"old"), set(version(20, 3), b"new"));
        let nothing = State::default();
        assert_eq!(found(old, ours(old, 0)), Finding::Nothing);
        assert_eq!(found(new, ours(old, 0)), Finding::Missed);
        assert_eq!(found(old, ours(new, 0)), Finding::TheirsToMend);
        assert_eq!(found(old, ours(State::deleted(version(30, 3), 0), 0)), Finding::TheirsToMend);
        assert_eq!(found(old, ours(nothing, 0)), Finding::Disputed);
        let unreadable = |is_confirmed| Ours::Unreadable { is_confirmed };
        assert_eq!(found_of(2, old, unreadable(true)), Finding::Unreadable);
        assert_eq!(found_of(3, old, unreadable(true)), Finding::Disputed);
        assert_eq!(found_of(2, old, unreadable(false)), Finding::Lost, "it may be a deletion");
        let damaged = |state: State<&[u8]>| Ours::Damaged { state: state.map(|_| ()), newest_flush: 0 };
        assert_eq!(found_of(2, old, damaged(old)), Finding::Unreadable);
        assert_eq!(found_of(2, new, damaged(old)), Finding::Missed);
        assert_eq!(found_of(2, old, damaged(new)), Finding::Lost, "what was acknowledged is not turned back");
        assert_eq!(found(old, ours(nothing, version(11, 3))), Finding::Nothing, "it is flushed here");
        let later = set(version(2000, 3), b"later");
        assert_eq!(found(old, ours(later, 0)), Finding::Nothing, "it is above the horizon here");
        assert_eq!(found(old, ours(touched(old, version(2000, 1), 5), 0)), Finding::Nothing);
        let longer = touched(old, version(15, 1), 99);
        assert_eq!(found(longer, ours(old, 0)), Finding::Missed, "a touch is missing");
        assert_eq!(found(old, ours(longer, 0)), Finding::TheirsToMend);
    }

    #[test]
    fn of_one_version_a_majority_is_right_or_the_site_that_made_it() {
        for (maker, finding) in [(1, Finding::TheirsToMend), (2, Finding::Altered), (3, Finding::Disputed)] {
            let (theirs, altered) = (set(version(10, maker), b"value"), set(version(10, maker), b"valve"));
            assert_eq!(found(theirs, ours(altered, 0)), finding);
            assert_eq!(found_of(3, theirs, ours(altered, 0)), Finding::Disputed);
            let mended = mend(altered, theirs).expect("it changes");
            assert_eq!(mended, theirs);
        }
        let (theirs, altered) = (set(version(10, 2), b"value"), set(version(10, 2), b"valve"));
        let longer = touched(altered, version(20, 1), 99);
        assert_eq!(
            mend(longer, theirs).map(|state| state.expiry),
            Some(longer.expiry),
            "a newer touch stays"
        );
        assert_eq!(mend(set(version(11, 3), b"newer"), theirs), None);
        assert_eq!(mend(State::default(), theirs), Some(theirs));
    }
}
