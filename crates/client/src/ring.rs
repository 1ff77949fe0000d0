//! Distributes keys over servers in the same way as libmemcached, so that both kinds of clients can share servers.

use md5::{Digest, Md5};

use crate::address::DEFAULT_PORT;
use crate::{Address, server::Server};

/// How keys are distributed over servers. The names are libmemcached's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// The key's hash modulo the number of servers (`MEMCACHED_DISTRIBUTION_MODULA`, libmemcached's default). Adding or
    /// removing a server moves nearly all keys. Weights are ignored.
    #[default]
    Modula,
    /// `MEMCACHED_BEHAVIOR_KETAMA` (pylibmc's `ketama`): each server has many points on a ring. Adding or removing a
    /// server moves only its share of the keys. Weights are used if any of them is not 1.
    Ketama,
    /// `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED` (`OPT_LIBKETAMA_COMPATIBLE` of PHP's memcached, `ketama_weighted` of
    /// pylibmc): as `Ketama`, with MD5 throughout. Weights are used.
    KetamaWeighted,
}

/// Servers and their points.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    servers: usize,
    hash: fn(&[u8]) -> u32,
    /// Sorted by hash: the end of each range, and the index of its server. Empty for [`Distribution::Modula`].
    points: Vec<(u32, usize)>,
}

impl Ring {
    pub(crate) fn new(servers: &[Server], distribution: Distribution) -> Self {
        let has_weights = servers.iter().any(|server| server.weight != 1);
        let (hash, points): (fn(&[u8]) -> u32, _) = match distribution {
            Distribution::Modula => (one_at_a_time, Vec::new()),
            Distribution::Ketama if !has_weights => (one_at_a_time, even_points(servers)),
            Distribution::Ketama => (one_at_a_time, weighted_points(servers)),
            Distribution::KetamaWeighted => (|key| md5(key)[0], weighted_points(servers)),
        };
        Self { servers: servers.len(), hash, points }
    }

    /// The index of the key's server. `None`: there is no server.
    pub(crate) fn server_of(&self, key: &[u8]) -> Option<usize> {
        if self.servers < 2 {
            return (self.servers == 1).then_some(0);
        }
        let hash = (self.hash)(key);
        if self.points.is_empty() {
            return Some(hash as usize % self.servers);
        }
        let at = self.points.partition_point(|(point, _)| *point < hash);
        self.points.get(at).or_else(|| self.points.first()).map(|(_, server)| *server)
    }
}

/// 100 points for each server.
fn even_points(servers: &[Server]) -> Vec<(u32, usize)> {
    let points = |(index, server): (usize, &Server)| {
        let name = name(&server.address);
        (0..100).map(move |n| (one_at_a_time(format!("{name}-{n}").as_bytes()), index)).collect::<Vec<_>>()
    };
    let mut points: Vec<_> = servers.iter().enumerate().flat_map(points).collect();
    points.sort_unstable();
    points
}

/// 160 points for each server, distributed by weight, four of each MD5 sum. Rounded in single precision, as in
/// libmemcached.
fn weighted_points(servers: &[Server]) -> Vec<(u32, usize)> {
    let total: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
    let mut points = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        let name = name(&server.address);
        let share = server.weight as f32 / total as f32;
        let sums = (share * 160.0 / 4.0 * servers.len() as f32 + 1e-10).floor() as u32;
        for n in 0..sums {
            points.extend(md5(format!("{name}-{n}").as_bytes()).map(|point| (point, index)));
        }
    }
    points.sort_unstable();
    points
}

/// A server's name on the ring.
fn name(address: &Address) -> String {
    match address {
        Address::Inet { host, port: DEFAULT_PORT } => host.clone(),
        Address::Inet { host, port } => format!("{host}:{port}"),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}

/// Bob Jenkins' one-at-a-time.
fn one_at_a_time(key: &[u8]) -> u32 {
    let mut hash = key.iter().fold(0u32, |hash, byte| {
        let hash = hash.wrapping_add(u32::from(*byte));
        let hash = hash.wrapping_add(hash << 10);
        hash ^ (hash >> 6)
    });
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// An MD5 sum as four numbers, little-endian.
fn md5(bytes: &[u8]) -> [u32; 4] {
    let sum = Md5::digest(bytes);
    std::array::from_fn(|n| {
        sum[n * 4..].first_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_le_bytes(*bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Servers;

    const EVEN: &str = "10.0.1.1:11211,10.0.1.2:11211,10.0.1.3:11212,cache.example:11213,10.0.1.5:11211";
    const WEIGHTED: &str = "10.0.1.1:11211:600,10.0.1.2:11211:300,10.0.1.3:11212:200,cache.example:11213:350,10.0.1.5:11211:1000";

    /// The results of memcached_generate_hash of libmemcached 1.1.4 for the keys `key:0` to `key:9999`: the servers of
    /// the first 32, and the FNV-1a hash of the sequence of all of them.
    #[test]
    fn keys_belong_to_the_servers_that_libmemcached_names() {
        use Distribution::{Ketama, KetamaWeighted, Modula};
        for (distribution, servers, first, fold) in [
            (Modula, EVEN, "34133211313012303440104211041024", 1030307608),
            (Modula, WEIGHTED, "34133211313012303440104211041024", 1030307608),
            (Ketama, EVEN, "31410400301420134344401342312243", 3119011292),
            (Ketama, WEIGHTED, "33230403024404040424044011410440", 1486887115),
            (KetamaWeighted, EVEN, "04421143032131321204202112003141", 1982926848),
            (KetamaWeighted, WEIGHTED, "04424143032430301204404002004140", 4067573616),
            (KetamaWeighted, "10.0.1.1:11211", "00000000000000000000000000000000", 1943471365),
            (KetamaWeighted, "a:1,b:2", "10100010000000000011101000011110", 1236279732),
        ] {
            let Servers(servers) = servers.parse().expect("its weights are numbers");
            let ring = Ring::new(&servers, distribution);
            let owners: Vec<_> = (0..10_000)
                .map(|n| ring.server_of(format!("key:{n}").as_bytes()).expect("there are servers"))
                .collect();
            let start: String = owners[..32].iter().map(usize::to_string).collect();
            assert_eq!(start, first, "{distribution:?}");
            let all =
                owners.iter().fold(2166136261u32, |sum, owner| (sum ^ *owner as u32).wrapping_mul(16777619));
            assert_eq!(all, fold, "{distribution:?}");
        }
        assert_eq!(Ring::new(&[], Ketama).server_of(b"a"), None);
    }
}
