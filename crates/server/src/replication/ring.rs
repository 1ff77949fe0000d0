//! What this server has changed in its caches and the other sites are told of: the last changes, within a bound of
//! bytes.
//!
//! A ring has shards by the hash of the key, each with a lock and sequences of its own, so that workers seldom meet. A
//! site that follows keeps a cursor, the last sequence of each shard that it knows; a slow one costs nothing but what
//! it misses. Of a value only the key is kept: it is read when it is told, so that what is told last is what stays.
//!
//! Where values are told, changes have versions (`larder_replication::version`). A shard remembers those of its keys as
//! long as it has the change, also of changes that came from other sites, which are told to nobody: of two sites'
//! changes the newer one stays at both.

mod figures;
mod shard;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use larder_policy::{Table, Told};
use larder_replication::told::FlushTime;
use larder_replication::version::version_at;
use larder_replication::wire::RingCursor;

pub(crate) use self::figures::{FollowedFigures, FollowerFigures};
pub(crate) use self::shard::Change;
pub(super) use self::shard::Mark;
use self::shard::Shard;
use super::site::lock;
use super::waiters::Idle;
use crate::clock::unix_micros;
use crate::startup::random;

/// The ring of a server.
pub(crate) struct Ring {
    /// Another one with each start.
    incarnation: u64,
    site: u8,
    /// By the numbers of the namespaces.
    told: Box<[Told]>,
    /// By the numbers of the namespaces: when a flush is or was due that was put off, in seconds of Unix time; 0: none.
    flushes_due_secs: Box<[AtomicU64]>,
    shards: Box<[Mutex<Shard>]>,
    /// By site.
    followers: Mutex<BTreeMap<u8, FollowerFigures>>,
    /// By address.
    followed: Mutex<BTreeMap<String, FollowedFigures>>,
    /// Threads that wait for a change.
    pub(super) idle: Idle,
}

/// What a shard has behind a sequence.
pub(super) enum Read {
    /// These changes, up to this sequence.
    Marks(Vec<Mark>, u64),
    /// Something was dropped: [`Ring::close_gap`].
    Gap,
}

impl Ring {
    /// A ring, if a policy wants one and this server is one of several sites.
    pub(crate) fn of(table: Option<&Table>, site: u8) -> Option<Self> {
        let told: Box<[Told]> = table.map(|table| told_of(table).collect())?;
        if site == 0 || told.iter().all(|told| *told == Told::Nothing) {
            return None;
        }
        // Without random numbers nothing of a server works; the time of the start tells two rings apart as well.
        let incarnation = random::bytes().map_or_else(|_| unix_micros(), u64::from_le_bytes).max(1);
        let none: Box<[u64]> = vec![0; told.len()].into();
        let shard = |_| {
            let (lost, flushed_versions) = (none.clone(), none.clone());
            Mutex::new(Shard { lost, flushed_versions, ..Shard::default() })
        };
        let shards = (0..SHARDS).map(shard).collect();
        Some(Self {
            incarnation,
            site,
            flushes_due_secs: told.iter().map(|_| AtomicU64::new(0)).collect(),
            told,
            shards,
            followers: Mutex::default(),
            followed: Mutex::default(),
            idle: Idle::default(),
        })
    }

    /// What the other sites are told of a namespace.
    pub(crate) fn told(&self, number: u8) -> Told {
        self.told.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// True if values of some namespace are told.
    pub(super) fn tells_values(&self) -> bool {
        self.told.contains(&Told::Values)
    }

    /// The numbers of the namespaces that other sites are told of.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u8> + '_ {
        (0..).zip(&self.told).filter(|(_, told)| **told != Told::Nothing).map(|(number, _)| number)
    }

    /// Notes a change of this site. Call when it is done: who reads the key then sees it, or what came later.
    pub(crate) fn note(&self, number: u8, hash: u64, change: Change) {
        let mut shard = self.shard(hash);
        let is_versioned = self.told(number) == Told::Values && !matches!(change, Change::Flushed(_));
        let version = if is_versioned { shard.next_version(self.site) } else { 0 };
        shard.push(Mark { number, version, change, hash });
        drop(shard);
        self.idle.wake();
    }

