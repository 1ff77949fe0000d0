//! Which flushes still matter, and which are to come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::entry::{Entry, FlushBy, PendingFlush};
use crate::log::bugs::{Bug, is_planted};
use crate::log::bytes::Bytes;
use crate::state::KeyState;
use crate::validate::is_exception;

/// Prefixes and when they were flushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushTable {
    /// The flushes of a prefix. None is covered by a newer one.
    pub(super) marks: BTreeMap<Vec<u8>, Vec<FlushMark>>,
    /// Delayed flushes.
    pub(super) pending: BTreeMap<Vec<u8>, PendingMark>,
    /// The lengths that prefixes of `marks` have.
    lengths: BTreeSet<usize>,
    /// All with a lower sequence was flushed.
    newest_of_all: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlushMark {
    pub(super) sequence: u64,
    pub(super) version: u64,
    /// Which records it means: with a lower sequence, or with a lower version.
    pub(super) by: FlushBy,
    /// Of a flush by version: no record that it means has a higher sequence. `u64::MAX`: such a one may still come.
    pub(super) settled_sequence: u64,
    /// Keys that begin with one of these were left alone. Each begins with the flushed prefix.
    pub(super) except: Vec<Vec<u8>>,
}

impl FlushMark {
    /// What orders flushes of the same kind.
    fn rank(&self) -> u64 {
        match self.by {
            FlushBy::Sequence => self.sequence,
            FlushBy::Version => self.version,
        }
    }

    /// Does it mean all that the other one means, where it reaches all keys of that?
    fn is_at_least(&self, other: &Self) -> bool {
        self.by == other.by && self.rank() >= other.rank()
    }

    fn is_unsettled(&self, version: u64) -> bool {
        self.by == FlushBy::Version && self.version <= version && self.settled_sequence == u64::MAX
    }

    fn excepts(&self, key: &[u8]) -> bool {
        self.except.iter().any(|prefix| key.starts_with(prefix))
    }
}

