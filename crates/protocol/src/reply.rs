//! What a server answers, whatever the dialect.

use crate::binary::BinaryForm;
use crate::http::HttpForm;
use crate::meta::MetaForm;
use crate::text::TextForm;
use crate::{Error, binary, http, meta, text};

/// Where replies are written to.
pub trait Sink {
    /// How the sink's owner holds a value: whole values are handed on as they are, so that large ones need not be
    /// copied.
    type Value;
    /// Writes bytes.
    fn bytes(&mut self, bytes: &[u8]);
    /// Writes the first `len_bytes` of these. Whoever can write all of them and take back the rest saves a copy whose
    /// length is known only when it is made.
    #[inline]
    fn short(&mut self, bytes: [u8; SHORT_BYTES], len_bytes: usize) {
        self.bytes(&bytes[..len_bytes]);
    }
    /// Writes a value.
    fn value(&mut self, value: &Self::Value);
}

/// The longest that [`Sink::short`] writes.
pub const SHORT_BYTES: usize = 16;

/// How a request wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// Lines of the classic text dialect.
    Text(TextForm),
    /// Lines of the meta commands, with the flags of the request.
    Meta(MetaForm<'a>),
    /// Packets of the binary dialect.
    Binary(BinaryForm<'a>),
    /// Responses of HTTP.
    Http(HttpForm<'a>),
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'v, V> {
    /// Found, by [`crate::Command::Get`].
    Hit(Hit<'v, V>),
    /// Found, by [`crate::Command::Fetch`].
    Fetched(Hit<'v, V>, Detail),
    /// Found, by [`crate::Command::Peek`].
    Peeked(Peeked<'v>),
    /// Looked up and not found.
    Miss,
    /// All keys of a [`crate::Command::Get`], or all statistics, have been told.
    End,
    /// Stored.
    Stored {
        /// The item's new CAS value.
        cas: u64,
        /// Size of the whole value, appended parts included.
        value_bytes: u32,
        /// There was no item before.
        is_new: bool,
    },
    /// The mode's condition did not hold.
    NotStored,
    /// Another CAS value.
    Exists,
    /// No such item.
    NotFound,
    /// Deleted, or marked.
    Deleted,
    /// Expiry set.
    Touched {
        /// The client's flags.
        client_flags: u32,
        /// CAS value; 0 when CAS is off.
        cas: u64,
    },
    /// Added or subtracted.
    Number {
        /// The result.
        number: u64,
        /// The item's new CAS value.
        cas: u64,
        /// Seconds left before the command; `None`: never expires.
        ttl_before_secs: Option<u32>,
        /// Seconds left now.
        ttl_secs: Option<u32>,
    },
    /// Done.
    Ok,
    /// The answer to [`crate::Command::Noop`].
    Noop,
    /// The connection is going to be closed, as the client asked.
    Bye,
    /// The version.
    Version(&'v str),
    /// One of the statistics.
    Stat(&'v str, &'v str),
    /// Statistics zeroed.
    Reset,
    /// Mechanisms to log in by, with spaces between.
    Mechanisms(&'v str),
    /// The login goes on: the server's next message.
    Challenge(&'v [u8]),
    /// Logged in; the server's last message, or a word for people.
    LoggedIn(&'v [u8]),
    /// Not done.
    Error(Error),
}

/// An item found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'v, V> {
    /// The key it is stored under.
    pub key: &'v [u8],
    /// Its key came in base64 when it was stored.
    pub is_binary_key: bool,
    /// The client's flags.
    pub client_flags: u32,
    /// CAS value; 0 when CAS is off.
    pub cas: u64,
    /// The value.
    pub value: V,
    /// Size of the value.
    pub value_bytes: usize,
}

/// An item's state, as [`crate::Command::Fetch`] found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Seconds left before the command; `None`: never expires.
    pub ttl_before_secs: Option<u32>,
    /// Seconds left after it.
    pub ttl_secs: Option<u32>,
    /// Fetched before, since it was stored.
    pub hit_before: bool,
    /// Seconds since its last use.
    pub idle_secs: u32,
    /// Marked stale.
    pub stale: bool,
    /// Who recomputes the value.
    pub token: Token,
}

/// Who holds the right to recompute an item's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Nobody needs to.
    None,
    /// The client of this request.
    Won,
    /// Another.
    Held,
}

/// What `me` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked<'v> {
    /// The key it is stored under.
    pub key: &'v [u8],
    /// Its key came in base64 when it was stored.
    pub is_binary_key: bool,
    /// Seconds left; `None`: never expires.
    pub ttl_secs: Option<u32>,
    /// Seconds since its last use.
    pub idle_secs: u32,
    /// CAS value.
    pub cas: u64,
    /// Fetched since it was stored.
    pub hit_before: bool,
    /// Where it lives.
    pub class: usize,
    /// Its size, overhead included.
    pub item_bytes: u32,
}

impl Form<'_> {
    /// Writes a reply in this form; nothing, if the request wanted none.
    // Always: where form or reply are known, as on the path of a get, next to nothing of it is left.
    #[inline(always)]
    pub fn encode<S: Sink>(&self, reply: &Reply<'_, S::Value>, sink: &mut S) {
        match self {
            Form::Text(form) => text::encode(*form, reply, sink),
            Form::Meta(form) => meta::encode(form, reply, sink),
            Form::Binary(form) => binary::encode(form, reply, sink),
            Form::Http(form) => http::encode(form, reply, sink),
        }
    }

    /// Copies the form without the parts borrowed from the request, for statistics and errors that outlast it.
    pub fn without_request(&self) -> Form<'static> {
        match self {
            Form::Text(form) => Form::Text(*form),
            Form::Meta(_) => Form::Text(TextForm::default()),
            Form::Binary(form) => Form::Binary(form.without_request()),
            Form::Http(form) => Form::Http(form.without_request()),
        }
    }

    /// What follows the value of a request.
    pub fn terminator(&self) -> &'static [u8] {
        match self {
            Form::Text(_) | Form::Meta(_) => b"\r\n",
            Form::Binary(_) | Form::Http(_) => b"",
        }
    }

    /// Size of a value of `value_bytes` with its terminator.
    pub fn block_bytes(&self, value_bytes: u32) -> usize {
        value_bytes as usize + self.terminator().len()
    }

    /// The value in such a block; `None` if another than its terminator stands there.
    pub fn split_value<'b>(&self, block: &'b [u8]) -> Option<&'b [u8]> {
        block.strip_suffix(self.terminator())
    }

    /// The connection is closed after this reply.
    #[inline]
    pub fn ends_with<V>(&self, reply: &Reply<'_, V>) -> bool {
        matches!(self, Form::Http(form) if form.ends_with(reply))
    }

    /// The client will not read an answer, not even to an error.
    pub fn is_noreply(&self) -> bool {
        matches!(self, Form::Text(TextForm { noreply: true, .. }))
    }
}

/// Each request of a batch has one, whatever it speaks.
const _: () = assert!(size_of::<Form<'_>>() <= 64);
