//! Points of servers on the rings of clients.

use sha1::{Digest, Sha1};

use super::hash::md5;
use super::node::Node;
use super::{Chars, KeyHash};

/// `count` points for each server, of the hashes of `name-0`, `name-1`, ...
pub(super) fn hashed_points(nodes: &[Node], count: u32, hash: KeyHash, chars: Chars) -> Vec<(u32, usize)> {
    let point = |name: &str, n| hash.of(format!("{name}-{n}").as_bytes(), chars) as u32;
    nodes.iter().flat_map(|node| (0..count).map(move |n| (point(&node.name, n), node.position))).collect()
}

/// About 160 points for each server, distributed by weight, four of each MD5 sum.
pub(super) fn md5_points(nodes: &[Node], rounding: Rounding) -> Vec<(u32, usize)> {
    let total = total_weight(nodes);
    let mut points = Vec::new();
    for node in nodes {
        let share = Share { weight: node.weight, total, servers: nodes.len() as u64 };
        for n in 0..share.sums(rounding) {
            points.extend(md5(format!("{}-{n}", node.name).as_bytes()).map(|point| (point, node.position)));
        }
    }
    points
}

/// The number of a server's sums is rounded down: in which arithmetic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Single precision: libmemcached, twemproxy, spymemcached.
    Single,
    /// Whole numbers: Whalin's client, uhashring.
    Whole,
}

struct Share {
    weight: u64,
    total: u64,
    servers: u64,
}

impl Share {
    fn sums(&self, rounding: Rounding) -> u64 {
        match rounding {
            Rounding::Single => {
                let part = self.weight as f32 / self.total as f32;
                (part * 160.0 / 4.0 * self.servers as f32 + 1e-10).floor() as u64
            }
            Rounding::Whole => 40 * self.servers * self.weight / self.total.max(1),
        }
    }
}

/// dalli's: 160 points for each server, distributed by weight: the first four bytes of SHA-1 sums of `name:0`, ...
pub(super) fn sha1_points(nodes: &[Node]) -> Vec<(u32, usize)> {
    let total = total_weight(nodes).max(1);
    let mut points = Vec::new();
    for node in nodes {
        for n in 0..160 * nodes.len() as u64 * node.weight / total {
            let sum = Sha1::digest(format!("{}:{n}", node.name));
            points
                .extend(sum.first_chunk().map(|bytes: &[u8; 4]| (u32::from_be_bytes(*bytes), node.position)));
        }
    }
    points
}

/// PHP's memcache's: 160 points for each unit of weight: the hashes of `name-0`, ...
pub(super) fn php_memcache_points(nodes: &[Node], hash: KeyHash, chars: Chars) -> Vec<(u32, usize)> {
    let points = |node: &Node| hashed_points(std::slice::from_ref(node), php_count(node.weight), hash, chars);
    nodes.iter().flat_map(points).collect()
}

/// Whether these weights give more points than should be computed at once.
pub(super) fn has_too_many_php_points(weights: impl Iterator<Item = u64>) -> bool {
    weights.map(|weight| u64::from(php_count(weight))).sum::<u64>() > PHP_POINTS_MAX
}

fn php_count(weight: u64) -> u32 {
    160 * weight.min(PHP_WEIGHT_MAX) as u32
}

fn total_weight(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.weight).sum()
}

/// Its memory grows with the weight itself, not with its share.
const PHP_WEIGHT_MAX: u64 = 1000;
/// Weights of 26,214 together. Sorting the points takes 64 MiB, and a second of a slow processor.
const PHP_POINTS_MAX: u64 = 1 << 22;
