//! Requests to the engine, and their results.
//!
//! A miss is a value, not an error; an error says who caused it. Times are seconds on the caller's clock (see [`Now`]):
//! the engine never reads one.

use crate::Item;

/// The time at which a guard runs, given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds since a zero that the caller chooses, such as a server's start. All expiry times are on this scale. Must
    /// not run backwards and must be at least 1: 0 is "never".
    pub secs: u32,
    /// Microseconds since some fixed moment, for pacing background work. May repeat.
    pub micros: u64,
}

/// When an item expires: the second (on the scale of [`Now::secs`]) from which it is no longer found.
///
/// The second is either on the scale of [`Now::secs`] ([`Expiry::at`]), or on that of the wall clock
/// ([`Expiry::at_wall`]), which may be set: the caller tells the engine how far ahead that clock is
/// ([`Engine::set_wall_ahead`](crate::Engine::set_wall_ahead)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expiry(pub(crate) u32);

impl Expiry {
    /// Never expires.
    pub const NEVER: Self = Self(0);
    /// Expired before it was stored: stored all the same, never found.
    pub const PAST: Self = Self(1);

    /// The latest second, 68 years after zero. Later times are clamped to it.
    pub const SECS_MAX: u32 = BY_WALL - 1;

    /// Expired from second `secs` on. 0 becomes [`Expiry::PAST`].
    pub fn at(secs: u32) -> Self {
        Self(secs.clamp(1, Self::SECS_MAX))
    }

    /// Expires once the wall clock shows second `secs`, counted from a zero that the caller chooses. 0 becomes 1.
    pub fn at_wall(secs: u32) -> Self {
        Self(secs.clamp(1, Self::SECS_MAX) | BY_WALL)
    }

    /// True if the expiry is by the wall clock.
    #[inline]
    pub fn is_by_wall(self) -> bool {
        self.0 & BY_WALL != 0
    }

    /// The second from which the item is expired, on the scale of its own clock; `None`: never.
    #[inline]
    pub fn secs(self) -> Option<u32> {
        (self.0 != 0).then_some(self.0 & Self::SECS_MAX)
    }

    /// The second on the scale of [`Now::secs`], given that the wall clock is `wall_ahead_secs` ahead of it; `None`:
    /// never.
    pub fn secs_with(self, wall_ahead_secs: i32) -> Option<u32> {
        let secs = self.secs()?;
        if !self.is_by_wall() {
            return Some(secs);
        }
        Some((i64::from(secs) - i64::from(wall_ahead_secs)).clamp(1, Self::SECS_MAX.into()) as u32)
    }

    /// True if it has expired at `now`, assuming that the wall clock is not ahead.
    pub fn is_past(self, now: Now) -> bool {
        self.is_past_with(now, 0)
    }

    /// True if it has expired at `now`, given that the wall clock is `wall_ahead_secs` ahead.
    #[inline]
    pub fn is_past_with(self, now: Now, wall_ahead_secs: i32) -> bool {
        if !self.is_by_wall() {
            return self.0 != 0 && self.0 <= now.secs;
        }
        self.secs_with(wall_ahead_secs).is_some_and(|secs| secs <= now.secs)
    }
}

/// Bit of an [`Expiry`] that marks a second of the wall clock.
const BY_WALL: u32 = 1 << 31;

/// Why a key was not found. Only statistics need the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No such key.
    Absent,
    /// Its item has expired.
    Expired,
    /// Its item was flushed.
    Flushed,
}

/// How a fetch may change the item, beyond counting a use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetch {
    /// New expiry for a hit (gat, `mg T`).
    pub touch: Option<Expiry>,
    /// On a miss create an empty item with this expiry and hand the caller the token (`mg N`).
    pub vivify: Option<Expiry>,
    /// CAS value of an item that `vivify` creates (`mg E`); 0 counts as absent.
    pub vivify_cas: Option<u64>,
    /// Hand out the token when fewer than this many seconds are left (`mg R`).
    pub recache_below_secs: Option<u32>,
    /// ... counted from the expiry that `touch` gives the item; else from the one it had.
    pub recache_after_touch: bool,
    /// The item that `vivify` creates has a key that came in base64.
    pub binary_key: bool,
    /// Do not count as a use: no access bits, no access time (`mg u`).
    pub unnoticed: bool,
    /// Leave the token to others: the caller does not know of it (`get`).
    pub leaves_token: bool,
}

/// Who holds the right to recompute an item's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Nobody was asked to recompute it.
    None,
    /// This fetch was given the token: the caller should recompute (`W`).
    Won,
    /// Another caller holds it (`Z`).
    Held,
}

/// A hit, with the item's state before this fetch changed it.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'t> {
    /// The item. `item.expiry()` is the expiry after a touch.
    pub item: Item<'t>,
    /// Expiry before a touch.
    pub expiry_before: Expiry,
    /// It was fetched before, since it was stored (`h`).
    pub hit_before: bool,
    /// Seconds since its last use, or since it was stored (`l`). Updated lazily: up to a minute too high.
    pub idle_secs: u32,
    /// Marked stale by [`Invalidate::stale`] (`X`).
    pub stale: bool,
    /// Token state.
    pub token: Token,
    /// Created by this very fetch ([`Fetch::vivify`]).
    pub vivified: bool,
}

