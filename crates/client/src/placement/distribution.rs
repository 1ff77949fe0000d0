//! From the hash of a key to a server.

use super::{KeyHash, Names};

/// How keys are distributed over servers. The names are libmemcached's, where it has the distribution; the others begin
/// with the client that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distribution {
    /// The key's hash modulo the number of servers (`MEMCACHED_DISTRIBUTION_MODULA`, libmemcached's default). Adding or
    /// removing a server moves nearly all keys. Weights are ignored.
    #[default]
    Modula,
    /// The key's hash modulo the sum of the weights, as if each server were in the list as often as its weight says:
    /// Cache::Memcached, python-memcached, twemproxy, Whalin's client.
    ModulaWeighted,
    /// `MEMCACHED_BEHAVIOR_KETAMA` (pylibmc's `ketama`): each server has 100 points on a ring, hashed as keys are.
    /// Adding or removing a server moves only its share of the keys. If any weight is not 1, the points are those of
    /// `KetamaWeighted`.
    Ketama,
    /// `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED` (`OPT_LIBKETAMA_COMPATIBLE` of PHP's memcached, `ketama_weighted` of
    /// pylibmc): 160 points for each server, distributed by weight, four of each MD5 sum. Weights are used.
    KetamaWeighted,
    /// `MEMCACHED_DISTRIBUTION_CONSISTENT_KETAMA_SPY`: as `Ketama`, with `/host:port` as names of servers. It is not
    /// what spymemcached does.
    KetamaSpy,
    /// The same after `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`: with the points of `KetamaWeighted`.
    KetamaSpyWeighted,
    /// `MEMCACHED_DISTRIBUTION_VIRTUAL_BUCKET`: the low bits of the hash number a bucket, and a map
    /// ([`Placement::buckets`](super::Placement::buckets)) the server of each bucket. Without a map the bucket is the
    /// server, and servers get nothing unless their number is a power of two.
    VirtualBuckets,
    /// spymemcached's `KetamaNodeLocator`: 160 points for each server. Weights are ignored.
    SpymemcachedKetama,
    /// The same with weights.
    SpymemcachedKetamaWeighted,
    /// `CONSISTENT_HASH` of Whalin's client. Weights are used.
    WhalinConsistent,
    /// uhashring with `hash_fn="ketama"`. Weights are used.
    UhashringKetama,
    /// dalli's ring: 160 points for each server, of SHA-1. Weights are used.
    DalliRing,
    /// `memcache.hash_strategy=standard` of PHP's memcache: as `ModulaWeighted`, of 15 bits of the hash, or of 1 if
    /// they are 0.
    PhpMemcacheStandard,
    /// `memcache.hash_strategy=consistent` of PHP's memcache: 1024 places on a ring. Weights are used, up to 1,000.
    PhpMemcacheConsistent,
    /// Rendezvous hashing (highest random weight), as pymemcache has it. Weights are ignored. Adding or removing a
    /// server moves only its share of the keys.
    Rendezvous,
    /// Jump consistent hash, by Lamping and Veach ([paper](https://arxiv.org/abs/1406.2294)). Weights are ignored.
    /// Adding or removing the last server moves only its share of the keys; removing another moves more.
    Jump,
    /// Any server, another one each time (`MEMCACHED_DISTRIBUTION_RANDOM`, twemproxy's `random`). A key that was set is
    /// not found again: for servers that all have the same items.
    Random,
}

impl Distribution {
    /// The hash function that clients have with it, unless they are told otherwise.
    pub(super) fn default_hash(self) -> KeyHash {
        match self {
            Self::Modula | Self::Ketama | Self::KetamaSpy | Self::VirtualBuckets | Self::Random => {
                KeyHash::OneAtATime
            }
            Self::ModulaWeighted => KeyHash::Crc,
            Self::DalliRing | Self::PhpMemcacheStandard | Self::PhpMemcacheConsistent => KeyHash::Crc32,
            _ => KeyHash::Md5,
        }
    }

    /// The names of servers that clients have with it.
    pub(super) fn default_names(self) -> Names {
        match self {
            Self::Ketama | Self::KetamaWeighted => Names::Libmemcached,
            Self::KetamaSpy | Self::KetamaSpyWeighted => Names::LibmemcachedSpy,
            Self::PhpMemcacheConsistent => Names::PhpMemcache,
            _ => Names::HostPort,
        }
    }
}
