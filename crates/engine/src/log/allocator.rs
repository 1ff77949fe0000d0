//! The allocator: appends new items to a handle's open segments.
//!
//! It takes no segment by itself. If no open segment of a stream has room it returns [`NeedSegment`], and its caller
//! (`reclaim/supply.rs`) finds one.
//!
//! Unsafe code lives here because space is handed out. The invariant: from `next` to `end` an open segment is its
//! handle's alone: nothing there can be found, and nobody reads there.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::log::arena::Arena;
use crate::log::fresh::{Allocation, FreshItem};
use crate::log::holes::{self, HoleMap, Holes};
use crate::log::offset::Offset;
use crate::log::segment::{CLASSES, FreeSegment, GROUPS, HeldSegment, OpenSegment};
use crate::request::{Expiry, Now};

/// The open segments of one handle.
pub(crate) struct Allocator {
    open: OpenSegments,
    /// Items without an expiry share no segment with others, if possible.
    separates_never_expiring: bool,
}

/// By queue, TTL group and priority class.
type OpenSegments = [[[Option<Open>; CLASSES]; GROUPS]; 2];

/// Open segments that no handle has. Where there are few segments for many handles, each idle handle leaves its own to
/// the next that stores.
#[derive(Default)]
pub(crate) struct Parked(Mutex<Vec<OpenSegments>>);

impl Parked {
    pub(crate) fn put(&self, Taken(open): Taken) {
        self.sets().push(open);
    }

    pub(crate) fn take(&self) -> Option<Taken> {
        self.sets().pop().map(Taken)
    }

    fn sets(&self) -> MutexGuard<'_, Vec<OpenSegments>> {
        // No code panics under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Open segments on the way from one handle to another.
pub(crate) struct Taken(OpenSegments);

impl Taken {
    /// As [`Allocator::close_all`].
    pub(crate) fn close_all(self, arena: &Arena) -> impl Iterator<Item = OpenSegment> {
        self.0.into_iter().flatten().flatten().filter_map(|slot| slot?.close(arena))
    }
}

/// A write stream: the items of one queue, TTL group and priority class share segments (`policy/streams.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteStream {
    pub(crate) queue: usize,
    pub(crate) group: usize,
    pub(crate) class: usize,
}

/// A request for the space of an item.
#[derive(Clone, Copy)]
pub(crate) struct AllocRequest {
    pub(crate) stream: WriteStream,
    /// See `policy/priority.rs`.
    pub(crate) weight: u32,
    pub(crate) expiry: Expiry,
    pub(crate) bytes: usize,
}

/// No open segment of the stream has room.
pub(crate) struct NeedSegment;

/// The properties of a segment that is opened.
#[derive(Clone, Copy)]
pub(crate) struct OpenTerms {
    pub(crate) stream: WriteStream,
    pub(crate) flush_mark: u32,
    pub(crate) now: Now,
    /// The last second in which it may be appended to, so that its items are of similar age.
    pub(crate) closes_secs: u32,
}

/// An open segment.
struct Open {
    segment: OpenSegment,
    next: usize,
    /// The end of the segment, or of the current hole.
    end: usize,
    /// The holes after that. `None`: the segment was empty when it was opened.
    holes: Option<Box<Holes>>,
    /// The sum over everything that was appended.
    weight: u32,
    flush_mark: u32,
    closes_secs: u32,
}

impl Allocator {
    pub(crate) fn new(separates_never_expiring: bool) -> Self {
        Self { open: Default::default(), separates_never_expiring }
    }

