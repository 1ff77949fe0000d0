//! The caches, each as its own documentation shows it: keys are `u64`, values bytes behind an `Arc`, and the weight of
//! an entry is the bytes of its key and value.

use std::error::Error;
use std::sync::Arc;

use foyer_memory::{EvictionConfig, LfuConfig, LruConfig};

use crate::measure::measure;
use crate::requests::Request;

/// What is measured.
pub(crate) trait Candidate: Sync {
    /// Looks a key up and passes its value to `read`. True if it was there.
    fn get(&self, key: u64, read: impl FnOnce(&[u8])) -> bool;
    /// Stores a value that the caller has as bytes.
    fn insert(&self, key: u64, value: &[u8]);
}

const KEY_BYTES: usize = size_of::<u64>();

/// Measures the cache of this name, and prints.
pub(crate) fn run(
    name: &str,
    capacity_bytes: u64,
    requests: &[Request],
    gets: u64,
) -> Result<(), Box<dyn Error>> {
    let total_bytes: u64 =
        requests.iter().map(|request| u64::from(request.value_bytes) + KEY_BYTES as u64).sum();
    let items = (capacity_bytes as f64 / total_bytes as f64 * requests.len() as f64) as usize;
    let foyer = |eviction: EvictionConfig| {
        foyer_memory::CacheBuilder::new(capacity_bytes as usize)
            .with_eviction_config(eviction)
            .with_weighter(|_: &u64, value: &Arc<[u8]>| KEY_BYTES + value.len())
            .build()
    };
    let figures = match name {
        "larder" => measure(|| Ok(Larder(larder_engine::Cache::new(capacity_bytes)?)), requests, gets),
        "larder-in-place" => {
            measure(|| Ok(LarderInPlace(larder_engine::Cache::new(capacity_bytes)?)), requests, gets)
        }
        "moka" => measure(
            || {
                let weigher = |_: &u64, value: &Arc<[u8]>| (KEY_BYTES + value.len()) as u32;
                Ok(moka::sync::Cache::builder().max_capacity(capacity_bytes).weigher(weigher).build())
            },
            requests,
            gets,
        ),
        "quick_cache" => measure(
            || Ok(quick_cache::sync::Cache::with_weighter(items.max(1), capacity_bytes, Bytes)),
            requests,
            gets,
        ),
        "foyer" => measure(|| Ok(foyer(LruConfig::default().into())), requests, gets),
        "foyer-lfu" => measure(|| Ok(foyer(LfuConfig::default().into())), requests, gets),
        _ => return Err(format!("no cache is called {name:?}").into()),
    }?;
    print!("{figures}");
    Ok(())
}

/// A hit makes a value of its own.
struct Larder(larder_engine::Cache<u64, Arc<[u8]>>);

impl Candidate for Larder {
    #[inline]
    fn get(&self, key: u64, read: impl FnOnce(&[u8])) -> bool {
        self.0.get(&key).map(|value| read(&value)).is_some()
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.0.insert(&key, value);
    }
}

/// A hit reads the bytes where they lie.
struct LarderInPlace(larder_engine::Cache<u64, Vec<u8>>);

impl Candidate for LarderInPlace {
    #[inline]
    fn get(&self, key: u64, read: impl FnOnce(&[u8])) -> bool {
        self.0.get_with(&key, read).is_some()
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.0.insert(&key, value);
    }
}

impl Candidate for moka::sync::Cache<u64, Arc<[u8]>> {
    #[inline]
    fn get(&self, key: u64, read: impl FnOnce(&[u8])) -> bool {
        self.get(&key).map(|value| read(&value)).is_some()
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.insert(key, value.into());
    }
}

#[derive(Clone)]
struct Bytes;

impl quick_cache::Weighter<u64, Arc<[u8]>> for Bytes {
    fn weight(&self, _: &u64, value: &Arc<[u8]>) -> u64 {
        (KEY_BYTES + value.len()) as u64
    }
}

impl Candidate for quick_cache::sync::Cache<u64, Arc<[u8]>, Bytes> {
    #[inline]
    fn get(&self, key: u64, read: impl FnOnce(&[u8])) -> bool {
        self.get(&key).map(|value| read(&value)).is_some()
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.insert(key, value.into());
    }
}

impl Candidate for foyer_memory::Cache<u64, Arc<[u8]>> {
    #[inline]
    fn get(&self, key: u64, read: impl FnOnce(&[u8])) -> bool {
        self.get(&key).map(|entry| read(entry.value())).is_some()
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.insert(key, value.into());
    }
}
