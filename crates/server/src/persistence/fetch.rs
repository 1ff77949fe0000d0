//! Look-ups in the store: by the worker, if the disk need not be waited for; else by threads of their own, while the
//! connection is parked.
//! A value for which memory has no room at the moment, because others of its size are being read or sent, waits its
//! turn. Large values share a budget of bytes. A turn ends once the value has been sent: it is not evicted for the next
//! one before that, and the connection keeps its place among those that read evicted values.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_engine::{Filled, Guard, Handle, Hash, Kept, Now, Position, Store as Terms, Upload, WriteError};
use larder_policy::NAMESPACES_MAX;
use larder_protocol::Error;
use larder_store::{Marks, Meta, Sink, Store, TryGet};

use super::lifetime::{Lapsed, Lifetime};
use super::meters::ReadMeter;
use crate::clock::Clock;
use crate::conn::waiter::Waiter;
use crate::namespaces::Handles;
use crate::observe::journal::{self, Rarely};

/// A key that is to be looked up.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) key: Box<[u8]>,
    pub(crate) hash: Hash,
    /// The number of its namespace.
    pub(crate) number: u8,
    /// The position of its newest change, which the store has.
    pub(crate) position: Position,
    /// The longest time to live, by the policy of the namespace.
    pub(crate) ttl_max_secs: Option<u32>,
}

/// What a look-up has found out, where the item is not in memory now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finding {
    pub(crate) hash: Hash,
    /// `Ok`: there is no item, as of this position.
    pub(crate) absent: Result<Position, Error>,
}

/// The look-ups of a parked request.
#[derive(Debug)]
pub(crate) struct Fetching {
    waiter: Waiter,
    wanted: Vec<Wanted>,
    since: Instant,
    /// Turns of its values in memory. They end when the last reference to this is dropped.
    turns: Mutex<Vec<Turn>>,
    /// `None`: under way.
    findings: Mutex<Option<Vec<Finding>>>,
}

/// The look-ups that wait for a thread.
#[derive(Default)]
pub(crate) struct FetchQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
    turns: Turns,
    /// Look-ups that have failed, for the log.
    unreadable: Rarely,
    /// Items that must not be found again.
    pub(super) lapsed: Lapsed,
}

#[derive(Default)]
struct QueueState {
    /// In the order in which they came. Those for which there was no memory came again, with the time of the next
    /// attempt: they have their turn among those that came since.
    waiting: VecDeque<(Option<Instant>, Arc<Fetching>)>,
    is_stopping: bool,
}

/// Turns of large values, by namespace.
struct Turns(Box<[Arc<Mutex<NamespaceTurns>>]>);

#[derive(Debug, Default)]
struct NamespaceTurns {
    began: Vec<Began>,
    first: Option<First>,
}

/// The look-up that has waited longest for a turn: no later one takes a turn before it.
#[derive(Clone, Copy, Debug)]
struct First {
    since: Instant,
    /// It asks again and again, unless it was given up.
    asked: Instant,
}

/// Start of a turn, and the length of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Began {
    at: Instant,
    bytes: u64,
}

/// The turn of a large value, which ends when it is dropped.
#[derive(Debug)]
struct Turn {
    all: Arc<Mutex<NamespaceTurns>>,
    began: Began,
}

/// Outcome of a look-up.
enum Fetched {
    /// The item is in memory.
    Found,
    /// There is none.
    Absent,
    /// There is no memory for it now.
    NoMemory,
    Failed(Error),
}

impl Default for Turns {
    fn default() -> Self {
        Self((0..=NAMESPACES_MAX).map(|_| Arc::default()).collect())
    }
}

