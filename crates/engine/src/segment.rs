//! Segments: the pieces the log is cut into, who holds them, and the order in which they go.
//!
//! A segment holds items of one queue and one TTL group, appended until it is full. A large item has a run of segments of its
//! own (`run.rs`), which goes the same way. Who has it, and what comes next:
//!
//! | state | whose | next | by |
//! |---|---|---|---|
//! | [`FREE`], bare | the pool's; has no memory | open | `Engine::add_segment`, `take_run` |
//! | [`FREE`], ready (a run: warm) | the pool's; has memory | open | `Engine::take_segment`, `take_run` |
//! | | | bare, when the memory is wanted elsewhere | `decommit_segment`, `cool_run` |
//! | [`OPEN`] | a handle appends to it | waiting | `Open::seal` |
//! | (a run: still [`FREE`]) | an upload fills it | waiting | `Turn::publish` |
//! | [`WAITING`] | its queue's | claimed | [`Segments::next_victim`], `most_dead`, `withdraw` |
//! | [`CLAIMED`] | a handle empties it | waiting again | [`Segments::put_back`]; a run that was read: `seal` |
//! | | | limbo | `Engine::retire_segment`, `retire` |
//! | limbo: [`FREE`] (a run: [`CLAIMED`]) | nobody's; readers may still be there | ready, warm | `Engine::reclaim`; a run when its last pin goes |
//!
//! A segment whose last item dies while it waits is claimed and retired on the spot.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::request::{Expiry, Now};

/// TTL groups: items that expire at about the same time share segments, and go together. Group 0 never expires; the others
/// live up to a minute, 8 minutes, an hour, 8 hours, and longer.
pub(crate) const GROUPS: usize = 6;
pub(crate) const GROUP_SECS: [u32; GROUPS] = [u32::MAX, 60, 480, 3600, 8 * 3600, u32::MAX];

/// Where new keys go: about a tenth of the memory.
pub(crate) const SMALL: usize = 0;
/// Where keys go that were read again, or that come back soon after they were evicted.
pub(crate) const MAIN: usize = 1;
/// In statistics only: large items, whichever queue they wait in.
pub(crate) const LARGE: usize = 2;

/// The number of a segment, or of a run's first segment.
pub(crate) type Id = u32;

/// The group for an item that dies at `expiry`.
pub(crate) fn group_of(expiry: Expiry, now: Now, groups: usize) -> usize {
    let Some(at) = expiry.secs() else { return 0 };
    let ttl_secs = at.saturating_sub(now.secs);
    let group = (1..GROUPS).find(|&group| ttl_secs <= GROUP_SECS[group]).unwrap_or(GROUPS - 1);
    // A small cache cannot afford many open segments.
    group.min(groups - 1)
}

/// For how long a segment of a group may be appended to, so that its items stay of one age.
pub(crate) fn open_secs_max(group: usize) -> u32 {
    GROUP_SECS[group] / 2
}

/// What is known of a segment. Written by whoever holds it, but for the counters.
#[derive(Default)]
pub(crate) struct Segment {
    /// SMALL or MAIN.
    pub(crate) queue: AtomicU8,
    pub(crate) group: AtomicU8,
    /// [`FREE`], [`OPEN`], [`WAITING`] or [`CLAIMED`].
    pub(crate) state: AtomicU8,
    /// Changes whenever the segment is opened or claimed, so that a place in a queue that has outlived its purpose is
    /// recognised.
    pub(crate) life: AtomicU32,
    /// The flush mark when it was opened; items under an older mark than the engine's are flushed.
    pub(crate) flush_mark: AtomicU32,
    /// Bytes appended; for a run its memory.
    pub(crate) filled_bytes: AtomicU64,
    /// Bytes of items that the index points to. From when it waits never below the truth: whoever appended has counted all
    /// items before, and others subtract what they have unlinked.
    pub(crate) live_bytes: AtomicU64,
    /// The second from which all items are dead; u32::MAX: one never dies; 0: no item yet.
    pub(crate) expiry_max: AtomicU32,
    pub(crate) opened_secs: AtomicU32,
    /// Runs: how many readers beyond turns hold it, and [`DOOMED`].
    pub(crate) pins: AtomicU32,
    /// Runs: address space in segments.
    pub(crate) run_segments: AtomicU32,
}

/// Nobody's, or in limbo.
pub(crate) const FREE: u8 = 0;
/// A handle appends to it.
pub(crate) const OPEN: u8 = 1;
/// Sealed, in its queue.
pub(crate) const WAITING: u8 = 2;
/// Sealed, and a handle is emptying it.
pub(crate) const CLAIMED: u8 = 3;

/// In [`Segment::pins`]: the run is to be freed with the last pin.
pub(crate) const DOOMED: u32 = 1 << 31;

impl Segment {
    /// Begins a new life.
    pub(crate) fn open(&self, queue: usize, group: usize, flush_mark: u32, now: Now) {
        self.queue.store(queue as u8, Relaxed);
        self.group.store(group as u8, Relaxed);
        self.state.store(OPEN, Relaxed);
        self.life.fetch_add(1, Relaxed);
        self.flush_mark.store(flush_mark, Relaxed);
        self.filled_bytes.store(0, Relaxed);
        self.live_bytes.store(0, Relaxed);
        self.expiry_max.store(0, Relaxed);
        self.opened_secs.store(now.secs, Relaxed);
        self.pins.store(0, Relaxed);
    }

