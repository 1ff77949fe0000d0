//! Handles and turns: a thread's way into the engine, and the look-ups.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::engine::Engine;
use crate::index::buckets::Found;
use crate::index::hash::Hash;
use crate::inspect::stats::Counters;
use crate::log::item::{DEAD, FETCHED, Raw, STALE, TOKEN};
use crate::log::segment::Home;
use crate::log::writer::Writer;
use crate::ops::prefetch::Guess;
use crate::ops::upload::Pin;
use crate::request::{Expiry, Fail, Fetch, Fetched, Miss, Now, Token};

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

    /// Starts a turn: until it ends, everything found in it stays readable. Cheap; do many requests in one, but keep it short:
    /// memory that others free meanwhile waits for its end.
    pub fn enter(&mut self, now: Now) -> Turn<'_> {
        self.engine.epochs.enter(self.id);
        self.engine.flush_if_due(now);
        Turn { handle: self, counters: &self.engine.counters[self.id], now, copied_bytes: Cell::new(0) }
    }

    /// The cache this handle belongs to.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Does it keep memory to itself that others may need, for there are few segments for so many handles? Then
    /// [`Handle::rest`] before a time without turns.
    pub fn is_holding(&self) -> bool {
        self.engine.is_crowded && self.writer.borrow().is_holding()
    }

    /// Leaves the segments that it fills or empties to all handles.
    pub fn rest(&mut self) {
        // As in a turn: a segment that another retires meanwhile must not begin a new life while we look at it.
        self.engine.epochs.enter(self.id);
        self.writer.get_mut().park(&self.engine);
        self.engine.epochs.leave(self.id);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.epochs.enter(self.id);
        self.writer.get_mut().close(&self.engine);
        self.engine.epochs.leave(self.id);
        self.engine.take_back_handle(self.id);
    }
}

/// A span of work during which every item found stays readable, whatever others do.
pub struct Turn<'h> {
    pub(crate) handle: &'h Handle,
    counters: &'h Counters,
    now: Now,
    copied_bytes: Cell<usize>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.handle.engine.epochs.leave(self.handle.id);
    }
}

/// An item of the index and where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'t> {
    pub(crate) found: Found<'t>,
    pub(crate) offset: usize,
    pub(crate) raw: Raw,
}

