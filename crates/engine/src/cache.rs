//! The cache of a Rust program: typed, shared by reference, with its own clock. A front for the engine.

mod builder;
mod clock;
mod codec;
mod flights;
mod handles;
mod key;
mod stats;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{fmt, hint, io, thread};

pub use builder::CacheBuilder;
#[cfg(feature = "postcard")]
pub use codec::Postcard;
pub use codec::{Buffer, Decode, Encode, EncodeError, Plain};
pub use stats::CacheStats;

use crate::engine::Engine;
use crate::request::{Compare, Expiry, Mode, Store, Stored};
use clock::{Clock, Deadline};
use flights::{Flights, Landed, Part};
use handles::Handles;
use key::{CacheKey, DigestKey, deadline_of};

/// Items that a background step examines. It takes some ten microseconds of one insert in each second.
const BACKGROUND_ITEMS: usize = 64;
/// Tries of an insert that finds memory only once other threads have ended their look-ups: at first at once ...
const TRIES_SPINNING: u32 = 64;
/// ... and then after others had the processor.
const TRIES_MAX: u32 = 100_000;

/// A concurrent in-memory cache with a limit in bytes.
///
/// ```
/// use larder_engine::Cache;
///
/// let cache: Cache<String, u64> = Cache::new(64 << 20)?; // 64 MiB
/// cache.insert("answer", &42);
/// assert_eq!(cache.get("answer"), Some(42));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A `Cache` is a handle: clones share the entries, all methods take `&self`, and any number of threads may call them.
/// Look-ups of different threads do not wait for each other.
///
/// # Entries are bytes
///
/// The cache does not keep the `K` and `V` that it is given, but their bytes, as a [codec](Encode) writes them, in
/// memory of its own. So [`Self::insert`] takes references, [`Self::get`] makes a new `V` each time, and neither asks
/// for `Clone`, `Hash` or `Send`. An entry's weight is what it takes in truth: its bytes, a header of 16 bytes (24 with
/// a time to live), padding to 8, and about 9 bytes of the index. The limit holds for the sum of these, with all that
/// the cache needs to work; nothing is estimated, and nothing is allocated for an entry.
///
/// The price is that a hit costs a copy: choose types that are cheap to make, such as `Arc<[u8]>` or numbers, or read
/// the bytes in place ([`Self::get_with`]). A cache that keeps the values themselves is faster where they are large
/// structures and memory is plentiful.
///
/// # What is kept
///
/// When the memory is full, the entries go that are read least often for each byte they take. Values of more than a
/// quarter of the memory (or 1 GiB) are not stored. Keys may have any length; those of 1 to 250 bytes take the least.
///
/// # Time to live
///
/// [`CacheBuilder::ttl`] and [`Self::insert_with_ttl`] take any [`Duration`]. An entry is found until its time is over
/// and never after that, to the microsecond of the monotonic clock, which stands still while the machine is suspended.
/// It then leaves the memory within seconds while others are inserted, as an insert does a short background step once a
/// second. There is no thread behind the cache; a program that stops inserting may call [`Self::maintain`].
pub struct Cache<K, V, C = Plain> {
    shared: Arc<Shared>,
    types: PhantomData<fn(K, C) -> V>,
}

/// What clones share.
struct Shared {
    engine: Arc<Engine>,
    handles: Handles,
    ttl: Option<Duration>,
    clock: Clock,
    digest_key: DigestKey,
    flights: Flights,
    /// The second of the last background step.
    maintained_secs: AtomicU32,
}

/// Why a value was not stored. Nothing is stored under its key then: not the old value, either.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertError {
    /// Key and value take more than a quarter of the memory, or more than 1 GiB.
    TooLarge,
    /// No memory came free, although entries were evicted: other threads read all of it, or the index takes it.
    OutOfMemory,
    /// The codec refused the key or the value. Where it refused the key, nothing changed.
    Encode(EncodeError),
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("key and value are too large for the cache"),
            Self::OutOfMemory => f.write_str("no memory of the cache came free"),
            Self::Encode(error) => write!(f, "the codec refused the key or the value: {error}"),
        }
    }
}

impl std::error::Error for InsertError {}

impl From<EncodeError> for InsertError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl<K, V> Cache<K, V> {
    /// A cache that takes up to `memory_bytes` of memory. It sets addresses aside, and takes memory as entries come.
    ///
    /// Errors: less than 1 MiB or more than 2 TiB (`InvalidInput`), or the system refuses the addresses.
    pub fn new(memory_bytes: u64) -> io::Result<Self> {
        Self::builder(memory_bytes).build()
    }

