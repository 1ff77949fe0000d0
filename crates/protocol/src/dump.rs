//! How dumps tell of items: the lines of `lru_crawler metadump`, `lru_crawler mgdump` and `stats cachedump`.

use crate::{Sink, key, number};

/// An item in a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dumped<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its key came in base64 when it was stored.
    pub is_binary_key: bool,
    /// Unix time at which it expires; `None`: never.
    pub expiry_secs: Option<i64>,
    /// Unix time of its last use.
    pub used_secs: i64,
    /// CAS value.
    pub cas: u64,
    /// Fetched since it was stored.
    pub is_fetched: bool,
    /// Where it lives.
    pub class: usize,
    /// Its size, overhead included.
    pub item_bytes: u32,
    /// Size of its value.
    pub value_bytes: usize,
    /// The client's flags.
    pub client_flags: u32,
}

/// Writes a line of metadump. It ends with a space and a line feed, as memcached's does.
pub fn metadata<S: Sink>(item: &Dumped<'_>, sink: &mut S) {
    sink.bytes(b"key=");
    uri(item.key, |bytes| sink.bytes(bytes));
    field(b" exp=", item.expiry_secs.unwrap_or(-1), sink);
    field(b" la=", item.used_secs, sink);
    field(b" cas=", item.cas, sink);
    sink.bytes(if item.is_fetched { b" fetch=yes" } else { b" fetch=no" });
    field(b" cls=", item.class as u64, sink);
    field(b" size=", item.item_bytes, sink);
    field(b" flags=", item.client_flags, sink);
    sink.bytes(b" \n");
}

/// Writes a line of mgdump: the command that gets the item. Its key is in base64 if it came so, or is no word.
pub fn command<S: Sink>(item: &Dumped<'_>, sink: &mut S) {
    sink.bytes(b"mg ");
    if item.is_binary_key || !is_word(item.key) {
        key::encode(item.key, sink);
        sink.bytes(b" b");
    } else {
        sink.bytes(item.key);
    }
    sink.bytes(b"\r\n");
}

/// Writes a line of cachedump. The key has to be a word ([`is_word`]).
pub fn cached<S: Sink>(item: &Dumped<'_>, sink: &mut S) {
    sink.bytes(b"ITEM ");
    sink.bytes(item.key);
    field(b" [", item.value_bytes as u64, sink);
    field(b" b; ", item.expiry_secs.unwrap_or(0), sink);
    sink.bytes(b" s]\r\n");
}

/// True if it can stand in a line as it is. Over the binary protocol keys may hold anything, line ends too, and so
/// could pretend to be other lines.
pub fn is_word(key: &[u8]) -> bool {
    !key.iter().any(|byte| *byte == b' ' || byte.is_ascii_control())
}

/// Hands bytes on URI-encoded (RFC 3986): unreserved characters stay, others become % and two hexadecimal digits.
pub fn uri(bytes: &[u8], mut put: impl FnMut(&[u8])) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for chunk in bytes.chunk_by(|before, after| is_unreserved(*before) && is_unreserved(*after)) {
        match chunk {
            &[byte] if !is_unreserved(byte) => {
                put(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            plain => put(plain),
        }
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn field<S: Sink>(name: &[u8], value: impl itoa::Integer, sink: &mut S) {
    sink.bytes(name);
    number::write(value, sink);
}