    /// An item with this expiry lives here.
    pub(crate) fn note_expiry(&self, expiry: Expiry) {
        let dies = expiry.secs().unwrap_or(u32::MAX);
        if self.expiry_max.load(Relaxed) < dies {
            self.expiry_max.fetch_max(dies, Relaxed);
        }
    }

    /// Its items lie still, and may be walked within a turn.
    pub(crate) fn is_sealed(&self) -> bool {
        self.state.load(Acquire) >= WAITING
    }

    /// Every item in it has expired.
    pub(crate) fn is_expired(&self, now: Now) -> bool {
        self.expiry_max.load(Relaxed) <= now.secs
    }
}

/// One place in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) id: Id,
    life: u32,
    /// Order of arrival, over all queues.
    arrival: u64,
}

/// Which segment to empty, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Drop what was not read; keep what was.
    Evict,
    /// Keep everything alive: the dead bytes are what is wanted.
    Compact,
    /// Everything is dead.
    Clear,
}

/// Free segments. Locked once per segment.
pub(crate) struct Pool {
    /// Have memory, and are clean of readers.
    ready: Vec<Id>,
    /// Have no memory.
    bare: Vec<Id>,
}

impl Pool {
    fn new(segments: u32) -> Self {
        Self { ready: Vec::new(), bare: (0..segments).rev().collect() }
    }

    /// One, if more than `kept` are there.
    pub(crate) fn take_ready(&mut self, kept: usize) -> Option<Id> {
        if self.ready.len() > kept { self.ready.pop() } else { None }
    }

    pub(crate) fn take_bare(&mut self) -> Option<Id> {
        self.bare.pop()
    }

    pub(crate) fn put_ready(&mut self, id: Id) {
        self.ready.push(id);
    }

    pub(crate) fn put_bare(&mut self, id: Id) {
        self.bare.push(id);
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len()
    }
}

/// The order in which segments go. Locked once per segment or run.
#[derive(Default)]
pub(crate) struct Queues {
    /// By queue and TTL group, oldest first. May hold places of segments that are gone.
    places: [[VecDeque<Place>; GROUPS]; 2],
    /// Sealed segments that lost more than half of their bytes.
    sparse: VecDeque<Place>,
    /// Memory held per queue.
    bytes: [u64; 2],
    arrivals: u64,
}

/// All segments.
pub(crate) struct Segments {
    pub(crate) all: Box<[Segment]>,
    /// Segments below this number belong to the log proper; runs come after.
    pub(crate) log_segments: u32,
    /// A power of two.
    pub(crate) segment_bytes: usize,
    /// Its logarithm: every look-up asks which segment an item lies in.
    segment_power: u32,
    pool: Mutex<Pool>,
    queues: Mutex<Queues>,
    /// Segments ready to be opened: a hint that needs no lock.
    pub(crate) ready_count: AtomicU32,
}

impl Segments {
    pub(crate) fn new(log_segments: u32, run_segments: u32, segment_bytes: usize) -> Self {
        Self {
            all: (0..log_segments + run_segments).map(|_| Segment::default()).collect(),
            log_segments,
            segment_bytes,
            segment_power: segment_bytes.ilog2(),
            pool: Mutex::new(Pool::new(log_segments)),
            queues: Mutex::default(),
            ready_count: AtomicU32::new(0),
        }
    }

    pub(crate) fn get(&self, id: Id) -> &Segment {
        &self.all[id as usize]
    }

    /// The segment, or the run's first segment, that holds an offset at which an item starts.
    pub(crate) fn id_at(&self, offset: usize) -> Id {
        (offset >> self.segment_power) as Id
    }

    pub(crate) fn start(&self, id: Id) -> usize {
        (id as usize) << self.segment_power
    }

    pub(crate) fn is_run(&self, id: Id) -> bool {
        id >= self.log_segments
    }

