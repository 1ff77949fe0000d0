//! Look-ups: reads and touches.

use std::sync::Arc;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::index::buckets::SlotRef;
use crate::index::hash::Hash;
use crate::log::item::{DEAD, FETCHED, ItemRef, STALE, TOKEN};
use crate::log::offset::Offset;
use crate::log::segment::SegmentRef;
use crate::ops::backing::Replaced;
use crate::ops::prefetch::LookupHint;
use crate::ops::upload::ValueRef;
use crate::request::{Expiry, Fetch, FetchError, Fetched, Miss, Token};

/// An item that the index points to, and its place.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'t> {
    pub(crate) found: SlotRef<'t>,
    pub(crate) offset: Offset,
    pub(crate) raw: ItemRef<'t>,
}

impl Guard<'_> {
    /// Finds a live item, and counts a use of it. The fast path of `get`: it takes no lock, and writes to shared memory
    /// only at an item's first uses.
    #[inline]
    pub fn get(&self, key: &[u8], hash: Hash) -> Result<Item<'_>, Miss> {
        self.use_found(hash, self.find_item(key, hash))
    }

    /// The same for a key of a batch, with its hint from [`Guard::hint_gets`] under this guard.
    #[inline(always)]
    pub fn get_hinted<'t>(&'t self, key: &[u8], hash: Hash, hint: LookupHint<'t>) -> Result<Item<'t>, Miss> {
        self.use_found(hash, self.look_up_hinted(key, hash, hint))
    }

    #[inline(always)]
    fn use_found<'t>(&'t self, hash: Hash, lookup: Option<Lookup<'t>>) -> Result<Item<'t>, Miss> {
        let Some(lookup) = lookup else {
            self.note_absent(hash);
            return Err(Miss::Absent);
        };
        let segment_ref = self.check_alive(hash, &lookup)?;
        self.count_hit(segment_ref);
        self.note_use(&lookup);
        Ok(self.item(&lookup))
    }

    /// Finds a live item, with all options of `mg`.
    pub fn fetch(&self, key: &[u8], hash: Hash, how: &Fetch) -> Result<Fetched<'_>, FetchError> {
        self.fetch_hinted(key, hash, LookupHint::default(), how)
    }

    /// The same for a key of a batch, with its hint from [`Guard::hint_gets`] under this guard.
    pub fn fetch_hinted<'t>(
        &'t self,
        key: &[u8],
        hash: Hash,
        mut hint: LookupHint<'t>,
        how: &Fetch,
    ) -> Result<Fetched<'t>, FetchError> {
        loop {
            let lookup = match self.look_up_alive(key, hash, std::mem::take(&mut hint)) {
                Ok(lookup) => lookup,
                Err(miss) => match how.vivify {
                    None => return Err(FetchError::Miss(miss)),
                    Some(expiry) => match self.vivify(key, hash, expiry, how)? {
                        Some(fetched) => return Ok(fetched),
                        None => continue, // another thread created it: a hit after all
                    },
                },
            };
            let mut fetched = self.describe(lookup.raw, lookup.offset);
            let due = |expiry: Expiry| match (how.recache_below_secs, self.engine().secs_of(expiry)) {
                (Some(below), Some(at)) => at.saturating_sub(self.now().secs) < below,
                _ => false,
            };
            let expiry = how.touch.filter(|_| how.recache_after_touch).unwrap_or(fetched.expiry_before);
            // First what may fail with `TryAgain`: the next try must find the token and the uses unchanged.
            let mut lookup = lookup;
            if let Some(expiry) = how.touch {
                let Some(touched) = self.touch_found(key, hash, &lookup, expiry)? else { continue };
                lookup = touched;
                fetched.item = self.item(&lookup);
            }
            if fetched.token == Token::None && !how.leaves_token && (fetched.stale || due(expiry)) {
                fetched.token = self.take_token(key, hash, &lookup);
            }
            if !how.unnoticed {
                self.note_use(&lookup);
            }
            if how.touch.is_none() {
                self.count_hit(self.engine().arena.segments.segment_ref_at(lookup.offset));
            }
            return Ok(fetched);
        }
    }

    /// Asks for the right to recompute an item's value. The thread that sets the mark wins. Under the lock the item can
    /// be neither moved nor replaced; the token of an item that was replaced already is not given.
    fn take_token(&self, key: &[u8], hash: Hash, lookup: &Lookup<'_>) -> Token {
        let (mut offset, cas) = (lookup.offset, lookup.raw.cas());
        loop {
            let taken = self.under_lock(key, hash, offset, |raw| match raw.mark(TOKEN, 0) & TOKEN {
                0 => (Token::Won, true),
                _ => (Token::Held, false),
            });
            match taken {
                Some(token) => return token,
                None => match self.look_up(key, hash) {
                    Some(moved) if moved.raw.cas() == cas => offset = moved.offset,
                    _ => return Token::None,
                },
            }
        }
    }

    /// Looks up an item without a trace (`me`).
    pub fn peek(&self, key: &[u8], hash: Hash) -> Result<Fetched<'_>, Miss> {
        self.look_up_alive(key, hash, LookupHint::default())
            .map(|lookup| self.describe(lookup.raw, lookup.offset))
    }

    /// Sets the expiry and counts a use. The CAS value stays (`touch`, `gat`).
    pub fn touch(&self, key: &[u8], hash: Hash, expiry: Expiry) -> Result<Item<'_>, FetchError> {
        loop {
            let lookup = self.look_up_alive(key, hash, LookupHint::default()).map_err(FetchError::Miss)?;
            if let Some(touched) = self.touch_found(key, hash, &lookup, expiry)? {
                self.note_use(&touched);
                return Ok(self.item(&touched));
            }
        }
    }

    /// Finds a key's item, alive or not.
    pub(crate) fn look_up(&self, key: &[u8], hash: Hash) -> Option<Lookup<'_>> {
        self.find_item(key, hash)
    }

    /// The same for the fast path.
    #[inline(always)]
    fn find_item(&self, key: &[u8], hash: Hash) -> Option<Lookup<'_>> {
        self.engine()
            .index
            .find(self.pinned(), hash, |found| self.item_ref(found).has_key(key))
            .map(|found| self.lookup(found))
    }

    /// The same with a hint, which may save the look-up.
    #[inline(always)]
    pub(crate) fn look_up_hinted<'t>(
        &'t self,
        key: &[u8],
        hash: Hash,
        hint: LookupHint<'t>,
    ) -> Option<Lookup<'t>> {
        // The entry is unchanged, so the item was not replaced. It is not marked DEAD, so the entry was not detached
        // with its line. A thread that unlinks an item changes both before it acknowledges that.
        let found = hint.found(self.engine()).filter(|found| found.is_unchanged());
        let lookup = found.map(|found| self.lookup(found));
        match lookup.filter(|lookup| lookup.raw.has_key(key) && lookup.raw.marks() & DEAD == 0) {
            Some(lookup) => Some(lookup),
            None => self.look_up(key, hash),
        }
    }

    #[inline]
    fn lookup<'t>(&'t self, found: SlotRef<'t>) -> Lookup<'t> {
        Lookup { found, offset: found.entry.offset(), raw: self.item_ref(&found) }
    }

    /// Finds a live item. Removes an expired or flushed one.
    #[inline]
    fn look_up_alive<'t>(&'t self, key: &[u8], hash: Hash, hint: LookupHint<'t>) -> Result<Lookup<'t>, Miss> {
        let Some(lookup) = self.look_up_hinted(key, hash, hint) else {
            self.note_absent(hash);
            return Err(Miss::Absent);
        };
        self.check_alive(hash, &lookup)?;
        Ok(lookup)
    }

    /// The item if it is alive; otherwise removes it.
    #[inline(always)]
    fn check_alive(&self, hash: Hash, lookup: &Lookup<'_>) -> Result<SegmentRef<'_>, Miss> {
        self.note_shown(hash);
        let segment_ref = self.engine().arena.segments.segment_ref_at(lookup.offset);
        match self.engine().liveness_in(segment_ref, lookup.raw, self.now()) {
            Ok(()) => Ok(segment_ref),
            Err(miss) => {
                self.remove_dead(hash, lookup, miss);
                Err(miss)
            }
        }
    }

    #[cold]
    fn remove_dead(&self, hash: Hash, lookup: &Lookup<'_>, miss: Miss) {
        self.reap(hash, lookup.offset);
        self.note_dead(hash, miss);
    }

    #[inline]
    pub(crate) fn item<'t>(&'t self, lookup: &Lookup<'t>) -> Item<'t> {
        Item::new(lookup.raw, lookup.offset, &self.handle.engine)
    }

    #[inline]
    pub(crate) fn note_use(&self, lookup: &Lookup<'_>) {
        lookup.found.note_use();
        lookup.raw.note_use(self.now().secs);
    }

    /// As in memcached, a look-up that also touches counts as a touch, not as a hit.
    #[inline]
    fn count_hit(&self, segment_ref: SegmentRef<'_>) {
        self.counters().queues[segment_ref.queue()].hits.add(1);
    }

    pub(crate) fn describe<'t>(&'t self, raw: ItemRef<'t>, offset: Offset) -> Fetched<'t> {
        let marks = raw.marks();
        Fetched {
            item: Item::new(raw, offset, &self.handle.engine),
            expiry_before: raw.expiry(),
            hit_before: marks & FETCHED != 0,
            idle_secs: self.now().secs.saturating_sub(raw.used_secs()),
            stale: marks & STALE != 0,
            token: if marks & TOKEN != 0 { Token::Held } else { Token::None },
            vivified: false,
        }
    }

    /// Runs `work`, which also says whether it changed the item, while nobody can move or replace the item. `None`: it
    /// is no longer where it was found.
    pub(crate) fn under_lock<R>(
        &self,
        key: &[u8],
        hash: Hash,
        offset: Offset,
        work: impl FnOnce(ItemRef<'_>) -> (R, bool),
    ) -> Option<R> {
        let bucket = self.engine().index.lock(self.pinned(), hash);
        let found = bucket.find(hash, |found| found.entry.offset() == offset)?;
        debug_assert_eq!(self.item_ref(&found).key(), key);
        let is_alive = || self.engine().liveness(offset, self.item_ref(&found), self.now()).is_ok();
        let replaced = (self.is_backed() && is_alive()).then(|| Replaced::of(self.item_ref(&found)));
        let (result, is_changed) = work(self.item_ref(&found));
        if is_changed {
            let unsubmitted = self.sequence(&bucket, hash, replaced, || Some(found));
            drop(bucket);
            self.submit(unsubmitted);
        }
        Some(result)
    }

    /// The item after the touch, perhaps in another place. `None`: another thread moved it meanwhile, or made it
    /// expire.
    fn touch_found<'t>(
        &'t self,
        key: &[u8],
        hash: Hash,
        lookup: &Lookup<'t>,
        expiry: Expiry,
    ) -> Result<Option<Lookup<'t>>, FetchError> {
        if lookup.raw.has_expiry_field() {
            let touched = self.under_lock(key, hash, lookup.offset, |raw| {
                // If another thread has made it expire since, it stays expired.
                let segment_ref = self.engine().arena.segments.segment_ref_at(lookup.offset);
                let is_alive = self.engine().liveness_in(segment_ref, raw, self.now()).is_ok();
                if is_alive {
                    raw.set_expiry(expiry);
                    segment_ref.segment.note_expiry(self.engine().counted(expiry));
                }
                (is_alive, is_alive)
            });
            Ok((touched == Some(true)).then_some(*lookup))
        } else if expiry == Expiry::NEVER {
            Ok(Some(*lookup))
        } else {
            let rewritten = self.rewrite_with_expiry(key, hash, lookup.offset, expiry)?;
            Ok(rewritten.map(|(offset, raw)| Lookup { offset, raw, ..*lookup }))
        }
    }
}

