//! Single flight: of all threads that miss a key at a time, one computes its value, and the others wait for it.
//!
//! A flight is in the table while its value is computed. Whoever removes or replaces the key meanwhile takes the flight
//! out of the table and marks it as outdated: its value goes to those who waited already, and is not stored.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

const SHARDS: usize = 16;

type Table = HashMap<Box<[u8]>, Arc<Flight>>;

/// The values that are being computed, by encoded key.
#[derive(Default)]
pub(super) struct Flights {
    shards: [Mutex<Table>; SHARDS],
    /// Flights in all shards: while there are none, removing a key need not look for its own.
    count: AtomicUsize,
    hasher: RandomState,
}

/// Which flight each thread waits for, of all caches. So a thread finds out whether its wait would close a ring.
static WAITS: LazyLock<Mutex<HashMap<ThreadId, Arc<Flight>>>> = LazyLock::new(Mutex::default);

/// A value that is being computed.
pub(super) struct Flight {
    leader: ThreadId,
    progress: Mutex<Progress>,
    landed: Condvar,
}

struct Progress {
    state: State,
    /// The key was removed or replaced since: the value must not be stored.
    is_outdated: bool,
}

enum State {
    Computing,
    /// Nobody will compute it: try again.
    Abandoned,
    Value(Arc<[u8]>),
    Error(Arc<dyn Any + Send + Sync>),
}

/// What became of a flight.
pub(super) enum Landed {
    Abandoned,
    /// Encoded.
    Value(Arc<[u8]>),
    Error(Arc<dyn Any + Send + Sync>),
}

/// This thread's part in a flight.
pub(super) enum Part<'f> {
    Leader(Leader<'f>),
    Waiter(Arc<Flight>),
}

/// The right to compute a value. Dropping it, also by a panic, lets the others try.
pub(super) struct Leader<'f> {
    flights: &'f Flights,
    key: &'f [u8],
    flight: Arc<Flight>,
}

impl Flights {
    /// Joins the flight of a key, or begins one.
    ///
    /// Panics if this thread is computing the value of that key: it would wait for itself.
    pub(super) fn join<'f>(&'f self, key: &'f [u8]) -> Part<'f> {
        let mut table = self.table(key);
        match table.entry(key.into()) {
            Entry::Occupied(entry) => {
                let flight = Arc::clone(entry.get());
                drop(table);
                assert!(
                    flight.leader != thread::current().id(),
                    "the closure that computes the value of a key asks the cache for a value of the same key"
                );
                Part::Waiter(flight)
            }
            Entry::Vacant(entry) => {
                self.count.fetch_add(1, SeqCst);
                let progress = Progress { state: State::Computing, is_outdated: false };
                let flight = Arc::new(Flight {
                    leader: thread::current().id(),
                    progress: Mutex::new(progress),
                    landed: Condvar::new(),
                });
                entry.insert(Arc::clone(&flight));
                Part::Leader(Leader { flights: self, key, flight })
            }
        }
    }

    /// Call before a key is removed or replaced: what is being computed for it must not come after that.
    #[inline]
    pub(super) fn outdate(&self, key: &[u8]) {
        // A flight that begins later reads its source after the caller changed it.
        if self.count.load(SeqCst) != 0 {
            self.outdate_flight(key);
        }
    }

    #[cold]
    fn outdate_flight(&self, key: &[u8]) {
        let removed = self.table(key).remove(key);
        if let Some(flight) = removed {
            self.count.fetch_sub(1, SeqCst);
            flight.lock().is_outdated = true;
        }
    }

    /// The same for all keys.
    pub(super) fn outdate_all(&self) {
        for shard in &self.shards {
            let flights = std::mem::take(&mut *lock(shard));
            self.count.fetch_sub(flights.len(), SeqCst);
            flights.into_values().for_each(|flight| flight.lock().is_outdated = true);
        }
    }

    /// True if nothing is being computed.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    fn table(&self, key: &[u8]) -> MutexGuard<'_, Table> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }
}

impl Flight {
    /// Waits for the end of the flight.
    ///
    /// Panics if its leader waits for this thread, perhaps by way of others: none of them would ever end.
    pub(super) fn wait(self: &Arc<Self>) -> Landed {
        let this_thread = thread::current().id();
        let mut waits = lock(&WAITS);
        let mut awaited = Some(self);
        // A thread that was not woken yet from a flight that has ended waits for nobody.
        while let Some(flight) = awaited.filter(|flight| flight.is_computing()) {
            if flight.leader == this_thread {
                drop(waits);
                panic!("closures that compute the values of keys wait for each other");
            }
            awaited = waits.get(&flight.leader);
        }
        waits.insert(this_thread, Arc::clone(self));
        drop(waits);
        let progress = self
            .landed
            .wait_while(self.lock(), |progress| matches!(progress.state, State::Computing))
            .unwrap_or_else(PoisonError::into_inner);
        let landed = match &progress.state {
            State::Computing | State::Abandoned => Landed::Abandoned,
            State::Value(value) => Landed::Value(Arc::clone(value)),
            State::Error(error) => Landed::Error(Arc::clone(error)),
        };
        // Above, this lock is the inner one.
        drop(progress);
        let _ = lock(&WAITS).remove(&this_thread);
        landed
    }

    fn is_computing(&self) -> bool {
        matches!(self.lock().state, State::Computing)
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }
}

impl Leader<'_> {
    /// Stores the value by `store`, unless it is outdated, and hands it to those who wait.
    pub(super) fn land_value(self, value: &[u8], store: impl FnOnce()) {
        let mut progress = self.flight.lock();
        if !progress.is_outdated {
            // Under the lock, so that whoever outdates the flight removes what is stored here, or prevents it.
            store();
        }
        drop(progress);
        self.leave_table();
        // Nobody joins any more. Without waiters the value need not be copied.
        if Arc::strong_count(&self.flight) > 1 {
            progress = self.flight.lock();
            progress.state = State::Value(value.into());
        }
    }

    /// Hands an error to those who wait.
    pub(super) fn land_error(self, error: Arc<dyn Any + Send + Sync>) {
        self.leave_table();
        self.flight.lock().state = State::Error(error);
    }

    fn leave_table(&self) {
        let mut table = self.flights.table(self.key);
        // Perhaps another flight of the key has begun since this one was outdated.
        if table.get(self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            table.remove(self.key);
            self.flights.count.fetch_sub(1, SeqCst);
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.leave_table();
        let mut progress = self.flight.lock();
        if matches!(progress.state, State::Computing) {
            progress.state = State::Abandoned;
        }
        drop(progress);
        self.flight.landed.notify_all();
    }
}

/// Nothing under these locks panics half-way: what they protect is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
