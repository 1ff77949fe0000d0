//! The state of a key, and the one rule by which two states become one.
//!
//! A state has two registers: the value (or that the key was deleted), and when it expires. Of two values, the one with
//! the higher version stays; of two expiries, the one of the newer value, and of the same value the newer one. So
//! [`State::join`] is commutative, associative and idempotent: in whatever order, how often, and over whatever ways
//! changes arrive, all sites end with the same state.
//!
//! A set writes both registers. A touch writes the expiry of the value that it found: it does not shorten the life of a
//! value that it did not know, and it waits for its value if it arrives first.

/// What is known of a key. `V` is where a value is: bytes, or a place in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State<V> {
    /// The newest value or deletion.
    pub value: Option<Register<V>>,
    /// When the value expires: nothing is known, or it is of this value or of a newer one that is still to come.
    pub expiry: Expiry,
}

/// A value or a deletion, as of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register<V> {
    /// Orders all values and deletions of a key. Not 0.
    pub version: u64,
    /// The highest version of the key, or of a flush of it, that the site knew which made this change; 0: none.
    pub base_version: u64,
    /// `None`: the key was deleted.
    pub item: Option<Item<V>>,
}

/// What a client stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<V> {
    /// The client's flags.
    pub client_flags: u32,
    /// Marks of the meta dialect, as bits.
    pub marks: u8,
    /// The value.
    pub value: V,
}

/// When a value expires, as of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    /// Of the value; 0: nothing is known.
    pub value_version: u64,
    /// Orders the expiries of a value: its own version if it was set with it, higher if it was touched.
    pub version: u64,
    /// Unix time in seconds; 0: never.
    pub exptime_secs: u64,
}

/// What a join changed, as seen from its left side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The right side had something newer.
    pub is_changed: bool,
    /// Two sites changed the key, and neither knew of the other's change.
    pub conflict: Option<Conflict>,
}

/// Two concurrent changes of a key, of which one is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The version that stays.
    pub winner: u64,
    /// The version that is lost.
    pub loser: u64,
}

impl<V> Default for State<V> {
    fn default() -> Self {
        Self { value: None, expiry: Expiry::default() }
    }
}

impl<V> State<V> {
    /// The state in which a set leaves a key that nothing was known of.
    pub fn set(version: u64, base_version: u64, exptime_secs: u64, item: Item<V>) -> Self {
        Self {
            value: Some(Register { version, base_version, item: Some(item) }),
            expiry: Expiry { value_version: version, version, exptime_secs },
        }
    }

    /// The same for a deletion.
    pub fn deleted(version: u64, base_version: u64) -> Self {
        Self { value: Some(Register { version, base_version, item: None }), expiry: Expiry::default() }
    }

    /// The same for a touch: there is an expiry, and its value is still to come.
    pub fn touched(expiry: Expiry) -> Self {
        Self { value: None, expiry }
    }

    /// Nothing is known.
    pub fn is_unknown(&self) -> bool {
        self.value.is_none() && self.expiry.version == 0
    }

    /// The version of the value or deletion; 0: none.
    pub fn version(&self) -> u64 {
        self.value.as_ref().map_or(0, |register| register.version)
    }

    /// The highest version of both registers. A new change of the key has to be above it.
    pub fn highest_version(&self) -> u64 {
        self.version().max(self.expiry.version)
    }

    /// The least state that knows what both know.
    pub fn join(self, other: Self) -> (Self, Outcome) {
        let before = (self.version(), self.expiry.rank());
        let conflict = conflict(self.value.as_ref(), other.value.as_ref());
        let value = if other.version() > self.version() { other.value } else { self.value };
        let expiry = if other.expiry.rank() > self.expiry.rank() { other.expiry } else { self.expiry };
        let joined = Self { value, expiry }.normalized();
        let is_changed = before != (joined.version(), joined.expiry.rank());
        (joined, Outcome { is_changed, conflict })
    }

    /// The state after all below this version was flushed.
    pub fn flushed(mut self, version: u64) -> Self {
        self.value = self.value.filter(|register| register.version >= version);
        if self.expiry.value_version < version {
            self.expiry = Expiry::default();
        }
        self
    }

    /// The item that clients see at this second, unless it was flushed.
    pub fn item(&self, now_unix_secs: u64) -> Option<&Item<V>> {
        let item = self.value.as_ref()?.item.as_ref()?;
        (!self.expiry.is_over(now_unix_secs)).then_some(item)
    }