/// Does a flush of `prefix` empty all that the other one has emptied?
fn covers(prefix: &[u8], mark: &FlushMark, other_prefix: &[u8], other: &FlushMark) -> bool {
    // What the new one leaves alone, the other must have left alone as well, or never have reached.
    let is_left = |left: &Vec<u8>| {
        if left.starts_with(other_prefix) { other.excepts(left) } else { !other_prefix.starts_with(left) }
    };
    other_prefix.starts_with(prefix) && mark.except.iter().all(is_left)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingMark {
    pub(super) sequence: u64,
    pub(super) at_secs: u64,
}

impl FlushTable {
    /// A flush, in any order: one that a newer one covers changes nothing.
    pub(super) fn flush(&mut self, prefix: &[u8], mark: FlushMark) {
        if self.pending.get(prefix).is_some_and(|pending| pending.sequence < mark.sequence) {
            self.pending.remove(prefix);
        }
        let is_covered = (self.marks_of(prefix)).any(|(other_prefix, other)| {
            other.is_at_least(&mark) && covers(other_prefix, other, prefix, &mark)
        });
        if is_covered {
            return;
        }
        self.marks.retain(|other_prefix, others| {
            others.retain(|other| !mark.is_at_least(other) || !covers(prefix, &mark, other_prefix, other));
            !others.is_empty()
        });
        self.insert(prefix, mark);
        self.measure();
    }

    /// Adds a flush of a table that was whole. Call [`measure`](Self::measure) after the last.
    pub(super) fn insert(&mut self, prefix: &[u8], mark: FlushMark) {
        self.marks.entry(prefix.to_vec()).or_default().push(mark);
    }

    /// All flushes with their prefixes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &FlushMark)> {
        self.marks.iter().flat_map(|(prefix, marks)| marks.iter().map(|mark| (&prefix[..], mark)))
    }

    pub(super) fn delay(&mut self, prefix: &[u8], mark: PendingMark) {
        self.pending.insert(prefix.to_vec(), mark);
    }

    pub(super) fn cancel(&mut self, prefix: &[u8]) {
        self.pending.remove(prefix);
    }

    /// The flushes of prefixes that this begins with.
    fn marks_of<'t>(&'t self, key: &'t [u8]) -> impl Iterator<Item = (&'t [u8], &'t FlushMark)> {
        (self.lengths.iter().take_while(|&&length| length <= key.len()))
            .filter_map(|&length| self.marks.get_key_value(&key[..length]))
            .flat_map(|(prefix, marks)| marks.iter().map(|mark| (&prefix[..], mark)))
    }

    fn newest_by(&self, key: &[u8], by: FlushBy) -> u64 {
        let reaching = self.marks_of(key).filter(|(_, mark)| mark.by == by && !mark.excepts(key));
        reaching.map(|(_, mark)| mark.rank()).max().unwrap_or(0)
    }

    /// The sequence of the newest flush by sequence that the key falls under; 0: none.
    pub(super) fn newest(&self, key: &[u8]) -> u64 {
        self.newest_by(key, FlushBy::Sequence)
    }

    /// The version below which the key's registers were flushed; 0: none.
    pub(super) fn below_version(&self, key: &[u8]) -> u64 {
        self.newest_by(key, FlushBy::Version)
    }

    /// The highest sequence of a flush that the key falls under, whatever it means.
    fn newest_sequence(&self, key: &[u8]) -> u64 {
        let reaching = self.marks_of(key).filter(|(_, mark)| !mark.excepts(key));
        reaching.map(|(_, mark)| mark.sequence).max().unwrap_or(0)
    }

    /// The highest version of a flush that the key falls under; 0: none.
    pub(super) fn newest_version(&self, key: &[u8]) -> u64 {
        let reaching = self.marks_of(key).filter(|(_, mark)| !mark.excepts(key));
        reaching.map(|(_, mark)| mark.version).max().unwrap_or(0)
    }

    /// The flushes by version.
    pub(super) fn by_version(&self) -> impl Iterator<Item = (&[u8], &FlushMark)> {
        self.iter().filter(|(_, mark)| mark.by == FlushBy::Version)
    }

    /// The sequence of the newest flush of the keys with this prefix that are not elsewhere: those with a longer prefix
    /// that `is_elsewhere`. `None`: it is not the same for all of them, or depends on versions.
    pub(super) fn newest_below(&self, prefix: &[u8], is_elsewhere: impl Fn(&[u8]) -> bool) -> Option<u64> {
        let is_same = |longer: &[u8]| {
            longer.len() <= prefix.len() || !longer.starts_with(prefix) || is_elsewhere(longer)
        };
        let is_uniform = |(flushed, mark): (&[u8], &FlushMark)| {
            is_same(flushed) && mark.except.iter().all(|longer| is_same(longer))
        };
        let is_known = self.iter().all(is_uniform) && self.below_version(prefix) == 0;
        is_known.then(|| self.newest(prefix))
    }

    /// All with a lower sequence was flushed, by one flush or by several that complete each other.
    pub(super) fn newest_of_all(&self) -> u64 {
        self.newest_of_all
    }

    /// All keys with this prefix were flushed below the sequence that this returns: where a flush leaves a longer
    /// prefix alone, that one must have been flushed itself. May be too low once `steps` are used up.
    fn flushed_below(&self, prefix: &[u8], steps: &mut u32) -> u64 {
        let mut below = 0;
        for (_, mark) in self.marks_of(prefix) {
            if *steps == 0 {
                break;
            }
            *steps -= 1;
            if mark.by != FlushBy::Sequence || mark.sequence <= below || mark.excepts(prefix) {
                continue;
            }
            let reached = mark.except.iter().filter(|longer| longer.starts_with(prefix));
            let sequences = reached.map(|longer| self.flushed_below(longer, steps));
            below = below.max(sequences.fold(mark.sequence, u64::min));
        }
        below
    }

    /// Of flushes and delayed flushes of exactly this prefix the newest sequence; 0: none.
    pub(super) fn newest_of(&self, prefix: &[u8]) -> u64 {
        let flushed = self.marks.get(prefix).into_iter().flatten().map(|mark| mark.sequence).max();
        let pending = self.pending.get(prefix).map(|mark| mark.sequence);
        flushed.max(pending).unwrap_or(0)
    }

    /// Forgets the flushes below which there is no record.
    pub(super) fn forget_below(&mut self, oldest_sequence: u64) {
        self.retain(|mark| match mark.by {
            FlushBy::Sequence => mark.sequence > oldest_sequence,
            FlushBy::Version => mark.settled_sequence >= oldest_sequence,
        });
    }

    /// From now on nobody appends what is not above this version. Up to `last_sequence` somebody may have.
    pub(super) fn settle(&mut self, version: u64, last_sequence: u64) {
        for mark in self.marks.values_mut().flatten() {
            if mark.is_unsettled(version) {
                mark.settled_sequence = last_sequence;
            }
        }
    }

    /// Is there a flush that [`settle`](Self::settle) would change?
    pub(super) fn has_unsettled(&self, version: u64) -> bool {
        self.marks.values().flatten().any(|mark| mark.is_unsettled(version))
    }

    /// Forgets the flushes that did not happen.
    pub(super) fn forget_above(&mut self, last_sequence: u64) {
        self.retain(|mark| mark.sequence <= last_sequence);
        self.pending.retain(|_, mark| mark.sequence <= last_sequence);
    }

    fn retain(&mut self, is_kept: impl Fn(&FlushMark) -> bool) {
        self.marks.retain(|_, marks| {
            marks.retain(|mark| is_kept(mark));
            !marks.is_empty()
        });
        self.measure();
    }

    pub(super) fn measure(&mut self) {
        self.lengths = self.marks.keys().map(Vec::len).collect();
        self.newest_of_all = self.flushed_below(&[], &mut { STEPS_MAX });
    }
}