    /// Appends to the stream's own segment. Takes no lock, so it may be called while a bucket is locked.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        arena: &Arena,
        request: &AllocRequest,
        flush_mark: u32,
        now: Now,
    ) -> Result<Allocation, NeedSegment> {
        let own = self.slot(request.stream).as_mut();
        let fit = own.filter(|open| open.has_room(flush_mark, request.bytes) && now.secs <= open.closes_secs);
        let allocation = fit.and_then(|open| open.take(arena, request)).ok_or(NeedSegment)?;
        note_appended(arena, request, &allocation);
        Ok(allocation)
    }

    /// Takes all open segments out, for another handle.
    pub(crate) fn take_open(&mut self) -> Taken {
        Taken(std::mem::take(&mut self.open))
    }

    /// Takes over what another handle left. This handle must have no open segments.
    pub(crate) fn adopt(&mut self, Taken(open): Taken) {
        debug_assert_eq!(self.open_count(), 0, "open segments are sealed before others take their place");
        self.open = open;
    }

    /// Appends to the open segment of the most similar stream: for when there is no free segment, or enough are open.
    pub(crate) fn append_nearest(
        &mut self,
        arena: &Arena,
        request: &AllocRequest,
        flush_mark: u32,
    ) -> Option<Allocation> {
        let own = self.slot(request.stream).as_mut();
        let allocation = own
            .and_then(|open| open.take(arena, request))
            .or_else(|| self.append_beside(arena, request, flush_mark))?;
        note_appended(arena, request, &allocation);
        Some(allocation)
    }

    fn append_beside(
        &mut self,
        arena: &Arena,
        request: &AllocRequest,
        flush_mark: u32,
    ) -> Option<Allocation> {
        let WriteStream { queue, group, class } = request.stream;
        let is_separate = |other: usize| self.separates_never_expiring && (group == 0) != (other == 0);
        let groups = self.open[queue].iter_mut().enumerate();
        let slots =
            groups.flat_map(|(group, classes)| classes.iter_mut().enumerate().map(move |slot| (group, slot)));
        let open = slots.filter_map(|(its_group, (its_class, slot))| {
            let open = slot.as_mut().filter(|open| open.has_room(flush_mark, request.bytes))?;
            Some(((is_separate(its_group), its_group != group, its_class.abs_diff(class)), open))
        });
        open.min_by_key(|(distance, _)| *distance)?.1.take(arena, request)
    }

    /// True if an open segment of another stream, which items of this one may share, has room.
    pub(crate) fn has_room_beside(&self, request: &AllocRequest, flush_mark: u32) -> bool {
        let WriteStream { queue, group, .. } = request.stream;
        let is_separate = |other: usize| self.separates_never_expiring && (group == 0) != (other == 0);
        let groups = self.open[queue].iter().enumerate().filter(|(other, _)| !is_separate(*other));
        groups.flat_map(|(_, classes)| classes).flatten().any(|open| open.has_room(flush_mark, request.bytes))
    }

    /// Opens a free segment.
    pub(crate) fn open(&mut self, arena: &Arena, free: FreeSegment, terms: &OpenTerms) {
        let WriteStream { queue, group, .. } = terms.stream;
        let start = arena.segments.start(free.id());
        let segment = arena.segments.open(free, queue, group, terms.flush_mark, terms.now);
        let end = start + arena.segments.segment_bytes;
        *self.slot(terms.stream) = Some(Open::new(segment, start, end, terms));
    }

    /// Opens a segment to fill its holes, which nobody reads any more. `weight` is that of its live items. It has no
    /// room before the first hole is entered.
    pub(crate) fn open_holes(
        &mut self,
        arena: &Arena,
        held: HeldSegment,
        hole_map: HoleMap,
        weight: u32,
        terms: &OpenTerms,
    ) {
        assert!(hole_map.is_of(&arena.segments, &held) && held.is_unread(&arena.epochs));
        let start = arena.segments.start(held.id());
        // SAFETY: every guard has ended that may read there.
        let segment = unsafe { arena.segments.reopen(held, hole_map.holes.bytes(), terms.now) };
        let holes = Some(Box::new(hole_map.holes));
        *self.slot(terms.stream) = Some(Open { holes, weight, ..Open::new(segment, start, start, terms) });
    }

    /// Closes a stream's open segment, if there is one. Returns it, to be sealed, unless it was empty.
    pub(crate) fn close(&mut self, arena: &Arena, stream: WriteStream) -> Option<OpenSegment> {
        self.slot(stream).take()?.close(arena)
    }

    /// The same for all streams.
    pub(crate) fn close_all(&mut self, arena: &Arena) -> impl Iterator<Item = OpenSegment> {
        self.slots().filter_map(|slot| slot.take()?.close(arena))
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open.iter().flatten().flatten().filter(|slot| slot.is_some()).count()
    }

    /// Takes back the most recent append, whose item is not needed.
    pub(crate) fn take_back(&mut self, arena: &Arena, item: FreshItem<'_>) {
        let at = item.allocation().at();
        let (start, end) = (at.bytes(), at.bytes() + item.allocation().bytes());
        let id = arena.segments.id_at(at);
        match self.slots().flatten().find(|open| open.segment.id() == id && open.next == end) {
            Some(open) => {
                open.next = start;
                if open.holes.is_none() {
                    let filled = start - arena.segments.start(id);
                    arena.segments.get(id).usage.set_filled(filled as u64);
                }
            }
            // Something was appended behind it.
            None => arena.segments.discard_fresh(item),
        }
    }

    #[inline(always)]
    fn slot(&mut self, WriteStream { queue, group, class }: WriteStream) -> &mut Option<Open> {
        &mut self.open[queue][group][class]
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut Option<Open>> {
        self.open.iter_mut().flatten().flatten()
    }
}

