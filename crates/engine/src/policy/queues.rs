//! The order in which segments are reclaimed.
//!
//! Each segment (and each large item) has an H-value: how long it should be kept, longer the more often its items are
//! read, shorter the larger they are. A sealed segment is due when the policy's clock has advanced by that much since
//! the segment was opened. The segment that is due first is reclaimed first, and sets the clock to its due time: the
//! more is stored, the faster the clock runs. This is GreedyDual-Size with frequency (Cao and Irani, USITS 1997;
//! Cherkasova, HPL-98-69) for whole segments. Items of similar priority share segments, and their segments wait in one
//! FIFO, in which they are due in order: the choice is among the heads of the FIFOs.
//!
//! As in S3-FIFO (Yang et al., SOSP 2023) a read only sets a mark, which counts when the item is next examined: items
//! that were read are copied to the main queue with the weight of their reads, others are evicted.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::log::segment::{CLASSES, Claim, GROUPS, OpenSegment, SEALED, Segment, SegmentId, Segments};
use crate::mem::cache_padded::CachePadded;
use crate::policy::Policy;
use crate::policy::priority;
use crate::request::Now;

/// One entry of a queue.
#[derive(Clone, Copy, Debug)]
struct QueueEntry {
    id: SegmentId,
    generation: u32,
    /// When it is due, by the policy's clock.
    due: u64,
}

/// Segments with a smaller part of garbage are not compacted: all their items are examined, and next to nothing is
/// freed. While all of the over-provisioning is in use, some segment has more.
const LEAST_GAIN_PART: u64 = 64;

/// No clock comes so far.
const CLOCK_MAX: u64 = 1 << 62;

/// Which segment to reclaim, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReclaimMode {
    /// Evict items that were not read; keep those that were.
    Evict,
    /// Keep all live items; free the garbage.
    Compact,
    /// Find the holes, to be filled in place.
    Refill,
    /// All items are dead.
    Clear,
}

/// The queues of sealed segments. Locked once per segment or run.
#[derive(Default)]
pub(crate) struct Queues {
    lists: CachePadded<Mutex<Lists>>,
    /// The due time of the last victim. Written under the lock.
    clock: AtomicU64,
}

struct Lists {
    /// By queue, TTL group and priority class, oldest first. May contain stale entries of segments that are gone.
    fifos: Vec<VecDeque<QueueEntry>>,
    /// Sealed segments that have reached a garbage level, in the order in which they did. Each segment at most once, so
    /// no list is longer than the number of segments. May contain segments that have died or were reclaimed since.
    garbage: [VecDeque<SegmentId>; GARBAGE_LEVELS.len()],
}

/// Thresholds of the garbage ratio of sealed segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GarbageLevel {
    /// A quarter is garbage. Compacted before anything live is evicted: for each byte that is freed four are examined,
    /// as many as a store pays for. With a half, keys that all fit were evicted while they were overwritten.
    Quarter,
    /// Three quarters are garbage. Compacted before memory is touched that was never used: overwrites take about twice
    /// the live bytes, however high the limit is. With a half they would take 1.4 times as much, and copy an item for
    /// each that is stored.
    ThreeQuarters,
}

pub(crate) const GARBAGE_LEVELS: [GarbageLevel; 2] = [GarbageLevel::Quarter, GarbageLevel::ThreeQuarters];

impl GarbageLevel {
    /// Its bit in `Segment::listed`.
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Default for Lists {
    fn default() -> Self {
        Self { fifos: vec![VecDeque::new(); 2 * GROUPS * CLASSES], garbage: Default::default() }
    }
}

impl Policy {
    /// A segment was opened: stamps it with the clock.
    pub(crate) fn note_opened(&self, segment: &Segment) {
        segment.opened_clock.store(self.queues.clock.load(Relaxed), Relaxed);
    }

    /// Puts the segments and runs that an earlier process left into their queues, in the order in which they are due.
    pub(crate) fn seal_left(&self, segments: &Segments, mut left: Vec<OpenSegment>) {
        let opened_clock = |id: SegmentId| segments.get(id).opened_clock.load(Relaxed);
        // The clock has come at least so far. It goes up by small steps, so a file that says much more is wrong.
        let clock = left.iter().map(|open| opened_clock(open.id())).filter(|&clock| clock < CLOCK_MAX).max();
        self.queues.clock.fetch_max(clock.unwrap_or(0), Relaxed);
        left.sort_by_key(|open| opened_clock(open.id()));
        for open in left {
            segments.get(open.id()).opened_clock.fetch_min(self.queues.clock.load(Relaxed), Relaxed);
            self.seal(segments, open);
        }
    }

    /// Puts a segment or run that was filled at the end of its queue.
    pub(crate) fn seal(&self, segments: &Segments, open: OpenSegment) {
        let id = open.id();
        self.enqueue(segments, id, || segments.seal(open));
    }