/// More than a flush of all namespaces of a server takes.
const STEPS_MAX: u32 = 1_000;

/// Appends the exceptions of a flush: of each its length in 2 bytes, and its bytes.
pub(super) fn encode_exceptions(except: &[Vec<u8>], out: &mut Vec<u8>) {
    for prefix in except {
        out.extend_from_slice(&(prefix.len() as u16).to_le_bytes());
        out.extend_from_slice(prefix);
    }
}

/// The exceptions of a flush of `prefix`, from the value of its record. `None`: they are none.
pub(super) fn decode_exceptions(prefix: &[u8], value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut bytes, mut except) = (Bytes(value), Vec::new());
    while !bytes.0.is_empty() {
        except.push(decode_exception(prefix, &mut bytes)?);
    }
    Some(except)
}

/// The next exception of a flush of `prefix`.
pub(super) fn decode_exception(prefix: &[u8], bytes: &mut Bytes<'_>) -> Option<Vec<u8>> {
    let length = usize::from(bytes.u16()?);
    let longer = bytes.take(length)?;
    is_exception(prefix, longer).then(|| longer.to_vec())
}

/// The table, and a number with which most reads need not look at it.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    table: RwLock<FlushTable>,
    /// The highest sequence of a flush.
    newest: AtomicU64,
    /// The highest version of a flush by version.
    below_version: AtomicU64,
}

impl Flushes {
    pub(super) fn new(table: FlushTable) -> Self {
        let flushes =
            Self { table: RwLock::new(table), newest: AtomicU64::new(0), below_version: AtomicU64::new(0) };
        flushes.note_newest(&flushes.read());
        flushes
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, FlushTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, FlushTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry was appended.
    pub(super) fn append(&self, entry: &Entry<'_>, sequence: u64) {
        match *entry {
            Entry::Put(_) | Entry::Delete { .. } | Entry::Touch { .. } | Entry::Note { .. } => {}
            Entry::Flush { prefix, except, version, by } => {
                let except = except.to_vec();
                let mark = FlushMark { sequence, version, by, settled_sequence: u64::MAX, except };
                self.change(|table| table.flush(prefix, mark));
            }
            Entry::FlushAt { prefix, at_secs } => {
                self.change(|table| table.delay(prefix, PendingMark { sequence, at_secs }));
            }
            Entry::CancelFlushAt { prefix } => self.change(|table| table.cancel(prefix)),
        }
    }

    /// Delayed flushes that nobody has cancelled or made.
    pub(super) fn pending(&self) -> Vec<PendingFlush> {
        (self.read().pending.iter())
            .map(|(prefix, mark)| PendingFlush { prefix: prefix.clone(), at_secs: mark.at_secs })
            .collect()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut FlushTable)) {
        let mut table = self.write();
        change(&mut table);
        self.note_newest(&table);
    }

    fn note_newest(&self, table: &FlushTable) {
        let newest = table.marks.values().flatten().map(|mark| mark.sequence).max().unwrap_or(0);
        self.newest.store(newest, Ordering::Release);
        let below_version = table.by_version().map(|(_, mark)| mark.version).max().unwrap_or(0);
        self.below_version.store(below_version, Ordering::Release);
    }

    /// Was the item of this key, sequence and version flushed?
    pub(super) fn covers(&self, key: &[u8], sequence: u64, version: u64) -> bool {
        let by_sequence = sequence < self.newest.load(Ordering::Acquire);
        let by_version = version < self.below_version.load(Ordering::Acquire);
        if !by_sequence && !by_version {
            return false;
        }
        let table = self.read();
        (by_sequence && sequence < table.newest(key))
            || (by_version && version < table.below_version(key))
            || (is_planted(Bug::FlushNewer) && sequence < table.newest_sequence(key))
    }

