//! Where new items go: each handle's open segments.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::Engine;
use crate::log::holes::{self, HoleMap, Holes, PendingRefill};
use crate::log::segment::{FREE, GROUPS, SegmentId, group_of, open_secs_max};
use crate::policy::priority::{CLASSES, class_of};
use crate::policy::queues::ReclaimMode;
use crate::request::{Expiry, Now};

/// By queue, TTL group and class of worth.
type OpenSegments = [[[Option<Open>; CLASSES]; GROUPS]; 2];

/// Open segments that no handle has: where there are few for so many handles, each leaves its own to the next that
/// stores.
#[derive(Default)]
pub(crate) struct Parked(Mutex<Vec<OpenSegments>>);

impl Parked {
    fn take(&self) -> Option<OpenSegments> {
        self.sets().pop()
    }

    fn sets(&self) -> MutexGuard<'_, Vec<OpenSegments>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a handle keeps for itself.
#[derive(Default)]
pub(crate) struct Writer {
    open: OpenSegments,
    /// The segment this handle is emptying, or looking for gaps in.
    pub(crate) victim: Option<crate::reclaim::evict::Victim>,
    /// What was found in that so far.
    pub(crate) hole_map: HoleMap,
    /// The segment whose gaps will be filled next.
    pub(crate) pending_refill: Option<PendingRefill>,
    /// The line that took a segment last.
    busiest: Option<WriteStream>,
    /// What its evictions taught it.
    pub(crate) adaptation: crate::policy::priority::Adaptation,
    /// Items linked (less unlinked) that the index has not been told of.
    pub(crate) unreported_items: i64,
    /// What it evicted, if anybody wants to know.
    pub(crate) eviction_log: crate::inspect::eviction_log::EvictionLog,
    /// Where the background step is walking.
    pub(crate) crawl: crate::reclaim::evict::Crawl,
}

/// An item that wants a place.
#[derive(Clone, Copy)]
pub(crate) struct AllocRequest {
    pub(crate) queue: usize,
    /// See `priority.rs`.
    pub(crate) weight: u32,
    pub(crate) expiry: Expiry,
    pub(crate) bytes: usize,
}

/// Items that share segments: those of one queue, TTL group and class of worth.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteStream {
    queue: usize,
    group: usize,
    class: usize,
}

/// A place for an item.
#[derive(Clone, Copy)]
pub(crate) struct Allocation {
    /// In the log.
    pub(crate) at: usize,
    /// Where one of the same size will go soon.
    pub(crate) ahead: Option<usize>,
}

/// A segment being appended to, by one handle.
struct Open {
    id: SegmentId,
    next: usize,
    /// Of the segment, or of the gap.
    end: usize,
    /// Where it goes on then; `None`: the segment was empty.
    holes: Option<Box<Holes>>,
    /// Of all that was appended.
    weight: u32,
    flush_mark: u32,
    opened_secs: u32,
}