/// An item, readable until the guard ends.
#[derive(Clone, Copy)]
pub struct Item<'t> {
    raw: ItemRef<'t>,
    offset: Offset,
    engine: &'t Arc<Engine>,
}

impl<'t> Item<'t> {
    #[inline]
    pub(crate) fn new(raw: ItemRef<'t>, offset: Offset, engine: &'t Arc<Engine>) -> Self {
        Self { raw, offset, engine }
    }

    /// The key.
    pub fn key(&self) -> &'t [u8] {
        self.raw.key()
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &'t [u8] {
        self.raw.value()
    }

    /// The client's flags.
    #[inline]
    pub fn client_flags(&self) -> u32 {
        self.raw.client_flags()
    }

    /// The CAS value, never 0.
    pub fn cas(&self) -> u64 {
        self.raw.cas()
    }

    /// When it expires.
    #[inline]
    pub fn expiry(&self) -> Expiry {
        self.raw.expiry()
    }

    /// Its key came in base64.
    pub fn is_binary_key(&self) -> bool {
        self.raw.is_binary_key()
    }

    /// Size by memcached's formula, as in [`crate::Stats::bytes`].
    pub fn accounted_bytes(&self) -> u32 {
        self.raw.accounted_bytes()
    }

    /// Which of [`crate::Stats::queues`] it lives in.
    pub fn queue(&self) -> usize {
        self.engine.arena.queue_at(self.offset)
    }

    /// A reference to the value that outlives the guard. `None` for a small item, which is cheaper to copy.
    pub fn value_ref(&self) -> Option<ValueRef> {
        ValueRef::new(self.engine, self.raw)
    }

    /// True if the item is large enough for [`Item::value_ref`].
    pub fn is_pinnable(&self) -> bool {
        self.engine.arena.segments.is_run(self.engine.arena.segments.id_at(self.offset))
    }
}

impl std::fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("key", &self.key().escape_ascii().to_string()).finish_non_exhaustive()
    }
}
