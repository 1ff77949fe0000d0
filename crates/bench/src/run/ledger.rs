//! What is known of every key: which versions a read may bring.
//!
//! Stores of a key are numbered as they start. Two that are in flight at the same time may be worked off in either
//! order; but once none is in flight, whatever starts then comes after them. So a run of overlapping stores is a
//! *generation*, and when one of its stores is acknowledged, nothing older than the generation's first may be read any
//! more: that is the key's *floor*. A store whose fate is unknown (a timeout) may still come into effect at any time;
//! it stays in flight for ever, and the floor where it is. Where every change goes to several replicas, all its copies
//! have one number, and the floor rises when the last of them is answered and nothing else is in flight. What is
//! reported is therefore always wrong; what is missed are some errors under overlapping stores.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The keys of a range.
#[derive(Debug)]
pub(crate) struct Ledger {
    first: u64,
    /// Servers that every change goes to.
    copies: u64,
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Last version started (32 bits), versions since the generation's first (20), stores in flight (12).
    writes: AtomicU64,
    /// Nothing older may be read.
    floor: AtomicU32,
    /// The last version that may leave the key missing: a delete, or a time to live.
    absent: AtomicU32,
    /// The last version with a time to live.
    mortal: AtomicU32,
    /// The version that set the expiry (32 bits), and when that is: ticks of the run's clock, 0 for never.
    expiry: AtomicU64,
}

/// What a request knows of its key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Witness {
    /// The floor when it was sent.
    pub(crate) floor: u32,
    /// The last version that had started when it was sent, its own included.
    pub(crate) started: u32,
    /// A read: no change was in flight when it was sent.
    pub(crate) is_settled: bool,
    /// The version that it makes. 0: none.
    pub(crate) version: u32,
    /// The first of its generation. 0: unknown.
    pub(crate) generation: u32,
    /// What it stores or touches expires after this. 0: never.
    pub(crate) ttl_secs: u32,
    /// An acknowledged store of this run preceded this value. The value of a key without one may be from an earlier
    /// run.
    pub(crate) is_stored: bool,
    /// Whether the value and the expiry are checked.
    pub(crate) checks_value: bool,
    pub(crate) checks_expiry: bool,
}

/// What became of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The key has this version now.
    Applied,
    /// The value is as it was.
    Nothing,
    /// Refused for want of memory or the like: the old value may be gone.
    MaybeGone,
}

/// What a read says of an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Unknown,
    Right,
    Late,
    Early,
}

impl Ledger {
    /// For keys `first` to `first + count - 1`, every change of which goes to `copies` servers.
    pub(crate) fn new(first: u64, count: usize, copies: usize) -> Self {
        let entries = std::iter::repeat_with(Entry::default).take(count).collect();
        Self { first, copies: copies as u64, entries }
    }

    /// Before a read is sent.
    #[inline]
    pub(crate) fn read(&self, number: u64) -> Witness {
        let entry = self.entry(number);
        // The floor first: it never exceeds what has started.
        let floor = entry.floor.load(Ordering::Acquire);
        let writes = entry.writes.load(Ordering::Acquire);
        let is_settled = writes & IN_FLIGHT_MAX == 0;
        let started = last_started(writes);
        Witness { floor, started, is_stored: floor > 0, is_settled, ..Witness::default() }
    }

    /// Before a store, a delete or a touch is sent, or the first of its copies. `absents`: after it the key may be
    /// missing.
    pub(crate) fn begin(&self, number: u64, absents: bool, ttl_secs: u32) -> Witness {
        self.start(number, absents, ttl_secs, false)
    }

    /// As [`Ledger::begin`], of what a server does or not, by what it has: where replicas may differ already, they
    /// still may afterwards. They do where one expires an item a moment before another.
    pub(crate) fn begin_conditional(&self, number: u64, ttl_secs: u32) -> Witness {
        self.start(number, false, ttl_secs, true)
    }

    /// As [`Ledger::begin_conditional`], of what changes a value and leaves its expiry: a key that may be gone by then
    /// is no more certain afterwards.
    pub(crate) fn begin_append(&self, number: u64) -> Witness {
        let may_be_gone = self.entry(number).absent.load(Ordering::Acquire) > 0;
        self.start(number, may_be_gone, 0, true)
    }