impl Writer {
    /// Allocation for `bytes` in an open segment, opening one if a free one is at hand. Evicts nothing, and takes no lock but the
    /// pool's and the queues', so it may be called while a bucket is locked.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        engine: &Engine,
        request: AllocRequest,
        now: Now,
        for_compaction: bool,
    ) -> Option<Allocation> {
        let AllocRequest { queue, weight, expiry, bytes } = request;
        let group = group_of(expiry, now, engine.groups);
        let class = class_of(bytes as u64, weight) * engine.classes / CLASSES;
        let mark = engine.flush_mark.load(Relaxed);
        let fit = self.open[queue][group][class].as_mut().filter(|open| {
            open.has_room(mark, bytes) && now.secs.saturating_sub(open.opened_secs) <= open_secs_max(group)
        });
        let room = match fit.and_then(|open| open.take(engine, bytes, weight)) {
            Some(room) => room,
            None => self.append_anew(
                engine,
                request,
                WriteStream { queue, group, class },
                mark,
                now,
                for_compaction,
            )?,
        };
        let id = engine.segments.id_at(room.at);
        let segment = engine.segments.get(id);
        segment.note_expiry(expiry);
        let filled_bytes = (room.at + bytes - engine.segments.start(id)) as u64;
        // Behind a gap there is more.
        if segment.usage.filled_bytes.load(Relaxed) < filled_bytes {
            segment.usage.filled_bytes.store(filled_bytes, Relaxed);
        }
        Some(room)
    }

    /// Allocation where the line's own segment has none: in a new one of that line, or beside others.
    #[cold]
    fn append_anew(
        &mut self,
        engine: &Engine,
        request: AllocRequest,
        stream: WriteStream,
        mark: u32,
        now: Now,
        for_compaction: bool,
    ) -> Option<Allocation> {
        let AllocRequest { weight, bytes, .. } = request;
        let WriteStream { queue, group, class } = stream;
        if engine.is_crowded
            && self.open_count() == 0
            && let Some(open) = engine.parked.take()
        {
            self.open = open;
            return self.append(engine, request, now, for_compaction);
        }
        if let Some(full) = self.open[queue][group][class].take() {
            full.seal(engine);
        }
        if self.open_count() < engine.open_max && !engine.is_sparing()
            || !self.has_room(engine, queue, group, mark, bytes)
        {
            let refilled = self.thread(engine, stream, mark, bytes, now);
            let is_refilled = refilled.is_some();
            let open = refilled.or_else(|| {
                engine.take_segment(for_compaction).map(|id| Open::new(engine, id, queue, group, mark, now))
            });
            self.open[queue][group][class] = open;
            if !for_compaction {
                self.busiest = Some(stream);
                if self.victim.is_none() {
                    // One goes, one comes: stores see to it while they fill the other.
                    self.victim = engine.victim_ahead(self, is_refilled);
                }
            }
        }
        let own = self.open[queue][group][class].as_mut();
        // No segment to be had, or enough of them half empty. Lines are a convenience: the nearest of this flush mark will do.
        own.and_then(|open| open.take(engine, bytes, weight))
            .or_else(|| self.take_beside(engine, stream, mark, bytes, weight))
    }

    /// Opens the segment whose gaps were made out, if it is of this line and nobody reads there any more.
    fn thread(
        &mut self,
        engine: &Engine,
        stream: WriteStream,
        mark: u32,
        bytes: usize,
        now: Now,
    ) -> Option<Open> {
        let pending_refill = self.pending_refill.as_mut()?;
        let segment = engine.segments.get(pending_refill.id);
        let is_useless = if segment.flush_mark.load(Relaxed) != mark {
            true
        } else if stream_of(engine, pending_refill.id) != stream {
            pending_refill.refusals += 1;
            pending_refill.refusals == REFUSALS_MAX
        } else if engine.epochs.horizon() <= pending_refill.tag {
            false
        } else if pending_refill.hole_map.holes.has_room(bytes) {
            let PendingRefill { id, hole_map, .. } = self.pending_refill.take()?;
            return Some(Open::refilled(engine, id, hole_map, stream.queue, mark, now));
        } else {
            segment.has_unfilled_holes.store(true, Relaxed);
            true
        };
        if is_useless {
            self.put_pending_refill_back(engine);
        }
        None
    }

    /// May what lives in a sealed segment, of which part is dead, stay where it is? If the handle fills segments of that line, and did not leave most
    /// gaps of this one empty the last time.
    pub(crate) fn may_refill(&self, engine: &Engine, id: SegmentId) -> bool {
        let segment = engine.segments.get(id);
        let filled_bytes = segment.usage.filled_bytes.load(Relaxed) as usize;
        engine.evict
            && !engine.is_crowded
            && self.pending_refill.is_none()
            && self.busiest == Some(stream_of(engine, id))
            && [0, GROUPS - 1].contains(&usize::from(segment.group.load(Relaxed)))
            && filled_bytes >= engine.segments.segment_bytes - engine.segments.segment_bytes / FULL_PART
            && !segment.has_unfilled_holes.load(Relaxed)
    }

    /// What to do with a segment that was claimed.
    pub(crate) fn mode(&self, engine: &Engine, id: SegmentId, mode: ReclaimMode) -> ReclaimMode {
        if mode == ReclaimMode::Compact && self.may_refill(engine, id) { ReclaimMode::Refill } else { mode }
    }

    /// Is it at work on memory that will be free?
    pub(crate) fn has_begun(&self) -> bool {
        self.victim.is_some() || self.pending_refill.is_some()
    }

    /// The gaps of the victim are known: as soon as nobody reads there any more it is the next to be written to.
    pub(crate) fn await_turns(&mut self, engine: &Engine, id: SegmentId) {
        let (tag, hole_map) =
            (engine.segments.await_turns(id, &engine.epochs), std::mem::take(&mut self.hole_map));
        self.pending_refill = Some(PendingRefill { id, tag, hole_map, refusals: 0 });
    }

    /// Leaves it to whoever wants it.
    pub(crate) fn put_pending_refill_back(&mut self, engine: &Engine) -> bool {
        let pending_refill = self.pending_refill.take();
        pending_refill.inspect(|pending_refill| engine.segments.put_back(pending_refill.id)).is_some()
    }

    fn open_count(&self) -> usize {
        self.open.iter().flatten().flatten().filter(|slot| slot.is_some()).count()
    }

    fn has_room(&self, engine: &Engine, queue: usize, group: usize, mark: u32, bytes: usize) -> bool {
        let streams =
            self.open[queue].iter().enumerate().filter(|(other, _)| !are_apart(engine, group, *other));
        streams.flat_map(|(_, stream)| stream).flatten().any(|open| open.has_room(mark, bytes))
    }

    fn take_beside(
        &mut self,
        engine: &Engine,
        WriteStream { queue, group, class }: WriteStream,
        mark: u32,
        bytes: usize,
        weight: u32,
    ) -> Option<Allocation> {
        let streams = self.open[queue].iter_mut().enumerate();
        let slots =
            streams.flat_map(|(group, stream)| stream.iter_mut().enumerate().map(move |slot| (group, slot)));
        let open = slots.filter_map(|(its_group, (its_class, slot))| {
            let open = slot.as_mut().filter(|open| open.has_room(mark, bytes))?;
            let is_last_resort = are_apart(engine, group, its_group);
            Some(((is_last_resort, its_group != group, its_class.abs_diff(class)), open))
        });
        open.min_by_key(|(distance, _)| *distance)?.1.take(engine, bytes, weight)
    }

    /// Takes back the most recent `append`, whose item will not be needed.
    pub(crate) fn take_back(&mut self, engine: &Engine, offset: usize) {
        let id = engine.segments.id_at(offset);
        if let Some(open) = self.slots().flatten().find(|open| open.id == id) {
            open.next = offset;
            if open.holes.is_none() {
                let filled = offset - engine.segments.start(id);
                engine.segments.get(id).usage.filled_bytes.store(filled as u64, Relaxed);
            }
        }
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut Option<Open>> {
        self.open.iter_mut().flatten().flatten()
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.has_begun() || self.open.iter().flatten().flatten().any(Option::is_some)
    }

    /// Leaves everything to other handles.
    pub(crate) fn park(&mut self, engine: &Engine) {
        if engine.is_crowded && self.open_count() > 0 {
            let open = std::mem::take(&mut self.open);
            engine.parked.sets().push(open);
        }
        self.close(engine);
    }

    /// Seals everything.
    pub(crate) fn close(&mut self, engine: &Engine) {
        for open in self.slots().filter_map(Option::take) {
            open.seal(engine);
        }
        if let Some(victim) = self.victim.take() {
            engine.segments.put_back(victim.id);
        }
        self.hole_map = HoleMap::default();
        self.put_pending_refill_back(engine);
    }
}