    /// True if nobody will ask for this state again, once every site knows all changes up to the horizon, and every
    /// site's clock has passed it: no item, no deletion that an older value could still meet, no touch that could still
    /// find its value.
    pub fn is_obsolete(&self, horizon: u64, horizon_unix_secs: u64) -> bool {
        self.highest_version() <= horizon && self.item(horizon_unix_secs).is_none()
    }

    /// The same with the value somewhere else.
    pub fn map<W>(self, place: impl FnOnce(V) -> W) -> State<W> {
        let value = self.value.map(|Register { version, base_version, item }| {
            let item = item.map(|Item { client_flags, marks, value }| Item {
                client_flags,
                marks,
                value: place(value),
            });
            Register { version, base_version, item }
        });
        State { value, expiry: self.expiry }
    }

    /// The same, borrowed.
    pub fn as_ref(&self) -> State<&V> {
        let value = self.value.as_ref().map(|register| Register {
            version: register.version,
            base_version: register.base_version,
            item: register.item.as_ref().map(|item| Item {
                client_flags: item.client_flags,
                marks: item.marks,
                value: &item.value,
            }),
        });
        State { value, expiry: self.expiry }
    }

    /// Without the expiry of an older value than this one, or than the deletion.
    fn normalized(mut self) -> Self {
        if self.expiry.value_version < self.version() {
            self.expiry = Expiry::default();
        }
        self
    }
}

impl Expiry {
    fn rank(&self) -> (u64, u64) {
        (self.value_version, self.version)
    }

    /// True if a value with this expiry is gone at this second.
    pub fn is_over(&self, now_unix_secs: u64) -> bool {
        self.exptime_secs != 0 && self.exptime_secs <= now_unix_secs
    }
}

