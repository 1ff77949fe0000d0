//! Rendezvous hashing as in pymemcache.

use super::hash::murmur::murmur3;
use super::node::Node;

/// The server whose name scores highest together with the key; of equal ones that with the greatest name. `None`: there
/// is no server.
pub(super) fn highest<'n>(nodes: &'n [Node], key: &[u8]) -> Option<&'n Node> {
    let key = low_bytes(key);
    let score = |node: &Node| {
        let mut input = low_bytes(node.name.as_bytes());
        input.push(b'-');
        input.extend_from_slice(&key);
        murmur3(&input, 0)
    };
    nodes.iter().max_by(|a, b| (score(a), &a.name).cmp(&(score(b), &b.name)))
}

/// pymemcache hashes the low byte of each character of a text.
fn low_bytes(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text).chars().map(|char| char as u8).collect()
}