impl Engine {
    /// Seals what handles have parked, so that it can be emptied. False: there is nothing.
    pub(crate) fn seal_parked(&self) -> bool {
        let mut is_any = false;
        while let Some(open) = self.parked.take() {
            is_any = true;
            open.into_iter().flatten().flatten().flatten().for_each(|open| open.seal(self));
        }
        is_any
    }
}

/// The line that a sealed segment's items would be in.
fn stream_of(engine: &Engine, id: SegmentId) -> WriteStream {
    let segment = engine.segments.get(id);
    let class = class_of(segment.usage.filled_bytes.load(Relaxed), segment.weight.load(Relaxed));
    WriteStream {
        queue: segment.queue(),
        group: segment.group.load(Relaxed).into(),
        class: class * engine.classes / CLASSES,
    }
}

/// Do items of these TTL groups keep apart, if they can? Without eviction what has expired among items that live for ever is found only by looking
/// at all of them.
fn are_apart(engine: &Engine, group: usize, other: usize) -> bool {
    !engine.evict && (group == 0) != (other == 0)
}

impl Open {
    fn new(engine: &Engine, id: SegmentId, queue: usize, group: usize, flush_mark: u32, now: Now) -> Self {
        let segment = engine.segments.get(id);
        segment.open(queue, group, flush_mark, now);
        engine.segments.note_opened(id);
        segment.opened_clock.store(engine.segments.clock.load(Relaxed), Relaxed);
        let start = engine.segments.start(id);
        Self {
            id,
            next: start,
            end: start + engine.segments.segment_bytes,
            holes: None,
            weight: 0,
            flush_mark,
            opened_secs: now.secs,
        }
    }

