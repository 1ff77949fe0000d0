//! Handles and guards: a thread's way into the engine, and the look-ups.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::engine::Engine;
use crate::index::buckets::SlotRef;
use crate::index::hash::Hash;
use crate::inspect::stats::Counters;
use crate::log::item::{DEAD, FETCHED, ItemRef, STALE, TOKEN};
use crate::log::segment::SegmentRef;
use crate::log::writer::Writer;
use crate::ops::prefetch::LookupHint;
use crate::ops::upload::ValueRef;
use crate::request::{Expiry, Fetch, FetchError, Fetched, Miss, Now, Token};

/// A thread's access to the engine: its open segments, its epoch, its counters. Not shared between threads, but may move.
pub struct Handle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: usize,
    pub(crate) writer: RefCell<Writer>,
}

impl Handle {
    pub(crate) fn new(engine: Arc<Engine>, id: usize) -> Self {
        Self { engine, id, writer: RefCell::new(Writer::default()) }
    }

    /// Starts a guard: until it ends, everything found in it stays readable. Cheap; do many requests in one, but keep it short:
    /// memory that others free meanwhile waits for its end.
    pub fn pin(&mut self, now: Now) -> Guard<'_> {
        self.engine.epochs.pin(self.id);
        self.engine.flush_if_due(now);
        Guard { handle: self, counters: &self.engine.counters[self.id], now, copied_bytes: Cell::new(0) }
    }

    /// The cache this handle belongs to.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Does it keep memory to itself that others may need, for there are few segments for so many handles? Then
    /// [`Handle::release`] before a time without guards.
    pub fn is_holding(&self) -> bool {
        self.engine.is_crowded && self.writer.borrow().is_holding()
    }

    /// Leaves the segments that it fills or empties to all handles.
    pub fn release(&mut self) {
        // As under a guard: a segment that another retires meanwhile must not begin a new life while we look at it.
        self.engine.epochs.pin(self.id);
        self.writer.get_mut().park(&self.engine);
        self.engine.epochs.unpin(self.id);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.epochs.pin(self.id);
        self.writer.get_mut().close(&self.engine);
        self.engine.epochs.unpin(self.id);
        self.engine.take_back_handle(self.id);
    }
}

/// A span of work during which every item found stays readable, whatever others do.
pub struct Guard<'h> {
    pub(crate) handle: &'h Handle,
    counters: &'h Counters,
    now: Now,
    copied_bytes: Cell<usize>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.handle.engine.epochs.unpin(self.handle.id);
    }
}

/// An item of the index and where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'t> {
    pub(crate) found: SlotRef<'t>,
    pub(crate) offset: usize,
    pub(crate) raw: ItemRef,
}