    fn start(&self, number: u64, absents: bool, ttl_secs: u32, is_conditional: bool) -> Witness {
        let entry = self.entry(number);
        let floor = entry.floor.load(Ordering::Acquire);
        let mut started = 0;
        let mut generation = 0;
        let _ = entry.writes.fetch_update(Ordering::AcqRel, Ordering::Acquire, |writes| {
            let in_flight = writes & IN_FLIGHT_MAX;
            let overlap = writes >> 12 & OVERLAP_MAX;
            let may_differ = overlap > 0 || entry.mortal.load(Ordering::Acquire) > 0;
            let goes_on = in_flight > 0 || is_conditional && self.copies > 1 && may_differ;
            let overlap = if goes_on { overlap + 1 } else { 0 };
            started = last_started(writes).wrapping_add(1);
            // What cannot be counted any more is never settled.
            let lost_count = in_flight + self.copies > IN_FLIGHT_MAX || overlap >= OVERLAP_MAX;
            generation = if lost_count { 0 } else { started - overlap as u32 };
            Some(
                u64::from(started) << 32
                    | overlap.min(OVERLAP_MAX) << 12
                    | (in_flight + self.copies).min(IN_FLIGHT_MAX),
            )
        });
        if absents || ttl_secs > 0 {
            entry.absent.fetch_max(started, Ordering::AcqRel);
        }
        if ttl_secs > 0 {
            entry.mortal.fetch_max(started, Ordering::AcqRel);
        }
        let is_stored = floor > 0;
        Witness { floor, started, is_stored, version: started, generation, ttl_secs, ..Witness::default() }
    }

    /// The answer to what [`Ledger::begin`] announced has come. One whose answer never comes is not told of.
    pub(crate) fn end(&self, number: u64, witness: &Witness, effect: Effect) {
        let entry = self.entry(number);
        match effect {
            Effect::Applied if self.copies == 1 => {
                entry.floor.fetch_max(witness.generation, Ordering::AcqRel);
            }
            Effect::MaybeGone => {
                entry.absent.fetch_max(witness.version, Ordering::AcqRel);
                if self.copies > 1 {
                    // Replicas differ from now on: the key is never settled again.
                    return;
                }
            }
            Effect::Applied | Effect::Nothing => {}
        }
        let before = entry.writes.fetch_update(Ordering::AcqRel, Ordering::Acquire, |writes| {
            // Full counters stay full: see `begin`.
            let is_full =
                writes & IN_FLIGHT_MAX == IN_FLIGHT_MAX || writes >> 12 & OVERLAP_MAX == OVERLAP_MAX;
            (!is_full && writes & IN_FLIGHT_MAX > 0).then(|| writes - 1)
        });
        let is_settled = before.is_ok_and(|writes| writes & IN_FLIGHT_MAX == 1);
        if effect == Effect::Applied && is_settled {
            entry.floor.fetch_max(witness.generation, Ordering::AcqRel);
        }
    }

    /// Whether all changes are answered, and none overlapped those that the value comes from: every replica has taken
    /// them in the same order.
    pub(crate) fn is_settled(&self, number: u64) -> bool {
        let writes = self.entry(number).writes.load(Ordering::Acquire);
        writes & IN_FLIGHT_MAX == 0 && writes >> 12 & OVERLAP_MAX == 0
    }

    /// Notes when the key expires by what `witness` did. To be called after [`Ledger::end`].
    pub(crate) fn note_expiry(&self, number: u64, witness: &Witness, sent_nanos: u64, now_nanos: u64) {
        let entry = self.entry(number);
        let writes = entry.writes.load(Ordering::Acquire);
        let is_alone = witness.generation == witness.version && writes & IN_FLIGHT_MAX == 0;
        let at = match witness.ttl_secs {
            0 => 0,
            // Of stores that overlap nobody knows which came last.
            _ if !is_alone => 0,
            // Between sending and answer nobody knows when the server's clock was read.
            _ if now_nanos - sent_nanos > DOUBT_NANOS => 0,
            secs => tick(sent_nanos + u64::from(secs) * 1_000_000_000),
        };
        entry.expiry.store(u64::from(witness.version) << 32 | u64::from(at), Ordering::Release);
    }

    /// Last version of the key that has started.
    pub(crate) fn started(&self, number: u64) -> u32 {
        last_started(self.entry(number).writes.load(Ordering::Acquire))
    }

    /// Whether a read that was sent with `floor` must find the key.
    pub(crate) fn must_exist(&self, number: u64, floor: u32) -> bool {
        floor > 0 && self.entry(number).absent.load(Ordering::Acquire) < floor
    }

