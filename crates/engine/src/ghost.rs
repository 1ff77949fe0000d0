//! The ghost: fingerprints of keys that were evicted from the small queue not long ago. A key that comes back while its
//! fingerprint is here was evicted too early, and enters the main queue at once (S3-FIFO, SOSP 2023).
//!
//! Lines of sixteen words: a cursor and fifteen fingerprints, overwritten in turn. No locks; what a race loses is one hint.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use crate::hash::Hash;
use crate::memory::Region;

const LINE_BYTES: usize = 64;

pub(crate) struct Ghost {
    lines: Region,
}

impl Ghost {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self { lines: Region::reserve(bytes)? })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lines.len_bytes() as u64
    }

    pub(crate) fn remember(&self, hash: Hash) {
        let line = self.lines.line_u32(self.line_of(hash));
        let turn = line[0].fetch_add(1, Relaxed);
        line[1 + (turn % 15) as usize].store(fingerprint(hash), Relaxed);
    }

    pub(crate) fn knows(&self, hash: Hash) -> bool {
        let line = self.lines.line_u32(self.line_of(hash));
        line[1..].iter().any(|word| word.load(Relaxed) == fingerprint(hash))
    }

    fn line_of(&self, hash: Hash) -> usize {
        (hash.0 as usize >> 4) % (self.lines.len_bytes() / LINE_BYTES)
    }
}

/// The upper half of the hash, never 0.
fn fingerprint(hash: Hash) -> u32 {
    (hash.0 >> 32) as u32 | 1
}
