//! Placement: which server a key belongs to. Pure computation, the same as in other clients, so that they can share
//! servers with this one.
//!
//! A [`Placement`] says how, as other clients' options do; a [`Locator`] is a placement of a list of servers:
//!
//! ```
//! use larder_client::placement::{KeyHash, Locator, Placement};
//! use larder_client::{Distribution, Servers};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let servers: Servers = "10.0.1.1, 10.0.1.2:11212, 10.0.1.3".parse()?;
//! // A pool of twemproxy with `hash: fnv1a_64`, `distribution: ketama`, `hash_tag: "{}"`.
//! let placement = Placement::twemproxy(Distribution::KetamaWeighted, KeyHash::Fnv64a).hash_tag(b'{', b'}');
//! let locator = Locator::new(&servers.0, placement);
//! assert_eq!(locator.server_of(b"{user7}:name"), locator.server_of(b"{user7}:mail"));
//! # Ok(())
//! # }
//! # example().unwrap();
//! ```
//!
//! # As which client
//!
//! `D` is [`Distribution`], `H` is [`KeyHash`]; each row is tested against what that client did
//! (`tests/data/placement`).
//!
//! | client | its options | here |
//! |---|---|---|
//! | libmemcached, pylibmc, PHP's memcached | none | `D::Modula` |
//! | | `HASH` (`hash`) = `MD5`, … | `.hash(H::Md5)`, … with any of these |
//! | | `KETAMA`, `DISTRIBUTION_CONSISTENT` | `D::Ketama` |
//! | | `KETAMA_WEIGHTED`, `OPT_LIBKETAMA_COMPATIBLE` | `D::KetamaWeighted` |
//! | | `CONSISTENT_KETAMA_SPY` | `D::KetamaSpy`, `D::KetamaSpyWeighted` |
//! | | `VIRTUAL_BUCKET`, `memcached_bucket_set` | `D::VirtualBuckets`, `.buckets(map)` |
//! | | `SORT_HOSTS` | `.sort_hosts()` |
//! | | a namespace with `HASH_WITH_PREFIX_KEY` | `.prefix(namespace)` |
//! | | a namespace without it | nothing: it is not hashed |
//! | | functions `…_by_key` | `server_of(group_key)` |
//! | | `AUTO_EJECT_HOSTS`, with ketama | [`Locator::without`] |
//! | PHP's memcached with unix sockets | | `.names(Names::PhpMemcached)` |
//! | on ARM | | `.chars(Chars::Unsigned)` |
//! | twemproxy | `ketama`, `modula` | [`Placement::twemproxy`]`(D::KetamaWeighted` or `D::ModulaWeighted, hash)` |
//! | | `hash_tag`, names of servers | `.hash_tag(…)`, `.names(Names::Given(…))` |
//! | | `auto_eject_hosts` | [`Locator::without`] |
//! | clients that try another server | | [`Placement::rehash`], [`Locator::failover`] |
//! | spymemcached | none | [`Placement::spymemcached`]`(D::Modula, H::JavaString)` |
//! | | `KETAMA_HASH`, `KetamaConnectionFactory` | `spymemcached(D::SpymemcachedKetama, H::Md5)` |
//! | | with weights | `spymemcached(D::SpymemcachedKetamaWeighted, H::Md5)` |
//! | | `Format.LIBMEMCACHED` | `.names(Names::Libmemcached)` |
//! | | names that it resolves | `.names(Names::Given(…))`: `localhost/127.0.0.1:11211` |
//! | Whalin's client | `NATIVE_HASH` | `D::ModulaWeighted`, `.hash(H::JavaStringAmount)` |
//! | | `OLD_COMPAT_HASH` | `D::ModulaWeighted`, `.hash(H::Times33)` |
//! | | `NEW_COMPAT_HASH` | `D::ModulaWeighted` |
//! | | `CONSISTENT_HASH` | `D::WhalinConsistent` |
//! | Cache::Memcached, Cache::Memcached::Fast | none | `D::ModulaWeighted` |
//! | Cache::Memcached::Fast | `hash_namespace` | `.prefix(namespace)` |
//! | python-memcached | none | `D::ModulaWeighted` |
//! | | none, until 1.59 | `D::ModulaWeighted`, `.hash(H::CrcNonzero)` |
//! | | `useOldServerHashFunction()` | `D::ModulaWeighted`, `.hash(H::Crc32)` |
//! | pymemcache | `HashClient`, keys of type `str` | `D::Rendezvous` |
//! | uhashring | `hash_fn="ketama"` | `D::UhashringKetama` |
//! | dalli | none | `D::DalliRing` |
//! | | `namespace` | `.prefix("namespace:")` |
//! | PHP's memcache | `hash_strategy=consistent`, its default | `D::PhpMemcacheConsistent` |
//! | | `hash_strategy=standard` | `D::PhpMemcacheStandard` |
//! | | `hash_function=fnv` | `.hash(H::Fnv32a)` with either |
//!
//! Weights are those of the list of servers; give each server 1 for a client that has none. libmemcached has weights
//! only of servers that are added after `KETAMA` is set.

mod chars;
mod continuum;
mod distribution;
mod hash;
mod jump;
mod ketama;
mod locator;
mod names;
mod node;
mod order;
mod rehash;
mod rendezvous;

use std::borrow::Cow;
use std::sync::Arc;

pub use chars::Chars;
pub use distribution::Distribution;
pub use hash::{KeyHash, md5_sum};
pub use jump::jump_hash;
pub use locator::Locator;
pub use names::Names;
use order::Order;
pub use rehash::Rehash;

use crate::{Error, Server};

