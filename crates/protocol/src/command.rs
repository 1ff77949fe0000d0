//! What a client asks for, whatever dialect it speaks.
//!
//! Times (`exptime`) are as the client gave them: 0 is never, negative is past, up to 30 days count from now, more is a
//! Unix time. Only the server's clock interprets them.

use crate::admin::Admin;
use crate::{Error, Form, Key, Keys};

/// A command, and how to answer it. Borrows from the bytes it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What to do.
    pub command: Command<'a>,
    /// How to say what became of it.
    pub form: Form<'a>,
}

/// What the head of the input holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A request. If it has a value ([`Command::value_bytes`]), that and [`Form::terminator`] follow.
    Request {
        /// The request.
        request: Request<'a>,
        /// Length of the command line with its end, or of the binary header with extras and key.
        head_bytes: usize,
    },
    /// Not enough for a request.
    NeedInput,
    /// Nothing that can be served: close without a word.
    Close,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Look up keys, one reply each, then [`crate::Reply::End`] (get, gets, gat, gats).
    Get(Get<'a>),
    /// Look up one key with all options (mg, GET over HTTP).
    Fetch(Fetch<'a>),
    /// Look at an item without leaving a trace (me).
    Peek(Key<'a>),
    /// Store the value that follows the command (set, add, replace, append, prepend, cas, ms).
    Store(Store<'a>),
    /// Remove an item (delete, md).
    Delete(Delete<'a>),
    /// Mark an item stale or empty it (md with I or x).
    Invalidate(Invalidate<'a>),
    /// Set the expiry (touch).
    Touch(Touch<'a>),
    /// Add to or subtract from a decimal value (incr, decr, ma).
    Arith(Arith<'a>),
    /// Forget everything, now or at a given time (flush_all). An attempt with a bad argument is counted too, so it
    /// arrives here.
    Flush(Result<i64, Error>),
    /// Forget the items of one namespace (flush_prefix, mf).
    FlushPrefix(FlushPrefix<'a>),
    /// Answer, once everything before is answered (mn).
    Noop,
    /// Tell the version.
    Version,
    /// Set how much is logged; any level, the server knows its highest.
    Verbosity(u32),
    /// Tell statistics.
    Stats(Words<'a>),
    /// Stop the server.
    Shutdown(Shutdown),
    /// Load certificates again.
    RefreshCerts,
    /// Steer the cache, or look into it.
    Admin(Admin),
    /// Log in (the binary dialect's SASL).
    Sasl(Sasl<'a>),
    /// Close the connection.
    Quit,
    /// A request that cannot be understood.
    Malformed(Malformed),
}

/// get, gets, gat, gats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// At least one key.
    pub keys: Keys<'a>,
    /// New expiry of what is found.
    pub exptime: Option<i64>,
}

/// mg, and GET of one key over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch<'a> {
    /// The key.
    pub key: Key<'a>,
    /// New expiry of a hit, or of what `vivify` creates.
    pub touch: Option<i64>,
    /// On a miss create an empty item with this expiry.
    pub vivify: Option<i64>,
    /// CAS value of an item so created.
    pub vivify_cas: Option<u64>,
    /// Hand out the right to recompute when less than this is left; a time by the rules of exptime.
    pub recache: Option<i64>,
    /// ... by the expiry that `touch` gives it; else by the one it had.
    pub recache_after_touch: bool,
    /// Not a use of the item.
    pub unnoticed: bool,
    /// The right to recompute is left to others: the client does not know of it.
    pub leaves_token: bool,
}

impl<'a> Fetch<'a> {
    /// A look-up like get's, with all details of the item.
    pub fn get(key: Key<'a>) -> Self {
        Self {
            key,
            touch: None,
            vivify: None,
            vivify_cas: None,
            recache: None,
            recache_after_touch: false,
            unnoticed: false,
            leaves_token: true,
        }
    }
}

/// Any store. The value follows the command and is handed over apart from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The key.
    pub key: Key<'a>,
    /// Size of the value, at most [`VALUE_BYTES_MAX`].
    pub value_bytes: u32,
    /// Opaque to the server.
    pub client_flags: u32,
    /// When it is to expire.
    pub exptime: i64,
    /// What to do with what is there.
    pub mode: Mode,
    /// Only if the present item's CAS value is this one; 0 is no item's. Never with [`Mode::Add`].
    pub compare: Option<u64>,
    /// A lower `compare` than the present item's CAS value stores all the same, and marks the item stale.
    pub or_stale: bool,
    /// CAS value to install instead of a fresh one.
    pub cas: Option<u64>,
    /// Append and prepend: create the item with this expiry if there is none.
    pub vivify: Option<i64>,
    /// A store refused as too large or for want of memory removes what it would have replaced, so that nobody reads a
    /// value that its owner meant to be gone: `set` and `ms` do.
    pub removes_on_refusal: bool,
    /// An append or prepend whose result would be too large, or finds no memory, says so. In memcached's protocols it
    /// is answered as if there were no item.
    pub explains_refusal: bool,
}

impl<'a> Store<'a> {
    /// A plain `set`.
    #[inline]
    pub fn set(key: Key<'a>, client_flags: u32, exptime: i64, value_bytes: u32) -> Self {
        Self {
            key,
            value_bytes,
            client_flags,
            exptime,
            mode: Mode::Set,
            compare: None,
            or_stale: false,
            cas: None,
            vivify: None,
            removes_on_refusal: true,
            explains_refusal: false,
        }
    }
}

/// How a store treats what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Store always.
    Set,
    /// Only if absent.
    Add,
    /// Only if present.
    Replace,
    /// Put the value after the present one.
    Append,
    /// Put the value before the present one.
    Prepend,
}

/// delete, md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The key.
    pub key: Key<'a>,
    /// Only if the CAS value is this one.
    pub compare: Option<u64>,
}

/// md with I or x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalidate<'a> {
    /// The key.
    pub key: Key<'a>,
    /// Only if the CAS value is this one.
    pub compare: Option<u64>,
    /// Mark it stale (I).
    pub stale: bool,
    /// Replace the value by an empty one with these client flags (x, F).
    pub blank: Option<u32>,
    /// New expiry.
    pub exptime: Option<i64>,
    /// CAS value to install.
    pub cas: Option<u64>,
}

/// touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The key.
    pub key: Key<'a>,
    /// New expiry.
    pub exptime: i64,
}

/// flush_prefix, mf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushPrefix<'a> {
    /// The prefix of the namespace, whole; `<null>` for the keys of no other.
    pub prefix: Key<'a>,
    /// When; 0: now.
    pub exptime: i64,
}

/// incr, decr, ma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arith<'a> {
    /// The key.
    pub key: Key<'a>,
    /// Amount.
    pub delta: u64,
    /// Subtract, stopping at 0; else add, wrapping at 2^64.
    pub decrement: bool,
    /// Only if the CAS value is this one; 0 counts as absent.
    pub compare: Option<u64>,
    /// Create a missing item with this number and this expiry.
    pub initial: Option<(u64, i64)>,
    /// New expiry.
    pub exptime: Option<i64>,
    /// CAS value to install.
    pub cas: Option<u64>,
}

/// One step of a login by SASL (RFC 4422).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sasl<'a> {
    /// Tell the mechanisms (sasl-list).
    Mechanisms,
    /// Begin (sasl-auth).
    Start {
        /// Name of the mechanism: 1 to 250 bytes, any.
        mechanism: &'a [u8],
        /// The client's first message, at most 16 KiB.
        data: &'a [u8],
    },
    /// Answer a challenge (sasl-step).
    Step {
        /// Name of the mechanism: 1 to 250 bytes, any.
        mechanism: &'a [u8],
        /// The client's next message, at most 16 KiB.
        data: &'a [u8],
    },
}

