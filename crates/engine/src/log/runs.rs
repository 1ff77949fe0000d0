//! Runs: the memory of large items.
//!
//! A run is contiguous address space of its own, in whole segments behind those of the log proper, with memory only for
//! the pages that its item needs. Runs never move. A free run stays *committed*: it keeps its pages, and their charge
//! on the budget, for the next large item, because fresh pages cost several times what writing to them costs. When
//! memory is short, free runs are decommitted.
//!
//! Unsafe code lives here because memory is taken from its items. The invariant: a [`Run`] cannot be copied, so its
//! holder alone has its memory; it is made of free address space, or of what nobody can see any more.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::log::allocator::WriteStream;
use crate::log::arena::Arena;
use crate::log::fresh::FreshItem;
use crate::log::item::ItemRef;
use crate::log::leases::{Leases, NO_UPLOAD_SECS};
use crate::log::segment::{FREE, OpenSegment, SegmentId};
use crate::mem::region::PAGE_BYTES;
use crate::request::Now;

/// A committed run retains no more than this for an item that asks for less, so that a client that announces a large
/// value and sends nothing holds no more.
const RETAINED_BYTES_MAX: u64 = 1 << 20;

/// A run with a single owner, which is not found.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Run {
    id: SegmentId,
    /// Address space.
    segments: u32,
    /// From its start, when it was taken; a multiple of [`PAGE_BYTES`].
    memory_bytes: u64,
}

impl Run {
    pub(crate) fn id(&self) -> SegmentId {
        self.id
    }

    /// Address space, in segments.
    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }
}

/// The resource that is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocError {
    Memory,
    /// Contiguous address space for runs.
    AddressSpace,
}

/// Free runs, and leases. Locked once per large item, and per step of its upload.
pub(crate) struct Runs {
    free: Mutex<Free>,
    /// A thread that holds this takes no other lock.
    leases: Mutex<Leases>,
    /// [`Leases::oldest_arrival_secs`], for a look without the lock.
    oldest_arrival_secs: AtomicU32,
    committed_bytes: AtomicU64,
}

struct Free {
    /// Without memory, merged: start -> length, in segments.
    reserved: BTreeMap<SegmentId, u32>,
    /// With memory: its bytes and the start -> length, in segments.
    committed: BTreeMap<(u64, SegmentId), u32>,
}

impl Runs {
    pub(crate) fn new(first: SegmentId, segments: u32) -> Self {
        let free = Free { reserved: BTreeMap::from([(first, segments)]), committed: BTreeMap::new() };
        Self {
            free: Mutex::new(free),
            leases: Mutex::default(),
            oldest_arrival_secs: AtomicU32::new(NO_UPLOAD_SECS),
            committed_bytes: AtomicU64::new(0),
        }
    }

    /// Memory of free runs.
    pub(crate) fn committed_bytes(&self) -> u64 {
        self.committed_bytes.load(Relaxed)
    }

    /// One of about `bytes`: the smallest that has them all, else the largest that has half of them.
    fn take_committed(&self, segments: u32, bytes: u64) -> Option<Run> {
        let mut free = self.free();
        let is_long = |&(_, &length): &(&(u64, SegmentId), &u32)| length >= segments;
        let (&key, _) = free
            .committed
            .range((bytes, 0)..(bytes * 2, 0))
            .find(is_long)
            .or_else(|| free.committed.range((bytes / 2, 0)..(bytes, 0)).rfind(is_long))?;
        Some(self.remove_committed(&mut free, key))
    }

    /// Any committed run: the smallest of at least `bytes`, else the largest.
    fn take_any_committed(&self, bytes: u64) -> Option<Run> {
        let mut free = self.free();
        let (&key, _) =
            free.committed.range((bytes, 0)..).next().or_else(|| free.committed.last_key_value())?;
        Some(self.remove_committed(&mut free, key))
    }

    fn remove_committed(&self, free: &mut Free, key: (u64, SegmentId)) -> Run {
        let segments = free.committed.remove(&key).unwrap_or(0);
        self.committed_bytes.fetch_sub(key.0, Relaxed);
        Run { id: key.1, segments, memory_bytes: key.0 }
    }

    fn put_committed(&self, run: Run) {
        let mut free = self.free();
        self.committed_bytes.fetch_add(run.memory_bytes, Relaxed);
        free.committed.insert((run.memory_bytes, run.id), run.segments);
    }

