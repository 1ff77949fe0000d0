//! Where new items go: each handle's open segments.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::request::{Expiry, Now};
use crate::segment::{FREE, GROUPS, Id, group_of, open_secs_max};
use crate::worth::{CLASSES, class_of};

/// What a handle keeps for itself.
#[derive(Default)]
pub(crate) struct Writer {
    /// By queue, TTL group and class of worth.
    open: [[[Option<Open>; CLASSES]; GROUPS]; 2],
    /// The segment this handle is emptying.
    pub(crate) victim: Option<crate::evict::Victim>,
    /// What its evictions taught it.
    pub(crate) lesson: crate::worth::Lesson,
    /// The last CAS value given.
    pub(crate) last_cas: u64,
    /// Items linked (less unlinked) that the index has not been told of.
    pub(crate) unreported_items: i64,
    /// What it evicted, if anybody wants to know.
    pub(crate) record: crate::evicted::Record,
    /// Where the background step is walking.
    pub(crate) crawl: crate::evict::Crawl,
}

/// An item that wants a place.
#[derive(Clone, Copy)]
pub(crate) struct Guest {
    pub(crate) queue: usize,
    /// See `worth.rs`.
    pub(crate) weight: u32,
    pub(crate) expiry: Expiry,
    pub(crate) bytes: usize,
}

/// A segment being appended to, by one handle.
#[derive(Clone, Copy)]
struct Open {
    id: Id,
    next: usize,
    end: usize,
    /// Of all that was appended.
    weight: u32,
    flush_mark: u32,
    opened_secs: u32,
}

impl Writer {
    /// Room for `bytes` in an open segment, opening one if a free one is at hand. Evicts nothing, and takes no lock but the
    /// pool's, so it may be called while a bucket is locked. Returns an offset of the log.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        engine: &Engine,
        guest: Guest,
        now: Now,
        for_compaction: bool,
    ) -> Option<usize> {
        let Guest { queue, weight, expiry, bytes } = guest;
        let group = group_of(expiry, now, engine.groups);
        let class = class_of(bytes as u64, weight) * engine.classes / CLASSES;
        let mark = engine.flush_mark.load(Relaxed);
        let fit = self.open[queue][group][class].as_mut().filter(|open| {
            open.has_room(mark, bytes) && now.secs.saturating_sub(open.opened_secs) <= open_secs_max(group)
        });
        let at = match fit.and_then(|open| open.take(bytes, weight)) {
            Some(at) => at,
            None => self.append_anew(engine, guest, (group, class), mark, now, for_compaction)?,
        };
        let id = engine.segments.id_at(at);
        let segment = engine.segments.get(id);
        segment.note_expiry(expiry);
        segment.books.filled_bytes.store((at + bytes - engine.segments.start(id)) as u64, Relaxed);
        Some(at)
    }

    /// Room where the line's own segment has none: in a new one of that line, or beside others.
    #[cold]
    fn append_anew(
        &mut self,
        engine: &Engine,
        guest: Guest,
        (group, class): (usize, usize),
        mark: u32,
        now: Now,
        for_compaction: bool,
    ) -> Option<usize> {
        let Guest { queue, weight, bytes, .. } = guest;
        if let Some(full) = self.open[queue][group][class].take() {
            full.seal(engine);
        }
        if self.open_count() < engine.open_max && !engine.is_sparing()
            || !self.has_room(engine, queue, group, mark, bytes)
        {
            let id = engine.take_segment(for_compaction);
            if !for_compaction && self.victim.is_none() {
                // One goes, one comes: stores empty it while they fill the other.
                self.victim = engine.hollow_victim();
            }
            self.open[queue][group][class] = id.map(|id| Open::new(engine, id, queue, group, mark, now));
        }
        let own = self.open[queue][group][class].as_mut().and_then(|open| open.take(bytes, weight));
        // No segment to be had, or enough of them half empty. Lines are a convenience: the nearest of this flush mark will do.
        own.or_else(|| self.take_beside(engine, queue, (group, class), mark, bytes, weight))
    }

    fn open_count(&self) -> usize {
        self.open.iter().flatten().flatten().filter(|slot| slot.is_some()).count()
    }

    fn has_room(&self, engine: &Engine, queue: usize, group: usize, mark: u32, bytes: usize) -> bool {
        let lines =
            self.open[queue].iter().enumerate().filter(|(other, _)| !are_apart(engine, group, *other));
        lines.flat_map(|(_, line)| line).flatten().any(|open| open.has_room(mark, bytes))
    }

    fn take_beside(
        &mut self,
        engine: &Engine,
        queue: usize,
        (group, class): (usize, usize),
        mark: u32,
        bytes: usize,
        weight: u32,
    ) -> Option<usize> {
        let lines = self.open[queue].iter_mut().enumerate();
        let slots =
            lines.flat_map(|(group, line)| line.iter_mut().enumerate().map(move |slot| (group, slot)));
        let open = slots.filter_map(|(its_group, (its_class, slot))| {
            let open = slot.as_mut().filter(|open| open.has_room(mark, bytes))?;
            let is_last_resort = are_apart(engine, group, its_group);
            Some(((is_last_resort, its_group != group, its_class.abs_diff(class)), open))
        });
        open.min_by_key(|(distance, _)| *distance)?.1.take(bytes, weight)
    }

    /// Takes back the most recent `append`, whose item will not be needed.
    pub(crate) fn take_back(&mut self, engine: &Engine, offset: usize) {
        let id = engine.segments.id_at(offset);
        if let Some(open) = self.slots().flatten().find(|open| open.id == id) {
            open.next = offset;
            let filled = offset - engine.segments.start(id);
            engine.segments.get(id).books.filled_bytes.store(filled as u64, Relaxed);
        }
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut Option<Open>> {
        self.open.iter_mut().flatten().flatten()
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.victim.is_some() || self.open.iter().flatten().flatten().any(Option::is_some)
    }

    /// Seals everything.
    pub(crate) fn close(&mut self, engine: &Engine) {
        for open in self.slots().filter_map(Option::take) {
            open.seal(engine);
        }
        if let Some(victim) = self.victim.take() {
            engine.segments.put_back(victim.id);
        }
    }
}

