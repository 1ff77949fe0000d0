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

use crate::log::segment::{CLAIMED, GROUPS, Id, Segment, Segments, WAITING};
use crate::policy::priority::{self, CLASSES};
use crate::request::Now;
use crate::sync::MutexGuard;

/// One place in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) id: Id,
    life: u32,
    /// By the queues' clock.
    due: u64,
}

/// A segment of which less is dead is not worth moving: its items are looked at, and next to nothing is won. More than that is dead in some
/// segment while all of what is kept for gaps (`over_provisioning.rs`) is in use.
const LEAST_GAIN_PART: u64 = 64;

/// Which segment to empty, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Drop what was not read; keep what was.
    Evict,
    /// Keep everything alive: the dead bytes are what is wanted.
    Compact,
    /// Find the dead bytes, to be written to between what lives.
    Thread,
    /// Everything is dead.
    Clear,
}

/// The lines of segments that wait. Locked once per segment or run.
pub(crate) struct Queues {
    /// By queue, TTL group and class of worth, oldest first. May hold places of segments that are gone.
    lines: Vec<VecDeque<Place>>,
    /// Sealed segments that became thin, by how thin, in the order in which they did. Each at most once, so that no list outgrows what there
    /// is; who has died or was emptied since may still be here.
    thin: [VecDeque<Id>; THIN.len()],
}

/// How much of a sealed segment is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thin {
    /// A quarter. Used again before anything that lives is evicted: four bytes are looked at for one that comes back, as many as a store pays
    /// for; at a half, keys that all fit were evicted while they were overwritten.
    Sparse,
    /// Three quarters. Used again before memory is touched that never was: overwrites take about twice what lives, however far away the limit
    /// is. At a half they would take 1.4 times as much, and copy an item for each that is stored.
    Hollow,
}

pub(crate) const THIN: [Thin; 2] = [Thin::Sparse, Thin::Hollow];

impl Thin {
    /// In `Segment::listed`.
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Default for Queues {
    fn default() -> Self {
        Self { lines: vec![VecDeque::new(); 2 * GROUPS * CLASSES], thin: Default::default() }
    }
}

impl Segments {
    /// Puts a segment or run at the end of its queue.
    pub(crate) fn seal(&self, id: Id) {
        let mut queues = self.queues();
        let segment = self.get(id);
        if self.is_run(id) {
            if segment.weight.load(Relaxed) == 0 {
                let queue = usize::from(segment.queue.load(Relaxed));
                segment.weight.store(self.novelty.at_first(queue), Relaxed);
            }
            segment.opened_clock.store(self.clock.load(Relaxed), Relaxed);
        }
        let credit =
            priority::credit_of(segment.books.filled_bytes.load(Relaxed), segment.weight.load(Relaxed));
        let due = segment.opened_clock.load(Relaxed) + credit;
        let place = Place { id, life: segment.life.load(Relaxed), due };
        self.let_wait(&mut queues, id).push_back(place);
        // What was overwritten at once is dead before its segment is full.
        if !self.is_run(id) {
            self.list_if_thin(&mut queues, id);
        }
    }

    /// Puts a victim back where it came from: its emptying could not be finished.
    pub(crate) fn put_back(&self, id: Id) {
        let mut queues = self.queues();
        let place = Place { id, life: self.get(id).life.load(Relaxed), due: 0 };
        self.let_wait(&mut queues, id).push_front(place);
        self.list_if_thin(&mut queues, id);
    }