    /// Puts a claimed run at the end of its queue again.
    pub(crate) fn requeue(&self, segments: &Segments, claim: Claim) {
        let id = claim.id();
        self.enqueue(segments, id, || segments.seal_again(claim));
    }

    /// Puts a segment or run at the end of its queue. From `seal` on it may be claimed.
    fn enqueue(&self, segments: &Segments, id: SegmentId, seal: impl FnOnce()) {
        let mut queues = self.queues();
        let segment = segments.get(id);
        if segments.is_run(id) {
            if segment.weight.load(Relaxed) == 0 {
                let queue = usize::from(segment.queue.load(Relaxed));
                segment.weight.store(self.insert_priority.at_first(queue), Relaxed);
            }
            segment.opened_clock.store(self.queues.clock.load(Relaxed), Relaxed);
        }
        let h_value = priority::h_value(segment.usage.filled_bytes(), segment.weight.load(Relaxed));
        let due = segment.opened_clock.load(Relaxed) + h_value;
        let entry = QueueEntry { id, generation: segment.generation(), due };
        seal();
        self.fifo_of(segments, &mut queues, id).push_back(entry);
        // A segment whose items were overwritten at once is garbage before it is full.
        if !segments.is_run(id) {
            self.list_garbage_levels(segments, &mut queues, id);
        }
    }

    /// Puts a victim that could not be reclaimed back at the head of its queue.
    pub(crate) fn put_back(&self, segments: &Segments, claim: Claim) {
        let id = claim.id();
        let mut queues = self.queues();
        let entry = QueueEntry { id, generation: segments.get(id).generation(), due: 0 };
        segments.seal_again(claim);
        self.fifo_of(segments, &mut queues, id).push_front(entry);
        self.list_garbage_levels(segments, &mut queues, id);
    }