    /// Notes a flush of this site. Values are told in the order of their shard: each shard has the flush before what
    /// follows it, and whoever is told flushes once.
    pub(crate) fn note_flush(&self, number: u8, when: FlushTime) {
        let shards = match (self.told(number), when) {
            (Told::Nothing, _) => return,
            (Told::Values, FlushTime::Now(_)) => self.shards.len(),
            _ => 1,
        };
        (0..shards).for_each(|shard| self.note(number, shard as u64, Change::Flushed(when)));
    }

    /// The version of a flush that this site is about to make: what it has changed until now is not newer. 0 where no
    /// values are told.
    pub(crate) fn flush_version(&self, number: u8) -> u64 {
        if self.told(number) != Told::Values {
            return 0;
        }
        let versions = self.shards.iter().map(|shard| lock(shard).next_version(self.site));
        versions.max().unwrap_or_default()
    }

    /// This site is about to flush a namespace. Other sites' values up to this version, which are on their way here,
    /// come too late from now on, and what this site changes is newer.
    pub(crate) fn refuse_flushed(&self, number: u8, version: u64) {
        if self.told(number) != Told::Values {
            return;
        }
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.highest_version = shard.highest_version.max(version);
            if let Some(flushed) = shard.flushed_versions.get_mut(usize::from(number)) {
                *flushed = version.max(*flushed);
            }
        }
    }

    /// A flush of a namespace is due at this Unix time; 0: it is cancelled. One that was due before stays made.
    pub(crate) fn put_off_flush(&self, number: u8, due_secs: u64) {
        let Some(due) = self.flushes_due_secs.get(usize::from(number)) else { return };
        let made = flushed_version(due.swap(due_secs, SeqCst), unix_micros());
        if made != 0 {
            self.refuse_flushed(number, made);
        }
    }

    /// True if a flush of this version, or a later one, was made here. False for 0.
    pub(super) fn is_flushed(&self, number: u8, version: u64) -> bool {
        let is_flushed = |shard: &Mutex<Shard>| {
            lock(shard).flushed_versions.get(usize::from(number)).is_some_and(|flushed| *flushed >= version)
        };
        version != 0 && self.shards.iter().all(is_flushed)
    }

    /// Applies another site's change of a key, unless a newer one is known. `apply`: false if it has to be tried again,
    /// which is not done here, since workers may wait for the shard. `None`: try again. `Some(false)`: it is outdated.
    pub(super) fn apply(
        &self,
        number: u8,
        hash: u64,
        version: u64,
        apply: impl FnOnce() -> bool,
    ) -> Option<bool> {
        if version == 0 {
            return apply().then_some(true);
        }
        let due_secs = self.flushes_due_secs.get(usize::from(number)).map_or(0, |due| due.load(SeqCst));
        let is_flushed = version <= flushed_version(due_secs, unix_micros());
        let mut shard = self.shard(hash);
        let newest = shard.newest.get(&hash).max(shard.flushed_versions.get(usize::from(number)));
        if is_flushed || newest.is_some_and(|newest| *newest >= version) {
            return Some(false);
        }
        if !apply() {
            return None;
        }
        shard.highest_version = shard.highest_version.max(version);
        shard.push(Mark { number, version, change: Change::Applied, hash });
        Some(true)
    }

    /// Where the ring begins for a site that knows nothing.
    pub(super) fn end(&self) -> RingCursor {
        let sequences = self.shards.iter().map(|shard| lock(shard).end()).collect();
        RingCursor { incarnation: self.incarnation, sequences }
    }

    /// True if a cursor is one of this ring.
    pub(super) fn is_own(&self, cursor: &RingCursor) -> bool {
        let is_behind = |(shard, sequence): (&Mutex<Shard>, &u64)| *sequence <= lock(shard).end();
        cursor.incarnation == self.incarnation
            && cursor.sequences.len() == self.shards.len()
            && self.shards.iter().zip(&cursor.sequences).all(is_behind)
    }

    /// The changes of a shard after a sequence: about so many bytes of keys. Empty: there are none.
    pub(super) fn read(&self, shard: usize, after: u64, bytes_max: usize) -> Read {
        let Some(shard) = self.shards.get(shard) else { return Read::Marks(Vec::new(), after) };
        let shard = lock(shard);
        if after < shard.dropped {
            return Read::Gap;
        }
        let mut bytes = 0;
        let from = usize::try_from(after - shard.dropped).unwrap_or(usize::MAX);
        let within = |mark: &&Mark| {
            bytes += mark.bytes();
            bytes <= bytes_max.max(mark.bytes())
        };
        let marks: Vec<_> = shard.marks.iter().skip(from).take_while(within).cloned().collect();
        let to = after + marks.len() as u64;
        Read::Marks(marks, to)
    }

    /// Moves a cursor, in all shards, to where nothing is missing behind it. Returns the numbers of the namespaces of
    /// which something is missing before that.
    pub(super) fn close_gap(&self, cursor: &mut RingCursor) -> Vec<u8> {
        let mut is_lost = vec![false; self.told.len()];
        for (shard, sequence) in self.shards.iter().zip(&mut cursor.sequences) {
            let shard = lock(shard);
            if *sequence < shard.dropped {
                is_lost.iter_mut().zip(&shard.lost).for_each(|(is_lost, lost)| *is_lost |= *lost > *sequence);
                *sequence = shard.dropped;
            }
        }
        (0..).zip(is_lost).filter(|(_, is_lost)| *is_lost).map(|(number, _)| number).collect()
    }

    /// What it has in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).bytes).sum()
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[hash as usize % self.shards.len()])
    }
}