    /// Judges whether a read found what should be gone, or missed what should be there.
    pub(crate) fn judge_expiry(
        &self,
        number: u64,
        witness: &Witness,
        is_found: bool,
        times: (u64, u64),
        slack_nanos: u64,
    ) -> Expiry {
        let entry = self.entry(number);
        let expiry = entry.expiry.load(Ordering::Acquire);
        let writes = entry.writes.load(Ordering::Acquire);
        let (version, at) = ((expiry >> 32) as u32, expiry as u32);
        let is_quiet = last_started(writes) == witness.started && writes & IN_FLIGHT_MAX == 0;
        // A read may overtake a change that was in flight when it was sent.
        if at == 0 || version != witness.started || !is_quiet || !witness.is_settled {
            return Expiry::Unknown;
        }
        let (sent_nanos, now_nanos) = times;
        let at_nanos = u64::from(at) * TICK_NANOS;
        if is_found && sent_nanos > at_nanos + slack_nanos + DOUBT_NANOS + TICK_NANOS {
            Expiry::Late
        } else if !is_found && now_nanos + slack_nanos + TICK_NANOS < at_nanos {
            Expiry::Early
        } else {
            Expiry::Right
        }
    }

    fn entry(&self, number: u64) -> &Entry {
        &self.entries[(number - self.first) as usize]
    }
}

fn last_started(writes: u64) -> u32 {
    (writes >> 32) as u32
}

/// 2^32 of them are eight years.
fn tick(nanos: u64) -> u32 {
    (nanos / TICK_NANOS) as u32
}

