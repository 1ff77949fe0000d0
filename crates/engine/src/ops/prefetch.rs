//! Memory fetched ahead for a batch of keys, in passes over all of them: what a pass reads, the one before has asked for, so they wait
//! together and not one after the other. Lines of the index have been asked for before, one by one while the keys were hashed.

use crate::engine::Engine;
use crate::handle::Guard;
use crate::index::buckets::SlotRef;
use crate::index::hash::Hash;
use crate::mem::lines::LINE_BYTES;

/// As many keys as are fetched ahead together: a word has so many bits.
pub const BATCH_MAX: usize = u32::BITS as usize;

/// Where a key probably lies, as [`Guard::hint_gets`] or [`Guard::hint_changes`] saw it; or nothing, which costs a second look and no more.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupHint<'t> {
    found: Option<SlotRef<'t>>,
    /// The engine in which it was seen, by its address: in another the place would mean nothing.
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
    /// Starts fetching what gets of these keys, hashed by [`Guard::prepare`], will read: where an item begins and, as soon as that has told how
    /// long it is, the rest. [`Guard::get_hinted`] need not look again for what was found here. Keys beyond [`BATCH_MAX`] are left out.
    pub fn hint_gets(&self, batch: &[Hash]) -> LookupHints<'_> {
        let hintes = self.hint(batch, |offset| self.prefetch_head(offset));
        for (hint, _) in hintes.iter().zip(batch) {
            if let Some(found) = hint.found {
                let offset = found.entry.offset();
                let fetched = (offset + HEAD_BYTES).next_multiple_of(LINE_BYTES);
                self.engine()
                    .log
                    .prefetch_lines(fetched, offset + self.engine().item_at(offset).size_unpadded());
            }
        }
        hintes
    }

    /// The same for any number of keys, as a hint only.
    pub fn prefetch_gets(&self, hashes: &[Hash]) {
        for batch in hashes.chunks(BATCH_MAX) {
            self.hint_gets(batch);
        }
    }

    /// Starts fetching what changes of these keys, hashed by [`Guard::prepare`], will look at: of what they replace the header, the key, and
    /// the segment that it lies in. [`Guard::store_hinted`] need not look again for what was found here. Keys beyond [`BATCH_MAX`] are left
    /// out.
    pub fn hint_changes(&self, batch: &[Hash]) -> LookupHints<'_> {
        let segments = &self.engine().segments;
        let hintes = self.hint(batch, |offset| segments.prefetch(segments.id_at(offset)));
        // One right after the other: each waits until the processor knows where its page lies, and that finds out about several at once only
        // where little stands between them. (Asked for where the index is read, as gets do, a set of 1 KiB took the engine 400 ns instead of
        // 375; but a get 95 instead of 110.)
        for found in hintes.iter().filter_map(|hint| hint.found) {
            self.prefetch_head(found.entry.offset());
        }
        hintes
    }

    /// Starts fetching the head of an item.
    #[inline]
    fn prefetch_head(&self, offset: usize) {
        self.engine().log.prefetch(offset);
        self.engine().log.prefetch(offset + HEAD_BYTES - 1);
    }

    /// Calls `prefetch` for where each of a batch probably lies.
    #[inline]
    fn hint(&self, batch: &[Hash], prefetch: impl Fn(usize)) -> LookupHints<'_> {
        let index = &self.engine().index;
        let engine = std::ptr::from_ref(self.engine()).addr();
        let mut hintes = [LookupHint { found: None, engine }; BATCH_MAX];
        let mut below = 0u32;
        for (at, (hint, hash)) in hintes.iter_mut().zip(batch).enumerate() {
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
                hintes[at].found = Some(found);
            }
        }
        hintes
    }
}

/// Header and key of most items. Fetching a fixed length instead, four lines of each item, took 200 ns for a get of 100 B among a million (32 in a
/// batch) where this takes 150, and 185 instead of 140 for 32 B; with 1 KiB there is no difference.
const HEAD_BYTES: usize = 64;