    /// A cache with a time to live, another codec, or for a known number of threads.
    pub fn builder(memory_bytes: u64) -> CacheBuilder<K, V> {
        CacheBuilder::new(memory_bytes)
    }
}

impl<K, V, C> Cache<K, V, C> {
    /// The same as [`Self::new`], with the codec of the type.
    ///
    /// ```
    /// # #[cfg(feature = "postcard")] {
    /// use larder_engine::{Cache, Postcard};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct User { name: String, logins: u32 }
    ///
    /// let users: Cache<u64, User, Postcard> = Cache::with_codec(64 << 20)?;
    /// users.insert(&7, &User { name: "Ada".into(), logins: 1 });
    /// assert_eq!(users.get(&7).map(|user| user.name).as_deref(), Some("Ada"));
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_codec(memory_bytes: u64) -> io::Result<Self> {
        CacheBuilder::new(memory_bytes).build()
    }

    /// Finds a value.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: ?Sized,
        C: Encode<Q> + Decode<V>,
    {
        self.with_key(key, |key| self.shared.read(&key, C::decode).flatten()).ok().flatten()
    }

    /// Finds a value and reads its bytes where they lie, without a copy. With [`Plain`], strings and bytes are their
    /// own bytes.
    ///
    /// While `read` runs, the cache can reuse no memory, and one of its handles is taken: do not wait for anything in
    /// it, and do not use the same cache, since threads that do may wait for each other for ever.
    ///
    /// ```
    /// # use larder_engine::Cache;
    /// let pages: Cache<String, Vec<u8>> = Cache::new(64 << 20)?;
    /// pages.insert("/", b"<!doctype html>".as_slice());
    /// assert_eq!(pages.get_with("/", |page| page.starts_with(b"<!doctype")), Some(true));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn get_with<Q, R>(&self, key: &Q, read: impl FnOnce(&[u8]) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: ?Sized,
        C: Encode<Q>,
    {
        self.with_key(key, |key| self.shared.read(&key, |bytes| Some(read(bytes))).flatten()).ok().flatten()
    }

    /// True if a look-up would find the key. Does not count as one.
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized,
        C: Encode<Q>,
    {
        self.with_key(key, |key| self.shared.contains(&key)).unwrap_or(false)
    }

    /// Stores a value, with the time to live of the cache. Replaces the old one.
    ///
    /// A value that cannot be stored is left out, and the old one removed: [`CacheStats::rejected`] counts it, and
    /// [`Self::try_insert`] says why.
    pub fn insert<Q, W>(&self, key: &Q, value: &W)
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: ?Sized,
        W: ?Sized,
        C: Encode<Q> + Encode<W>,
    {
        let _ = self.try_insert(key, value);
    }

    /// The same with a time to live of its own. An entry with a `ttl` of zero is never found.
    ///
    /// ```
    /// # use larder_engine::Cache;
    /// # use std::time::Duration;
    /// let tokens: Cache<String, String> = Cache::new(64 << 20)?;
    /// tokens.insert_with_ttl("ada", "9f86d081", Duration::from_millis(1500));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn insert_with_ttl<Q, W>(&self, key: &Q, value: &W, ttl: Duration)
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: ?Sized,
        W: ?Sized,
        C: Encode<Q> + Encode<W>,
    {
        let _ = self.try_insert_with_ttl(key, value, ttl);
    }

    /// The same as [`Self::insert`], and says why a value was not stored.
    pub fn try_insert<Q, W>(&self, key: &Q, value: &W) -> Result<(), InsertError>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: ?Sized,
        W: ?Sized,
        C: Encode<Q> + Encode<W>,
    {
        self.store(key, value, self.shared.ttl)
    }

    /// The same as [`Self::insert_with_ttl`], and says why a value was not stored.
    pub fn try_insert_with_ttl<Q, W>(&self, key: &Q, value: &W, ttl: Duration) -> Result<(), InsertError>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: ?Sized,
        W: ?Sized,
        C: Encode<Q> + Encode<W>,
    {
        self.store(key, value, Some(ttl))
    }