const IN_FLIGHT_MAX: u64 = (1 << 12) - 1;
const OVERLAP_MAX: u64 = (1 << 20) - 1;
const TICK_NANOS: u64 = 1_000_000_000 / 16;
const DOUBT_NANOS: u64 = 250_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_store_ends_what_came_before() {
        let ledger = Ledger::new(10, 2, 1);
        assert_eq!(ledger.read(11).floor, 0);
        let first = ledger.begin(11, false, 0);
        assert_eq!((first.version, ledger.read(11).floor), (1, 0));
        ledger.end(11, &first, Effect::Applied);
        assert_eq!(ledger.read(11).floor, 1);
        let second = ledger.begin(11, false, 0);
        // It may have been applied, or not yet.
        assert_eq!((ledger.read(11).floor, ledger.started(11)), (1, 2));
        ledger.end(11, &second, Effect::Applied);
        assert_eq!(ledger.read(11).floor, 2);
        assert_eq!(ledger.read(10).floor, 0);
    }

    #[test]
    fn replicas_are_sure_of_a_store_when_all_of_them_have_it() {
        let ledger = Ledger::new(0, 2, 2);
        let store = ledger.begin(0, false, 0);
        ledger.end(0, &store, Effect::Applied);
        assert_eq!((ledger.read(0).floor, ledger.is_settled(0)), (0, false));
        ledger.end(0, &store, Effect::Applied);
        assert_eq!((ledger.read(0).floor, ledger.is_settled(0)), (1, true));
        // Two that overlap may arrive here in this order, and there in that.
        let stores = [ledger.begin(0, false, 0), ledger.begin(0, false, 0)];
        for store in stores.iter().chain(&stores) {
            ledger.end(0, store, Effect::Applied);
        }
        assert_eq!((ledger.read(0).floor, ledger.is_settled(0)), (2, false));
        // Nor does an append make them alike, but a store does.
        for is_settled in [false, true] {
            let change = if is_settled { ledger.begin(0, false, 0) } else { ledger.begin_append(0) };
            ledger.end(0, &change, Effect::Applied);
            ledger.end(0, &change, Effect::Applied);
            assert_eq!(ledger.is_settled(0), is_settled);
        }
        let store = ledger.begin(1, false, 0);
        ledger.end(1, &store, Effect::MaybeGone);
        ledger.end(1, &store, Effect::Applied);
        assert!(!ledger.is_settled(1));
    }

    #[test]
    fn replicas_differ_after_a_condition_on_what_may_have_expired() {
        let ledger = Ledger::new(0, 1, 2);
        let mortal = ledger.begin(0, false, 2);
        ledger.end(0, &mortal, Effect::Applied);
        ledger.end(0, &mortal, Effect::Applied);
        assert_eq!((ledger.read(0).floor, ledger.is_settled(0)), (1, true));
        // One replica still has the item, and the other stores this.
        let add = ledger.begin_conditional(0, 0);
        ledger.end(0, &add, Effect::Nothing);
        ledger.end(0, &add, Effect::Applied);
        assert_eq!((ledger.read(0).floor, ledger.is_settled(0)), (1, false));
    }

    #[test]
    fn a_read_may_overtake_a_store() {
        let ledger = Ledger::new(0, 1, 1);
        let overtakes = {
            let store = ledger.begin(0, false, 3600);
            let overtakes = ledger.read(0);
            ledger.end(0, &store, Effect::Applied);
            ledger.note_expiry(0, &store, 0, 1);
            overtakes
        };
        let judge = |witness: &Witness| ledger.judge_expiry(0, witness, false, (1, 2), 0);
        assert_eq!(judge(&overtakes), Expiry::Unknown);
        assert_eq!(judge(&ledger.read(0)), Expiry::Early);
    }

    #[test]
    fn of_overlapping_stores_each_may_be_the_last() {
        let ledger = Ledger::new(0, 1, 1);
        let before = ledger.begin(0, false, 0);
        ledger.end(0, &before, Effect::Applied);
        let a = ledger.begin(0, false, 0);
        let b = ledger.begin(0, false, 0);
        ledger.end(0, &b, Effect::Applied);
        // a (2) may be worked off after b (3), but 1 is gone.
        assert_eq!(ledger.read(0).floor, 2);
        ledger.end(0, &a, Effect::Applied);
        assert_eq!(ledger.read(0).floor, 2);
        let c = ledger.begin(0, false, 0);
        ledger.end(0, &c, Effect::Applied);
        assert_eq!(ledger.read(0).floor, 4);
    }

    #[test]
    fn a_store_of_unknown_fate_may_come_any_time() {
        let ledger = Ledger::new(0, 1, 1);
        let _lost = ledger.begin(0, false, 0);
        for _ in 0..3 {
            let next = ledger.begin(0, false, 0);
            ledger.end(0, &next, Effect::Applied);
        }
        assert_eq!(ledger.read(0).floor, 1);
    }

    #[test]
    fn a_key_must_exist_until_a_delete_starts() {
        let ledger = Ledger::new(0, 1, 1);
        assert!(!ledger.must_exist(0, ledger.read(0).floor));
        let store = ledger.begin(0, false, 0);
        ledger.end(0, &store, Effect::Applied);
        let sent_before = ledger.read(0);
        assert!(ledger.must_exist(0, sent_before.floor));
        let delete = ledger.begin(0, true, 0);
        assert!(!ledger.must_exist(0, sent_before.floor));
        ledger.end(0, &delete, Effect::Applied);
        assert!(!ledger.must_exist(0, ledger.read(0).floor));
        let again = ledger.begin(0, false, 0);
        ledger.end(0, &again, Effect::Applied);
        assert!(ledger.must_exist(0, ledger.read(0).floor));
        let expiring = ledger.begin(0, false, 5);
        ledger.end(0, &expiring, Effect::Applied);
        assert!(!ledger.must_exist(0, ledger.read(0).floor));
    }

    #[test]
    fn appending_makes_no_key_more_certain() {
        let ledger = Ledger::new(0, 1, 1);
        let expiring = ledger.begin(0, false, 5);
        ledger.end(0, &expiring, Effect::Applied);
        let append = ledger.begin_append(0);
        ledger.end(0, &append, Effect::Applied);
        assert_eq!(ledger.read(0).floor, 2);
        assert!(!ledger.must_exist(0, 2));
    }

    #[test]
    fn an_expiry_set_while_a_delete_is_on_its_way_is_not_judged() {
        const SEC: u64 = 1_000_000_000;
        let ledger = Ledger::new(0, 1, 1);
        let delete = ledger.begin(0, true, 0);
        let store = ledger.begin(0, false, 100);
        ledger.end(0, &store, Effect::Applied);
        ledger.note_expiry(0, &store, SEC, SEC);
        ledger.end(0, &delete, Effect::Nothing);
        let verdict = ledger.judge_expiry(0, &ledger.read(0), false, (2 * SEC, 2 * SEC), SEC);
        assert_eq!(verdict, Expiry::Unknown);
    }

    #[test]
    fn expiry_is_judged_with_slack() {
        const SEC: u64 = 1_000_000_000;
        let ledger = Ledger::new(0, 1, 1);
        let store = ledger.begin(0, false, 10);
        ledger.end(0, &store, Effect::Applied);
        ledger.note_expiry(0, &store, 5 * SEC, 5 * SEC + 1000);
        let judge = |secs: u64, is_found| {
            ledger.judge_expiry(0, &ledger.read(0), is_found, (secs * SEC, secs * SEC), 2 * SEC)
        };
        assert_eq!(judge(12, true), Expiry::Right);
        assert_eq!(judge(12, false), Expiry::Early);
        assert_eq!(judge(14, false), Expiry::Right);
        assert_eq!(judge(16, true), Expiry::Right);
        assert_eq!(judge(18, true), Expiry::Late);
        assert_eq!(judge(18, false), Expiry::Right);
        let overwritten = ledger.begin(0, false, 0);
        assert_eq!(judge(18, true), Expiry::Unknown);
        ledger.end(0, &overwritten, Effect::Applied);
        assert_eq!(judge(18, true), Expiry::Unknown);
    }
}