/// How keys are placed. [The table](self) says which one another client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    distribution: Distribution,
    hash: KeyHash,
    chars: Chars,
    names: Names,
    order: Order,
    prefix: Vec<u8>,
    hash_tag: Option<(u8, u8)>,
    buckets: Arc<[u32]>,
    rehash: Rehash,
}

impl Default for Placement {
    /// As libmemcached without options.
    fn default() -> Self {
        Self::from(Distribution::default())
    }
}

impl From<Distribution> for Placement {
    /// As a client that has this distribution and no other options.
    fn from(distribution: Distribution) -> Self {
        Self {
            distribution,
            hash: distribution.default_hash(),
            chars: Chars::default(),
            names: distribution.default_names(),
            order: Order::default(),
            prefix: Vec::new(),
            hash_tag: None,
            buckets: Arc::default(),
            rehash: Rehash::of(distribution),
        }
    }
}

impl Placement {
    /// As libmemcached on x86-64 and clients that are built upon it.
    pub fn libmemcached(distribution: Distribution) -> Self {
        Self::from(distribution)
    }

    /// As twemproxy on x86-64. It has its servers sorted by their names.
    pub fn twemproxy(distribution: Distribution, hash: KeyHash) -> Self {
        Self { order: Order::Names, ..Self::from(distribution).hash(hash).names(Names::Twemproxy) }
    }

    /// As spymemcached.
    pub fn spymemcached(distribution: Distribution, hash: KeyHash) -> Self {
        Self::from(distribution).hash(hash).chars(Chars::Utf16)
    }

    /// Sets the hash function of keys. [`Distribution::Rendezvous`] has its own.
    #[must_use]
    pub fn hash(self, hash: KeyHash) -> Self {
        Self { hash, ..self }
    }

    /// Sets what the hash function takes for a character.
    #[must_use]
    pub fn chars(self, chars: Chars) -> Self {
        Self { chars, ..self }
    }

    /// Sets the names of servers on a ring.
    #[must_use]
    pub fn names(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// Sorts the servers by host and port (`MEMCACHED_BEHAVIOR_SORT_HOSTS`).
    #[must_use]
    pub fn sort_hosts(self) -> Self {
        Self { order: Order::Hosts, ..self }
    }

    /// Hashes this before each key. Keys that are longer than 250 bytes with it all have the hash 0, as in
    /// libmemcached; dalli shortens them first, so they are better passed as it sends them. libmemcached takes zeros
    /// for all that follows a zero in a key, which this does not.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<Vec<u8>>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Hashes only what is between these two bytes, if a key has them and something between them: twemproxy's
    /// `hash_tag`.
    #[must_use]
    pub fn hash_tag(self, open: u8, close: u8) -> Self {
        Self { hash_tag: Some((open, close)), ..self }
    }

    /// Sets the positions of the servers of [`Distribution::VirtualBuckets`], one for each bucket: the `host_map` of
    /// `memcached_bucket_set`. Their number should be a power of two: else some are never used.
    #[must_use]
    pub fn buckets(self, positions: impl Into<Arc<[u32]>>) -> Self {
        Self { buckets: positions.into(), ..self }
    }

    /// Sets where a key goes whose server is away, with [`FailurePolicy::Failover`](crate::FailurePolicy::Failover).
    #[must_use]
    pub fn rehash(self, rehash: Rehash) -> Self {
        Self { rehash, ..self }
    }

    /// Checks that a list of servers, which may come from a name server, has a ring of bounded size.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: [`Distribution::PhpMemcacheConsistent`] has 160 points for each unit of weight. Weights,
    /// each of which counts up to 1,000, may be 26,214 together.
    pub fn check(&self, servers: &[Server]) -> Result<(), Error> {
        let weights = servers.iter().map(|server| u64::from(server.weight.max(1)));
        let is_too_large = self.distribution == Distribution::PhpMemcacheConsistent
            && ketama::has_too_many_php_points(weights);
        if is_too_large {
            return Err(Error::Unsupported("the weights of all servers are more than 26214 together"));
        }
        Ok(())
    }

    /// What is hashed of a key, or nothing, whose hash is 0.
    fn hashed<'k>(&self, key: &'k [u8]) -> Option<Cow<'k, [u8]>> {
        let key = self.hash_tag.and_then(|(open, close)| tagged(key, open, close)).unwrap_or(key);
        if self.prefix.is_empty() {
            return Some(Cow::Borrowed(key));
        }
        let is_short = self.prefix.len() + key.len() <= KEY_BYTES_MAX;
        is_short.then(|| Cow::Owned([&self.prefix, key].concat()))
    }

    fn hash_of(&self, key: &[u8]) -> u64 {
        match self.hashed(key) {
            Some(hashed) => self.hash_of_text(&hashed),
            None => self.folded(0),
        }
    }

    /// The hash of this, without prefix and tag.
    fn hash_of_text(&self, text: &[u8]) -> u64 {
        self.folded(self.hash.of(text, self.chars))
    }

    fn folded(&self, hash: u64) -> u64 {
        if self.distribution == Distribution::PhpMemcacheStandard {
            ((hash >> 16) & 0x7FFF).max(1)
        } else {
            hash
        }
    }
}

/// What is between the first `open` and the next `close`, if it is not empty.
fn tagged(key: &[u8], open: u8, close: u8) -> Option<&[u8]> {
    let start = key.iter().position(|byte| *byte == open)? + 1;
    let rest = key.get(start..)?;
    let end = rest.iter().position(|byte| *byte == close)?;
    rest.get(..end).filter(|tag| !tag.is_empty())
}

/// The longest key that libmemcached hashes together with a prefix.
const KEY_BYTES_MAX: usize = 250;
