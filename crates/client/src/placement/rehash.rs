//! Where a client sends a key whose server is away.

use super::{Distribution, Locator};

/// How a client chooses another server for a key whose own is away, where it has such a rule: most hash the key again,
/// together with the number of the attempt. Each is tested against what that client did
/// (`tests/data/placement/failover.txt`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rehash {
    /// No hash: the servers of [`Locator::successors`], each once. spymemcached's without a ring
    /// (`ArrayModNodeLocator`).
    Next,
    /// spymemcached's `KetamaIterator`: the hash of `{attempt}{key}` is added, six times.
    Spymemcached,
    /// dalli's with `failover`, its default: the hash of `{attempt}{key}`, 19 times.
    Dalli,
    /// Whalin's client with `setFailover`, its default: the hash of `{attempt}{key}`, until each server was tried. It
    /// has no limit; here it ends after 200 times.
    Whalin,
    /// PHP's memcache with `memcache.allow_failover`, its default: the hash of `{key}-{attempt}`, 20 times
    /// (`memcache.max_failover_attempts`).
    PhpMemcache,
    /// Cache::Memcached without `no_rehash`: the hash of `{attempt}{key}` is added, from 1 on, 19 times.
    CacheMemcached,
    /// python-memcached: the hash of the last hash, written as a number, and the attempt; nine times.
    PythonMemcached,
}

impl Rehash {
    /// What clients do that have this distribution.
    pub(super) fn of(distribution: Distribution) -> Self {
        match distribution {
            Distribution::SpymemcachedKetama | Distribution::SpymemcachedKetamaWeighted => Self::Spymemcached,
            Distribution::DalliRing => Self::Dalli,
            Distribution::WhalinConsistent => Self::Whalin,
            Distribution::PhpMemcacheStandard | Distribution::PhpMemcacheConsistent => Self::PhpMemcache,
            _ => Self::Next,
        }
    }

    fn attempts(self) -> u32 {
        match self {
            Self::Next => 0,
            Self::Spymemcached => 6,
            Self::PythonMemcached => 9,
            Self::Dalli | Self::CacheMemcached => 19,
            Self::PhpMemcache => 20,
            Self::Whalin => 200,
        }
    }
}

impl Locator {
    /// The positions of the servers that a client tries for a key, one after the other, until one answers: the key's
    /// own first, then those of [`Placement::rehash`](super::Placement::rehash). One may come more than once.
    pub fn failover(&self, key: &[u8]) -> impl Iterator<Item = usize> {
        let placement = self.placement();
        let rule = placement.rehash;
        let others = if rule == Rehash::Next { self.successors(key, usize::MAX) } else { Vec::new() };
        let text = placement.hashed(key).unwrap_or_default().into_owned();
        let mut hash = placement.hash_of(key);
        let hashes = (0..rule.attempts()).map(move |attempt| {
            let again = |before: &[u8], after: &[u8]| placement.hash_of_text(&[before, after].concat());
            let number = attempt.to_string();
            hash = match rule {
                Rehash::Next => hash,
                // Java adds 32 bits.
                Rehash::Spymemcached => {
                    let added = again(number.as_bytes(), &text);
                    u64::from((hash as u32).wrapping_add((added ^ (added >> 32)) as u32))
                }
                Rehash::Dalli | Rehash::Whalin => again(number.as_bytes(), &text),
                Rehash::PhpMemcache => again(&text, format!("-{number}").as_bytes()),
                Rehash::CacheMemcached => {
                    hash.wrapping_add(again((attempt + 1).to_string().as_bytes(), &text))
                }
                Rehash::PythonMemcached => again(hash.to_string().as_bytes(), number.as_bytes()),
            };
            hash
        });
        let rehashed = hashes.filter_map(|hash| self.owner(hash));
        let own = if others.is_empty() { self.server_of(key) } else { None };
        own.into_iter().chain(others).chain(rehashed)
    }
}