/// Up to which version a flush that was put off has flushed by now; 0: none is due. Each site makes it within the
/// second that it is due, by its own clock: so what was set within that second was flushed at some site, and is at all.
fn flushed_version(due_secs: u64, unix_micros: u64) -> u64 {
    match due_secs {
        0 => 0,
        due if unix_micros / 1_000_000 < due => 0,
        due => version_at(due.saturating_add(1).saturating_mul(1_000_000), u8::MAX),
    }
}

/// What the namespaces of a table tell, by their numbers.
fn told_of(table: &Table) -> impl Iterator<Item = Told> {
    table.numbers().map(|number| table.policy(number).told)
}

const SHARDS: usize = 16;

#[cfg(test)]
mod tests {
    use super::shard::SHARD_BYTES_MAX;
    use super::*;

    fn ring(told: &str) -> Ring {
        let text = format!("[namespace.a]\nreplicate = {told}\n[namespace.b]\nreplicate = {told}");
        Ring::of(Some(&Table::parse(&text).expect("a table")), 7).expect("a ring")
    }

    fn gone(key: &[u8]) -> Change {
        Change::Gone(key.into())
    }

    #[test]
    fn there_is_one_only_for_those_who_want_one() {
        let table = Table::parse("[namespace.a]").expect("a table");
        assert!(Ring::of(Some(&table), 7).is_none() && Ring::of(None, 7).is_none());
        let table = Table::parse("[namespace.a]\nreplicate = \"values\"").expect("a table");
        assert!(Ring::of(Some(&table), 0).is_none() && Ring::of(Some(&table), 1).is_some());
    }

    #[test]
    fn a_gap_names_the_namespaces_that_lost_something() {
        let ring = ring("\"invalidations\"");
        ring.note(1, 0, gone(b"a"));
        let key = vec![b'b'; 200];
        while !matches!(ring.read(0, 0, 1), Read::Gap) {
            ring.note(2, 0, gone(&key));
        }
        let lost_after = |sequence: u64| {
            let mut cursor = ring.end();
            cursor.sequences[0] = sequence;
            (ring.close_gap(&mut cursor), cursor.sequences[0])
        };
        // Of a, the first only.
        assert_eq!((lost_after(0), lost_after(1)), ((vec![1], 1), (vec![], 1)));
        assert!(matches!(ring.read(0, 1, 1), Read::Marks(marks, 2) if marks[0].number == 2));
        ring.note(2, 0, gone(&key));
        assert!(matches!(ring.read(0, 1, 1), Read::Gap));
        assert_eq!((lost_after(0), lost_after(1)), ((vec![1, 2], 2), (vec![2], 2)));
        assert!(ring.bytes() <= SHARD_BYTES_MAX);
    }

    #[test]
    fn a_cursor_of_another_ring_is_none_of_this() {
        let (ring, other) = (ring("\"values\""), ring("\"values\""));
        ring.note(1, 3, gone(b"a"));
        assert!(ring.is_own(&ring.end()) && !other.is_own(&ring.end()));
        let ahead = RingCursor { sequences: vec![9; SHARDS], ..ring.end() };
        let short = RingCursor { sequences: vec![0; SHARDS - 1], ..ring.end() };
        assert!(!ring.is_own(&ahead) && !ring.is_own(&short) && !ring.is_own(&RingCursor::default()));
    }

