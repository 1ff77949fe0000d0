//! The order in which segments go.
//!
//! Each segment (and each large item) is worth keeping for a time that grows with how often its items are read, and shrinks with their
//! size: its credit. Sealed, it is due when the clock has gone on by that much from where it was when the segment was opened. What is
//! due first is emptied first, and the clock goes to that time: the more is stored, the faster it runs. This is GreedyDual-Size with
//! frequency (Cao and Irani, USITS 1997; Cherkasova, HPL-98-69) for whole segments. Items of like worth share segments, and wait in one line: within
//! it they are due in the order in which they came, so choosing means looking at the front of each line.
//!
//! As in S3-FIFO (Yang et al., SOSP 2023) a read only sets a mark, which counts when the item is looked at again: what was read
//! is copied to the main queue with the credit of its reads, what was not goes.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::*;

use crate::log::segment::{GROUPS, RECLAIMING, SEALED, Segment, SegmentId, Segments};
use crate::policy::priority::{self, CLASSES};
use crate::request::Now;
use crate::sync::MutexGuard;

/// One place in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) id: SegmentId,
    generation: u32,
    /// By the queues' clock.
    due: u64,
}

/// A segment of which less is dead is not worth moving: its items are looked at, and next to nothing is won. More than that is dead in some
/// segment while all of what is kept for gaps (`over_provisioning.rs`) is in use.
const LEAST_GAIN_PART: u64 = 64;

/// Which segment to empty, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReclaimMode {
    /// Drop what was not read; keep what was.
    Evict,
    /// Keep everything alive: the dead bytes are what is wanted.
    Compact,
    /// Find the dead bytes, to be written to between what lives.
    Refill,
    /// Everything is dead.
    Clear,
}

/// The lines of segments that wait. Locked once per segment or run.
pub(crate) struct Queues {
    /// By queue, TTL group and class of worth, oldest first. May hold places of segments that are gone.
    fifos: Vec<VecDeque<QueueEntry>>,
    /// Sealed segments that became thin, by how thin, in the order in which they did. Each at most once, so that no list outgrows what there
    /// is; who has died or was emptied since may still be here.
    level: [VecDeque<SegmentId>; GARBAGE_LEVELS.len()],
}

/// How much of a sealed segment is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GarbageLevel {
    /// A quarter. Used again before anything that lives is evicted: four bytes are looked at for one that comes back, as many as a store pays
    /// for; at a half, keys that all fit were evicted while they were overwritten.
    Quarter,
    /// Three quarters. Used again before memory is touched that never was: overwrites take about twice what lives, however far away the limit
    /// is. At a half they would take 1.4 times as much, and copy an item for each that is stored.
    ThreeQuarters,
}

pub(crate) const GARBAGE_LEVELS: [GarbageLevel; 2] = [GarbageLevel::Quarter, GarbageLevel::ThreeQuarters];

impl GarbageLevel {
    /// In `Segment::listed`.
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Default for Queues {
    fn default() -> Self {
        Self { fifos: vec![VecDeque::new(); 2 * GROUPS * CLASSES], level: Default::default() }
    }
}

impl Segments {
    /// Puts a segment or run at the end of its queue.
    pub(crate) fn seal(&self, id: SegmentId) {
        let mut queues = self.queues();
        let segment = self.get(id);
        if self.is_run(id) {
            if segment.weight.load(Relaxed) == 0 {
                let queue = usize::from(segment.queue.load(Relaxed));
                segment.weight.store(self.insert_priority.at_first(queue), Relaxed);
            }
            segment.opened_clock.store(self.clock.load(Relaxed), Relaxed);
        }
        let h_value =
            priority::h_value(segment.usage.filled_bytes.load(Relaxed), segment.weight.load(Relaxed));
        let due = segment.opened_clock.load(Relaxed) + h_value;
        let entry = QueueEntry { id, generation: segment.generation.load(Relaxed), due };
        self.mark_sealed(&mut queues, id).push_back(entry);
        // What was overwritten at once is dead before its segment is full.
        if !self.is_run(id) {
            self.list_garbage_levels(&mut queues, id);
        }
    }