    /// Was the item of this key flushed by version, whenever it came?
    pub(super) fn covers_version(&self, key: &[u8], version: u64) -> bool {
        version < self.below_version.load(Ordering::Acquire) && version < self.read().below_version(key)
    }

    /// The highest version of a flush that the key falls under; 0: none.
    pub(super) fn newest_version(&self, key: &[u8]) -> u64 {
        let is_empty = self.newest() == 0 && self.below_version.load(Ordering::Acquire) == 0;
        if is_empty { 0 } else { self.read().newest_version(key) }
    }

    /// What of a key's state was not flushed; `None`: nothing.
    pub(super) fn left_of(&self, key: &[u8], state: KeyState) -> Option<KeyState> {
        let table = self.read();
        if state.sequence < table.newest(key) {
            return None;
        }
        state.flushed(table.below_version(key))
    }

    /// The highest sequence of a flush; 0: none.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_prefix_is_flushed_with_a_shorter_one() {
        let mut table = FlushTable::default();
        let mark = |sequence| FlushMark {
            sequence,
            version: 0,
            by: FlushBy::Sequence,
            settled_sequence: u64::MAX,
            except: Vec::new(),
        };
        table.flush(b"user:", mark(5));
        table.flush(b"page:", mark(6));
        assert_eq!((table.newest(b"user:1"), table.newest(b"page:1"), table.newest(b"use")), (5, 6, 0));
        table.flush(b"user:1", mark(7));
        assert_eq!((table.newest(b"user:1"), table.newest(b"user:2")), (7, 5));
        table.flush(b"", mark(9));
        assert_eq!((table.newest(b"user:1"), table.newest(b"x"), table.marks.len()), (9, 9, 1));
    }

    /// As a server flushes all its namespaces, in any order.
    #[test]
    fn flushes_that_complete_each_other_are_one_of_everything() {
        let prefixes: [&[u8]; 4] = [b"", b"a:", b"a:b:", b"c:"];
        let mut table = FlushTable::default();
        for (nth, prefix) in [2, 0, 3, 1].map(|nth: usize| prefixes[nth]).into_iter().enumerate() {
            assert_eq!(table.newest_of_all(), 0);
            let longer =
                prefixes.iter().filter(|other| other.len() > prefix.len() && other.starts_with(prefix));
            let except = longer.map(|other| other.to_vec()).collect();
            table.flush(
                prefix,
                FlushMark {
                    sequence: 5 + nth as u64,
                    version: 0,
                    by: FlushBy::Sequence,
                    settled_sequence: u64::MAX,
                    except,
                },
            );
        }
        assert_eq!(table.newest_of_all(), 5);
    }

    /// Random flushes with exceptions in random order against all of them, one by one.
    #[test]
    fn equals_a_list_of_flushes() {
        let mut random = fastrand::Rng::with_seed(5);
        let word = |random: &mut fastrand::Rng, bytes| -> Vec<u8> {
            let length = random.usize(0..=bytes);
            std::iter::repeat_with(|| random.u8(b'a'..b'c')).take(length).collect()
        };
        for _ in 0..3_000 {
            let (mut table, mut all) = (FlushTable::default(), Vec::new());
            let mut sequences: Vec<u64> = (1..=8).collect();
            random.shuffle(&mut sequences);
            for &sequence in &sequences[..random.usize(1..8)] {
                let prefix = word(&mut random, 2);
                let mut longer = |_| {
                    let rest = word(&mut random, 2);
                    (!rest.is_empty()).then(|| [prefix.clone(), rest].concat())
                };
                let except: Vec<_> = (0..2).filter_map(&mut longer).collect();
                let mark = FlushMark {
                    sequence,
                    version: 0,
                    by: FlushBy::Sequence,
                    settled_sequence: u64::MAX,
                    except,
                };
                table.flush(&prefix, mark.clone());
                all.push((prefix, mark));
            }
            for _ in 0..20 {
                let key = word(&mut random, 5);
                let reaches = |(prefix, mark): &&(Vec<u8>, FlushMark)| {
                    key.starts_with(prefix) && !mark.except.iter().any(|except| key.starts_with(except))
                };
                let newest = all.iter().filter(reaches).map(|(_, mark)| mark.sequence).max().unwrap_or(0);
                assert_eq!(table.newest(&key), newest, "{key:?} {all:?}");
                assert!(table.newest_of_all() <= newest, "{key:?} {all:?}");
            }
        }
    }
}
