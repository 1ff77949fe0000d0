//! What keys hold: it follows from their names.

use larder_client::{AsyncClient, Ttl};

/// Keys of each kind.
pub(crate) const KEYS: u64 = 500;

/// A key with a value, of a length of its own.
pub(crate) fn full(n: u64) -> String {
    format!("full:{n}")
}

/// A key without a value.
pub(crate) fn empty(n: u64) -> String {
    format!("empty:{n}")
}

/// A key with a number.
pub(crate) fn number(n: u64) -> String {
    format!("number:{n}")
}

/// The value of a full key: its name, again and again.
pub(crate) fn value(n: u64) -> Vec<u8> {
    let bytes = match n {
        0..20 => n,
        // These fill several reads.
        _ if n.is_multiple_of(50) => 30_000 + n,
        _ => n * 37 % 600,
    };
    format!("{} ", full(n)).into_bytes().into_iter().cycle().take(bytes as usize).collect()
}

/// The number of a key.
pub(crate) fn count(n: u64) -> u64 {
    n * 1_000_003 + 7
}

/// Stores all of it.
pub(crate) async fn fill(client: &AsyncClient) {
    let full = (0..KEYS).map(|n| (full(n), value(n)));
    let numbers = (0..KEYS).map(|n| (number(n), count(n).to_string().into_bytes()));
    for stored in client.set_many(full.chain(numbers), Ttl::Never).await {
        stored.expect("all is well");
    }
}