    /// The FIFO of a sealed segment, which needs an entry of it.
    fn fifo_of<'q>(
        &self,
        segments: &Segments,
        queues: &'q mut Lists,
        id: SegmentId,
    ) -> &'q mut VecDeque<QueueEntry> {
        let segment = segments.get(id);
        let (queue, group) = (segment.queue.load(Relaxed), segment.group.load(Relaxed));
        let class = priority::class_of(segment.usage.filled_bytes(), segment.weight.load(Relaxed));
        let fifo = (usize::from(queue) * GROUPS + usize::from(group)) * CLASSES + class;
        let fifo = &mut queues.fifos[fifo];
        if fifo.len() > 2 * segments.used_count() {
            fifo.retain(|entry| is_waiting(segments, entry));
        }
        fifo
    }

    /// Lists a sealed segment that has reached a garbage level.
    pub(crate) fn note_garbage(&self, segments: &Segments, id: SegmentId, level: GarbageLevel) {
        self.list_garbage(segments, &mut self.queues(), id, level);
    }

    fn list_garbage_levels(&self, segments: &Segments, queues: &mut Lists, id: SegmentId) {
        for level in GARBAGE_LEVELS.into_iter().filter(|&level| has_garbage(segments, id, level)) {
            self.list_garbage(segments, queues, id, level);
        }
    }

    fn list_garbage(&self, segments: &Segments, queues: &mut Lists, id: SegmentId, level: GarbageLevel) {
        if segments.get(id).listed.fetch_or(level.bit(), Relaxed) & level.bit() == 0 {
            queues.garbage[level as usize].push_back(id);
        }
    }

    /// Claims the segment that has been at that level for the longest time.
    fn claim_garbage(&self, segments: &Segments, queues: &mut Lists, level: GarbageLevel) -> Option<Claim> {
        while let Some(id) = queues.garbage[level as usize].pop_front() {
            segments.get(id).listed.fetch_and(!level.bit(), Relaxed);
            let claim = has_garbage(segments, id, level).then(|| segments.claim(id)).flatten();
            if claim.is_some() {
                return claim;
            }
        }
        None
    }

    /// Claims the next segment listed for its garbage, if it satisfies the condition.
    pub(crate) fn claim_garbage_if(
        &self,
        segments: &Segments,
        is_wanted: impl Fn(SegmentId) -> bool,
    ) -> Option<Claim> {
        let mut queues = self.queues();
        for level in GARBAGE_LEVELS.into_iter().rev() {
            while let Some(&id) = queues.garbage[level as usize].front() {
                let has_garbage = has_garbage(segments, id, level) && segments.get(id).state() == SEALED;
                if has_garbage && !is_wanted(id) {
                    return None;
                }
                queues.garbage[level as usize].pop_front();
                segments.get(id).listed.fetch_and(!level.bit(), Relaxed);
                let claim = has_garbage.then(|| segments.claim(id)).flatten();
                if claim.is_some() {
                    return claim;
                }
            }
        }
        None
    }

    /// Claims a mostly dead segment, to be compacted although there is enough memory.
    pub(crate) fn claim_mostly_garbage(&self, segments: &Segments) -> Option<Claim> {
        self.claim_garbage(segments, &mut self.queues(), GarbageLevel::ThreeQuarters)
    }

    /// Takes a segment or run out of its queue early, since its items were deleted or replaced. `None`: another thread
    /// has claimed it.
    pub(crate) fn withdraw(&self, segments: &Segments, id: SegmentId) -> Option<Claim> {
        let _queues = self.queues();
        segments.claim(id)
    }

    /// Chooses the next victim: first dead segments, then garbage (most of it first), then what is due first. With
    /// `only_dead`, nothing live is evicted or moved.
    pub(crate) fn next_victim(
        &self,
        segments: &Segments,
        now: Now,
        flush_mark: u32,
        only_dead: bool,
        evict: bool,
    ) -> Option<(Claim, ReclaimMode)> {
        let mut queues = self.queues();
        self.drop_stale_fronts(segments, &mut queues);
        let is_dead = |entry: &&QueueEntry| {
            let segment = segments.get(entry.id);
            segment.is_expired(now) || segment.flush_mark.load(Relaxed) != flush_mark
        };
        let fronts = || queues.fifos.iter().filter_map(|fifo| fifo.front());
        if let Some(&entry) = fronts().find(is_dead) {
            return Some((segments.claim(entry.id)?, ReclaimMode::Clear));
        }
        if only_dead {
            return None;
        }
        if let Some(claim) = GARBAGE_LEVELS
            .into_iter()
            .rev()
            .find_map(|level| self.claim_garbage(segments, &mut queues, level))
        {
            return Some((claim, ReclaimMode::Compact));
        }
        if !evict {
            return None;
        }
        let entry = *queues.fifos.iter().filter_map(|fifo| fifo.front()).min_by_key(|entry| entry.due)?;
        self.queues.clock.fetch_max(entry.due, Relaxed);
        Some((segments.claim(entry.id)?, ReclaimMode::Evict))
    }

    /// Claims what is due first, if that is a large item.
    pub(crate) fn claim_due_run(&self, segments: &Segments) -> Option<Claim> {
        let mut queues = self.queues();
        self.drop_stale_fronts(segments, &mut queues);
        let entry = *queues.fifos.iter().filter_map(|fifo| fifo.front()).min_by_key(|entry| entry.due)?;
        if !segments.is_run(entry.id) {
            return None;
        }
        self.queues.clock.fetch_max(entry.due, Relaxed);
        segments.claim(entry.id)
    }

    /// Claims the large item that is due first. Scans all of them; used only when their address space is exhausted.
    pub(crate) fn next_run(&self, segments: &Segments) -> Option<Claim> {
        let queues = self.queues();
        let waiting = queues.fifos.iter().flatten();
        let runs = waiting.filter(|entry| segments.is_run(entry.id) && is_waiting(segments, entry));
        segments.claim(runs.min_by_key(|entry| entry.due)?.id)
    }

    /// Without eviction: claims the sealed segment with the most garbage, if that pays for moving the rest.
    pub(crate) fn claim_most_garbage(&self, segments: &Segments) -> Option<Claim> {
        let dead = |id: &SegmentId| {
            let segment = segments.get(*id);
            segment.usage.filled_bytes().saturating_sub(segment.usage.live_bytes())
        };
        let waiting = segments.log_ids().filter(|&id| segments.get(id).state() == SEALED);
        let id = waiting.max_by_key(dead)?;
        let enough = dead(&id) >= segments.segment_bytes as u64 / LEAST_GAIN_PART;
        enough.then(|| self.withdraw(segments, id)).flatten()
    }

    fn queues(&self) -> MutexGuard<'_, Lists> {
        // No code panics under this lock.
        self.queues.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_stale_fronts(&self, segments: &Segments, queues: &mut Lists) {
        for fifo in &mut queues.fifos {
            while fifo.front().is_some_and(|entry| !is_waiting(segments, entry)) {
                fifo.pop_front();
            }
        }
    }
}

fn is_waiting(segments: &Segments, entry: &QueueEntry) -> bool {
    let segment = segments.get(entry.id);
    segment.generation() == entry.generation && segment.state() == SEALED
}

/// A sealed segment with fewer live bytes has reached that garbage level. The space that large items leave empty at its
/// end does not count: moved, they would leave it empty elsewhere. But a segment that was sealed early, less than half
/// full, can share another.
#[inline]
pub(crate) fn garbage_threshold_bytes(segments: &Segments, segment: &Segment, level: GarbageLevel) -> u64 {
    let quarter_bytes = segment.usage.filled_bytes() / 4;
    match level {
        GarbageLevel::Quarter => (quarter_bytes * 3).max(segments.segment_bytes as u64 / 2),
        GarbageLevel::ThreeQuarters => quarter_bytes,
    }
}

fn has_garbage(segments: &Segments, id: SegmentId, level: GarbageLevel) -> bool {
    let segment = segments.get(id);
    segment.usage.live_bytes() < garbage_threshold_bytes(segments, segment, level)
}
