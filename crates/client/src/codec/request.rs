//! What can be asked, with all options.
//!
//! Times to live (`exptime`) are as memcached takes them: 0 for ever, up to 30 days (2,592,000) seconds from now, more
//! a Unix time, negative: gone at once.

use super::Mode;

/// A protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The classic text commands.
    #[default]
    Text,
    /// `mg`, `ms`, `md`, `ma`, `mn`; classic commands where there is no other.
    Meta,
    /// The binary protocol.
    Binary,
}

/// How to get.
#[derive(Clone, Copy, Debug, Default)]
pub struct Get<'a> {
    /// Tell the CAS value too (`gets`). The binary protocol always does.
    pub with_cas: bool,
    /// Set this expiry as well (`gat`, `gats`).
    pub exptime: Option<i64>,
    /// Meta: further flags, with spaces between. Not `q`.
    pub meta_flags: &'a [u8],
}

/// What to store.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// What to do with what is there.
    pub mode: Mode,
    /// The key.
    pub key: &'a [u8],
    /// The value, in parts that follow each other.
    pub value: &'a [&'a [u8]],
    /// Handed back with the value; opaque to the server.
    pub client_flags: u32,
    /// When it expires.
    pub exptime: i64,
    /// Only if the CAS value is this one (`cas`). With [`Mode::Set`] only.
    pub compare: Option<u64>,
    /// Meta: further flags, with spaces between. Not `q`.
    pub meta_flags: &'a [u8],
}

impl Default for Store<'_> {
    fn default() -> Self {
        Self {
            mode: Mode::Set,
            key: b"",
            value: &[],
            client_flags: 0,
            exptime: 0,
            compare: None,
            meta_flags: b"",
        }
    }
}

impl Store<'_> {
    /// Size of the whole value.
    pub(super) fn value_bytes(&self) -> usize {
        self.value.iter().map(|part| part.len()).sum()
    }
}

/// What to delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Only if the CAS value is this one. Not in the text protocol.
    pub compare: Option<u64>,
    /// Meta: further flags, with spaces between. Not `q`.
    pub meta_flags: &'a [u8],
}

/// What to add, or subtract.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arith<'a> {
    /// The key.
    pub key: &'a [u8],
    /// By how much.
    pub delta: u64,
    /// Subtract, stopping at 0; else add, wrapping at 2^64.
    pub decrement: bool,
    /// Create what is missing with this number and this expiry. Not in the text protocol.
    pub initial: Option<(u64, i64)>,
    /// Meta: further flags, with spaces between. Not `q`, not `v`.
    pub meta_flags: &'a [u8],
}

/// What to touch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// When it expires from now on.
    pub exptime: i64,
    /// Meta: further flags, with spaces between. Not `q`, not `v`.
    pub meta_flags: &'a [u8],
}