    #[test]
    fn the_newer_of_two_sites_changes_stays() {
        let ring = ring("\"values\"");
        ring.note(1, 5, Change::Changed((*b"a").into()));
        let Read::Marks(marks, 1) = ring.read(5, 0, usize::MAX) else { panic!("one mark") };
        let own = marks[0].version;
        assert_eq!(ring.apply(1, 5, own - 1, || panic!("it is older")), Some(false));
        assert_eq!(ring.apply(1, 5, own + 256, || false), None, "to be tried again");
        assert_eq!(ring.apply(1, 5, own + 256, || true), Some(true));
        assert_eq!(ring.apply(1, 5, own + 256, || true), Some(false), "it is known");
        // What came from another site is told to nobody, and what follows here is newer.
        ring.note(1, 5, gone(b"a"));
        let Read::Marks(marks, 3) = ring.read(5, 1, usize::MAX) else { panic!("two marks") };
        assert!(matches!(marks[0].change, Change::Applied) && marks[1].version > own + 256);
    }

    #[test]
    fn what_a_flush_should_have_met_comes_too_late() {
        let ring = ring("\"values\"");
        ring.note(1, 5, gone(b"a"));
        let Read::Marks(marks, 1) = ring.read(5, 0, usize::MAX) else { panic!("one mark") };
        let before = marks[0].version;
        let flushed = ring.flush_version(1);
        assert!(flushed > before && !ring.is_flushed(1, flushed));
        ring.refuse_flushed(1, flushed);
        assert_eq!(ring.apply(1, 6, before - 256, || panic!("it was flushed")), Some(false));
        assert_eq!(ring.apply(2, 6, before - 256, || true), Some(true), "another namespace");
        ring.note(1, 7, gone(b"b"));
        let Read::Marks(marks, 1) = ring.read(7, 0, usize::MAX) else { panic!("one mark") };
        assert_eq!(ring.apply(1, 8, marks[0].version + 256, || true), Some(true), "it is newer");
    }

    /// It was set at a site that had not flushed yet, and comes to one that has.
    #[test]
    fn what_a_flush_that_was_put_off_has_met_elsewhere_comes_too_late() {
        let ring = ring("\"values\"");
        let now_secs = unix_micros() / 1_000_000;
        let at = |secs: u64, millis: u64| version_at(secs * 1_000_000 + millis * 1_000, 9);
        ring.put_off_flush(1, now_secs + 60);
        assert_eq!(ring.apply(1, 1, at(now_secs - 9, 0), || true), Some(true), "it is not due");
        ring.put_off_flush(1, now_secs - 8);
        assert_eq!(ring.apply(1, 2, at(now_secs - 8, 999), || panic!("it was flushed")), Some(false));
        assert_eq!(ring.apply(2, 2, at(now_secs - 8, 999), || true), Some(true), "another namespace");
        assert_eq!(ring.apply(1, 3, at(now_secs - 6, 0), || true), Some(true), "it is newer");
        // What is due later, or no more, undoes no flush.
        for due_secs in [now_secs + 60, 0] {
            ring.put_off_flush(1, due_secs);
            assert_eq!(ring.apply(1, 4, at(now_secs - 8, 0), || panic!("it was flushed")), Some(false));
        }
    }

    /// Another site has flushed, and this one hears of it later: what that site has set since is newer.
    #[test]
    fn what_follows_a_flush_is_told_behind_it_and_stays() {
        let (flusher, other) = (ring("\"values\""), ring("\"values\""));
        let version = flusher.flush_version(1);
        flusher.refuse_flushed(1, version);
        flusher.note_flush(1, FlushTime::Now(version));
        (0..SHARDS as u64).for_each(|hash| flusher.note(1, hash, Change::Changed((*b"a").into())));
        for hash in 0..SHARDS {
            let Read::Marks(marks, 2) = flusher.read(hash, 0, usize::MAX) else { panic!("two marks") };
            assert!(matches!(marks[0].change, Change::Flushed(FlushTime::Now(known)) if known == version));
            assert_eq!(other.is_flushed(1, version), hash != 0, "it flushes once");
            other.refuse_flushed(1, version);
            assert_eq!(other.apply(1, hash as u64, marks[1].version, || true), Some(true), "{hash}");
        }
    }
}