impl Turns {
    /// Takes a turn for a value of this length, if all turns together leave most of the memory to others, or if there
    /// is no other turn; and if no look-up waits for one that began before `since`. `will_ask_again`: this one does so
    /// if it gets none. The turn of a slow client ends after [`TURN_MAX`].
    fn take(
        &self,
        number: u8,
        bytes: u64,
        memory_bytes: u64,
        (since, will_ask_again): (Instant, bool),
        now: Instant,
    ) -> Option<Turn> {
        let all = self.0.get(usize::from(number))?;
        let mut turns = lock(all);
        let NamespaceTurns { began, first } = &mut *turns;
        let ago = |then| now.saturating_duration_since(then);
        began.retain(|turn| ago(turn.at) < TURN_MAX);
        first.take_if(|first| since <= first.since || ago(first.asked) > FIRST_MAX);
        let sum = began.iter().fold(bytes, |sum, turn| sum.saturating_add(turn.bytes));
        if first.is_some() || !began.is_empty() && sum > memory_bytes / 4 {
            if will_ask_again {
                first.get_or_insert(First { since, asked: now });
            }
            return None;
        }
        let turn = Began { at: now, bytes };
        began.push(turn);
        Some(Turn { all: Arc::clone(all), began: turn })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let turns = &mut lock(&self.all).began;
        if let Some(nth) = turns.iter().position(|began| *began == self.began) {
            turns.swap_remove(nth);
        }
    }
}

impl Fetching {
    fn new(waiter: Waiter, wanted: Vec<Wanted>) -> Self {
        let (turns, findings) = (Mutex::default(), Mutex::new(None));
        Self { waiter, wanted, since: Instant::now(), turns, findings }
    }

    /// What was found out; `None`: it is under way.
    pub(crate) fn take_findings(&self) -> Option<Vec<Finding>> {
        lock(&self.findings).take()
    }

    /// Whom to wake afterwards.
    pub(super) fn waiter(&self) -> Waiter {
        self.waiter
    }
}

impl FetchQueue {
    /// Queues look-ups. The waiter is signalled once they are done.
    pub(crate) fn begin(&self, waiter: Waiter, wanted: Vec<Wanted>) -> Arc<Fetching> {
        let fetching = Arc::new(Fetching::new(waiter, wanted));
        lock(&self.state).waiting.push_back((None, Arc::clone(&fetching)));
        self.wake.notify_one();
        fetching
    }

    /// Number of look-ups that wait for a thread or for memory.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// The next look-ups, if any wait, without waiting for the time of an attempt.
    pub(super) fn try_next(&self) -> Option<Arc<Fetching>> {
        lock(&self.state).waiting.pop_front().map(|(_, fetching)| fetching)
    }

    /// Puts look-ups off until later, because there is no memory for them now.
    pub(super) fn defer(&self, fetching: Arc<Fetching>) {
        lock(&self.state).waiting.push_back((Some(Instant::now() + MEMORY_PAUSE), fetching));
        self.wake.notify_one();
    }