    /// Works on the free list, keeping the hint right.
    pub(crate) fn with_pool<R>(&self, work: impl FnOnce(&mut Pool) -> R) -> R {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut pool);
        self.ready_count.store(pool.ready_count() as u32, Relaxed);
        result
    }

    /// Puts a segment or run at the end of its queue.
    pub(crate) fn seal(&self, id: Id) {
        let mut queues = self.queues();
        queues.arrivals += 1;
        let place = Place { id, life: self.get(id).life.load(Relaxed), arrival: queues.arrivals };
        self.let_wait(&mut queues, id).push_back(place);
        // What was overwritten at once is dead before its segment is full.
        if !self.is_run(id) && self.is_sparse(id) {
            self.push_sparse(&mut queues, place);
        }
    }

    /// Puts a victim back where it came from: its emptying could not be finished.
    pub(crate) fn put_back(&self, id: Id) {
        let mut queues = self.queues();
        let place = Place { id, life: self.get(id).life.load(Relaxed), arrival: 0 };
        self.let_wait(&mut queues, id).push_front(place);
    }

    /// From here on the segment may be claimed. Returns the line in which it is to have a place.
    fn let_wait<'q>(&self, queues: &'q mut Queues, id: Id) -> &'q mut VecDeque<Place> {
        let segment = self.get(id);
        let queue = usize::from(segment.queue.load(Relaxed));
        queues.bytes[queue] += self.memory_bytes(id);
        segment.state.store(WAITING, Release);
        let line = &mut queues.places[queue][usize::from(segment.group.load(Relaxed))];
        if line.len() > 2 * self.all.len() {
            line.retain(|place| self.is_waiting(place));
        }
        line
    }

    /// A sealed segment lost bytes: remember it if it has become sparse.
    pub(crate) fn note_sparse(&self, id: Id) {
        let place = Place { id, life: self.get(id).life.load(Relaxed), arrival: 0 };
        self.push_sparse(&mut self.queues(), place);
    }

    fn push_sparse(&self, queues: &mut Queues, place: Place) {
        if queues.sparse.len() >= self.all.len() {
            queues.sparse.retain(|place| self.is_waiting(place));
        }
        queues.sparse.push_back(place);
    }

    /// Takes a segment or run out of its queue before its time (what it held was deleted or replaced). False if another has
    /// it already.
    pub(crate) fn withdraw(&self, id: Id) -> bool {
        let mut queues = self.queues();
        self.claim(&mut queues, id)
    }

    /// Chooses what to empty next: what is dead already, then what is mostly dead, then the oldest of the small queue if
    /// that has more than its share, else of the main queue (S3-FIFO, SOSP 2023). With `only_dead` nothing that lives is
    /// evicted or moved.
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
        let fronts = |queues: &Queues| -> Vec<(usize, Place)> {
            let lines = queues.places.iter().enumerate();
            lines
                .flat_map(|(queue, lines)| lines.iter().filter_map(move |line| Some((queue, *line.front()?))))
                .collect()
        };
        let fronts = fronts(&queues);
        if let Some((_, place)) = fronts.iter().find(|(_, place)| is_dead(&place)) {
            return self.claim(&mut queues, place.id).then_some((place.id, Treatment::Clear));
        }
        if only_dead {
            return None;
        }
        while let Some(place) = queues.sparse.pop_front() {
            if self.is_waiting(&place) && self.is_sparse(place.id) && self.claim(&mut queues, place.id) {
                return Some((place.id, Treatment::Compact));
            }
        }
        if !evict {
            return None;
        }
        let oldest = |queue| {
            let waiting = fronts.iter().filter(|(of, _)| *of == queue);
            waiting.min_by_key(|(_, place)| place.arrival).map(|(_, place)| place.id)
        };
        let small_is_over = queues.bytes[SMALL] * 10 > queues.bytes[SMALL] + queues.bytes[MAIN];
        let order = if small_is_over { [SMALL, MAIN] } else { [MAIN, SMALL] };
        let id = order.into_iter().find_map(oldest)?;
        self.claim(&mut queues, id).then_some((id, Treatment::Evict))
    }

    /// Without eviction: the waiting segment with the most dead bytes, if it has enough to be worth moving the rest.
    pub(crate) fn most_dead(&self) -> Option<Id> {
        let dead = |id: &Id| {
            let segment = self.get(*id);
            segment.filled_bytes.load(Relaxed).saturating_sub(segment.live_bytes.load(Relaxed))
        };
        let waiting = (0..self.log_segments).filter(|&id| self.get(id).state.load(Acquire) == WAITING);
        let id = waiting.max_by_key(dead)?;
        let enough = dead(&id) >= self.segment_bytes as u64 / 16;
        (enough && self.claim(&mut self.queues(), id)).then_some(id)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        // Nothing in here panics half-way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn memory_bytes(&self, id: Id) -> u64 {
        if self.is_run(id) { self.get(id).filled_bytes.load(Relaxed) } else { self.segment_bytes as u64 }
    }

    fn is_waiting(&self, place: &Place) -> bool {
        let segment = self.get(place.id);
        segment.life.load(Relaxed) == place.life && segment.state.load(Relaxed) == WAITING
    }

    fn is_sparse(&self, id: Id) -> bool {
        self.get(id).live_bytes.load(Relaxed) * 2 < self.segment_bytes as u64
    }

    /// Makes a waiting segment the caller's; its places in the queues go stale, for good.
    fn claim(&self, queues: &mut Queues, id: Id) -> bool {
        let segment = self.get(id);
        let won = segment.state.compare_exchange(WAITING, CLAIMED, AcqRel, Relaxed).is_ok();
        if won {
            segment.life.fetch_add(1, Relaxed);
            queues.bytes[usize::from(segment.queue.load(Relaxed))] -= self.memory_bytes(id);
        }
        won
    }

    fn drop_stale_fronts(&self, queues: &mut Queues) {
        for line in queues.places.iter_mut().flatten() {
            while line.front().is_some_and(|place| !self.is_waiting(place)) {
                line.pop_front();
            }
        }
    }
}
