//! Adoption: a log that another process left in a file becomes this one's.
//!
//! The segments' metadata says where items may lie; each is examined where it lies before it is taken for one
//! (`item.rs`). What the other process was at when it ended was whole, or is dead: an item is born dead, and its place
//! is fenced off before anything is written there.
//!
//! Nothing is moved, and what is written at any moment describes the same live items: so a process that ends meanwhile
//! leaves the log as it found it.
//!
//! Unsafe code lives here because memory is read of which the compiler knows nothing. The invariant: the file is
//! locked, the cache is not in use yet, and every page is committed before it is looked at.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use crate::log::arena::Arena;
use crate::log::fresh::FreshItem;
use crate::log::item::{Found, ItemRef, Wholeness};
use crate::log::offset::Offset;
use crate::log::segment::{FREE, OpenSegment, SegmentId};
use crate::log::superblock::Left;
use crate::request::Now;

/// The segments and runs of an earlier process, in ascending order, while they are examined.
pub(crate) struct Adoption(Vec<OpenSegment>);

/// An item that was alive when the earlier process ended, to be linked or discarded.
pub(crate) struct Orphan<'g> {
    pub(crate) item: FreshItem<'g>,
    /// The earlier process was about to replace it: of two items of one key, the other is the newer.
    pub(crate) is_superseded: bool,
}

/// What the examination of a segment found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Examined {
    /// Items that were alive by their marks, but are not what was written.
    pub(crate) torn: u64,
}

impl Adoption {
    pub(crate) fn ids(&self) -> Vec<SegmentId> {
        self.0.iter().map(OpenSegment::id).collect()
    }
}

impl Arena {
    /// The highest flush mark of what was left: at least that of the engine when the earlier process ended.
    ///
    /// `None`: the system has no memory for the metadata.
    pub(crate) fn highest_flush_mark(&self, left: &Left) -> Option<u32> {
        if !self.segments.recommit(left.segments_end, left.runs_end) {
            return None;
        }
        let marks = self.left_ids(left).filter_map(|id| {
            let segment = self.segments.get(id);
            (segment.state() != FREE).then(|| segment.flush_mark.load(Relaxed))
        });
        Some(marks.fold(left.flush_mark, u32::max))
    }

    fn left_ids(&self, left: &Left) -> impl Iterator<Item = SegmentId> + use<> {
        let runs = self.segments.log_segments;
        (0..left.segments_end).chain(runs..runs + left.runs_end)
    }

    /// Takes over all segments and runs that may hold items with this flush mark. `None`: the system has no memory for
    /// them.
    ///
    /// # Safety
    /// [`Arena::highest_flush_mark`] was called, and the cache is not in use.
    pub(crate) unsafe fn adopt(&self, left: &Left, flush_mark: u32, now: Now) -> Option<Adoption> {
        let mut adopted = Vec::new();
        let mut run_end = 0;
        for id in self.left_ids(left) {
            let segment = self.segments.get(id);
            let is_kept = segment.state() != FREE && segment.flush_mark.load(Relaxed) == flush_mark;
            let filled_bytes = match self.segments.is_run(id) {
                false => segment.usage.filled_bytes().min(self.segments.segment_bytes as u64),
                true => self.left_run_bytes(id).filter(|_| id >= run_end).unwrap_or(0),
            };
            // SAFETY: by the caller's promise.
            unsafe {
                if is_kept && filled_bytes > 0 {
                    if self.segments.is_run(id) {
                        run_end = id + segment.run_units.load(Relaxed);
                    }
                    adopted.push(self.segments.adopt(id, filled_bytes, now));
                } else {
                    self.segments.disown(id);
                }
            }
        }
        let adoption = Adoption(adopted);
        let parts = self.parts(&adoption);
        parts.into_iter().all(|part| self.region.recommit(part)).then_some(adoption)
    }

    /// The memory of a run that was left. `None`: what its metadata says is impossible.
    fn left_run_bytes(&self, id: SegmentId) -> Option<u64> {
        let segment = self.segments.get(id);
        let run_units = segment.run_units.load(Relaxed);
        let end = id.checked_add(run_units)?;
        let bytes = segment.usage.filled_bytes();
        let is_possible = run_units > 0
            && end as usize <= self.segments.all.len()
            && bytes.is_multiple_of(self.segments.unit_bytes() as u64)
            && bytes <= self.segments.bytes_of(run_units);
        is_possible.then_some(bytes)
    }