/// Do items of these TTL groups keep apart, if they can? Without eviction what has expired among items that live for ever is found only by looking
/// at all of them.
fn are_apart(engine: &Engine, group: usize, other: usize) -> bool {
    !engine.evict && (group == 0) != (other == 0)
}

impl Open {
    fn new(engine: &Engine, id: Id, queue: usize, group: usize, flush_mark: u32, now: Now) -> Self {
        let segment = engine.segments.get(id);
        segment.open(queue, group, flush_mark, now);
        segment.opened_clock.store(engine.segments.clock.load(Relaxed), Relaxed);
        let start = engine.segments.start(id);
        Self {
            id,
            next: start,
            end: start + engine.segments.segment_bytes,
            weight: 0,
            flush_mark,
            opened_secs: now.secs,
        }
    }

    fn has_room(&self, mark: u32, bytes: usize) -> bool {
        self.flush_mark == mark && self.end - self.next >= bytes
    }

    fn take(&mut self, bytes: usize, weight: u32) -> Option<usize> {
        let at = self.next;
        (self.end - at >= bytes).then(|| {
            self.next += bytes;
            self.weight += weight;
            at
        })
    }

    fn seal(self, engine: &Engine) {
        let filled = self.next - engine.segments.start(self.id);
        let segment = engine.segments.get(self.id);
        segment.weight.store(self.weight, Relaxed);
        if filled == 0 {
            // Everything in it was taken back: nobody ever saw it.
            segment.state.store(FREE, Relaxed);
            engine.segments.with_pool(|pool| pool.put_ready(self.id));
        } else {
            engine.segments.capacity_bytes.fetch_sub((self.end - self.next) as u64, Relaxed);
            engine.segments.seal(self.id);
            if segment.books.live_bytes() == 0 {
                engine.retire_dead(self.id);
            }
        }
    }
}
