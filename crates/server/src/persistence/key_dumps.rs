//! Lists of all keys in the store, for `lru_crawler metadump` and `mgdump`: made by threads of their own, in pieces,
//! since they read the disk for long. A connection that waits for a piece is parked; a client that does not read stops
//! its list.
//!
//! The store has every item of its namespaces, once what was on its way at the beginning has been appended. So a list
//! of the store is complete, and has each item once; memory only adds when an item was used.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use larder_engine::Now;
use larder_protocol::admin::{self, Classes};
use larder_protocol::dump::{self, Dumped};
use larder_protocol::{Error, Sink};
use larder_store::{Cursor, Marks, Meta, Store};

use super::lifetime::{Lifetime, stored_secs};
use crate::conn::waiter::Waiter;
use crate::exec::dump::dumped;
use crate::namespaces::Handles;
use crate::shared::Shared;

/// What a list is to contain.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) format: admin::Dump,
    pub(crate) classes: Classes,
    /// The numbers of the namespaces, as bits.
    pub(crate) namespaces: u64,
}

/// Lists that are being made.
#[derive(Default)]
pub(crate) struct KeyDumps {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Listing>>,
    under_way: usize,
    is_stopping: bool,
}

/// One list, between the thread that makes it and the worker that sends it.
#[derive(Debug)]
struct Listing {
    waiter: Waiter,
    wanted: Wanted,
    pieces: Mutex<Pieces>,
    room: Condvar,
}

#[derive(Debug, Default)]
struct Pieces {
    ready: VecDeque<Vec<u8>>,
    ended: Option<Result<(), Error>>,
    is_abandoned: bool,
}

/// The worker's side of a list. When it is dropped, the list ends.
#[derive(Debug)]
pub(crate) struct KeyDump(Arc<Listing>);

/// The next of a list.
#[derive(Debug)]
pub(crate) enum Next {
    Piece(Vec<u8>),
    /// There are no more; `Err`: the store could not be read any further.
    End(Result<(), Error>),
    /// Not there yet: the waiter is signalled.
    Pending,
}

impl KeyDump {
    pub(crate) fn next(&self) -> Next {
        let mut pieces = lock(&self.0.pieces);
        match (pieces.ready.pop_front(), pieces.ended) {
            (Some(piece), _) => {
                self.0.room.notify_one();
                Next::Piece(piece)
            }
            (None, Some(ended)) => Next::End(ended),
            (None, None) => Next::Pending,
        }
    }
}

impl Drop for KeyDump {
    fn drop(&mut self) {
        lock(&self.0.pieces).is_abandoned = true;
        self.0.room.notify_one();
    }
}

impl Listing {
    /// Passes a piece on, once there is room. False: nobody wants it any more.
    fn push(&self, piece: Vec<u8>, signal: &impl Fn(Waiter)) -> bool {
        let is_full = |pieces: &mut Pieces| pieces.ready.len() >= PIECES_MAX && !pieces.is_abandoned;
        let mut pieces =
            self.room.wait_while(lock(&self.pieces), is_full).unwrap_or_else(PoisonError::into_inner);
        pieces.ready.push_back(piece);
        let is_wanted = !pieces.is_abandoned;
        drop(pieces);
        signal(self.waiter);
        is_wanted
    }

    fn end(&self, result: Result<(), Error>, signal: &impl Fn(Waiter)) {
        lock(&self.pieces).ended = Some(result);
        signal(self.waiter);
    }
}

impl KeyDumps {
    /// Begins a list. Errors: as many are under way as there are threads.
    pub(crate) fn begin(&self, waiter: Waiter, wanted: Wanted) -> Result<KeyDump, Error> {
        let mut state = lock(&self.state);
        if state.waiting.len() + state.under_way >= THREADS {
            return Err(Error::CrawlerBusy);
        }
        let pieces = Mutex::default();
        let listing = Arc::new(Listing { waiter, wanted, pieces, room: Condvar::new() });
        state.waiting.push_back(Arc::clone(&listing));
        drop(state);
        self.wake.notify_one();
        Ok(KeyDump(listing))
    }

    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.is_stopping = true;
        drop(state);
        self.wake.notify_all();
    }

    /// Makes lists until the server stops. `signal` wakes the one who waits.
    pub(super) fn serve(
        &self,
        store: &dyn Store,
        shared: &Shared,
        handles: &mut Handles,
        signal: impl Fn(Waiter),
    ) {
        while let Some(listing) = self.next() {
            let result = self.list(&listing, store, shared, handles, &signal);
            listing.end(result, &signal);
            lock(&self.state).under_way -= 1;
        }
    }

    fn next(&self) -> Option<Arc<Listing>> {
        let idle = |state: &mut State| state.waiting.is_empty() && !state.is_stopping;
        let mut state = self.wake.wait_while(lock(&self.state), idle).unwrap_or_else(PoisonError::into_inner);
        if state.is_stopping {
            return None;
        }
        state.under_way += 1;
        state.waiting.pop_front()
    }

    fn list(
        &self,
        listing: &Listing,
        store: &dyn Store,
        shared: &Shared,
        handles: &mut Handles,
        signal: &impl Fn(Waiter),
    ) -> Result<(), Error> {
        let Some(persistence) = &shared.persistence else { return Ok(()) };
        let lapsed = &persistence.fetches.lapsed;
        let (mut cursor, mut piece, mut is_wanted) = (Cursor::new(), Vec::new(), true);
        while is_wanted && !lock(&self.state).is_stopping {
            let now = shared.clock.now();
            let table = shared.namespaces.table();
            let mut visit = |key: &[u8], meta: &Meta| {
                let number = table.as_ref().map_or(larder_policy::DEFAULT, |table| table.find(key));
                if !is_wanted || listing.wanted.namespaces >> number & 1 == 0 {
                    return;
                }
                let lifetime = Lifetime {
                    clock: &shared.clock,
                    lapsed,
                    ttl_max_secs: table.as_ref().and_then(|table| table.policy(number).ttl_max_secs),
                };
                if lifetime.expiry_of(meta).is_none() {
                    return;
                }
                let meta = Meta { exptime_secs: lifetime.exptime_secs(meta), ..*meta };
                tell(&listing.wanted, shared, handles, number, now, (key, &meta), &mut piece);
                if piece.len() >= PIECE_BYTES {
                    is_wanted = listing.push(std::mem::take(&mut piece), signal);
                }
            };
            let now_unix_secs = shared.clock.unix_secs();
            match store.for_each_key(&mut cursor, ITEMS_PER_STEP, now_unix_secs, &mut visit) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::error!("the keys of the store cannot be listed: {error}");
                    return Err(Error::StoreUnreadable);
                }
            }
        }
        if !piece.is_empty() {
            listing.push(piece, signal);
        }
        Ok(())
    }
}

