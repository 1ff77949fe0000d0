//! Memory fetched ahead for a batch of keys, in passes over all of them: what a pass reads, the one before has asked for, so they wait
//! together and not one after the other. Where a page is looked up takes as long as the memory itself: also that is done for several at a
//! time, if nothing else stands between.

use crate::handle::Turn;
use crate::hash::Hash;

impl Turn<'_> {
    /// Starts fetching what changes of these keys will look at: of what they replace the header, the key, and the segment that it
    /// lies in. A hint only.
    pub fn prefetch_changes(&self, hashes: &[Hash]) {
        let segments = &self.engine().segments;
        self.prefetch_found(hashes, |offset| {
            self.engine().log.prefetch_range(offset, HEAD_BYTES);
            segments.prefetch(segments.id_at(offset));
        });
    }

    /// Starts fetching what gets of these keys will read: all of most items. A hint only.
    pub fn prefetch_gets(&self, hashes: &[Hash]) {
        self.prefetch_found(hashes, |offset| self.engine().log.prefetch_range(offset, ITEM_BYTES));
    }

    fn prefetch_found(&self, hashes: &[Hash], prefetch: impl Fn(usize)) {
        let index = &self.engine().index;
        for batch in hashes.chunks(u32::BITS as usize) {
            for hash in batch {
                index.prefetch(*hash);
            }
            let mut below = 0u32;
            for (at, hash) in batch.iter().enumerate() {
                match index.guess(*hash) {
                    Some(offset) => prefetch(offset),
                    None => below |= 1 << at,
                }
            }
            let rest = batch.iter().enumerate().filter(|(at, _)| below >> at & 1 != 0);
            rest.filter_map(|(_, hash)| index.guess_below(*hash)).for_each(&prefetch);
        }
    }
}

/// Header and key of most items, wherever they begin in their first line.
const HEAD_BYTES: usize = 128;
/// All of most items. Two lines instead of four made a get of 100 bytes a sixth dearer.
const ITEM_BYTES: usize = 256;