    /// The parts of the log that have memory, in ascending order, joined where they touch.
    fn parts(&self, adoption: &Adoption) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for id in adoption.ids() {
            let start = self.segments.start(id);
            let end = start + self.segments.memory_bytes(id) as usize;
            match parts.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => parts.push(start..end),
            }
        }
        parts
    }

    /// Walks a segment that was taken over, and passes the items that were alive to `keep`, to be linked or discarded.
    /// With `verify`, checksums are compared.
    ///
    /// # Safety
    /// The segment is in an adoption of this log that was not settled yet, and is examined once.
    pub(crate) unsafe fn examine<'g>(
        &'g self,
        id: SegmentId,
        verify: bool,
        mut keep: impl FnMut(Orphan<'g>),
    ) -> Examined {
        let Some(seed) = self.checksum_seed() else { return Examined::default() };
        let (segment, start) = (self.segments.get(id), self.segments.start(id));
        let (mut at, end) = (start, start + segment.usage.filled_bytes() as usize);
        let mut examined = Examined::default();
        while at < end {
            // SAFETY: committed, and nobody writes there; what is found is kept until its segment is retired.
            let item = match unsafe { ItemRef::examine(&self.region, at, end) } {
                Found::Nothing => break,
                Found::Dead(bytes) => {
                    if self.segments.is_run(id) {
                        break;
                    }
                    segment.usage.add_dead(bytes as u64);
                    at += bytes;
                    continue;
                }
                Found::Alive(item) => item,
            };
            self.region.prefetch(at + LOOK_AHEAD_ITEMS * item.size());
            let wholeness = if verify { item.wholeness(seed) } else { Wholeness::Whole };
            // SAFETY: its lengths were checked.
            let orphan = unsafe { FreshItem::new(item, Offset::new(at)) };
            at += item.size();
            if wholeness == Wholeness::Torn || item.is_large() != self.segments.is_run(id) {
                examined.torn += 1;
                self.segments.discard_fresh(orphan);
            } else {
                keep(Orphan { item: orphan, is_superseded: wholeness == Wholeness::Superseded });
            }
            if self.segments.is_run(id) {
                // What its item leaves empty.
                segment.usage.add_dead((end - at) as u64);
                return examined;
            }
        }
        if self.segments.is_run(id) {
            segment.usage.add_dead((end - start) as u64);
        } else {
            segment.usage.set_filled((at - start) as u64);
        }
        examined
    }

    /// True if an item is whole, and was about to be replaced when the earlier process ended.
    pub(crate) fn is_superseded(&self, item: ItemRef<'_>) -> bool {
        self.checksum_seed().is_some_and(|seed| item.wholeness(seed) == Wholeness::Superseded)
    }

    /// Ends the adoption: what is dead goes back to the system, free segments to the pool. The rest is charged, and
    /// returned to be sealed.
    ///
    /// # Safety
    /// All segments were examined, and what was not discarded is linked.
    pub(crate) unsafe fn settle(&self, adoption: Adoption) -> Vec<OpenSegment> {
        let mut living = Vec::with_capacity(adoption.0.len());
        for open in adoption.0 {
            if self.segments.get(open.id()).usage.live_bytes() > 0 {
                living.push(open);
            } else {
                // SAFETY: nothing in it is linked.
                unsafe { self.segments.abandon(open) }
            }
        }
        let adoption = Adoption(living);
        let mut next = 0;
        let end = self.region.len_bytes();
        for part in self.parts(&adoption).into_iter().chain(std::iter::once(end..end)) {
            if part.start > next {
                // SAFETY: nothing lies there that is linked.
                unsafe { self.region.decommit(next, part.start - next) }
            }
            next = part.end;
        }
        let (mut runs, mut used) = (Vec::new(), Vec::new());
        for id in adoption.ids() {
            let memory_bytes = self.segments.memory_bytes(id);
            if self.segments.is_run(id) {
                self.budget.force(self.segments.charge_of_run(memory_bytes));
                runs.push((id, self.segments.get(id).run_units.load(Relaxed)));
            } else {
                self.budget.force(memory_bytes);
                self.segments.capacity_bytes.fetch_add(self.segments.get(id).usage.filled_bytes(), Relaxed);
                used.push(id);
            }
        }
        self.segments.rebuild_pool(|id| used.binary_search(&id).is_ok());
        self.rebuild_free_runs(&runs);
        adoption.0
    }
}

/// The header of an item is prefetched so many items ahead.
const LOOK_AHEAD_ITEMS: usize = 12;