/// Writes the line of an item: as memory has it, if it does.
fn tell(
    wanted: &Wanted,
    shared: &Shared,
    handles: &mut Handles,
    number: u8,
    now: Now,
    (key, meta): (&[u8], &Meta),
    out: &mut Vec<u8>,
) {
    let write = |item: &Dumped<'_>, out: &mut Vec<u8>| {
        if wanted.classes.has(item.class) {
            match wanted.format {
                admin::Dump::Metadata => dump::metadata(item, &mut Lines(out)),
                admin::Dump::Commands => dump::command(item, &mut Lines(out)),
            }
        }
    };
    if let Some(handle) = handles.handle_mut(number) {
        let guard = handle.pin(now);
        if let Ok(fetched) = guard.peek(key, guard.prepare(key)) {
            return write(&dumped(shared, now, &fetched), out);
        }
    }
    let now_unix_secs = shared.clock.wall_secs(now.secs);
    write(
        &Dumped {
            key,
            is_binary_key: meta.marks.contains(Marks::BINARY_KEY),
            expiry_secs: (meta.exptime_secs != 0)
                .then(|| i64::try_from(meta.exptime_secs).unwrap_or(i64::MAX)),
            used_secs: i64::try_from(stored_secs(meta.version)).unwrap_or(i64::MAX).min(now_unix_secs),
            cas: meta.version,
            is_fetched: false,
            class: CLASS_ON_DISK,
            item_bytes: u32::try_from(key.len() + meta.value_bytes + RECORD_BYTES).unwrap_or(u32::MAX),
            value_bytes: meta.value_bytes,
            client_flags: meta.client_flags,
        },
        out,
    );
}

/// The lines of a piece.
struct Lines<'p>(&'p mut Vec<u8>);

impl Sink for Lines<'_> {
    type Value = Infallible;

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn value(&mut self, value: &Infallible) {
        match *value {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many lists are made at once.
pub(super) const THREADS: usize = 2;
/// No class of memory: `stats items` has none of this number.
const CLASS_ON_DISK: usize = 0;
/// What a record has beside key and value.
const RECORD_BYTES: usize = 48;
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for a worker.
const PIECES_MAX: usize = 4;
/// A step may begin with reading what a whole segment holds, so it should visit many items.
const ITEMS_PER_STEP: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted { format: admin::Dump::Metadata, classes: Classes::ALL, namespaces: 1 }
    }

    #[test]
    fn pieces_wait_for_the_reader_and_end_with_it() {
        let dumps = KeyDumps::default();
        let waiter = Waiter { worker: 0, connection: 3 };
        let reader = dumps.begin(waiter, wanted()).expect("the first");
        let other = dumps.begin(waiter, wanted()).expect("the second");
        assert_eq!(dumps.begin(waiter, wanted()).expect_err("too many"), Error::CrawlerBusy);
        let listing = dumps.next().expect("the first");
        assert!(matches!(reader.next(), Next::Pending));
        let signal = |_| {};
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let mut pushed = 0;
                while listing.push(vec![b'x'], &signal) {
                    pushed += 1;
                }
                pushed
            });
            let mut taken = 0;
            while taken < 10 {
                if let Next::Piece(_) = reader.next() {
                    taken += 1;
                }
            }
            drop(reader);
            let pushed = maker.join().expect("no panic");
            assert!((10..=10 + PIECES_MAX + 1).contains(&pushed), "{pushed}");
        });
        drop(other);
    }
}
