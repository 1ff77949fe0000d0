//! Look-ups in the store: by the worker, if the disk need not be waited for; else by threads of their own, while the
//! connection is parked.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use larder_engine::{Filled, Guard, Handle, Hash, Kept, Now, Position, Store as Terms, Upload};
use larder_protocol::Error;
use larder_store::{Marks, Meta, Sink, Store, TryGet};

use super::lifetime::{Lapsed, Lifetime};
use super::meters::ReadMeter;
use crate::clock::Clock;
use crate::conn::waiter::Waiter;
use crate::namespaces::Handles;
use crate::observe::journal::Rarely;

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
    /// `None`: under way.
    findings: Mutex<Option<Vec<Finding>>>,
}

/// The look-ups that wait for a thread.
#[derive(Default)]
pub(crate) struct FetchQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
    /// Look-ups that have failed, for the log.
    unreadable: Rarely,
    /// Items that must not be found again.
    pub(super) lapsed: Lapsed,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Arc<Fetching>>,
    is_stopping: bool,
}

impl Fetching {
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
        let fetching = Arc::new(Fetching { waiter, wanted, findings: Mutex::new(None) });
        lock(&self.state).waiting.push_back(Arc::clone(&fetching));
        self.wake.notify_one();
        fetching
    }

    /// Look-ups that wait for a thread.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// The next look-ups, if any wait.
    pub(super) fn try_next(&self) -> Option<Arc<Fetching>> {
        lock(&self.state).waiting.pop_front()
    }

    /// The next look-ups, once there are some; `None`: the server stops.
    pub(super) fn next(&self) -> Option<Arc<Fetching>> {
        let idle = |state: &mut QueueState| state.waiting.is_empty() && !state.is_stopping;
        let state = lock(&self.state);
        let mut state = self.wake.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        if state.is_stopping { None } else { state.waiting.pop_front() }
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
        let fetching = Fetching { waiter, wanted, findings: Mutex::new(None) };
        self.serve(&fetching, store, clock, handles, None);
        fetching.take_findings().unwrap_or_default()
    }

    /// Looks up what is wanted, and keeps what was found out for the one who waits.
    pub(super) fn serve(
        &self,
        fetching: &Fetching,
        store: &dyn Store,
        clock: &Clock,
        handles: &mut Handles,
        meter: Option<&ReadMeter>,
    ) {
        let mut findings = Vec::new();
        for wanted in &fetching.wanted {
            let Some(handle) = handles.handle_mut(wanted.number) else { continue };
            let since = Instant::now();
            let fetched = self.fetch(store, clock, handle, wanted);
            if let Some(meter) = meter {
                meter.look_up(&fetched, since);
            }
            match fetched {
                Ok(true) => {}
                Ok(false) => findings.push(Finding { hash: wanted.hash, absent: Ok(wanted.position) }),
                Err(error) => findings.push(Finding { hash: wanted.hash, absent: Err(error) }),
            }
        }
        *lock(&fetching.findings) = Some(findings);
    }

    /// Puts an item of the store into memory. False: there is none. If the key has changed meanwhile, whoever asked
    /// will see that.
    fn fetch(
        &self,
        store: &dyn Store,
        clock: &Clock,
        handle: &mut Handle,
        wanted: &Wanted,
    ) -> Result<bool, Error> {
        let Wanted { key, hash, position, ttl_max_secs, .. } = wanted;
        let mut sink = FillSink {
            handle,
            clock,
            key,
            value: Vec::new(),
            upload: None,
            missing_bytes: 0,
            is_refused: false,
        };
        let meta = match store.get(key, clock.unix_secs(), &mut sink) {
            // A value that is declined is no error to the store; nothing of it was read.
            _ if sink.is_refused => return Err(Error::OutOfMemoryReading),
            Ok(Some(meta)) => meta,
            Ok(None) => return Ok(false),
            Err(error) => {
                if let Some(times) = self.unreadable.happened(clock.now().secs) {
                    tracing::error!(key = %key.escape_ascii(), times, "the store cannot be read: {error}");
                }
                return Err(Error::StoreUnreadable);
            }
        };
        if !sink.take_piece(0) {
            return Err(Error::OutOfMemoryReading);
        }
        let FillSink { value, mut upload, handle, .. } = sink;
        let lifetime = Lifetime { clock, lapsed: &self.lapsed, ttl_max_secs: *ttl_max_secs };
        let Some(kept) = kept(lifetime, key, &meta, &value) else { return Ok(false) };
        for _ in 0..TRIES_MAX {
            let guard = handle.pin(clock.now());
            let filled = match upload {
                None => guard.fill(*hash, &kept, *position),
                Some(_) => guard.fill_upload(*hash, &kept, *position, &mut upload),
            };
            match filled {
                Filled::Filled | Filled::Changed => return Ok(true),
                Filled::OutOfMemory => return Err(Error::OutOfMemoryReading),
                Filled::TryAgain => {
                    drop(guard);
                    std::thread::yield_now();
                }
            }
        }
        Err(Error::OutOfMemoryReading)
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
    /// The value, or its last piece.
    value: Vec<u8>,
    upload: Option<Upload>,
    /// Of the value, without what was copied to the upload.
    missing_bytes: usize,
    is_refused: bool,
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
                Err(larder_engine::WriteError::TryAgain) if tries < TRIES_MAX => {
                    drop(guard);
                    tries += 1;
                    std::thread::yield_now();
                }
                Err(_) => return false,
            }
        }
        true
    }

    fn reserve(&mut self, meta: &Meta, now: Now) -> bool {
        let terms = Terms {
            client_flags: meta.client_flags,
            binary_key: meta.marks.contains(Marks::BINARY_KEY),
            ..Terms::set(self.key, b"")
        };
        let Ok(value_bytes) = u32::try_from(meta.value_bytes) else { return false };
        for _ in 0..TRIES_MAX {
            let guard = self.handle.pin(now);
            match guard.reserve(&terms, value_bytes) {
                Ok(upload) => {
                    drop(guard);
                    self.upload = Some(upload);
                    return true;
                }
                Err(larder_engine::WriteError::TryAgain) => {
                    drop(guard);
                    std::thread::yield_now();
                }
                Err(_) => return false,
            }
        }
        false
    }
}

impl Sink for FillSink<'_> {
    fn start(&mut self, meta: &Meta) -> bool {
        if meta.value_bytes <= PIECE_BYTES {
            self.value.resize(meta.value_bytes, 0);
            return true;
        }
        // Its first piece is in memory of its own by then: a record that is declined costs no memory.
        if self.reserve(meta, self.clock.now()) {
            self.missing_bytes = meta.value_bytes;
            return true;
        }
        self.is_refused = true;
        false
    }

    fn buffer(&mut self, remaining_bytes: usize) -> &mut [u8] {
        if self.upload.is_none() {
            let start = self.value.len().saturating_sub(remaining_bytes);
            return &mut self.value[start..];
        }
        if !self.take_piece(remaining_bytes) {
            self.is_refused = true;
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
/// Guards last microseconds, unless their threads lose their cores.
const TRIES_MAX: u32 = 100_000;
