//! Which observers follow requests: watchers, statistics by prefix, the verbose log; and whether changes are refused.
//! Every request reads this, so it is one word that changes only when an observer starts or stops.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use larder_protocol::admin::Streams;

/// The observers, as bits on their own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ObserverFlags(AtomicU32);

impl ObserverFlags {
    /// True if there is any observer, or changes are refused.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// True if one of these streams is watched.
    pub(crate) fn wants(&self, streams: Streams) -> bool {
        self.has(streams.bits().into())
    }

    /// Sets the streams that are watched.
    pub(crate) fn set_streams(&self, streams: Streams) {
        let others = VERBOSE | PREFIXES | READ_ONLY;
        let _ = self.0.fetch_update(Relaxed, Relaxed, |bits| Some(bits & others | u32::from(streams.bits())));
    }

    /// Adds watched streams.
    pub(crate) fn add_streams(&self, streams: Streams) {
        self.0.fetch_or(streams.bits().into(), Relaxed);
    }

    /// True if commands are logged (`-vv`).
    pub(crate) fn is_verbose(&self) -> bool {
        self.has(VERBOSE)
    }

    pub(crate) fn set_verbose(&self, is_on: bool) {
        self.set(VERBOSE, is_on);
    }

    /// True if commands are counted by prefix (`stats detail on`).
    pub(crate) fn counts_prefixes(&self) -> bool {
        self.has(PREFIXES)
    }

    pub(crate) fn set_counts_prefixes(&self, is_on: bool) {
        self.set(PREFIXES, is_on);
    }

    /// True if changes are refused, for maintenance.
    pub(crate) fn is_read_only(&self) -> bool {
        self.has(READ_ONLY)
    }

    pub(crate) fn set_read_only(&self, is_on: bool) {
        self.set(READ_ONLY, is_on);
    }

    fn has(&self, bits: u32) -> bool {
        self.0.load(Relaxed) & bits != 0
    }

    fn set(&self, bit: u32, is_on: bool) {
        if is_on {
            self.0.fetch_or(bit, Relaxed);
        } else {
            self.0.fetch_and(!bit, Relaxed);
        }
    }
}

// Above the bits of `Streams`.
const VERBOSE: u32 = 1 << 16;
const PREFIXES: u32 = 1 << 17;
const READ_ONLY: u32 = 1 << 18;
