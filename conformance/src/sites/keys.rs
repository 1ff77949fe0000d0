//! The keys that all clients change, and the namespaces that they are in.

use std::fmt::Write as _;
use std::ops::Range;

/// Of the store.
pub const KEYS: usize = 10_000;
/// Those of the store come first, then those of each cache.
pub(super) const ALL_KEYS: usize = KEYS + CACHES.len() * CACHE_KEYS;
/// Namespaces of the store, each of which is flushed by itself; behind them the caches.
pub(super) const PREFIXES: usize = 8;
pub(super) const ALL_PREFIXES: usize = PREFIXES + CACHES.len();
/// What sites tell each other of what is in memory: by prefix.
const CACHES: [(&str, &str); 2] = [("told", "invalidations"), ("values", "values")];
const CACHE_KEYS: usize = 500;
/// Of these, one site runs what reads before it writes: by prefix, with the site.
const HOMES: [(usize, usize); 2] = [(PREFIXES - 2, 0), (PREFIXES - 1, 1)];

pub(super) fn name(key: usize) -> String {
    match key.checked_sub(KEYS) {
        None => format!("p{}:key{key}", key % PREFIXES),
        Some(key) => format!("{}:key{key}", CACHES[key / CACHE_KEYS].0),
    }
}

pub(super) fn prefix_name(prefix: usize) -> String {
    match prefix.checked_sub(PREFIXES) {
        None => format!("p{prefix}:"),
        Some(cache) => format!("{}:", CACHES[cache].0),
    }
}

/// The keys of a namespace.
pub(super) fn keys_of(prefix: usize) -> impl Iterator<Item = usize> {
    let (range, step) = match prefix.checked_sub(PREFIXES) {
        None => (prefix..KEYS, PREFIXES),
        Some(cache) => (keys_of_cache(cache), 1),
    };
    range.step_by(step)
}

fn keys_of_cache(cache: usize) -> Range<usize> {
    let first = KEYS + cache * CACHE_KEYS;
    first..first + CACHE_KEYS
}

pub(super) fn is_cached(key: usize) -> bool {
    key >= KEYS
}

/// True if all sites that have the key's item have the same.
pub(super) fn is_the_same_everywhere(key: usize) -> bool {
    !is_cached(key) || CACHES[(key - KEYS) / CACHE_KEYS].1 == "values"
}

/// The site that is the home of a key.
pub(super) fn home_of(key: usize) -> Option<usize> {
    let prefix = (!is_cached(key)).then_some(key % PREFIXES)?;
    HOMES.iter().find(|(homely, _)| *homely == prefix).map(|(_, site)| *site)
}

/// These have expiries that come while the test looks.
pub(super) fn is_short_lived(key: usize) -> bool {
    key.is_multiple_of(16)
}

/// The file of namespaces.
pub(super) fn namespaces() -> String {
    let mut file = "[default]\nkeep = \"store\"\n".to_owned();
    for prefix in 0..PREFIXES {
        let _ = writeln!(file, "[namespace.\"{}\"]\nkeep = \"store\"", prefix_name(prefix));
        if let Some((_, site)) = HOMES.iter().find(|(homely, _)| *homely == prefix) {
            let _ = writeln!(file, "replicate = true\nrmw = \"home\"\nhome = {}", site + 1);
        }
    }
    for (name, told) in CACHES {
        let _ = writeln!(file, "[namespace.\"{name}:\"]\nkeep = \"cache\"\nreplicate = \"{told}\"");
    }
    file
}
