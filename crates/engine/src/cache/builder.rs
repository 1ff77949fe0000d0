//! How a cache is made.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::Duration;

use crate::cache::clock::Clock;
use crate::cache::codec::Plain;
use crate::cache::flights::Flights;
use crate::cache::handles::Handles;
use crate::cache::key::DigestKey;
use crate::cache::{Cache, Shared};
use crate::engine::{Config, Engine};
use crate::log::large_pages::LargePages;

/// With less memory for each handle, there are fewer: open segments of many handles would take too much of the memory.
const HANDLE_BYTES_MIN: u64 = 512 << 10;
/// So many threads are nobody's.
const HANDLES_MAX: usize = 1 << 10;
/// A value may take this part of the memory.
const VALUE_PART: u64 = 4;
const VALUE_BYTES_MAX: u64 = 1 << 30;

/// Makes a [`Cache`] with more than its size: [`Cache::builder`].
///
/// ```
/// use larder_engine::Cache;
/// use std::time::Duration;
///
/// let sessions = Cache::<u64, String>::builder(256 << 20).ttl(Duration::from_secs(1800)).build()?;
/// sessions.insert(&7, "Ada");
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub struct CacheBuilder<K, V, C = Plain> {
    memory_bytes: u64,
    ttl: Option<Duration>,
    threads: Option<usize>,
    pub(super) clock: Clock,
    types: PhantomData<fn(K, C) -> V>,
}

impl<K, V, C> CacheBuilder<K, V, C> {
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self { memory_bytes, ttl: None, threads: None, clock: Clock::start(), types: PhantomData }
    }

    /// How long entries live unless [`Cache::insert_with_ttl`] says otherwise. Without this: until they are evicted.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How many threads use the cache at the same moment; more will wait for each other for less than a microsecond.
    /// Default: twice as many as the machine runs at a time. A cache of less than 512 KiB for each is made for fewer,
    /// and for two at least.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Another codec than [`Plain`]: see [`Encode`](crate::Encode).
    pub fn codec<Other>(self) -> CacheBuilder<K, V, Other> {
        let Self { memory_bytes, ttl, threads, clock, types: _ } = self;
        CacheBuilder { memory_bytes, ttl, threads, clock, types: PhantomData }
    }

    /// Makes the cache. It sets addresses aside, and takes memory as entries come.
    ///
    /// Errors: less than 1 MiB or more than 2 TiB (`InvalidInput`), or the system refuses the addresses.
    pub fn build(self) -> io::Result<Cache<K, V, C>> {
        let random = RandomState::new();
        let engine = Engine::new(Config {
            memory_bytes: self.memory_bytes,
            item_bytes_max: (self.memory_bytes / VALUE_PART).min(VALUE_BYTES_MAX) as u32,
            evict: true,
            handles_max: self.handles(),
            index_power: None,
            large_pages: LargePages::Never,
            hash_key: [random.hash_one(1), random.hash_one(2)],
        })?;
        Ok(Cache {
            shared: Arc::new(Shared {
                handles: Handles::new(&engine),
                engine,
                ttl: self.ttl,
                clock: self.clock,
                digest_key: DigestKey([random.hash_one(3), random.hash_one(4)]),
                flights: Flights::default(),
                maintained_secs: AtomicU32::new(0),
            }),
            types: PhantomData,
        })
    }

    fn handles(&self) -> usize {
        let threads = self.threads.unwrap_or_else(|| {
            2 * thread::available_parallelism().map_or(1, |parallelism| parallelism.get())
        });
        let fit = usize::try_from(self.memory_bytes / HANDLE_BYTES_MIN).unwrap_or(HANDLES_MAX);
        let handles = threads.clamp(2, HANDLES_MAX).next_power_of_two();
        // A power of two, rounded down.
        handles.min(1 << fit.clamp(2, HANDLES_MAX).ilog2())
    }
}

impl<K, V, C> std::fmt::Debug for CacheBuilder<K, V, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { memory_bytes, ttl, threads, .. } = self;
        let mut debug = f.debug_struct("CacheBuilder");
        debug.field("memory_bytes", memory_bytes).field("ttl", ttl).field("threads", threads).finish()
    }
}
