//! Look-ups of a batch of keys ahead of their requests, in passes over all of them: each pass prefetches what the next
//! one reads, so the cache misses overlap. Lines of the index were prefetched before, while the keys were hashed
//! ([`Guard::prepare`]).

use crate::engine::Engine;
use crate::handle::Guard;
use crate::index::buckets::SlotRef;
use crate::index::hash::Hash;
use crate::log::offset::Offset;
use crate::mem::lines::LINE_BYTES;

/// As many keys as are fetched ahead together: a word has so many bits.
pub const BATCH_MAX: usize = u32::BITS as usize;

/// Where a key probably lies, as [`Guard::hint_gets`] or [`Guard::hint_changes`] saw it; or nothing, which costs a
/// second look.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupHint<'t> {
    found: Option<SlotRef<'t>>,
    /// The engine in which it was seen, by its address: in another the slot means nothing.
    engine: usize,
}

/// Of each key of a batch, in order.
pub type LookupHints<'t> = [LookupHint<'t>; BATCH_MAX];

impl<'t> LookupHint<'t> {
    /// What was found in this engine.
    #[inline]
    pub(crate) fn found(self, engine: &Engine) -> Option<SlotRef<'t>> {
        self.found.filter(|_| self.engine == std::ptr::from_ref(engine).addr())
    }
}

impl Guard<'_> {
    /// Prefetches what gets of these keys, hashed by [`Guard::prepare`], will read: where an item begins and, when that
    /// has told its length, the rest. [`Guard::get_hinted`] need not look again for what was found here. Keys beyond
    /// [`BATCH_MAX`] are left out.
    pub fn hint_gets(&self, batch: &[Hash]) -> LookupHints<'_> {
        let hints = self.hint(batch, |offset| self.prefetch_head(offset));
        for (hint, _) in hints.iter().zip(batch) {
            if let Some(found) = hint.found {
                let offset = found.entry.offset();
                let fetched = (offset.bytes() + HEAD_BYTES).next_multiple_of(LINE_BYTES);
                let end = offset.bytes() + self.item_ref_at(offset).size_unpadded();
                self.engine().arena.region.prefetch_lines(fetched, end);
            }
        }
        hints
    }

    /// The same for any number of keys, as a hint only.
    pub fn prefetch_gets(&self, hashes: &[Hash]) {
        for batch in hashes.chunks(BATCH_MAX) {
            self.hint_gets(batch);
        }
    }

    /// Prefetches what changes of these keys, hashed by [`Guard::prepare`], will read: header and key of what they
    /// replace, and its segment. [`Guard::store_hinted`] need not look again for what was found here. Keys beyond
    /// [`BATCH_MAX`] are left out.
    pub fn hint_changes(&self, batch: &[Hash]) -> LookupHints<'_> {
        let segments = &self.engine().arena.segments;
        let hints = self.hint(batch, |offset| segments.prefetch(segments.id_at(offset)));
        // One right after the other: each waits until the processor knows where its page lies, and that finds out about
        // several at once only where little stands between them. (Asked for where the index is read, as gets do, a set
        // of 1 KiB took the engine 400 ns instead of 375; but a get 95 instead of 110.)
        for found in hints.iter().filter_map(|hint| hint.found) {
            self.prefetch_head(found.entry.offset());
        }
        hints
    }

    /// Starts fetching the head of an item.
    #[inline]
    fn prefetch_head(&self, offset: Offset) {
        self.engine().arena.prefetch(offset);
        self.engine().arena.region.prefetch(offset.bytes() + HEAD_BYTES - 1);
    }

    /// Calls `prefetch` for where each of a batch probably lies.
    #[inline]
    fn hint(&self, batch: &[Hash], prefetch: impl Fn(Offset)) -> LookupHints<'_> {
        let index = &self.engine().index;
        let engine = std::ptr::from_ref(self.engine()).addr();
        let mut hints = [LookupHint { found: None, engine }; BATCH_MAX];
        let mut below = 0u32;
        for (at, (hint, hash)) in hints.iter_mut().zip(batch).enumerate() {
            match index.hint(*hash) {
                Some(found) => {
                    prefetch(found.entry.offset());
                    hint.found = Some(found);
                }
                None => below |= 1 << at,
            }
        }
        while below != 0 {
            let at = below.trailing_zeros() as usize;
            below &= below - 1;
            if let Some(found) = index.hint_below(batch[at]) {
                prefetch(found.entry.offset());
                hints[at].found = Some(found);
            }
        }
        hints
    }
}

/// Header and key of most items. Fetching a fixed length instead, four lines of each item, took 200 ns for a get of 100
/// B among a million (32 in a batch) where this takes 150, and 185 instead of 140 for 32 B; with 1 KiB there is no
/// difference.
const HEAD_BYTES: usize = 64;