    /// Finds a value, or computes and stores it. Of all threads that miss the key at a time one computes, and the
    /// others wait for its value.
    ///
    /// If the closure panics, one of the waiting threads computes in its place. If the key is inserted or removed
    /// meanwhile, callers that asked before get the computed value, but it is not stored: the newer entry stays.
    ///
    /// Panics if the closure asks by this or the following methods for the same key, or for a key whose closure waits
    /// for this one: neither could ever end. Closures that ask for no other key are safe from that.
    ///
    /// ```
    /// # use larder_engine::Cache;
    /// let squares: Cache<u64, u64> = Cache::new(64 << 20)?;
    /// assert_eq!(squares.get_or_insert_with(&12, || 12 * 12), 144);
    /// assert_eq!(squares.get_or_insert_with(&12, || unreachable!()), 144);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn get_or_insert_with<Q>(&self, key: &Q, compute: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
        Q: ?Sized,
        C: Encode<Q> + Encode<V> + Decode<V>,
    {
        infallible(self.compute(key, self.shared.ttl, || Ok(compute())))
    }

    /// The same with a time to live of its own, which begins when the value has been computed.
    pub fn get_or_insert_with_ttl<Q>(&self, key: &Q, ttl: Duration, compute: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
        Q: ?Sized,
        C: Encode<Q> + Encode<V> + Decode<V>,
    {
        infallible(self.compute(key, Some(ttl), || Ok(compute())))
    }

    /// The same as [`Self::get_or_insert_with`] for what may fail. An error is not stored: those who wait get it, too,
    /// and the next to ask tries again. Waiters with another type of error compute by themselves.
    ///
    /// ```
    /// # use larder_engine::Cache;
    /// let files: Cache<String, Vec<u8>> = Cache::new(64 << 20)?;
    /// let missing = files.try_get_or_insert_with("no such file", || std::fs::read("no such file"));
    /// assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_get_or_insert_with<Q, E>(
        &self,
        key: &Q,
        compute: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
        Q: ?Sized,
        C: Encode<Q> + Encode<V> + Decode<V>,
        E: Send + Sync + 'static,
    {
        self.compute(key, self.shared.ttl, compute)
    }

    /// Removes an entry. True if there was one.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized,
        C: Encode<Q>,
    {
        self.with_encoded(key, |key| {
            self.shared.flights.outdate(key);
            self.shared.remove(&self.shared.key(key))
        })
        .unwrap_or(false)
    }

    /// Removes all entries, at once for all threads. Their memory comes back as others are inserted.
    pub fn clear(&self) {
        self.shared.flights.outdate_all();
        self.shared.engine.flush(self.shared.clock.now(), None);
    }

    /// What the cache holds, and how often it was asked. Adds up the counters of all threads: not for a hot loop.
    pub fn stats(&self) -> CacheStats {
        self.shared.stats()
    }

    /// A background step: takes back memory of entries that have expired or were cleared. Never needed for correct
    /// answers; useful where nothing is inserted for a long time, once a second or so. Takes less than a millisecond.
    pub fn maintain(&self) {
        let now = self.shared.clock.now();
        self.shared.handles.maintain(now, 16 * BACKGROUND_ITEMS);
    }

    fn store<Q: ?Sized, W: ?Sized>(
        &self,
        key: &Q,
        value: &W,
        ttl: Option<Duration>,
    ) -> Result<(), InsertError>
    where
        C: Encode<Q> + Encode<W>,
    {
        let stored = self.with_encoded(key, |key| {
            self.shared.flights.outdate(key);
            let mut buffer = Buffer::new();
            let value = C::encode(value, &mut buffer);
            self.shared.store(&self.shared.key(key), value, ttl)
        });
        stored.unwrap_or_else(|error| {
            self.shared.count_rejected();
            Err(InsertError::Encode(error))
        })
    }

    fn compute<Q: ?Sized, E>(
        &self,
        key: &Q,
        ttl: Option<Duration>,
        compute: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>>
    where
        C: Encode<Q> + Encode<V> + Decode<V>,
        E: Send + Sync + 'static,
    {
        let mut buffer = Buffer::new();
        // A key without bytes cannot be shared.
        let Ok(encoded) = C::encode(key, &mut buffer) else { return compute().map_err(Arc::new) };
        let key = self.shared.key(encoded);
        let get = || self.shared.read(&key, C::decode).flatten();
        loop {
            if let Some(value) = get() {
                return Ok(value);
            }
            let leader = match self.shared.flights.join(encoded) {
                Part::Leader(leader) => leader,
                Part::Waiter(flight) => match flight.wait() {
                    Landed::Abandoned => continue,
                    Landed::Value(bytes) => match C::decode(&bytes) {
                        Some(value) => return Ok(value),
                        None => return compute().map_err(Arc::new),
                    },
                    Landed::Error(error) => match error.downcast() {
                        Ok(error) => return Err(error),
                        Err(_) => return compute().map_err(Arc::new),
                    },
                },
            };
            let replaced = self.shared.cas(&key);
            // Perhaps another flight has landed since the miss.
            if self.shared.contains(&key)
                && let Some(value) = get()
            {
                return Ok(value);
            }
            let value = match compute() {
                Ok(value) => value,
                Err(error) => {
                    let error = Arc::new(error);
                    leader.land_error(Arc::clone(&error) as _);
                    return Err(error);
                }
            };
            let mut buffer = Buffer::new();
            let bytes = C::encode(&value, &mut buffer);
            match bytes {
                Ok(bytes) => {
                    leader.land_value(bytes, || self.shared.store_computed(&key, bytes, ttl, replaced))
                }
                Err(_) => self.shared.count_rejected(),
            }
            return Ok(value);
        }
    }

    #[inline]
    fn with_key<Q: ?Sized, R>(&self, key: &Q, work: impl FnOnce(CacheKey<'_>) -> R) -> Result<R, EncodeError>
    where
        C: Encode<Q>,
    {
        self.with_encoded(key, |key| work(self.shared.key(key)))
    }

    #[inline]
    fn with_encoded<Q: ?Sized, R>(&self, key: &Q, work: impl FnOnce(&[u8]) -> R) -> Result<R, EncodeError>
    where
        C: Encode<Q>,
    {
        let mut buffer = Buffer::new();
        C::encode(key, &mut buffer).map(work)
    }
}

impl Shared {
    #[inline]
    fn key<'k>(&self, key: &'k [u8]) -> CacheKey<'k> {
        CacheKey::new(key, &self.digest_key)
    }

    /// Finds a value and decodes it in place. `Some(None)`: it cannot be decoded.
    #[inline]
    fn read<R>(&self, key: &CacheKey<'_>, decode: impl FnOnce(&[u8]) -> Option<R>) -> Option<Option<R>> {
        // Before the pin, which all later reads of memory wait for.
        let hash = self.engine.prepare(key.engine_key());
        let now = self.clock.now();
        let (handle, counters) = self.handles.pin();
        let guard = handle.guard(now);
        let Ok(item) = guard.get(key.engine_key(), hash) else {
            counters.misses.increment();
            return None;
        };
        let is_past = |deadline: Deadline| self.clock.is_past(deadline.total_micros(), now);
        let value = match key.value_of(&item) {
            Some(value) if !deadline_of(&item).is_some_and(is_past) => value,
            _ => {
                counters.refused_hits.increment();
                counters.misses.increment();
                return None;
            }
        };
        let decoded = decode(value);
        if decoded.is_none() {
            counters.decode_errors.increment();
            counters.refused_hits.increment();
            counters.misses.increment();
        }
        Some(decoded)
    }

    fn contains(&self, key: &CacheKey<'_>) -> bool {
        let now = self.clock.now();
        let guard = self.handles.pin().0.guard(now);
        let hash = guard.prepare(key.engine_key());
        guard.peek(key.engine_key(), hash).is_ok_and(|fetched| {
            let deadline = deadline_of(&fetched.item);
            key.value_of(&fetched.item).is_some()
                && !deadline.is_some_and(|deadline| self.clock.is_past(deadline.total_micros(), now))
        })
    }

    fn remove(&self, key: &CacheKey<'_>) -> bool {
        // Of a key that shares its digest with another, the other's entry must stay, and an expired one is none.
        let is_there = self.contains(key);
        let guard = self.handles.pin().0.guard(self.clock.now());
        let hash = guard.prepare(key.engine_key());
        is_there && guard.delete(key.engine_key(), hash, None) == crate::request::Deleted::Deleted
    }

    fn store(
        &self,
        key: &CacheKey<'_>,
        value: Result<&[u8], EncodeError>,
        ttl: Option<Duration>,
    ) -> Result<(), InsertError> {
        if ttl == Some(Duration::ZERO) {
            self.remove(key);
            return Ok(());
        }
        let set = |value| self.store_bytes(key, value, ttl, (Mode::Set, None));
        let result = value.map_err(InsertError::from).and_then(set);
        if result.is_err() {
            self.remove(key);
            self.count_rejected();
        }
        result
    }

    fn count_rejected(&self) {
        let (_handle, counters) = self.handles.pin();
        counters.rejected.increment();
    }

    /// Stores a computed value, but only in place of the entry that was there before it was computed (see
    /// [`Self::cas`]): an insert that came meanwhile is newer.
    fn store_computed(&self, key: &CacheKey<'_>, value: &[u8], ttl: Option<Duration>, replaced: Option<u64>) {
        if ttl == Some(Duration::ZERO) {
            return;
        }
        let terms = match replaced {
            None => (Mode::Add, None),
            Some(cas) => (Mode::Set, Some(Compare::Equal(cas))),
        };
        if self.store_bytes(key, value, ttl, terms).is_err() {
            self.count_rejected();
        }
    }

    /// CAS value of the entry in a key's place, even if no look-up finds it: it may have expired within this second,
    /// belong to another key with the same digest, or not be decodable.
    fn cas(&self, key: &CacheKey<'_>) -> Option<u64> {
        let guard = self.handles.pin().0.guard(self.clock.now());
        let hash = guard.prepare(key.engine_key());
        guard.peek(key.engine_key(), hash).ok().map(|fetched| fetched.item.cas())
    }

    /// Also returns `Ok` if the conditions of the store are not met.
    fn store_bytes(
        &self,
        key: &CacheKey<'_>,
        value: &[u8],
        ttl: Option<Duration>,
        (mode, compare): (Mode, Option<Compare>),
    ) -> Result<(), InsertError> {
        let joined = match key.engine_value(value) {
            None => None,
            Some(None) => return Err(InsertError::TooLarge),
            Some(joined) => joined,
        };
        let deadline = match ttl {
            None => None,
            Some(ttl) => {
                let ttl_micros = u64::try_from(ttl.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
                Deadline::at(self.clock.exact_micros().saturating_add(ttl_micros))
            }
        };
        let mut store = Store {
            client_flags: key.client_flags(deadline),
            expiry: deadline.map_or(Expiry::NEVER, |deadline| Expiry::at(deadline.secs)),
            mode,
            compare,
            ..Store::set(key.engine_key(), joined.as_deref().unwrap_or(value))
        };
        for attempt in 0..TRIES_MAX {
            let now = self.clock.now();
            if self.maintained_secs.load(Relaxed) != now.secs
                && self.maintained_secs.swap(now.secs, Relaxed) != now.secs
            {
                self.handles.maintain(now, BACKGROUND_ITEMS);
            }
            let (handle, counters) = self.handles.pin();
            let guard = handle.guard(now);
            let hash = guard.prepare(store.key);
            match guard.store(hash, &store) {
                Stored::Stored { .. } => {
                    counters.inserts.increment();
                    return Ok(());
                }
                Stored::TooLarge => return Err(InsertError::TooLarge),
                Stored::NotStored | Stored::Exists => return Ok(()),
                // The entry that it would have replaced has left the cache.
                Stored::NotFound => (store.mode, store.compare) = (Mode::Add, None),
                Stored::TryAgain => {}
                _ => return Err(InsertError::OutOfMemory),
            }
            drop(guard);
            if attempt < TRIES_SPINNING { hint::spin_loop() } else { thread::yield_now() }
        }
        Err(InsertError::OutOfMemory)
    }

    fn stats(&self) -> CacheStats {
        let engine = self.engine.stats();
        let mut stats = CacheStats {
            hits: engine.queues.iter().map(|queue| queue.hits).sum(),
            evictions: engine.evictions,
            reclaimed: engine.reclaimed,
            entries: engine.items,
            memory_bytes: engine.memory_bytes,
            memory_used_bytes: engine.memory_used_bytes,
            ..CacheStats::default()
        };
        for counters in self.handles.counters() {
            stats.hits = stats.hits.saturating_sub(counters.refused_hits.get());
            stats.misses += counters.misses.get();
            stats.inserts += counters.inserts.get();
            stats.rejected += counters.rejected.get();
            stats.decode_errors += counters.decode_errors.get();
        }
        stats
    }
}

fn infallible<T>(result: Result<T, Arc<Infallible>>) -> T {
    result.unwrap_or_else(|error| match *error {})
}

impl<K, V, C> Clone for Cache<K, V, C> {
    /// Another handle to the same entries.
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), types: PhantomData }
    }
}

impl<K, V, C> fmt::Debug for Cache<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