/// The words after `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a>(pub(crate) &'a [u8]);

impl<'a> Words<'a> {
    /// The words, in order; at most 22 of them count.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.0.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).take(22)
    }
}

/// The argument of `shutdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// None: as SIGINT.
    Plain,
    /// `graceful`: as SIGUSR1.
    Graceful,
    /// Something else.
    Unknown,
}

/// A request that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What to answer.
    pub error: Error,
    /// Bytes of value and terminator that follow the command and must not be taken for commands.
    pub swallow_bytes: u32,
}

impl Command<'_> {
    /// Size of the value that follows the command; `None`: none does.
    pub fn value_bytes(&self) -> Option<u32> {
        match self {
            Command::Store(store) => Some(store.value_bytes),
            _ => None,
        }
    }

    /// True if it may change items: a look-up only where it touches or creates one.
    pub fn is_change(&self) -> bool {
        match self {
            Self::Get(get) => get.exptime.is_some(),
            Self::Fetch(fetch) => fetch.touch.is_some() || fetch.vivify.is_some(),
            Self::Store(_) | Self::Delete(_) | Self::Invalidate(_) | Self::Touch(_) | Self::Arith(_) => true,
            Self::Flush(_) | Self::FlushPrefix(_) => true,
            _ => false,
        }
    }

    /// About the server, not about items.
    pub fn is_administrative(&self) -> bool {
        matches!(
            self,
            Command::FlushPrefix(_)
                | Command::Verbosity(_)
                | Command::Stats(_)
                | Command::Shutdown(_)
                | Command::RefreshCerts
                | Command::Admin(_)
        )
    }
}

/// The largest value size a command line may announce (memcached: 2 GiB less room for the terminator).
pub const VALUE_BYTES_MAX: u32 = 2_147_483_645;