impl Turn<'_> {
    /// The moment of this turn.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Bytes of values that were written in this turn: who is asked to change large ones knows by it when others should have their turn.
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
        self.get_guessed(key, hash, Guess::default())
    }

    /// The same for a key of a batch, with what [`Turn::guess_gets`] of this turn saw of it.
    #[inline(always)]
    pub fn get_guessed(&self, key: &[u8], hash: Hash, guess: Guess<'_>) -> Result<Item<'_>, Miss> {
        let seen = self.look_guessed(key, hash, guess).ok_or(Miss::Absent)?;
        let home = self.check_alive(hash, &seen)?;
        self.count_hit(home);
        self.note_use(&seen);
        Ok(self.item(&seen))
    }

    /// Finds a live item, with everything `mg` can ask.
    pub fn fetch(&self, key: &[u8], hash: Hash, how: &Fetch) -> Result<Fetched<'_>, Fail> {
        self.fetch_guessed(key, hash, Guess::default(), how)
    }

    /// The same for a key of a batch, with what [`Turn::guess_gets`] of this turn saw of it.
    pub fn fetch_guessed<'t>(
        &'t self,
        key: &[u8],
        hash: Hash,
        mut guess: Guess<'t>,
        how: &Fetch,
    ) -> Result<Fetched<'t>, Fail> {
        loop {
            let seen = match self.look_alive(key, hash, std::mem::take(&mut guess)) {
                Ok(seen) => seen,
                Err(miss) => match how.vivify {
                    None => return Err(Fail::Miss(miss)),
                    Some(expiry) => match self.vivify(key, hash, expiry, how)? {
                        Some(fetched) => return Ok(fetched),
                        None => continue, // somebody was faster: a hit after all
                    },
                },
            };
            let mut fetched = self.describe(seen.raw, seen.offset);
            let due = |expiry: Expiry| match (how.recache_below_secs, expiry.secs()) {
                (Some(below), Some(at)) => at.saturating_sub(self.now.secs) < below,
                _ => false,
            };
            let expiry = how.touch.filter(|_| how.recache_after_touch).unwrap_or(fetched.expiry_before);
            // First what may have to be tried again: that must find the token and the use as they were.
            let mut seen = seen;
            if let Some(expiry) = how.touch {
                let Some(touched) = self.touch_seen(key, hash, &seen, expiry)? else { continue };
                seen = touched;
                fetched.item = self.item(&seen);
            }
            if fetched.token == Token::None && (fetched.stale || due(expiry)) {
                fetched.token = self.take_token(key, hash, &seen);
            }
            if !how.unnoticed {
                self.note_use(&seen);
            }
            if how.touch.is_none() {
                self.count_hit(self.engine().segments.home_of(seen.offset));
            }
            return Ok(fetched);
        }
    }

    /// Asks for the right to recompute an item's value. Whoever sets the mark has won; the lock keeps the item where it is
    /// meanwhile. Nobody wins an item that has just been replaced.
    fn take_token(&self, key: &[u8], hash: Hash, seen: &Seen<'_>) -> Token {
        let (mut offset, cas) = (seen.offset, seen.raw.cas());
        loop {
            match self.under_lock(key, hash, offset, |raw| raw.mark(TOKEN, 0)) {
                Some(before) if before & TOKEN != 0 => return Token::Held,
                Some(_) => return Token::Won,
                None => match self.look(key, hash) {
                    Some(moved) if moved.raw.cas() == cas => offset = moved.offset,
                    _ => return Token::None,
                },
            }
        }
    }

    /// Looks without leaving a trace (`me`).
    pub fn peek(&self, key: &[u8], hash: Hash) -> Result<Fetched<'_>, Miss> {
        self.look_alive(key, hash, Guess::default()).map(|seen| self.describe(seen.raw, seen.offset))
    }

    /// Sets the expiry and counts as a use; the CAS value stays (`touch`, `gat`).
    pub fn touch(&self, key: &[u8], hash: Hash, expiry: Expiry) -> Result<Item<'_>, Fail> {
        loop {
            let seen = self.look_alive(key, hash, Guess::default()).map_err(Fail::Miss)?;
            if let Some(touched) = self.touch_seen(key, hash, &seen, expiry)? {
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
    pub(crate) fn look(&self, key: &[u8], hash: Hash) -> Option<Seen<'_>> {
        self.engine()
            .index
            .find(hash, |entry| self.engine().item(entry).has_key(key))
            .map(|found| self.seen(found))
    }

    /// The same where a guess may spare looking.
    #[inline(always)]
    pub(crate) fn look_guessed<'t>(&'t self, key: &[u8], hash: Hash, guess: Guess<'t>) -> Option<Seen<'t>> {
        // The entry says that nothing newer was to be had, the mark that it was not cut off with its line; whoever unlinks an item sees to
        // both before that is acknowledged.
        let found = guess.found(self.engine()).filter(|found| found.is_unchanged());
        let seen = found.map(|found| self.seen(found));
        match seen.filter(|seen| seen.raw.has_key(key) && seen.raw.marks() & DEAD == 0) {
            Some(seen) => Some(seen),
            None => self.look(key, hash),
        }
    }

    #[inline]
    fn seen<'t>(&self, found: Found<'t>) -> Seen<'t> {
        Seen { found, offset: found.entry.offset(), raw: self.engine().item(found.entry) }
    }

    /// Finds a live item; removes a dead one on the way.
    #[inline]
    fn look_alive<'t>(&'t self, key: &[u8], hash: Hash, guess: Guess<'t>) -> Result<Seen<'t>, Miss> {
        let seen = self.look_guessed(key, hash, guess).ok_or(Miss::Absent)?;
        self.check_alive(hash, &seen)?;
        Ok(seen)
    }

    /// Where it lives, if it is alive; else removes it.
    #[inline]
    fn check_alive(&self, hash: Hash, seen: &Seen<'_>) -> Result<Home<'_>, Miss> {
        let home = self.engine().segments.home_of(seen.offset);
        match self.engine().liveness_in(home, seen.raw, self.now) {
            Ok(()) => Ok(home),
            Err(miss) => {
                self.reap(hash, seen.offset);
                Err(miss)
            }
        }
    }

    pub(crate) fn item(&self, seen: &Seen<'_>) -> Item<'_> {
        Item::new(seen.raw, seen.offset, &self.handle.engine)
    }

    pub(crate) fn note_use(&self, seen: &Seen<'_>) {
        seen.found.note_use();
        seen.raw.note_use(self.now.secs);
    }

    /// As memcached counts: what also touches is a touch, and no hit.
    #[inline]
    fn count_hit(&self, home: Home<'_>) {
        self.counters().queues[home.queue()].hits.add(1);
    }

    pub(crate) fn describe(&self, raw: Raw, offset: usize) -> Fetched<'_> {
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
        work: impl FnOnce(Raw) -> R,
    ) -> Option<R> {
        let bucket = self.engine().index.lock(hash);
        let found = bucket.find(hash, |entry| entry.offset() == offset)?;
        debug_assert_eq!(self.engine().item(found.entry).key(), key);
        Some(work(self.engine().item(found.entry)))
    }

    /// Where the item is after the touch; `None` if another changed its place meanwhile, or made it expire.
    fn touch_seen<'t>(
        &'t self,
        key: &[u8],
        hash: Hash,
        seen: &Seen<'t>,
        expiry: Expiry,
    ) -> Result<Option<Seen<'t>>, Fail> {
        if seen.raw.has_expiry_field() {
            let touched = self.under_lock(key, hash, seen.offset, |raw| {
                // Another may have made it expire since it was seen: that it must stay.
                let home = self.engine().segments.home_of(seen.offset);
                let is_alive = self.engine().liveness_in(home, raw, self.now).is_ok();
                if is_alive {
                    raw.set_expiry(expiry);
                    home.segment.note_expiry(expiry);
                }
                is_alive
            });
            Ok((touched == Some(true)).then_some(*seen))
        } else if expiry == Expiry::NEVER {
            Ok(Some(*seen))
        } else {
            let rewritten = self.rewrite_with_expiry(key, hash, seen.offset, expiry)?;
            Ok(rewritten.map(|(offset, raw)| Seen { offset, raw, ..*seen }))
        }
    }
}

impl Engine {
    /// Which of `Stats::queues` an item at this offset counts in.
    pub(crate) fn queue_at(&self, offset: usize) -> usize {
        self.segments.home_of(offset).queue()
    }
}

/// An item found, readable until the turn ends.
#[derive(Clone, Copy)]
pub struct Item<'t> {
    raw: Raw,
    offset: usize,
    engine: &'t Arc<Engine>,
}

impl<'t> Item<'t> {
    pub(crate) fn new(raw: Raw, offset: usize, engine: &'t Arc<Engine>) -> Self {
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

    /// A hold on the value that outlasts the turn; `None` for a small item, which is cheaper to copy.
    pub fn pin(&self) -> Option<Pin> {
        let id = self.engine.segments.id_at(self.offset);
        self.is_pinnable().then(|| Pin::new(Arc::clone(self.engine), id, self.raw))
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