    /// One with gaps. Before the first is entered there is no room.
    fn refilled(
        engine: &Engine,
        id: SegmentId,
        hole_map: HoleMap,
        queue: usize,
        flush_mark: u32,
        now: Now,
    ) -> Self {
        let segment = engine.segments.get(id);
        engine.segments.note_closed(id);
        segment.reopen(hole_map.holes.bytes(), now);
        engine.segments.note_opened(id);
        segment.opened_clock.store(engine.segments.clock.load(Relaxed), Relaxed);
        // What lives there is worth what it would be if it were copied.
        let weight = hole_map.live_items * engine.segments.insert_priority.at_first(queue);
        let start = engine.segments.start(id);
        let holes = Some(Box::new(hole_map.holes));
        Self { id, next: start, end: start, holes, weight, flush_mark, opened_secs: now.secs }
    }

    fn has_room(&self, mark: u32, bytes: usize) -> bool {
        let has_hole = || self.holes.as_ref().is_some_and(|holes| holes.has_room(bytes));
        self.flush_mark == mark && (holes::fits(self.end - self.next, bytes) || has_hole())
    }

    #[inline(always)]
    fn take(&mut self, engine: &Engine, bytes: usize, weight: u32) -> Option<Allocation> {
        if !holes::fits(self.end - self.next, bytes) {
            self.enter_hole(engine, bytes)?;
        }
        let at = self.next;
        self.next += bytes;
        engine.log.lend(at..self.next);
        self.weight += weight;
        let ahead = match &mut self.holes {
            None => Some(at + WRITE_AHEAD_ITEMS * bytes),
            Some(holes) => holes.fetch_next(bytes),
        };
        Some(Allocation { at, ahead })
    }

    #[inline(never)]
    fn enter_hole(&mut self, engine: &Engine, bytes: usize) -> Option<()> {
        let rest = self.next..self.end;
        let holes = self.holes.as_mut()?;
        if holes.is_new() {
            let ahead = (0..WRITE_AHEAD_ITEMS).map_while(|_| holes.fetch_next(bytes));
            ahead.for_each(|ahead| engine.log.prefetch_range(ahead, bytes));
        }
        let hole = holes.enter(bytes, rest.len())?;
        holes::close(engine, rest);
        engine.poison(hole.clone());
        (self.next, self.end) = (hole.start, hole.end);
        Some(())
    }

    fn seal(self, engine: &Engine) {
        let filled = self.next - engine.segments.start(self.id);
        let segment = engine.segments.get(self.id);
        segment.weight.store(self.weight, Relaxed);
        if let Some(holes) = &self.holes {
            holes::close(engine, self.next..self.end);
            let left_bytes = holes.left_bytes(self.end - self.next);
            segment.usage.dead_bytes.fetch_add(left_bytes as u64, Relaxed);
            segment.has_unfilled_holes.store(left_bytes > holes.bytes() / 2, Relaxed);
            engine.segments.seal(self.id);
            if segment.usage.live_bytes() == 0 {
                engine.retire_dead(self.id);
            }
        } else if filled == 0 {
            // Everything in it was taken back: nobody ever saw it.
            engine.segments.note_closed(self.id);
            segment.state.store(FREE, Relaxed);
            engine.segments.with_pool(|pool| pool.put_ready(self.id));
        } else {
            engine.segments.capacity_bytes.fetch_sub((self.end - self.next) as u64, Relaxed);
            engine.segments.seal(self.id);
            if segment.usage.live_bytes() == 0 {
                engine.retire_dead(self.id);
            }
        }
    }
}

/// How many items ahead of the writer memory is fetched. With one, the lock that follows still waited for some of it.
const WRITE_AHEAD_ITEMS: usize = 3;
/// A segment of which more than this part was never filled is better emptied.
const FULL_PART: usize = 8;
/// After so many segments of other lines, gaps are left to whoever wants them.
const REFUSALS_MAX: u32 = 8;