/// What a store does with the item that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Store always.
    Set,
    /// Store only if absent; a failed add counts as a use of the item when it comes to eviction, not as a fetch.
    Add,
    /// Store only if present.
    Replace,
    /// Put the value after the present one; flags and expiry stay.
    Append,
    /// Put the value before the present one; flags and expiry stay.
    Prepend,
}

/// A condition on the present item's CAS value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Must be equal. 0 never is.
    Equal(u64),
    /// Equal, or older than the present one (`ms I`): lower, or of an item of this engine that is gone. An older one
    /// stores the item, but it keeps its old expiry and its token mark, and is stale.
    EqualOrStale(u64),
}

/// One store.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The value, or the piece to append or prepend.
    pub value: &'a [u8],
    /// Opaque to the engine.
    pub client_flags: u32,
    /// Expiry of the new item.
    pub expiry: Expiry,
    /// What to do with the item that is there.
    pub mode: Mode,
    /// A condition on the CAS value. A missing item gives `NotFound` for Set and Replace, `NotStored` for Append and
    /// Prepend. Add ignores the condition.
    pub compare: Option<Compare>,
    /// CAS value to install instead of a fresh one (`E`); `None` or 0: a fresh one.
    pub cas: Option<u64>,
    /// Append/Prepend only: create the item with this expiry if absent (`ms N`).
    pub vivify: Option<Expiry>,
    /// Remember that the key came in base64 (`ms b`).
    pub binary_key: bool,
}

impl<'a> Store<'a> {
    /// A plain `set`: everything else at its default.
    pub fn set(key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            key,
            value,
            client_flags: 0,
            expiry: Expiry::NEVER,
            mode: Mode::Set,
            compare: None,
            cas: None,
            vivify: None,
            binary_key: false,
        }
    }
}

/// The result of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Done.
    Stored {
        /// The item's new CAS value.
        cas: u64,
        /// Size of the whole value, for an append including what was there.
        value_bytes: u32,
        /// When the item expires.
        expiry: Expiry,
        /// There was no item, or only an expired or flushed one.
        is_new: bool,
    },
    /// The mode's condition did not hold.
    NotStored,
    /// An append or prepend whose result would be too large, or found no memory. Nothing changed.
    NotExtended(WriteError),
    /// CAS mismatch.
    Exists,
    /// CAS given, no item.
    NotFound,
    /// Larger than [`crate::Config::item_bytes_max`]. Nothing changed; the caller decides whether to delete the old
    /// item.
    TooLarge,
    /// There is no memory, and nothing may be evicted. Nothing changed.
    OutOfMemory,
    /// Memory is being reclaimed, but guards still pin it (perhaps this one): drop the guard, pin a new one, try again.
    TryAgain,
}

/// The result of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Gone.
    Deleted,
    /// Was not there.
    NotFound(Miss),
    /// CAS mismatch.
    Exists,
}

/// Invalidates an item (`md I`, `md x`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Invalidate {
    /// Only if the CAS value is this one; 0 never is.
    pub compare: Option<u64>,
    /// Keep the item, mark it stale, take back the token, give it a new CAS value (`I`).
    pub stale: bool,
    /// Replace the value by an empty one with these client flags (`x F`); the CAS value stays unless `stale` or `cas`
    /// changes it. The expiry becomes `expiry`, or never.
    pub blank: Option<u32>,
    /// New expiry.
    pub expiry: Option<Expiry>,
    /// CAS value to install (`E`); 0 counts as absent.
    pub cas: Option<u64>,
}

/// An increment or decrement of a decimal value.
#[derive(Clone, Copy, Debug)]
pub struct Arith {
    /// Amount.
    pub delta: u64,
    /// Subtract, stopping at 0; else add, wrapping at 2^64.
    pub decrement: bool,
    /// Only if the CAS value is this one; 0 counts as absent.
    pub compare: Option<u64>,
    /// On a miss create the item with this number (delta not applied) and this expiry.
    pub initial: Option<(u64, Expiry)>,
    /// New expiry on success (`ma T`).
    pub expiry: Option<Expiry>,
    /// CAS value to install (`E`); 0 counts as absent.
    pub cas: Option<u64>,
    /// The item that `initial` creates has a key that came in base64.
    pub binary_key: bool,
}

/// The result of an [`Arith`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The new number.
    Number {
        /// The result.
        number: u64,
        /// New CAS value.
        cas: u64,
        /// Expiry before and after.
        expiry_before: Expiry,
        /// Expiry now.
        expiry: Expiry,
        /// Created by [`Arith::initial`].
        created: bool,
    },
    /// No item.
    NotFound(Miss),
    /// CAS mismatch.
    Exists,
    /// The value is not a decimal number of 64 bits.
    NonNumeric,
    /// No memory for the new value.
    OutOfMemory,
    /// As [`Stored::TryAgain`].
    TryAgain,
}

/// Why there is no memory for a value that is about to be uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// Larger than [`crate::Config::item_bytes_max`].
    TooLarge,
    /// There is no memory, and nothing may be evicted.
    OutOfMemory,
    /// As [`Stored::TryAgain`].
    TryAgain,
}

/// Why a fetch or touch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// Not there.
    Miss(Miss),
    /// The change needs memory (for an expiry field, or for the item that `vivify` creates), and there is none.
    OutOfMemory,
    /// As [`Stored::TryAgain`].
    TryAgain,
}

impl From<WriteError> for FetchError {
    fn from(no_room: WriteError) -> Self {
        if no_room == WriteError::TryAgain { Self::TryAgain } else { Self::OutOfMemory }
    }
}