    /// From here on the segment may be claimed. Returns the line in which it is to have a place.
    fn let_wait<'q>(&self, queues: &'q mut Queues, id: Id) -> &'q mut VecDeque<Place> {
        let segment = self.get(id);
        let (queue, group) = (segment.queue.load(Relaxed), segment.group.load(Relaxed));
        let class =
            priority::class_of(segment.books.filled_bytes.load(Relaxed), segment.weight.load(Relaxed));
        segment.state.store(WAITING, Release);
        let line = (usize::from(queue) * GROUPS + usize::from(group)) * CLASSES + class;
        let line = &mut queues.lines[line];
        if line.len() > 2 * self.all.len() {
            line.retain(|place| self.is_waiting(place));
        }
        line
    }

    /// A sealed segment lost bytes, and has become that thin: remember it.
    pub(crate) fn note_thin(&self, id: Id, thin: Thin) {
        self.list_thin(&mut self.queues(), id, thin);
    }

    fn list_if_thin(&self, queues: &mut Queues, id: Id) {
        for thin in THIN.into_iter().filter(|&thin| self.is_thin(id, thin)) {
            self.list_thin(queues, id, thin);
        }
    }

    fn list_thin(&self, queues: &mut Queues, id: Id, thin: Thin) {
        if self.get(id).listed.fetch_or(thin.bit(), Relaxed) & thin.bit() == 0 {
            queues.thin[thin as usize].push_back(id);
        }
    }

    /// Claims the one that has been that thin for longest.
    fn claim_thin(&self, queues: &mut Queues, thin: Thin) -> Option<Id> {
        while let Some(id) = queues.thin[thin as usize].pop_front() {
            self.get(id).listed.fetch_and(!thin.bit(), Relaxed);
            if self.is_thin(id, thin) && self.claim(id) {
                return Some(id);
            }
        }
        None
    }

    /// The one that would be claimed next for being thin, if it is such a one.
    pub(crate) fn claim_thin_if(&self, is_wanted: impl Fn(Id) -> bool) -> Option<Id> {
        let mut queues = self.queues();
        for thin in THIN.into_iter().rev() {
            while let Some(&id) = queues.thin[thin as usize].front() {
                let is_thin = self.is_thin(id, thin) && self.get(id).state.load(Relaxed) == WAITING;
                if is_thin && !is_wanted(id) {
                    return None;
                }
                queues.thin[thin as usize].pop_front();
                self.get(id).listed.fetch_and(!thin.bit(), Relaxed);
                if is_thin && self.claim(id) {
                    return Some(id);
                }
            }
        }
        None
    }

    /// A segment that is to be used again although there is memory enough.
    pub(crate) fn claim_hollow(&self) -> Option<Id> {
        self.claim_thin(&mut self.queues(), Thin::Hollow)
    }

    /// Takes a segment or run out of its queue before its time (what it held was deleted or replaced). False if another has
    /// it already.
    pub(crate) fn withdraw(&self, id: Id) -> bool {
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
    ) -> Option<(Id, Treatment)> {
        let mut queues = self.queues();
        self.drop_stale_fronts(&mut queues);
        let is_dead = |place: &&Place| {
            let segment = self.get(place.id);
            segment.is_expired(now) || segment.flush_mark.load(Relaxed) != flush_mark
        };
        let fronts = || queues.lines.iter().filter_map(|line| line.front());
        if let Some(&place) = fronts().find(is_dead) {
            return self.claim(place.id).then_some((place.id, Treatment::Clear));
        }
        if only_dead {
            return None;
        }
        if let Some(id) = THIN.into_iter().rev().find_map(|thin| self.claim_thin(&mut queues, thin)) {
            return Some((id, Treatment::Compact));
        }
        if !evict {
            return None;
        }
        let place = *queues.lines.iter().filter_map(|line| line.front()).min_by_key(|place| place.due)?;
        self.clock.fetch_max(place.due, Relaxed);
        self.claim(place.id).then_some((place.id, Treatment::Evict))
    }

    /// Claims the large item that is due first. Looks at all that waits: only where their address space lacks.
    pub(crate) fn next_run(&self) -> Option<Id> {
        let queues = self.queues();
        let waiting = queues.lines.iter().flatten();
        let runs = waiting.filter(|place| self.is_run(place.id) && self.is_waiting(place));
        let id = runs.min_by_key(|place| place.due)?.id;
        self.claim(id).then_some(id)
    }

    /// Without eviction: the waiting segment with the most dead bytes, if it has enough to be worth moving the rest.
    pub(crate) fn most_dead(&self) -> Option<Id> {
        let dead = |id: &Id| {
            let segment = self.get(*id);
            segment.books.filled_bytes.load(Relaxed).saturating_sub(segment.books.live_bytes())
        };
        let waiting = self.log_ids().filter(|&id| self.get(id).state.load(Acquire) == WAITING);
        let id = waiting.max_by_key(dead)?;
        let enough = dead(&id) >= self.segment_bytes as u64 / LEAST_GAIN_PART;
        (enough && self.withdraw(id)).then_some(id)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        // Nothing in here panics half-way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_waiting(&self, place: &Place) -> bool {
        let segment = self.get(place.id);
        segment.life.load(Relaxed) == place.life && segment.state.load(Relaxed) == WAITING
    }

    /// With less that lives a sealed segment is that thin. What large items leave empty at its end does not come back: moved, they would leave it
    /// empty elsewhere. But a segment that was sealed early, less than half full, can share one.
    #[inline]
    pub(crate) fn thin_bytes(&self, segment: &Segment, thin: Thin) -> u64 {
        let quarter_bytes = segment.books.filled_bytes.load(Relaxed) / 4;
        match thin {
            Thin::Sparse => (quarter_bytes * 3).max(self.segment_bytes as u64 / 2),
            Thin::Hollow => quarter_bytes,
        }
    }

    fn is_thin(&self, id: Id, thin: Thin) -> bool {
        let segment = self.get(id);
        segment.books.live_bytes() < self.thin_bytes(segment, thin)
    }

    /// Makes a waiting segment the caller's; its places in the queues go stale, for good.
    fn claim(&self, id: Id) -> bool {
        let segment = self.get(id);
        let won = segment.state.compare_exchange(WAITING, CLAIMED, AcqRel, Relaxed).is_ok();
        if won {
            segment.life.fetch_add(1, Relaxed);
        }
        won
    }

    fn drop_stale_fronts(&self, queues: &mut Queues) {
        for line in &mut queues.lines {
            while line.front().is_some_and(|place| !self.is_waiting(place)) {
                line.pop_front();
            }
        }
    }
}
