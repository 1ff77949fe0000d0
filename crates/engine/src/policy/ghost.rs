//! The ghost: fingerprints of recently evicted keys, about as many as there are items. A key that returns while its
//! fingerprint is here was evicted too early, and enters the main queue at once (S3-FIFO, SOSP 2023).
//!
//! Lines of sixteen words: a cursor and fifteen fingerprints, overwritten in turn. No locks: a race loses one
//! fingerprint.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::index::hash::Hash;
use crate::log::segment::{MAIN, SMALL};
use crate::mem::region::{LINE_BYTES, PAGE_BYTES};
use crate::mem::table::{HalfWords, Table};

const KEYS_PER_LINE: u64 = 15;

pub(crate) struct Ghost {
    lines: Table<HalfWords>,
    /// How many lines are in use: with too many, the ghost would know keys that no cache of this size could have kept.
    used: AtomicUsize,
}

impl Ghost {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let lines = bytes.max(1).next_multiple_of(PAGE_BYTES) / LINE_BYTES;
        Ok(Self { lines: Table::reserve_committed(lines)?, used: AtomicUsize::new(1) })
    }

    /// As [`crate::mem::numa::interleave`].
    pub(crate) fn interleave(&self, nodes: &[u32]) -> io::Result<()> {
        self.lines.interleave(nodes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.lines.len() * LINE_BYTES) as u64
    }

    /// Remembers about `keys` keys from now on. A large change forgets those that it knows.
    pub(crate) fn fit(&self, keys: u64) {
        let most = self.lines.len();
        let wanted = ((keys / KEYS_PER_LINE) as usize).clamp(1, most);
        let used = self.used.load(Relaxed);
        if wanted * 4 < used * 3 || wanted * 3 > used * 4 {
            self.used.store(wanted, Relaxed);
        }
    }

    /// Adds a key that was evicted from a queue.
    pub(crate) fn remember(&self, hash: Hash, from: usize) {
        let HalfWords(line) = &self.lines[self.line_of(hash)];
        let guard = u64::from(line[0].fetch_add(1, Relaxed));
        line[1 + (guard % KEYS_PER_LINE) as usize].store(fingerprint(hash) | MARKS[from], Relaxed);
    }

    /// The queue from which a key was evicted recently.
    pub(crate) fn recall(&self, hash: Hash) -> Option<usize> {
        let HalfWords(line) = &self.lines[self.line_of(hash)];
        let word = line[1..]
            .iter()
            .map(|word| word.load(Relaxed))
            .find(|word| word & !3 == fingerprint(hash) && *word != 0)?;
        Some(if word & 3 == MARKS[SMALL] { SMALL } else { MAIN })
    }

    fn line_of(&self, hash: Hash) -> usize {
        (hash.0 as usize >> 4) % self.used.load(Relaxed)
    }
}

/// The upper part of the hash, with room for a mark.
fn fingerprint(hash: Hash) -> u32 {
    (hash.0 >> 32) as u32 & !3
}

/// In the lowest two bits of a word that is in use: the queue.
const MARKS: [u32; 2] = [1, 2];