    /// The next look-ups, once there are some; `None`: the server stops.
    pub(super) fn next(&self) -> Option<Arc<Fetching>> {
        let mut state = lock(&self.state);
        loop {
            if state.is_stopping {
                return None;
            }
            // Those that are not due yet are of the last milliseconds, so there are few of them.
            let now = Instant::now();
            let is_due = |(due, _): &(Option<Instant>, _)| due.is_none_or(|due| due <= now);
            if let Some(nth) = state.waiting.iter().position(is_due) {
                return state.waiting.remove(nth).map(|(_, fetching)| fetching);
            }
            // No other one is due before the first.
            match state.waiting.front().and_then(|(due, _)| *due) {
                Some(due) => {
                    let waited = self.wake.wait_timeout(state, due.saturating_duration_since(now));
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub(super) fn stop(&self) {
        lock(&self.state).is_stopping = true;
        self.wake.notify_all();
    }

    /// Looks up what is wanted. Returns what was found out.
    pub(super) fn look_up(
        &self,
        wanted: Vec<Wanted>,
        store: &dyn Store,
        clock: &Clock,
        handles: &mut Handles,
    ) -> Vec<Finding> {
        // Nobody is woken.
        let waiter = Waiter { worker: usize::MAX, connection: usize::MAX };
        let fetching = Fetching::new(waiter, wanted);
        while !self.serve(&fetching, store, clock, handles, None) {
            std::thread::sleep(MEMORY_PAUSE);
        }
        fetching.take_findings().unwrap_or_default()
    }

    /// Looks up the wanted keys, and keeps the findings for the waiting connection. False: there is no memory now, and
    /// all of the look-ups have to be repeated.
    pub(super) fn serve(
        &self,
        fetching: &Fetching,
        store: &dyn Store,
        clock: &Clock,
        handles: &mut Handles,
        meter: Option<&ReadMeter>,
    ) -> bool {
        let mut findings = Vec::new();
        lock(&fetching.turns).clear();
        for (nth, wanted) in fetching.wanted.iter().enumerate() {
            let Some(handle) = handles.handle_mut(wanted.number) else { continue };
            let since = Instant::now();
            let (fetched, turn) = self.fetch(store, clock, handle, wanted, (fetching.since, nth == 0));
            lock(&fetching.turns).extend(turn);
            let result = match fetched {
                Fetched::Found => Ok(true),
                Fetched::Absent => Ok(false),
                // The key was only read ahead: the request asks again once it reaches this key.
                Fetched::NoMemory if nth > 0 => continue,
                Fetched::NoMemory if fetching.since.elapsed() < MEMORY_PATIENCE => return false,
                Fetched::NoMemory => Err(Error::OutOfMemoryFetching),
                Fetched::Failed(error) => Err(error),
            };
            if let Some(meter) = meter {
                meter.look_up(&result, since);
            }
            match result {
                Ok(true) => {}
                Ok(false) => findings.push(Finding { hash: wanted.hash, absent: Ok(wanted.position) }),
                Err(error) => findings.push(Finding { hash: wanted.hash, absent: Err(error) }),
            }
        }
        *lock(&fetching.findings) = Some(findings);
        true
    }

    /// Loads an item of the store into memory, and returns the turn of a large one. If the key has changed meanwhile,
    /// the waiting request notices that itself. `waiting`: since when, and whether it is repeated without memory.
    fn fetch(
        &self,
        store: &dyn Store,
        clock: &Clock,
        handle: &mut Handle,
        wanted: &Wanted,
        waiting: (Instant, bool),
    ) -> (Fetched, Option<Turn>) {
        let Wanted { key, hash, position, number, ttl_max_secs } = wanted;
        let mut sink = FillSink {
            handle,
            clock,
            key,
            number: *number,
            waiting,
            turns: &self.turns,
            turn: None,
            value: Vec::new(),
            upload: None,
            missing_bytes: 0,
            refusal: None,
        };
        let meta = match store.get(key, clock.unix_secs(), &mut sink) {
            // A value that is declined is no error to the store; nothing of it was read.
            _ if sink.refusal.is_some() => return (refused(sink.refusal), None),
            Ok(Some(meta)) => meta,
            Ok(None) => return (Fetched::Absent, None),
            Err(error) => {
                if let Some(times) = self.unreadable.happened(clock.now().secs) {
                    let key_sha256 = journal::key_digest(key);
                    tracing::error!(key_sha256, times, "the store cannot be read: {error}");
                }
                return (Fetched::Failed(Error::StoreUnreadable), None);
            }
        };
        if !sink.take_piece(0) {
            return (Fetched::NoMemory, None);
        }
        let FillSink { value, mut upload, handle, turn, .. } = sink;
        let lifetime = Lifetime { clock, lapsed: &self.lapsed, ttl_max_secs: *ttl_max_secs };
        let Some(kept) = kept(lifetime, key, &meta, &value) else { return (Fetched::Absent, None) };
        for _ in 0..TRIES_MAX {
            let guard = handle.pin(clock.now());
            let filled = match upload {
                None => guard.fill(*hash, &kept, *position),
                Some(_) => guard.fill_upload(*hash, &kept, *position, &mut upload),
            };
            match filled {
                Filled::Filled | Filled::Changed => return (Fetched::Found, turn),
                Filled::OutOfMemory => return (Fetched::NoMemory, None),
                Filled::TryAgain => {
                    drop(guard);
                    std::thread::yield_now();
                }
            }
        }
        (Fetched::NoMemory, None)
    }
}

/// Maps the reason why there is no place for a value to an outcome.
fn refused(refusal: Option<WriteError>) -> Fetched {
    match refusal {
        // Memory had more room when the value was stored.
        Some(WriteError::TooLarge) => Fetched::Failed(Error::OutOfMemoryFetching),
        _ => Fetched::NoMemory,
    }
}

/// Looks up a key without waiting for the disk, and puts the item into memory. `WouldBlock` also where memory is being
/// reclaimed.
pub(super) fn try_fetch(
    store: &dyn Store,
    lifetime: Lifetime<'_>,
    guard: &Guard<'_>,
    key: &[u8],
    hash: Hash,
    position: Position,
) -> TryGet {
    let mut filled = None;
    let found = store.try_get(key, lifetime.clock.unix_secs(), &mut |meta, value| {
        filled = kept(lifetime, key, meta, value).map(|kept| guard.fill(hash, &kept, position));
    });
    match (found, filled) {
        // It has expired since it was read.
        (TryGet::Found, None) => TryGet::Absent,
        (TryGet::Found, Some(Filled::OutOfMemory | Filled::TryAgain)) => TryGet::WouldBlock,
        (found, _) => found,
    }
}

/// An item of the store as the engine takes it. `None`: it has expired.
fn kept<'k>(lifetime: Lifetime<'_>, key: &'k [u8], meta: &Meta, value: &'k [u8]) -> Option<Kept<'k>> {
    Some(Kept {
        key,
        value,
        client_flags: meta.client_flags,
        expiry: lifetime.expiry_of(meta)?,
        version: meta.version,
        is_stale: meta.marks.contains(Marks::STALE),
        is_token_held: meta.marks.contains(Marks::TOKEN),
        is_binary_key: meta.marks.contains(Marks::BINARY_KEY),
    })
}

/// Reads a small value into a vector, and a large one piece by piece into its place in memory.
struct FillSink<'f> {
    handle: &'f mut Handle,
    clock: &'f Clock,
    key: &'f [u8],
    number: u8,
    /// Since when it waits, and whether it is repeated if there is no memory.
    waiting: (Instant, bool),
    turns: &'f Turns,
    turn: Option<Turn>,
    /// The value, or its last piece.
    value: Vec<u8>,
    upload: Option<Upload>,
    /// Of the value, without what was copied to the upload.
    missing_bytes: usize,
    refusal: Option<WriteError>,
}

impl FillSink<'_> {
    /// Copies the piece that was read last to the upload, after which `remaining_bytes` of the value are to be read.
    /// False: there is no memory.
    fn take_piece(&mut self, remaining_bytes: usize) -> bool {
        let Some(upload) = &mut self.upload else { return true };
        let read_bytes = self.missing_bytes.saturating_sub(remaining_bytes).min(self.value.len());
        let mut piece = &self.value[..read_bytes];
        self.missing_bytes = remaining_bytes;
        let mut tries = 0;
        while !piece.is_empty() {
            let guard = self.handle.pin(self.clock.now());
            match guard.window(upload) {
                // The store read more than the value has.
                Ok([]) => return false,
                Ok(window) => {
                    let n = window.len().min(piece.len());
                    window[..n].copy_from_slice(&piece[..n]);
                    upload.advance(n);
                    piece = &piece[n..];
                }
                Err(WriteError::TryAgain) if tries < TRIES_MAX => {
                    drop(guard);
                    tries += 1;
                    std::thread::yield_now();
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes a turn for a large value, and reserves a place in memory.
    fn reserve(&mut self, meta: &Meta, now: Now) -> Result<(), WriteError> {
        let terms = Terms {
            client_flags: meta.client_flags,
            binary_key: meta.marks.contains(Marks::BINARY_KEY),
            ..Terms::set(self.key, b"")
        };
        let value_bytes = u32::try_from(meta.value_bytes).map_err(|_| WriteError::TooLarge)?;
        let memory_bytes = self.handle.engine().memory_limit();
        let is_large = u64::from(value_bytes) > memory_bytes / 16;
        // At first it gives way to values that are being sent.
        let is_patient = self.waiting.0.elapsed() < GIVES_WAY_MAX;
        if is_large && is_patient && self.handle.engine().has_many_readers() {
            return Err(WriteError::OutOfMemory);
        }
        let turn =
            self.turns.take(self.number, u64::from(value_bytes), memory_bytes, self.waiting, Instant::now());
        self.turn = Some(turn.ok_or(WriteError::OutOfMemory)?);
        for _ in 0..TRIES_MAX {
            let guard = self.handle.pin(now);
            match guard.reserve(&terms, value_bytes) {
                Ok(upload) => {
                    drop(guard);
                    self.upload = Some(upload);
                    return Ok(());
                }
                Err(WriteError::TryAgain) => {
                    drop(guard);
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
        Err(WriteError::OutOfMemory)
    }
}

impl Sink for FillSink<'_> {
    fn start(&mut self, meta: &Meta) -> bool {
        if meta.value_bytes <= PIECE_BYTES {
            self.value.resize(meta.value_bytes, 0);
            return true;
        }
        // Its first piece is in memory of its own by then: a record that is declined costs no memory.
        match self.reserve(meta, self.clock.now()) {
            Ok(()) => {
                self.missing_bytes = meta.value_bytes;
                true
            }
            Err(error) => {
                self.refusal = Some(error);
                false
            }
        }
    }

    fn buffer(&mut self, remaining_bytes: usize) -> &mut [u8] {
        if self.upload.is_none() {
            let start = self.value.len().saturating_sub(remaining_bytes);
            return &mut self.value[start..];
        }
        if !self.take_piece(remaining_bytes) {
            self.refusal = Some(WriteError::OutOfMemory);
            return &mut [];
        }
        self.value.resize(remaining_bytes.min(PIECE_BYTES), 0);
        &mut self.value
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Larger values are read piece by piece, so that they are in memory once.
const PIECE_BYTES: usize = 256 << 10;
/// Pause before a look-up for which there was no memory is repeated.
const MEMORY_PAUSE: Duration = Duration::from_millis(2);
/// After this a client counts as slow, and others do not wait for it any longer.
const TURN_MAX: Duration = Duration::from_secs(5);
/// A large value gives way to those that are being sent for this time, then pushes one of them out. It is longer than
/// [`TURN_MAX`], since where many wait, each waits long though no client is slow. Pushing out clients that are slow
/// takes several turns then, which must end before [`MEMORY_PATIENCE`].
const GIVES_WAY_MAX: Duration = Duration::from_secs(8);
/// A look-up that has not asked for a turn for so long was given up.
const FIRST_MAX: Duration = Duration::from_millis(200);
/// Longest wait of a value for memory before that is an error.
const MEMORY_PATIENCE: Duration = Duration::from_secs(30);
/// Guards last microseconds, unless their threads lose their cores.
const TRIES_MAX: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Small values that are always being sent would keep a large one from its turn.
    #[test]
    fn nothing_that_came_later_takes_the_turn_of_a_large_value() {
        let (turns, start) = (Turns::default(), Instant::now());
        let take = |nth: u64, bytes: u64, will_ask_again: bool| {
            let since = start + Duration::from_nanos(nth);
            turns.take(0, bytes, 100, (since, will_ask_again), start)
        };
        // Together they may have a quarter of the memory.
        let sent = take(0, 10, true).expect("there is no other");
        assert!(
            take(1, 20, false).is_none() && take(3, 5, true).is_some(),
            "one that gives up holds up nobody"
        );
        assert!(take(1, 20, true).is_none());
        assert!(take(2, 5, true).is_none() && take(3, 5, true).is_none(), "they came later");
        drop(sent);
        assert!(take(2, 5, true).is_none());
        let large = take(1, 20, true).expect("it has its turn");
        assert!(take(3, 10, true).is_none());
        assert!(take(2, 5, true).is_some(), "there is room beside it, and it waited longest");
        drop(large);
        assert!(take(3, 10, true).is_some());
    }

    /// A value for which there was no memory has its turn, whatever comes later.
    #[test]
    fn what_was_put_off_is_not_overtaken_again_and_again() {
        let order = |next: fn(&FetchQueue) -> Option<Arc<Fetching>>| {
            let queue = FetchQueue::default();
            let begin = |connection| queue.begin(Waiter { worker: 0, connection }, Vec::new());
            begin(0);
            let large = next(&queue).expect("it was begun");
            begin(1);
            queue.defer(large);
            (2..5).for_each(|connection| _ = begin(connection));
            std::thread::sleep(2 * MEMORY_PAUSE);
            assert_eq!(queue.len(), 5);
            [(); 5].map(|()| next(&queue).expect("it waits").waiter().connection)
        };
        assert_eq!(order(FetchQueue::next), [1, 0, 2, 3, 4]);
        assert_eq!(order(FetchQueue::try_next), [1, 0, 2, 3, 4]);
    }
}