/// Counts an item that will be written there.
#[inline(always)]
fn note_appended(arena: &Arena, request: &AllocRequest, allocation: &Allocation) {
    let id = arena.segments.id_at(allocation.at());
    let segment = arena.segments.get(id);
    segment.note_expiry(request.expiry);
    let filled_bytes = (allocation.at().bytes() + request.bytes - arena.segments.start(id)) as u64;
    // Not behind a hole, where more follows.
    if segment.usage.filled_bytes() < filled_bytes {
        segment.usage.set_filled(filled_bytes);
    }
}

impl Open {
    fn new(segment: OpenSegment, next: usize, end: usize, terms: &OpenTerms) -> Self {
        let &OpenTerms { flush_mark, closes_secs, .. } = terms;
        Self { segment, next, end, holes: None, weight: 0, flush_mark, closes_secs }
    }

    fn has_room(&self, flush_mark: u32, bytes: usize) -> bool {
        let has_hole = || self.holes.as_ref().is_some_and(|holes| holes.has_room(bytes));
        self.flush_mark == flush_mark && (holes::fits(self.end - self.next, bytes) || has_hole())
    }

    #[inline(always)]
    fn take(&mut self, arena: &Arena, request: &AllocRequest) -> Option<Allocation> {
        let bytes = request.bytes;
        if !holes::fits(self.end - self.next, bytes) {
            self.enter_hole(arena, bytes)?;
        }
        let at = self.next;
        self.next += bytes;
        arena.region.unpoison(at..self.next);
        if arena.has_checksums() {
            let rest_end = if self.holes.is_some() { self.end } else { self.next };
            // SAFETY: up to the end the space is ours alone.
            unsafe { holes::fence_off(arena, at..self.next, self.next..rest_end) }
        }
        self.weight += request.weight;
        let ahead = match &mut self.holes {
            None => Some(at + WRITE_AHEAD_ITEMS * bytes),
            Some(holes) => holes.fetch_next(bytes),
        };
        // SAFETY: it fits before the end, and what is handed out next lies behind it.
        Some(unsafe { Allocation::new(Offset::new(at), bytes, ahead) })
    }

    #[inline(never)]
    fn enter_hole(&mut self, arena: &Arena, bytes: usize) -> Option<()> {
        let rest = self.next..self.end;
        let holes = self.holes.as_mut()?;
        if holes.is_new() {
            let ahead = (0..WRITE_AHEAD_ITEMS).map_while(|_| holes.fetch_next(bytes));
            ahead.for_each(|ahead| arena.region.prefetch_range(ahead, bytes));
        }
        let hole = holes.enter(bytes, rest.len())?;
        // SAFETY: the rest of the last hole is ours alone; and so is the next, since its items were dead when it was
        // mapped, and nobody reads there since the segment was opened.
        unsafe {
            holes::close(arena, rest);
            holes::begin(arena, hole.clone());
        }
        (self.next, self.end) = (hole.start, hole.end);
        Some(())
    }

    fn close(self, arena: &Arena) -> Option<OpenSegment> {
        let filled = self.next - arena.segments.start(self.segment.id());
        let segment = arena.segments.get(self.segment.id());
        segment.weight.store(self.weight, Relaxed);
        if let Some(holes) = &self.holes {
            // SAFETY: the rest of the last hole is ours alone.
            unsafe { holes::close(arena, self.next..self.end) };
            let left_bytes = holes.left_bytes(self.end - self.next);
            segment.usage.add_dead(left_bytes as u64);
            segment.has_unfilled_holes.store(left_bytes > holes.bytes() / 2, Relaxed);
        } else if filled == 0 {
            // SAFETY: every item in it was taken back, so nobody ever saw it.
            let free = unsafe { arena.segments.free_unused(self.segment) };
            arena.segments.with_pool(|pool| pool.put_ready(free));
            return None;
        } else {
            arena.segments.capacity_bytes.fetch_sub((self.end - self.next) as u64, Relaxed);
        }
        Some(self.segment)
    }
}

/// Memory is prefetched this many items ahead of the writer. With one, the lock that follows still waited for some of
/// it.
const WRITE_AHEAD_ITEMS: usize = 3;
