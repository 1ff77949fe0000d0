//! Requests, with all options.
//!
//! Expiry times (`exptime`) are memcached's: 0 is never, up to 30 days (2,592,000) is seconds from now, more is a Unix
//! time, negative is expired at once. The text and meta protocols have times up to 2,147,483,647, the binary protocol
//! up to 4,294,967,294: a later one is sent as this.

use super::Mode;

/// A protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The classic text commands.
    #[default]
    Text,
    /// `mg`, `ms`, `md`, `ma`, `mn`; classic commands where there is no meta command.
    Meta,
    /// The binary protocol.
    Binary,
}

/// Options of a get.
#[derive(Clone, Copy, Debug, Default)]
pub struct Get<'a> {
    /// Return the CAS value too (`gets`). The binary protocol always does.
    pub with_cas: bool,
    /// Set this expiry as well (`gat`, `gats`).
    pub exptime: Option<i64>,
    /// Meta: further flags, with spaces between. Not `q`.
    pub meta_flags: &'a [u8],
}

/// A store.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// What to do with an existing item.
    pub mode: Mode,
    /// The key.
    pub key: &'a [u8],
    /// The value, in consecutive parts.
    pub value: &'a [&'a [u8]],
    /// Returned with the value; opaque to the server.
    pub client_flags: u32,
    /// The expiry.
    pub exptime: i64,
    /// Only if the CAS value is this one (`cas`). With [`Mode::Set`] only, and not 0, which no item has.
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

/// A delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Only if the CAS value is this one. Not in the text protocol.
    pub compare: Option<u64>,
    /// Meta: further flags, with spaces between. Not `q`.
    pub meta_flags: &'a [u8],
}

/// An increment or decrement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arith<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The amount.
    pub delta: u64,
    /// Subtract, stopping at 0; else add, wrapping at 2^64.
    pub decrement: bool,
    /// Create a missing item with this number and this expiry. Not in the text protocol.
    pub initial: Option<(u64, i64)>,
    /// Meta: further flags, with spaces between. Not `q`, not `v`.
    pub meta_flags: &'a [u8],
}

/// A touch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new expiry.
    pub exptime: i64,
    /// Meta: further flags, with spaces between. Not `q`, not `v`.
    pub meta_flags: &'a [u8],
}
