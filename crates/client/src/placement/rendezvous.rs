//! Rendezvous hashing as in pymemcache.

use std::cmp::Reverse;

use super::hash::murmur::murmur3;
use super::node::Node;

/// The server whose name scores highest together with the key; of equal ones that with the greatest name. `None`: there
/// is no server.
pub(super) fn highest<'n>(nodes: &'n [Node], key: &[u8]) -> Option<&'n Node> {
    let key = low_bytes(key);
    nodes.iter().max_by_key(|node| (score(node, &key), &node.name))
}

/// The servers by falling score.
pub(super) fn ranked<'n>(nodes: &'n [Node], key: &[u8]) -> Vec<&'n Node> {
    let key = low_bytes(key);
    let mut ranked: Vec<_> = nodes.iter().collect();
    ranked.sort_by_cached_key(|node| Reverse((score(node, &key), node.name.clone())));
    ranked
}

fn score(node: &Node, key: &[u8]) -> u32 {
    let mut input = low_bytes(node.name.as_bytes());
    input.push(b'-');
    input.extend_from_slice(key);
    murmur3(&input, 0)
}

/// pymemcache hashes the low byte of each character of a text.
fn low_bytes(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text).chars().map(|char| char as u8).collect()
}