impl Guard<'_> {
    /// The moment of this guard.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Bytes of values that were written under this guard: who is asked to change large ones knows by it when others should have their turn.
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes.get()
    }

    #[inline]
    pub(crate) fn note_copied(&self, bytes: usize) {
        self.copied_bytes.set(self.copied_bytes.get() + bytes);
    }

    /// Hashes a key and starts fetching its index line. With another key or in another engine the hash finds nothing, and a store
    /// panics.
    pub fn prepare(&self, key: &[u8]) -> Hash {
        let hash = self.engine().hash_key.hash(key);
        self.engine().index.prefetch(hash);
        hash
    }

    /// Finds a live item and counts as a use of it. The fast path of `get`: no lock, and no write to memory that others
    /// share but for an item's first uses.
    pub fn get(&self, key: &[u8], hash: Hash) -> Result<Item<'_>, Miss> {
        self.get_hinted(key, hash, LookupHint::default())
    }

    /// The same for a key of a batch, with what [`Guard::hint_gets`] of this guard saw of it.
    #[inline(always)]
    pub fn get_hinted(&self, key: &[u8], hash: Hash, hint: LookupHint<'_>) -> Result<Item<'_>, Miss> {
        let lookup = self.look_up_hinted(key, hash, hint).ok_or(Miss::Absent)?;
        let segment_ref = self.check_alive(hash, &lookup)?;
        self.count_hit(segment_ref);
        self.note_use(&lookup);
        Ok(self.item(&lookup))
    }

    /// Finds a live item, with everything `mg` can ask.
    pub fn fetch(&self, key: &[u8], hash: Hash, how: &Fetch) -> Result<Fetched<'_>, FetchError> {
        self.fetch_hinted(key, hash, LookupHint::default(), how)
    }

    /// The same for a key of a batch, with what [`Guard::hint_gets`] of this guard saw of it.
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
                        None => continue, // somebody was faster: a hit after all
                    },
                },
            };
            let mut fetched = self.describe(lookup.raw, lookup.offset);
            let due = |expiry: Expiry| match (how.recache_below_secs, expiry.secs()) {
                (Some(below), Some(at)) => at.saturating_sub(self.now.secs) < below,
                _ => false,
            };
            let expiry = how.touch.filter(|_| how.recache_after_touch).unwrap_or(fetched.expiry_before);
            // First what may have to be tried again: that must find the token and the use as they were.
            let mut lookup = lookup;
            if let Some(expiry) = how.touch {
                let Some(touched) = self.touch_found(key, hash, &lookup, expiry)? else { continue };
                lookup = touched;
                fetched.item = self.item(&lookup);
            }
            if fetched.token == Token::None && (fetched.stale || due(expiry)) {
                fetched.token = self.take_token(key, hash, &lookup);
            }
            if !how.unnoticed {
                self.note_use(&lookup);
            }
            if how.touch.is_none() {
                self.count_hit(self.engine().segments.segment_ref_at(lookup.offset));
            }
            return Ok(fetched);
        }
    }

    /// Asks for the right to recompute an item's value. Whoever sets the mark has won; the lock keeps the item where it is
    /// meanwhile. Nobody wins an item that has just been replaced.
    fn take_token(&self, key: &[u8], hash: Hash, lookup: &Lookup<'_>) -> Token {
        let (mut offset, cas) = (lookup.offset, lookup.raw.cas());
        loop {
            match self.under_lock(key, hash, offset, |raw| raw.mark(TOKEN, 0)) {
                Some(before) if before & TOKEN != 0 => return Token::Held,
                Some(_) => return Token::Won,
                None => match self.look_up(key, hash) {
                    Some(moved) if moved.raw.cas() == cas => offset = moved.offset,
                    _ => return Token::None,
                },
            }
        }
    }

    /// Looks without leaving a trace (`me`).
    pub fn peek(&self, key: &[u8], hash: Hash) -> Result<Fetched<'_>, Miss> {
        self.look_up_alive(key, hash, LookupHint::default())
            .map(|lookup| self.describe(lookup.raw, lookup.offset))
    }

    /// Sets the expiry and counts as a use; the CAS value stays (`touch`, `gat`).
    pub fn touch(&self, key: &[u8], hash: Hash, expiry: Expiry) -> Result<Item<'_>, FetchError> {
        loop {
            let lookup = self.look_up_alive(key, hash, LookupHint::default()).map_err(FetchError::Miss)?;
            if let Some(touched) = self.touch_found(key, hash, &lookup, expiry)? {
                self.note_use(&touched);
                return Ok(self.item(&touched));
            }
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.counters
    }

    /// Finds a key, alive or not.
    pub(crate) fn look_up(&self, key: &[u8], hash: Hash) -> Option<Lookup<'_>> {
        self.engine()
            .index
            .find(hash, |entry| self.engine().item(entry).has_key(key))
            .map(|found| self.lookup(found))
    }

    /// The same where a guess may spare looking.
    #[inline(always)]
    pub(crate) fn look_up_hinted<'t>(
        &'t self,
        key: &[u8],
        hash: Hash,
        hint: LookupHint<'t>,
    ) -> Option<Lookup<'t>> {
        // The entry says that nothing newer was to be had, the mark that it was not revoked with its line; whoever unlinks an item sees to
        // both before that is acknowledged.
        let found = hint.found(self.engine()).filter(|found| found.is_unchanged());
        let lookup = found.map(|found| self.lookup(found));
        match lookup.filter(|lookup| lookup.raw.has_key(key) && lookup.raw.marks() & DEAD == 0) {
            Some(lookup) => Some(lookup),
            None => self.look_up(key, hash),
        }
    }

    #[inline]
    fn lookup<'t>(&self, found: SlotRef<'t>) -> Lookup<'t> {
        Lookup { found, offset: found.entry.offset(), raw: self.engine().item(found.entry) }
    }

    /// Finds a live item; removes a dead one on the way.
    #[inline]
    fn look_up_alive<'t>(&'t self, key: &[u8], hash: Hash, hint: LookupHint<'t>) -> Result<Lookup<'t>, Miss> {
        let lookup = self.look_up_hinted(key, hash, hint).ok_or(Miss::Absent)?;
        self.check_alive(hash, &lookup)?;
        Ok(lookup)
    }

    /// Where it lives, if it is alive; else removes it.
    #[inline]
    fn check_alive(&self, hash: Hash, lookup: &Lookup<'_>) -> Result<SegmentRef<'_>, Miss> {
        let segment_ref = self.engine().segments.segment_ref_at(lookup.offset);
        match self.engine().liveness_in(segment_ref, lookup.raw, self.now) {
            Ok(()) => Ok(segment_ref),
            Err(miss) => {
                self.reap(hash, lookup.offset);
                Err(miss)
            }
        }
    }

    pub(crate) fn item(&self, lookup: &Lookup<'_>) -> Item<'_> {
        Item::new(lookup.raw, lookup.offset, &self.handle.engine)
    }

    pub(crate) fn note_use(&self, lookup: &Lookup<'_>) {
        lookup.found.note_use();
        lookup.raw.note_use(self.now.secs);
    }

    /// As memcached counts: what also touches is a touch, and no hit.
    #[inline]
    fn count_hit(&self, segment_ref: SegmentRef<'_>) {
        self.counters().queues[segment_ref.queue()].hits.add(1);
    }

    pub(crate) fn describe(&self, raw: ItemRef, offset: usize) -> Fetched<'_> {
        let marks = raw.marks();
        Fetched {
            item: Item::new(raw, offset, &self.handle.engine),
            expiry_before: raw.expiry(),
            hit_before: marks & FETCHED != 0,
            idle_secs: self.now.secs.saturating_sub(raw.used_secs()),
            stale: marks & STALE != 0,
            token: if marks & TOKEN != 0 { Token::Held } else { Token::None },
            vivified: false,
        }
    }

    /// Does something to an item while nobody can move or replace it. `None` if it is no longer where it was seen.
    pub(crate) fn under_lock<R>(
        &self,
        key: &[u8],
        hash: Hash,
        offset: usize,
        work: impl FnOnce(ItemRef) -> R,
    ) -> Option<R> {
        let bucket = self.engine().index.lock(hash);
        let found = bucket.find(hash, |entry| entry.offset() == offset)?;
        debug_assert_eq!(self.engine().item(found.entry).key(), key);
        Some(work(self.engine().item(found.entry)))
    }

    /// Where the item is after the touch; `None` if another changed its place meanwhile, or made it expire.
    fn touch_found<'t>(
        &'t self,
        key: &[u8],
        hash: Hash,
        lookup: &Lookup<'t>,
        expiry: Expiry,
    ) -> Result<Option<Lookup<'t>>, FetchError> {
        if lookup.raw.has_expiry_field() {
            let touched = self.under_lock(key, hash, lookup.offset, |raw| {
                // Another may have made it expire since it was seen: that it must stay.
                let segment_ref = self.engine().segments.segment_ref_at(lookup.offset);
                let is_alive = self.engine().liveness_in(segment_ref, raw, self.now).is_ok();
                if is_alive {
                    raw.set_expiry(expiry);
                    segment_ref.segment.note_expiry(expiry);
                }
                is_alive
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

impl Engine {
    /// Which of `Stats::queues` an item at this offset counts in.
    pub(crate) fn queue_at(&self, offset: usize) -> usize {
        self.segments.segment_ref_at(offset).queue()
    }
}

/// An item found, readable until the guard ends.
#[derive(Clone, Copy)]
pub struct Item<'t> {
    raw: ItemRef,
    offset: usize,
    engine: &'t Arc<Engine>,
}

impl<'t> Item<'t> {
    pub(crate) fn new(raw: ItemRef, offset: usize, engine: &'t Arc<Engine>) -> Self {
        Self { raw, offset, engine }
    }

    /// The key.
    pub fn key(&self) -> &'t [u8] {
        self.raw.key()
    }

    /// The value.
    pub fn value(&self) -> &'t [u8] {
        self.raw.value()
    }

    /// The client's flags.
    pub fn client_flags(&self) -> u32 {
        self.raw.client_flags()
    }

    /// The CAS value, never 0.
    pub fn cas(&self) -> u64 {
        self.raw.cas()
    }

    /// When it dies.
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
        self.engine.queue_at(self.offset)
    }

    /// A hold on the value that outlasts the guard; `None` for a small item, which is cheaper to copy.
    pub fn value_ref(&self) -> Option<ValueRef> {
        let id = self.engine.segments.id_at(self.offset);
        self.is_pinnable().then(|| ValueRef::new(Arc::clone(self.engine), id, self.raw))
    }

    /// Is it so large that [`Item::pin`] can hold it?
    pub fn is_pinnable(&self) -> bool {
        self.engine.segments.is_run(self.engine.segments.id_at(self.offset))
    }
}

impl std::fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("key", &self.key().escape_ascii().to_string()).finish_non_exhaustive()
    }
}
