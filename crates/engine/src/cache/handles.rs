//! The handles of a cache, for any number of threads.
//!
//! A thread takes a handle for one operation. Each thread has a home among the handles, which is nearly always free, so
//! the lock is one that no other thread touches. If it is taken, the thread moves to the next that is free, and makes
//! that its home. So threads that come and go need no registration, and hold nothing back when they end.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::engine::Engine;
use crate::handle::Handle;
use crate::mem::cache_padded::CachePadded;

thread_local! {
    /// The home of this thread, modulo the number of handles, for all caches. `usize::MAX`: none was given yet.
    static HOME: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The home of the next thread.
static NEXT_HOME: AtomicUsize = AtomicUsize::new(0);

/// All handles of an engine.
pub(super) struct Handles(Box<[CachePadded<Stripe>]>);

struct Stripe {
    handle: Mutex<Handle>,
    counters: Counters,
}

/// What the engine does not count. Written by the thread that has the handle.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) misses: Counter,
    pub(super) inserts: Counter,
    pub(super) rejected: Counter,
    /// Hits to the engine, but past their deadline, another key's, or not to be decoded.
    pub(super) refused_hits: Counter,
    pub(super) decode_errors: Counter,
}

#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// By the one thread that has the handle.
    #[inline]
    pub(super) fn increment(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A handle that this thread has.
pub(super) struct Checkout<'h> {
    pub(super) handle: MutexGuard<'h, Handle>,
    pub(super) counters: &'h Counters,
}

impl Handles {
    /// Takes all handles of the engine: a power of two.
    pub(super) fn new(engine: &Arc<Engine>) -> Self {
        let handles = std::iter::from_fn(|| engine.handle());
        let stripe = |handle| Stripe { handle: Mutex::new(handle), counters: Counters::default() };
        let stripes: Box<[_]> = handles.map(|handle| CachePadded::new(stripe(handle))).collect();
        assert!(stripes.len().is_power_of_two(), "a home is found by a mask");
        Self(stripes)
    }

    /// Takes a handle. Waits only if all are taken.
    #[inline]
    pub(super) fn take(&self) -> Checkout<'_> {
        let home = HOME.get();
        let stripe = self.stripe(home);
        if home != usize::MAX
            && let Ok(handle) = stripe.handle.try_lock()
        {
            return Checkout { handle, counters: &stripe.counters };
        }
        self.move_home()
    }

    #[cold]
    fn move_home(&self) -> Checkout<'_> {
        if HOME.get() == usize::MAX {
            HOME.set(NEXT_HOME.fetch_add(1, Relaxed) & (usize::MAX >> 1));
        }
        let home = HOME.get();
        for candidate in home..home + self.0.len() {
            let stripe = self.stripe(candidate);
            let handle = match stripe.handle.try_lock() {
                Ok(handle) => handle,
                // The engine's code does not panic, and a codec that does changes nothing of the handle.
                Err(TryLockError::Poisoned(poisoned)) => {
                    stripe.handle.clear_poison();
                    poisoned.into_inner()
                }
                Err(TryLockError::WouldBlock) => continue,
            };
            HOME.set(candidate & (usize::MAX >> 1));
            return Checkout { handle, counters: &stripe.counters };
        }
        // Not at home: this thread may have that one, if a codec uses the cache.
        let stripe = self.stripe(home.wrapping_sub(1));
        let handle = stripe.handle.lock().unwrap_or_else(PoisonError::into_inner);
        Checkout { handle, counters: &stripe.counters }
    }

    #[inline]
    fn stripe(&self, home: usize) -> &Stripe {
        &self.0[home & (self.0.len() - 1)]
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &Counters> {
        self.0.iter().map(|stripe| &stripe.counters)
    }
}
