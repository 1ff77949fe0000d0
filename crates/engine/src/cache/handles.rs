//! The handles of a cache, for any number of threads.
//!
//! A thread takes a handle for one operation. Each thread has a home among the handles, which is nearly always free, so
//! it changes a word that no other thread touches. If it is taken, the thread moves to the next that is free, and makes
//! that its home. So threads that come and go need no registration, and hold nothing back when they end.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::engine::Engine;
use crate::handle::{PinnedHandle, SharedHandle};
use crate::mem::cache_padded::CachePadded;
use crate::request::Now;

/// A thread that finds all handles taken lets others run so many times, ...
const ROUNDS_YIELDING: u32 = 100;
/// ... and then sleeps this long between tries: somebody reads a value for long.
const PAUSE: Duration = Duration::from_micros(50);

thread_local! {
    /// The home of this thread, modulo the number of handles, for all caches. `usize::MAX`: none was given yet.
    static HOME: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The home of the next thread.
static NEXT_HOME: AtomicUsize = AtomicUsize::new(0);

/// All handles of an engine.
pub(super) struct Handles(Box<[CachePadded<Stripe>]>);

struct Stripe {
    handle: SharedHandle,
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

impl Handles {
    /// Takes all handles of the engine: a power of two.
    pub(super) fn new(engine: &Arc<Engine>) -> Self {
        let handles = std::iter::from_fn(|| engine.handle());
        let stripe = |handle| Stripe { handle: SharedHandle::new(handle), counters: Counters::default() };
        let stripes: Box<[_]> = handles.map(|handle| CachePadded::new(stripe(handle))).collect();
        assert!(stripes.len().is_power_of_two(), "a home is found by a mask");
        Self(stripes)
    }

    /// Takes a handle and pins it. Waits only if all are taken. The counters may be written before it is dropped.
    #[inline]
    pub(super) fn pin(&self) -> (PinnedHandle<'_>, &Counters) {
        self.take(|stripe| Some((stripe.handle.try_pin()?, &stripe.counters)))
    }

    /// Does a background step with one of the handles.
    pub(super) fn maintain(&self, now: Now, items_max: usize) {
        self.take(|stripe| stripe.handle.try_with(|handle| handle.maintain(now, items_max)));
    }

    #[inline]
    fn take<'h, T>(&'h self, take: impl Fn(&'h Stripe) -> Option<T>) -> T {
        let home = HOME.get();
        if home != usize::MAX
            && let Some(taken) = take(self.stripe(home))
        {
            return taken;
        }
        self.move_home(take)
    }

    #[cold]
    fn move_home<'h, T>(&'h self, take: impl Fn(&'h Stripe) -> Option<T>) -> T {
        if HOME.get() == usize::MAX {
            HOME.set(NEXT_HOME.fetch_add(1, Relaxed) & (usize::MAX >> 1));
        }
        for round in 0_u32.. {
            let home = HOME.get();
            for candidate in home..home + self.0.len() {
                if let Some(taken) = take(self.stripe(candidate)) {
                    HOME.set(candidate & (usize::MAX >> 1));
                    return taken;
                }
            }
            if round < ROUNDS_YIELDING { thread::yield_now() } else { thread::sleep(PAUSE) }
        }
        unreachable!("the rounds do not end")
    }

    #[inline]
    fn stripe(&self, home: usize) -> &Stripe {
        &self.0[home & (self.0.len() - 1)]
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &Counters> {
        self.0.iter().map(|stripe| &stripe.counters)
    }
}