/// The one that stays was made by a site that did not know the other one.
fn conflict<V>(one: Option<&Register<V>>, other: Option<&Register<V>>) -> Option<Conflict> {
    let (one, other) = (one?, other?);
    let (winner, loser) = if one.version > other.version { (one, other) } else { (other, one) };
    let is_concurrent = winner.version != loser.version && winner.base_version < loser.version;
    is_concurrent.then_some(Conflict { winner: winner.version, loser: loser.version })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(version: u64, base_version: u64, exptime_secs: u64) -> State<u64> {
        State::set(version, base_version, exptime_secs, Item { client_flags: 0, marks: 0, value: version })
    }

    fn touched(value_version: u64, version: u64, exptime_secs: u64) -> State<u64> {
        State::touched(Expiry { value_version, version, exptime_secs })
    }

    fn joined(states: &[State<u64>]) -> State<u64> {
        states.iter().fold(State::default(), |all, state| all.join(*state).0)
    }

    /// Every state that versions 1 to 4 can make, each version used once for each kind of change.
    fn universe() -> Vec<State<u64>> {
        let mut states = vec![State::default()];
        for version in 1..=4 {
            states.extend([
                set(version, version / 2, 100 + version),
                State::deleted(version + 10, version),
                touched(version, version + 5, 200 + version),
                touched(version, version + 20, 300 + version),
            ]);
        }
        let singles = states.clone();
        for one in &singles {
            states.extend(singles.iter().map(|other| one.join(*other).0));
        }
        states
    }

    #[test]
    fn joins_obey_the_laws_of_a_semilattice() {
        let universe = universe();
        for &a in &universe {
            assert_eq!(a.join(a), (a, Outcome::default()));
            for &b in &universe {
                let (ab, outcome) = a.join(b);
                let (ba, reverse) = b.join(a);
                assert_eq!((ab, outcome.conflict), (ba, reverse.conflict), "{a:?} and {b:?}");
                assert_eq!(outcome.is_changed, ab != a, "{a:?} and {b:?}");
                for &c in universe.iter().step_by(3) {
                    assert_eq!(ab.join(c).0, a.join(b.join(c).0).0, "{a:?}, {b:?} and {c:?}");
                }
            }
        }
    }

    /// A flush distributes over joins, so it does not matter when it comes.
    #[test]
    fn a_flush_may_come_at_any_time() {
        let universe = universe();
        for version in [0, 2, 7, 12, 30] {
            for &a in &universe {
                for &b in &universe {
                    let late = a.join(b).0.flushed(version);
                    assert_eq!(a.flushed(version).join(b).0.flushed(version), late);
                    assert_eq!(a.flushed(version).join(b.flushed(version)).0, late);
                }
            }
        }
    }

    /// So a server need not read its own state for a change that is above all that it knows of the key, flushes
    /// included; it reads it only to tell a conflict.
    #[test]
    fn a_change_above_all_that_is_known_makes_the_state_alone() {
        let universe = universe();
        let mut pairs = 0;
        for &theirs in &universe {
            for &ours in universe.iter().filter(|ours| ours.highest_version() < theirs.version()) {
                pairs += 1;
                let (joined, outcome) = ours.join(theirs);
                assert_eq!(joined, State::default().join(theirs).0, "{ours:?} and {theirs:?}");
                assert!(outcome.is_changed);
                let base_version = theirs.value.as_ref().map_or(0, |register| register.base_version);
                assert_eq!(
                    outcome.conflict.is_some(),
                    ours.version() > base_version,
                    "{ours:?} and {theirs:?}"
                );
                for flush in 0..=ours.highest_version() {
                    let flushed = ours.flushed(flush).join(theirs.flushed(flush)).0;
                    assert_eq!(flushed, joined, "{ours:?} and {theirs:?}, flushed at {flush}");
                }
            }
        }
        assert!(pairs > 100, "{pairs}");
    }

    #[test]
    fn a_touch_applies_to_its_value_alone() {
        let exptime_of = |states: &[State<u64>]| joined(states).expiry.exptime_secs;
        let (value, touch, newer) = (set(10, 0, 500), touched(10, 40, 600), set(30, 10, 700));
        assert_eq!(exptime_of(&[value, touch]), 600);
        assert_eq!(exptime_of(&[touch, value]), 600, "the touch waits for its value");
        assert_eq!(exptime_of(&[value, touch, touched(10, 45, 650), touched(10, 42, 1)]), 650);
        assert_eq!(exptime_of(&[value, touch, newer]), 700, "the touch did not know the newer value");
        assert_eq!(exptime_of(&[newer, touch, value]), 700);
        assert_eq!(joined(&[touch]).item(0), None);
        assert!(joined(&[State::deleted(20, 10), value, touch]).item(0).is_none());
        // Of a value that is still to come: the older one lives as long.
        assert_eq!(exptime_of(&[value, touched(30, 35, 900)]), 900);
    }

    /// Or each old set of a deleted key would be appended, and sent on to whoever takes a copy.
    #[test]
    fn what_is_older_changes_nothing() {
        let deleted = State::deleted(20, 10);
        for older in [set(10, 0, 500), touched(10, 25, 600), State::deleted(12, 10)] {
            assert_eq!(deleted.join(older).0, deleted);
            assert!(!deleted.join(older).1.is_changed);
        }
    }

    #[test]
    fn only_concurrent_changes_conflict() {
        let (first, second, concurrent) = (set(10, 0, 0), set(20, 10, 0), set(15, 10, 0));
        assert_eq!(first.join(second).1.conflict, None);
        assert_eq!(second.join(first).1.conflict, None, "it arrives late, but the winner knew it");
        let lost = Some(Conflict { winner: 20, loser: 15 });
        assert_eq!((second.join(concurrent).1.conflict, concurrent.join(second).1.conflict), (lost, lost));
        assert_eq!(State::<u64>::deleted(30, 20).join(second).1.conflict, None);
        assert!(State::deleted(30, 10).join(second).1.conflict.is_some());
    }

    #[test]
    fn what_everybody_knows_to_be_gone_is_obsolete() {
        let deleted = State::<u64>::deleted(10, 0);
        assert!(!deleted.is_obsolete(9, 0) && deleted.is_obsolete(10, 0));
        let touched =
            deleted.join(State::touched(Expiry { value_version: 11, version: 12, exptime_secs: 0 })).0;
        assert!(!touched.is_obsolete(11, 0) && touched.is_obsolete(12, 0));
        assert!(!set(10, 0, 0).is_obsolete(99, 99) && !set(10, 0, 50).is_obsolete(99, 49));
        assert!(set(10, 0, 50).is_obsolete(99, 50));
        assert!(State::<u64>::default().is_unknown() && !touched.is_unknown());
    }
}