    /// Puts a victim back where it came from: its emptying could not be finished.
    pub(crate) fn put_back(&self, id: SegmentId) {
        let mut queues = self.queues();
        let entry = QueueEntry { id, generation: self.get(id).generation.load(Relaxed), due: 0 };
        self.mark_sealed(&mut queues, id).push_front(entry);
        self.list_garbage_levels(&mut queues, id);
    }

    /// From here on the segment may be claimed. Returns the line in which it is to have a place.
    fn mark_sealed<'q>(&self, queues: &'q mut Queues, id: SegmentId) -> &'q mut VecDeque<QueueEntry> {
        let segment = self.get(id);
        let (queue, group) = (segment.queue.load(Relaxed), segment.group.load(Relaxed));
        let class =
            priority::class_of(segment.usage.filled_bytes.load(Relaxed), segment.weight.load(Relaxed));
        segment.state.store(SEALED, Release);
        let fifo = (usize::from(queue) * GROUPS + usize::from(group)) * CLASSES + class;
        let fifo = &mut queues.fifos[fifo];
        if fifo.len() > 2 * self.all.len() {
            fifo.retain(|entry| self.is_waiting(entry));
        }
        fifo
    }

    /// A sealed segment lost bytes, and has become that thin: remember it.
    pub(crate) fn note_garbage(&self, id: SegmentId, level: GarbageLevel) {
        self.list_garbage(&mut self.queues(), id, level);
    }

    fn list_garbage_levels(&self, queues: &mut Queues, id: SegmentId) {
        for level in GARBAGE_LEVELS.into_iter().filter(|&level| self.has_garbage(id, level)) {
            self.list_garbage(queues, id, level);
        }
    }

    fn list_garbage(&self, queues: &mut Queues, id: SegmentId, level: GarbageLevel) {
        if self.get(id).listed.fetch_or(level.bit(), Relaxed) & level.bit() == 0 {
            queues.level[level as usize].push_back(id);
        }
    }

    /// Claims the one that has been that thin for longest.
    fn claim_garbage(&self, queues: &mut Queues, level: GarbageLevel) -> Option<SegmentId> {
        while let Some(id) = queues.level[level as usize].pop_front() {
            self.get(id).listed.fetch_and(!level.bit(), Relaxed);
            if self.has_garbage(id, level) && self.claim(id) {
                return Some(id);
            }
        }
        None
    }

    /// The one that would be claimed next for being thin, if it is such a one.
    pub(crate) fn claim_garbage_if(&self, is_wanted: impl Fn(SegmentId) -> bool) -> Option<SegmentId> {
        let mut queues = self.queues();
        for level in GARBAGE_LEVELS.into_iter().rev() {
            while let Some(&id) = queues.level[level as usize].front() {
                let has_garbage = self.has_garbage(id, level) && self.get(id).state.load(Relaxed) == SEALED;
                if has_garbage && !is_wanted(id) {
                    return None;
                }
                queues.level[level as usize].pop_front();
                self.get(id).listed.fetch_and(!level.bit(), Relaxed);
                if has_garbage && self.claim(id) {
                    return Some(id);
                }
            }
        }
        None
    }

    /// A segment that is to be used again although there is memory enough.
    pub(crate) fn claim_mostly_garbage(&self) -> Option<SegmentId> {
        self.claim_garbage(&mut self.queues(), GarbageLevel::ThreeQuarters)
    }

    /// Takes a segment or run out of its queue before its time (what it held was deleted or replaced). False if another has
    /// it already.
    pub(crate) fn withdraw(&self, id: SegmentId) -> bool {
        let _queues = self.queues();
        self.claim(id)
    }

    /// Chooses what to empty next: what is dead already, then what is thin (the thinnest first), then what is due first. With `only_dead`
    /// nothing that lives is evicted or moved.
    pub(crate) fn next_victim(
        &self,
        now: Now,
        flush_mark: u32,
        only_dead: bool,
        evict: bool,
    ) -> Option<(SegmentId, ReclaimMode)> {
        let mut queues = self.queues();
        self.drop_stale_fronts(&mut queues);
        let is_dead = |entry: &&QueueEntry| {
            let segment = self.get(entry.id);
            segment.is_expired(now) || segment.flush_mark.load(Relaxed) != flush_mark
        };
        let fronts = || queues.fifos.iter().filter_map(|fifo| fifo.front());
        if let Some(&entry) = fronts().find(is_dead) {
            return self.claim(entry.id).then_some((entry.id, ReclaimMode::Clear));
        }
        if only_dead {
            return None;
        }
        if let Some(id) =
            GARBAGE_LEVELS.into_iter().rev().find_map(|level| self.claim_garbage(&mut queues, level))
        {
            return Some((id, ReclaimMode::Compact));
        }
        if !evict {
            return None;
        }
        let entry = *queues.fifos.iter().filter_map(|fifo| fifo.front()).min_by_key(|entry| entry.due)?;
        self.clock.fetch_max(entry.due, Relaxed);
        self.claim(entry.id).then_some((entry.id, ReclaimMode::Evict))
    }

    /// Claims the large item that is due first. Looks at all that waits: only where their address space lacks.
    pub(crate) fn next_run(&self) -> Option<SegmentId> {
        let queues = self.queues();
        let waiting = queues.fifos.iter().flatten();
        let runs = waiting.filter(|entry| self.is_run(entry.id) && self.is_waiting(entry));
        let id = runs.min_by_key(|entry| entry.due)?.id;
        self.claim(id).then_some(id)
    }

    /// Without eviction: the waiting segment with the most dead bytes, if it has enough to be worth moving the rest.
    pub(crate) fn most_dead(&self) -> Option<SegmentId> {
        let dead = |id: &SegmentId| {
            let segment = self.get(*id);
            segment.usage.filled_bytes.load(Relaxed).saturating_sub(segment.usage.live_bytes())
        };
        let waiting = self.log_ids().filter(|&id| self.get(id).state.load(Acquire) == SEALED);
        let id = waiting.max_by_key(dead)?;
        let enough = dead(&id) >= self.segment_bytes as u64 / LEAST_GAIN_PART;
        (enough && self.withdraw(id)).then_some(id)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        // Nothing in here panics half-way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_waiting(&self, entry: &QueueEntry) -> bool {
        let segment = self.get(entry.id);
        segment.generation.load(Relaxed) == entry.generation && segment.state.load(Relaxed) == SEALED
    }

    /// With less that lives a sealed segment is that thin. What large items leave empty at its end does not come back: moved, they would leave it
    /// empty elsewhere. But a segment that was sealed early, less than half full, can share one.
    #[inline]
    pub(crate) fn garbage_threshold_bytes(&self, segment: &Segment, level: GarbageLevel) -> u64 {
        let quarter_bytes = segment.usage.filled_bytes.load(Relaxed) / 4;
        match level {
            GarbageLevel::Quarter => (quarter_bytes * 3).max(self.segment_bytes as u64 / 2),
            GarbageLevel::ThreeQuarters => quarter_bytes,
        }
    }

    fn has_garbage(&self, id: SegmentId, level: GarbageLevel) -> bool {
        let segment = self.get(id);
        segment.usage.live_bytes() < self.garbage_threshold_bytes(segment, level)
    }

    /// Makes a waiting segment the caller's; its places in the queues go stale, for good.
    fn claim(&self, id: SegmentId) -> bool {
        let segment = self.get(id);
        let won = segment.state.compare_exchange(SEALED, RECLAIMING, AcqRel, Relaxed).is_ok();
        if won {
            segment.generation.fetch_add(1, Relaxed);
        }
        won
    }

    fn drop_stale_fronts(&self, queues: &mut Queues) {
        for fifo in &mut queues.fifos {
            while fifo.front().is_some_and(|entry| !self.is_waiting(entry)) {
                fifo.pop_front();
            }
        }
    }
}
