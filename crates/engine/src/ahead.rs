//! Memory fetched ahead for a batch of keys, in passes over all of them: what a pass reads, the one before has asked for, so they wait
//! together and not one after the other. Where a page is looked up takes as long as the memory itself: also that is done for several at a
//! time, if nothing else stands between.

use crate::handle::Turn;
use crate::hash::Hash;

impl Turn<'_> {
    /// Starts fetching what changes of these keys will look at: of what they replace the header, the key, and the segment that it
    /// lies in. A hint only.
    pub fn prefetch_changes(&self, hashes: &[Hash]) {
        let index = &self.engine().index;
        for batch in hashes.chunks(u32::BITS as usize) {
            for hash in batch {
                index.prefetch(*hash);
            }
            let mut below = 0u32;
            for (at, hash) in batch.iter().enumerate() {
                match index.guess(*hash) {
                    Some(offset) => self.prefetch_head(offset),
                    None => below |= 1 << at,
                }
            }
            let rest = batch.iter().enumerate().filter(|(at, _)| below >> at & 1 != 0);
            rest.filter_map(|(_, hash)| index.guess_below(*hash))
                .for_each(|offset| self.prefetch_head(offset));
        }
    }

    fn prefetch_head(&self, offset: usize) {
        let segments = &self.engine().segments;
        self.engine().log.prefetch_range(offset, HEAD_BYTES);
        segments.prefetch(segments.id_at(offset));
    }
}

/// Header and key of most items, wherever they begin in their first line.
const HEAD_BYTES: usize = 128;