    /// First fit.
    fn take_reserved(&self, segments: u32) -> Option<SegmentId> {
        let reserved = &mut self.free().reserved;
        let (&start, &length) = reserved.iter().find(|&(_, &length)| length >= segments)?;
        reserved.remove(&start);
        if length > segments {
            reserved.insert(start + segments, length - segments);
        }
        Some(start)
    }

    fn put_reserved(&self, mut start: SegmentId, mut segments: u32) {
        let reserved = &mut self.free().reserved;
        if let Some(after) = reserved.remove(&(start + segments)) {
            segments += after;
        }
        if let Some((&before, &length)) = reserved.range(..start).next_back()
            && before + length == start
        {
            reserved.remove(&before);
            start = before;
            segments += length;
        }
        reserved.insert(start, segments);
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Leases::oldest_arrival_secs`]. It may be a moment old.
    #[inline]
    pub(super) fn oldest_arrival_secs(&self) -> u32 {
        self.oldest_arrival_secs.load(Relaxed)
    }

    /// Call under the lock of the leases after each change.
    pub(super) fn note_oldest_arrival(&self, leases: &Leases) {
        let oldest_arrival_secs = leases.oldest_arrival_secs();
        if oldest_arrival_secs != self.oldest_arrival_secs.load(Relaxed) {
            self.oldest_arrival_secs.store(oldest_arrival_secs, Relaxed);
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // No code panics under this lock.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arena {
    /// A run for an item of `item_bytes`, with memory for its first `bytes` or more.
    pub(crate) fn take_run(&self, item_bytes: usize, bytes: usize) -> Result<Run, AllocError> {
        let segments = item_bytes.div_ceil(self.segments.segment_bytes) as u32;
        let bytes = bytes.next_multiple_of(PAGE_BYTES) as u64;
        let whole_bytes = item_bytes.next_multiple_of(PAGE_BYTES) as u64;
        self.drain_limbo();
        let Some(mut run) = self.runs.take_committed(segments, whole_bytes) else {
            return self.take_reserved_run(segments, bytes);
        };
        // A little too much is cheaper than giving back what the next run needs.
        let memory_max = (whole_bytes + whole_bytes / 16).min(RETAINED_BYTES_MAX.max(bytes));
        if run.memory_bytes > memory_max {
            let kept_bytes = whole_bytes.min(memory_max);
            let end = self.segments.start(run.id) + kept_bytes as usize;
            // SAFETY: the run is ours alone.
            unsafe { self.region.decommit(end, (run.memory_bytes - kept_bytes) as usize) };
            self.budget.give(run.memory_bytes - kept_bytes);
            run.memory_bytes = kept_bytes;
        } else if run.memory_bytes < bytes {
            if !self.extend_run(&run, run.memory_bytes, bytes - run.memory_bytes) {
                self.runs.put_committed(run);
                return Err(AllocError::Memory);
            }
            run.memory_bytes = bytes;
        }
        Ok(run)
    }

    fn take_reserved_run(&self, segments: u32, memory_bytes: u64) -> Result<Run, AllocError> {
        if !self.take_bytes(memory_bytes) {
            return Err(AllocError::Memory);
        }
        loop {
            if let Some(id) = self.runs.take_reserved(segments) {
                if !self.commit(id, self.segments.start(id), memory_bytes as usize) {
                    self.runs.put_reserved(id, segments);
                    self.budget.give(memory_bytes);
                    return Err(AllocError::Memory);
                }
                return Ok(Run { id, segments, memory_bytes });
            }
            // Committed runs may fragment the address space.
            if !self.decommit_run(0) {
                self.budget.give(memory_bytes);
                return Err(AllocError::AddressSpace);
            }
        }
    }

    /// Charges and commits more memory for a run. False: there is none.
    pub(crate) fn extend_run(&self, run: &Run, memory_bytes: u64, more_bytes: u64) -> bool {
        if !self.take_bytes(more_bytes) {
            return false;
        }
        let end = self.segments.start(run.id) + memory_bytes as usize;
        let is_committed = self.commit(run.id, end, more_bytes as usize);
        if !is_committed {
            self.budget.give(more_bytes);
        }
        is_committed
    }

    /// Begins an item in a run. Returns the count of its revocations.
    pub(crate) fn begin_run(&self, run: &Run) -> u32 {
        let segment = self.segments.get(run.id);
        segment.run_segments.store(run.segments, Relaxed);
        segment.usage.set_filled(run.memory_bytes);
        segment.pins.store(0, Relaxed);
        segment.revocations.load(Relaxed)
    }

    /// Frees a run that was not published.
    pub(crate) fn free_run(&self, run: Run) {
        // SAFETY: it is ours alone.
        unsafe { self.free_run_at(run.id) };
    }

    /// Makes a run that is filled one of the log's: from here on any thread may claim it. Returns it, to be sealed,
    /// and its item.
    ///
    /// # Safety
    /// The item is this run's, and written whole.
    pub(crate) unsafe fn open_run<'g>(
        &self,
        run: Run,
        raw: ItemRef<'g>,
        stream: WriteStream,
        flush_mark: u32,
        now: Now,
    ) -> (OpenSegment, FreshItem<'g>) {
        let WriteStream { queue, group, .. } = stream;
        let (first, _) = self.segments.items(run.id);
        // SAFETY: it was ours alone, and no longer is.
        let open = unsafe { self.segments.open_run(run.id, raw.size(), queue, group, flush_mark, now) };
        // SAFETY: a run's item is its first; by the caller's promise.
        (open, unsafe { FreshItem::new(raw, first) })
    }

    /// Frees a run.
    ///
    /// # Safety
    /// It is the caller's alone: it was never published, or the index does not point to it and no guard and no pin can
    /// see it.
    pub(super) unsafe fn free_run_at(&self, id: SegmentId) {
        let segment = self.segments.get(id);
        // Otherwise its upload was never published.
        if segment.state() != FREE {
            self.segments.set_free(id);
        }
        let (segments, memory_bytes) = (segment.run_segments.load(Relaxed), segment.usage.filled_bytes());
        let start = self.segments.start(id);
        // SAFETY: by the caller's promise.
        unsafe { self.region.poison(start..start + memory_bytes as usize) };
        self.runs.put_committed(Run { id, segments, memory_bytes });
        if self.budget.is_exceeded() {
            self.decommit_run(memory_bytes);
        }
    }

    /// The runs in use are those that were taken over, in ascending order with their lengths; what lies between them is
    /// free.
    pub(super) fn rebuild_free_runs(&self, used: &[(SegmentId, u32)]) {
        let (mut next, end) = (self.segments.log_segments, self.segments.all.len() as SegmentId);
        let mut free = self.runs.free();
        free.reserved.clear();
        for &(start, segments) in used.iter().chain([&(end, 0)]) {
            if start > next {
                free.reserved.insert(next, start - next);
            }
            next = start + segments;
        }
    }

    /// Gives the memory of a free run back to the system, preferably of one that has `bytes`. False: there is none.
    pub(crate) fn decommit_run(&self, bytes: u64) -> bool {
        let Some(run) = self.runs.take_any_committed(bytes) else { return false };
        // SAFETY: a run that was taken out of the free ones is ours alone.
        unsafe { self.region.decommit(self.segments.start(run.id), run.memory_bytes as usize) };
        self.budget.give(run.memory_bytes);
        self.runs.put_reserved(run.id, run.segments);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_runs_merge_when_they_are_freed() {
        let runs = Runs::new(4, 10);
        let (a, b, c) =
            (runs.take_reserved(3).unwrap(), runs.take_reserved(3).unwrap(), runs.take_reserved(4).unwrap());
        assert_eq!((a, b, c), (4, 7, 10));
        assert_eq!(runs.take_reserved(1), None);
        runs.put_reserved(a, 3);
        runs.put_reserved(c, 4);
        assert_eq!(runs.take_reserved(5), None);
        runs.put_reserved(b, 3);
        assert_eq!(runs.take_reserved(10), Some(4));
    }

    #[test]
    fn a_committed_run_goes_to_an_item_of_about_its_size() {
        let runs = Runs::new(0, 100);
        let committed = |id, segments, memory_bytes| Run { id, segments, memory_bytes };
        let all = || [committed(0, 1, 40), committed(1, 2, 100), committed(3, 9, 100), committed(12, 2, 150)];
        all().into_iter().for_each(|run| runs.put_committed(run));
        let all = all().map(Some);
        assert_eq!(runs.committed_bytes(), 390);
        assert_eq!(runs.take_committed(2, 300), all[3], "the largest that is smaller, but has half");
        assert_eq!(runs.take_committed(9, 90), all[2], "the smallest that is long enough");
        assert_eq!(runs.take_committed(1, 15), None, "more than twice as large");
        assert_eq!(runs.take_committed(1, 90), all[1]);
        assert_eq!((runs.take_committed(1, 90), runs.committed_bytes()), (None, 40));
        assert_eq!(runs.take_any_committed(90), all[0]);
        assert_eq!(runs.take_any_committed(0), None);
    }
}
