//! The index: from the hash of a key to the place of its item. Compact, read without locks, grown bucket by bucket.
//!
//! A bucket is one cache line of eight words. A word is one entry:
//!
//! ```text
//!  63        43 42   41   40 39  38                    0
//! | tag of hash | LINK|LOCK| uses | place in the log / 8 + 1 |      0 = empty
//! ```
//!
//! When a bucket is full its last word becomes a LINK to an overflow bucket, and holds that one's number + 1 in place
//! of an offset. LOCK is used only in the first word of a bucket: a writer is changing the chain. Readers ignore it.
//!
//! Growth is linear hashing (Litwin, VLDB 1980): bucket `n` is split off bucket `n - 2^k`, one at a time, in order. So
//! the load stays even, and no request waits for more than a few splits.
//!
//! Why a reader without locks misses no entry:
//! - the entry of an item that moves is replaced by one store;
//! - an entry whose word becomes a LINK is written to the overflow bucket first, and the LINK leads there;
//! - an entry that moves up from the overflow is written to the first bucket before it is cleared below; a reader that
//!   finds nothing scans the first bucket a second time;
//! - an entry that moved up stays there, unless a split moves it to the last word, and an insert turns that into a
//!   LINK; a reader that saw no LINK on the way down, and then sees one, starts again;
//! - a split copies, then publishes the new number of buckets, then clears; a reader that finds nothing and sees that
//!   the number has changed starts again.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::*;

use crate::epoch::epochs::Pinned;
use crate::index::hash::Hash;
use crate::log::offset::{FreshOffset, Offset};
use crate::mem::budget::Budget;
use crate::mem::cache_padded::CachePadded;
use crate::mem::lines::{LINE_BYTES, Line, Lines, WORDS};
use crate::mem::region::PAGE_BYTES;
use crate::sync::{AtomicU64, Mutex, MutexGuard, spin_loop, yield_now};

const LAST: usize = WORDS - 1;

const OFFSET_BITS: u32 = 39;
const OFFSET: u64 = (1 << OFFSET_BITS) - 1;
/// The largest log that an entry can point into.
pub(crate) const LOG_BYTES_MAX: usize = (OFFSET as usize) << 3;
const USE_ONE: u64 = 1 << OFFSET_BITS;
const USES: u64 = 3 << OFFSET_BITS;
const LOCK: u64 = 1 << 41;
const LINK: u64 = 1 << 42;
const TAG: u64 = !0 << 43;

/// The index grows beyond this number of entries per bucket. With buckets of eight words, 7 gives 11.6 bytes an item:
/// 27 % of the buckets have an overflow bucket, and 15 % of the hits look at a second line.
const ITEMS_PER_BUCKET: u64 = WORDS as u64 - 1;

/// The bucket of a split is prefetched this many splits ahead ...
const SPLIT_BUCKETS_AHEAD: u64 = 4;
/// ... and its items this many.
const SPLIT_ITEMS_AHEAD: u64 = 2;

/// One word of the index. Only a number: what may be read is a [`SlotRef`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    /// An entry for an item at an offset of the log.
    fn new(hash: Hash, offset: Offset, uses: u8) -> Self {
        let place = offset.to_word() + 1;
        debug_assert!(place <= OFFSET);
        Self(hash.0 & TAG | u64::from(uses.min(3)) << OFFSET_BITS | place)
    }

    /// The offset of the item in the log.
    #[inline]
    pub(crate) fn offset(self) -> Offset {
        Offset::from_word((self.0 & OFFSET) - 1)
    }

    /// How often the item was read since it entered its queue: 0 to 3.
    pub(crate) fn uses(self) -> u8 {
        ((self.0 & USES) >> OFFSET_BITS) as u8
    }

    #[inline]
    fn matches(self, hash: Hash) -> bool {
        (self.0 ^ hash.0) & TAG == 0 && self.is_item()
    }

    fn is_same_item(self, other: Self) -> bool {
        (self.0 ^ other.0) & !(USES | LOCK) == 0
    }

    #[inline]
    fn is_item(self) -> bool {
        self.0 & LINK == 0 && self.0 & OFFSET != 0
    }

    fn overflow(self) -> Option<usize> {
        (self.0 & LINK != 0).then(|| (self.0 & OFFSET) as usize - 1)
    }
}

/// An entry that was found, and its word. It was read under a guard that lasts for `'i`, so its item is readable as
/// long. The index alone makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRef<'i> {
    word: &'i AtomicU64,
    pub(crate) entry: Entry,
}

impl SlotRef<'_> {
    /// True if the entry still points to the same item.
    #[inline]
    pub(crate) fn is_unchanged(&self) -> bool {
        Entry(self.word.load(Acquire)).is_same_item(self.entry)
    }

    /// Counts a use, up to three. Lock-free, and writes nothing once the count is full. A use lost in a race does no
    /// harm.
    #[inline]
    pub(crate) fn note_use(&self) {
        let word = self.entry.0;
        if word & USES != USES {
            let _ = self.word.compare_exchange(word, word + USE_ONE, Relaxed, Relaxed);
        }
    }
}

/// An entry that an index has just lost: its item is accounted for, under the lock of its bucket.
#[must_use]
pub(crate) struct Unlinked<'i>(SlotRef<'i>);

impl<'i> Unlinked<'i> {
    pub(crate) fn slot(&self) -> &SlotRef<'i> {
        &self.0
    }
}

/// What the index needs to know of items. Offsets are those of the log.
pub(crate) trait Items {
    /// The hash of the key of an entry's item.
    fn hash_of(&self, found: &SlotRef<'_>) -> Hash;

    /// Prefetches what `hash_of` reads.
    fn prefetch(&self, offset: Offset);
}

pub(crate) struct Index {
    /// The number of buckets. Every look-up reads it, a split writes it.
    count: AtomicU64,
    buckets: Lines,
    overflow: Lines,
    /// Locked by the thread that splits. Nobody waits for it.
    splitting: CachePadded<Mutex<()>>,
    /// Unused overflow buckets. A thread that holds a bucket may lock this, so a thread that holds this locks nothing.
    spare: CachePadded<Mutex<Spare>>,
    /// The number of full large pages of the buckets, and of the overflow, that were moved.
    large_pages: [AtomicUsize; 2],
    /// The number of items, as reported by handles.
    items: CachePadded<AtomicU64>,
}

struct Spare {
    freed: Vec<u32>,
    /// The number of overflow buckets ever used.
    used: usize,
}

impl Index {
    /// Reserves address space for an index of `memory_bytes` of cache, with `count` buckets to begin with.
    pub(crate) fn new(memory_bytes: usize, count: usize, budget: &Budget) -> io::Result<Self> {
        let buckets = Lines::reserve(buckets_bytes(memory_bytes, count))?;
        let overflow = Lines::reserve(overflow_bytes(memory_bytes))?;
        if !buckets.commit(count) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        budget.force((count * LINE_BYTES).next_multiple_of(PAGE_BYTES) as u64);
        Ok(Self {
            count: AtomicU64::new(count as u64),
            buckets,
            overflow,
            splitting: CachePadded::new(Mutex::new(())),
            spare: CachePadded::new(Mutex::new(Spare { freed: Vec::new(), used: 0 })),
            large_pages: [AtomicUsize::new(0), AtomicUsize::new(0)],
            items: CachePadded::new(AtomicU64::new(0)),
        })
    }

    /// The address space of such an index.
    pub(crate) fn reserved_bytes(memory_bytes: usize, count: usize) -> usize {
        buckets_bytes(memory_bytes, count) + overflow_bytes(memory_bytes)
    }

    /// Moves one full large page of the index to a large page. False: there is none, or the system has no large page
    /// now.
    pub(crate) fn move_to_large_page(&self) -> bool {
        let places = [
            (&self.buckets, self.bucket_count() as usize, &self.large_pages[0]),
            (&self.overflow, self.spare().used, &self.large_pages[1]),
        ];
        places.into_iter().any(|(lines, filled, moved)| {
            let is_moved = lines.move_to_large_page(moved.load(Relaxed), filled);
            moved.fetch_add(is_moved.into(), Relaxed);
            is_moved
        })
    }

    /// As [`crate::mem::numa::interleave`].
    pub(crate) fn interleave(&self, nodes: &[u32]) -> io::Result<()> {
        self.buckets.interleave(nodes)?;
        self.overflow.interleave(nodes)
    }

    /// Prefetches the line that a look-up will read first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: Hash) {
        self.buckets.prefetch(bucket_of(hash, self.count.load(Relaxed)));
    }

    /// The first entry of the first line that has the hash's tag: probably the right one.
    #[inline(always)]
    pub(crate) fn hint<'g>(&'g self, _: Pinned<'g>, hash: Hash) -> Option<SlotRef<'g>> {
        let line = self.line(bucket_of(hash, self.count.load(Acquire)));
        let mut last = Entry(0);
        for word in line {
            last = Entry(word.load(Acquire));
            if last.matches(hash) {
                return Some(SlotRef { word, entry: last });
            }
        }
        if let Some(overflow) = last.overflow() {
            self.overflow.prefetch(overflow);
        }
        None
    }

    /// The same in the second line, once that was prefetched, for a hash that the first line does not have.
    pub(crate) fn hint_below<'g>(&'g self, _: Pinned<'g>, hash: Hash) -> Option<SlotRef<'g>> {
        let first = self.line(bucket_of(hash, self.count.load(Acquire)));
        self.below(first).find_map(|line| scan(line, hash, &|_| true))
    }

    /// Finds the entry for which `is_it` is true. Lock-free.
    #[inline(always)]
    pub(crate) fn find<'g>(
        &'g self,
        _: Pinned<'g>,
        hash: Hash,
        is_it: impl Fn(&SlotRef<'g>) -> bool,
    ) -> Option<SlotRef<'g>> {
        let count = self.count.load(Acquire);
        scan(self.line(bucket_of(hash, count)), hash, &is_it)
            .or_else(|| self.find_further(count, hash, is_it))
    }

    /// Goes on where the first line, of so many buckets, does not have it.
    #[inline(never)]
    fn find_further<'g>(
        &'g self,
        mut count: u64,
        hash: Hash,
        is_it: impl Fn(&SlotRef<'g>) -> bool,
    ) -> Option<SlotRef<'g>> {
        loop {
            let first = self.line(bucket_of(hash, count));
            let mut lines_below = 0;
            let mut below = self.below(first).inspect(|_| lines_below += 1);
            let found = below.find_map(|line| scan(line, hash, &is_it));
            // It may have moved up while we looked further down.
            let found = found.or_else(|| scan(first, hash, &is_it));
            if found.is_some() {
                return found;
            }
            // ... or down again, where we saw no LINK; or to another bucket.
            let is_pushed_down = lines_below == 0 && Entry(first[LAST].load(Acquire)).overflow().is_some();
            let now = self.count.load(Acquire);
            if !is_pushed_down && now == count {
                return None;
            }
            count = now;
        }
    }

    /// Locks the bucket that holds, or would hold, a key with this hash.
    #[inline(always)]
    pub(crate) fn lock<'g>(&'g self, _: Pinned<'g>, hash: Hash) -> Bucket<'g> {
        loop {
            let count = self.count.load(Acquire);
            let bucket = self.lock_bucket(bucket_of(hash, count));
            // A split may have come in between. None can from here on.
            let now = self.count.load(Acquire);
            if now == count || bucket_of(hash, now) == bucket_of(hash, count) {
                return bucket;
            }
        }
    }

    /// How many low bits of the hash select its bucket, at the present size. Constant while that bucket is locked.
    pub(crate) fn bucket_bits(&self, hash: Hash) -> u32 {
        let count = self.count.load(Acquire);
        let bits = count.ilog2();
        let is_split = (hash.0 & ((1 << bits) - 1)) + (1 << bits) < count;
        bits + u32::from(is_split)
    }

    /// Reports that there are `items` more (or fewer) items, and lets the index grow by a few buckets if there are too
    /// many for it. `log` knows the items; `retire` retires overflow buckets.
    pub(crate) fn report(
        &self,
        pinned: Pinned<'_>,
        items: i64,
        budget: &Budget,
        log: &impl Items,
        mut retire: impl FnMut(u32),
    ) {
        self.items.fetch_add(items as u64, Relaxed);
        if !self.is_growing() {
            return;
        }
        // Another thread is splitting already.
        let Ok(_splitting) = self.splitting.try_lock() else { return };
        // More than these items need, so that the index catches up; few enough that nobody waits long.
        let splits = 2 + items.max(0) as u64 / 4;
        for _ in 0..splits {
            self.prefetch_splits(log);
            if !self.is_growing() || !self.split(pinned, budget, log, &mut retire) {
                break;
            }
        }
    }

    /// The number of items reported.
    pub(crate) fn items(&self) -> u64 {
        // One handle may have reported removals before another reported the same items' insertion.
        (self.items.load(Relaxed) as i64).max(0) as u64
    }

    /// True if there are more items than the buckets should hold.
    pub(crate) fn is_growing(&self) -> bool {
        let count = self.count.load(Relaxed);
        self.items() > count * ITEMS_PER_BUCKET && (count as usize) < self.buckets.count()
    }

    /// The number of buckets, without overflow.
    pub(crate) fn bucket_count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Memory in use.
    pub(crate) fn bytes(&self) -> u64 {
        (self.count.load(Relaxed) + self.spare().used as u64) * LINE_BYTES as u64
    }

    /// Takes back an overflow bucket that nobody reads any more.
    pub(crate) fn reuse_overflow(&self, overflow: u32) {
        let line = self.overflow.get(overflow as usize);
        line.iter().for_each(|word| word.store(0, Relaxed));
        self.spare().freed.push(overflow);
    }

    /// Prefetches for the splits after the next: the bucket of one, and the items of an earlier one. Otherwise each
    /// split would wait for all items of a bucket, which lie anywhere.
    fn prefetch_splits(&self, log: &impl Items) {
        let new = self.bucket_count();
        let splits_from = |new: u64| (new - (1 << new.ilog2())) as usize;
        for word in self.line(splits_from(new + SPLIT_ITEMS_AHEAD)) {
            let entry = Entry(word.load(Relaxed));
            if entry.is_item() {
                log.prefetch(entry.offset());
            }
        }
        self.buckets.prefetch(splits_from(new + SPLIT_BUCKETS_AHEAD));
    }

    /// Splits one bucket. False: there is no room for the new one, or for its overflow.
    fn split(&self, _: Pinned<'_>, budget: &Budget, log: &impl Items, retire: &mut impl FnMut(u32)) -> bool {
        let new = self.count.load(Relaxed) as usize;
        if !self.buckets.commit(new + 1) {
            return false;
        }
        let old = self.lock_bucket(new - (1 << new.ilog2()));
        let (mut leaving, mut staying) = (Vec::with_capacity(2 * WORDS), Vec::with_capacity(2 * WORDS));
        for word in old.lines().flatten() {
            let entry = Entry(word.load(Acquire) & !LOCK);
            if entry.is_item() {
                let moves = bucket_of(log.hash_of(&SlotRef { word, entry }), new as u64 + 1) == new;
                if moves { &mut leaving } else { &mut staying }.push(entry);
            }
        }
        // Each side may need overflow of its own. Get it before anything moves.
        let spare = leaving.len().div_ceil(LAST) + staying.len().div_ceil(LAST);
        let Some(mut spare) = self.take_overflow(budget, spare) else { return false };
        if (new * LINE_BYTES).is_multiple_of(PAGE_BYTES) {
            budget.force(PAGE_BYTES as u64);
        }
        let new_line = self.line(new);
        self.lay_out(new_line, &leaving, &mut spare);
        // The old chain is written anew, with fresh overflow. Readers may still be reading the old overflow, which
        // stays unchanged until their guards end.
        let old_links = old.lines().filter_map(|line| Entry(line[LAST].load(Relaxed)).overflow());
        let old_overflow: Vec<u32> = old_links.map(|overflow| overflow as u32).collect();
        let tail = (staying.len() > WORDS).then(|| {
            let overflow = spare.pop();
            if let Some(overflow) = overflow {
                self.lay_out(self.overflow.get(overflow as usize), &staying[LAST..], &mut spare);
            }
            overflow
        });
        self.count.store(new as u64 + 1, Release);
        for (at, word) in old.first.iter().enumerate() {
            let entry = match tail.flatten() {
                Some(overflow) if at == LAST => LINK | (u64::from(overflow) + 1),
                _ => staying.get(at).map_or(0, |entry| entry.0),
            };
            // Uses that readers count meanwhile are lost.
            old.put(word, Entry(entry));
        }
        self.spare().freed.extend(spare);
        old_overflow.into_iter().for_each(retire);
        true
    }

    /// Writes entries to a line that nobody reads yet, and chains overflow as needed.
    fn lay_out(&self, line: &Line, entries: &[Entry], spare: &mut Vec<u32>) {
        let here = if entries.len() > WORDS { LAST } else { entries.len() };
        for (word, entry) in line.iter().zip(&entries[..here]) {
            word.store(entry.0, Relaxed);
        }
        if here < entries.len() {
            let overflow = spare.pop().expect("the caller took enough overflow buckets");
            self.lay_out(self.overflow.get(overflow as usize), &entries[here..], spare);
            line[LAST].store(LINK | (u64::from(overflow) + 1), Release);
        }
    }

    fn take_overflow(&self, budget: &Budget, wanted: usize) -> Option<Vec<u32>> {
        let mut spare = self.spare();
        let fresh = wanted.saturating_sub(spare.freed.len());
        if spare.used + fresh > self.overflow.count() || !self.overflow.commit(spare.used + fresh) {
            return None;
        }
        let keep = spare.freed.len() - (wanted - fresh);
        let mut taken = spare.freed.split_off(keep);
        for _ in 0..fresh {
            if (spare.used * LINE_BYTES).is_multiple_of(PAGE_BYTES) {
                budget.force(PAGE_BYTES as u64);
            }
            taken.push(spare.used as u32);
            spare.used += 1;
        }
        Some(taken)
    }

    /// From here on no full bucket gets overflow.
    #[cfg(test)]
    pub(crate) fn use_up_overflow(&self) {
        *self.spare() = Spare { freed: Vec::new(), used: self.overflow.count() };
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        // No code panics under this lock.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The overflow lines of a chain. A line's LINK is read only when the next line is asked for: by then the caller
    /// has scanned the whole line, and an entry that a LINK has replaced in between is further down.
    fn below<'i>(&'i self, first: &'i Line) -> impl Iterator<Item = &'i Line> {
        let mut line = first;
        std::iter::from_fn(move || {
            line = self.overflow.get(Entry(line[LAST].load(Acquire)).overflow()?);
            Some(line)
        })
    }

    #[inline]
    fn line(&self, bucket: usize) -> &Line {
        self.buckets.get(bucket)
    }

    fn lock_bucket(&self, bucket: usize) -> Bucket<'_> {
        let first = self.line(bucket);
        let mut tries = 0u32;
        while first[0].fetch_or(LOCK, Acquire) & LOCK != 0 {
            tries += 1;
            // The owner holds it for less than a microsecond, unless its thread lost its core.
            if tries.is_multiple_of(64) { yield_now() } else { spin_loop() }
        }
        Bucket { index: self, first }
    }
}

/// Buckets that do not grow while so many items come.
pub(crate) fn buckets_for(items: u64) -> usize {
    usize::try_from(items / ITEMS_PER_BUCKET).unwrap_or(usize::MAX).saturating_add(1)
}

/// For buckets: as many as a memory full of the smallest items would need.
fn buckets_bytes(memory_bytes: usize, count: usize) -> usize {
    (memory_bytes / 2).max(count * LINE_BYTES).max(1 << 16)
}

/// For overflow.
fn overflow_bytes(memory_bytes: usize) -> usize {
    (memory_bytes / 4).max(1 << 16)
}

/// The bucket of a hash, of `count`.
#[inline]
fn bucket_of(hash: Hash, count: u64) -> usize {
    // The mask has as many bits as the highest bucket's number. With one bucket it has one, which the next step
    // removes.
    let mask = !0 >> ((count - 1) | 1).leading_zeros();
    let bucket = hash.0 & mask;
    (if bucket < count { bucket } else { bucket & (mask >> 1) }) as usize
}

#[inline(always)]
fn scan<'i>(line: &'i Line, hash: Hash, is_it: &impl Fn(&SlotRef<'i>) -> bool) -> Option<SlotRef<'i>> {
    for word in line {
        let found = SlotRef { word, entry: Entry(word.load(Acquire)) };
        if found.entry.matches(hash) && is_it(&found) {
            return Some(found);
        }
    }
    None
}

/// A locked bucket; unlocked when dropped.
pub(crate) struct Bucket<'i> {
    index: &'i Index,
    first: &'i Line,
}

impl<'i> Bucket<'i> {
    /// An entry that was found before the bucket was locked, as it is now, if it points to the same item and is still
    /// in place on the first line. (An overflow line may have been detached by a split, and would still look
    /// unchanged.)
    pub(crate) fn still(&self, found: &SlotRef<'i>) -> Option<SlotRef<'i>> {
        let entry = Entry(found.word.load(Acquire));
        let is_here = self.first.as_ptr_range().contains(&std::ptr::from_ref(found.word));
        (is_here && entry.is_same_item(found.entry)).then_some(SlotRef { word: found.word, entry })
    }

    /// Finds the entry for which `is_it` is true.
    pub(crate) fn find(&self, hash: Hash, is_it: impl Fn(&SlotRef<'i>) -> bool) -> Option<SlotRef<'i>> {
        self.lines().find_map(|line| scan(line, hash, &is_it))
    }

    /// All entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = SlotRef<'i>> + use<'i> {
        let all =
            self.lines().flatten().map(|word| SlotRef { word, entry: Entry(word.load(Acquire) & !LOCK) });
        all.filter(|found| found.entry.is_item())
    }

    /// Points an entry of this bucket to another item of the same key.
    #[inline]
    pub(crate) fn replace(
        &self,
        found: SlotRef<'i>,
        hash: Hash,
        place: FreshOffset,
        uses: u8,
    ) -> Unlinked<'i> {
        debug_assert!(found.is_unchanged(), "found under this lock");
        self.put(found.word, Entry::new(hash, place.get(), uses));
        Unlinked(found)
    }

    /// Forgets the uses of an entry of this bucket.
    pub(crate) fn clear_uses(&self, found: &SlotRef<'_>) {
        found.word.fetch_and(!USES, Relaxed);
    }

    /// Adds an entry. Error: there is no room for an overflow bucket, which happens only in a cache full of the
    /// smallest items.
    pub(crate) fn insert(&self, hash: Hash, place: FreshOffset, budget: &Budget) -> Result<(), FreshOffset> {
        let entry = Entry::new(hash, place.get(), 0);
        if let Some(empty) = self.lines().flatten().find(|word| word.load(Relaxed) & !LOCK == 0) {
            self.put(empty, entry);
            return Ok(());
        }
        let Some(taken) = self.index.take_overflow(budget, 1) else { return Err(place) };
        let full = self.lines().last().unwrap_or(self.first);
        let line = self.index.overflow.get(taken[0] as usize);
        line[0].store(full[LAST].load(Relaxed), Relaxed);
        line[1].store(entry.0, Relaxed);
        full[LAST].store(LINK | (u64::from(taken[0]) + 1), Release);
        Ok(())
    }

    /// Removes an entry, and moves one of the overflow to its word, so that chains shrink as they empty. `retire` is
    /// called for an overflow bucket that became empty.
    pub(crate) fn remove(&self, found: SlotRef<'i>, retire: impl FnMut(u32)) -> Unlinked<'i> {
        debug_assert!(found.is_unchanged(), "found under this lock");
        self.put(found.word, Entry(0));
        self.fill_gap(&found, retire);
        Unlinked(found)
    }

    fn fill_gap(&self, found: &SlotRef<'_>, mut retire: impl FnMut(u32)) {
        let Some(last) = self.index.below(self.first).last() else { return };
        if self.first.iter().any(|word| std::ptr::eq(word, found.word)) {
            // Written above before it is cleared below: see the module's documentation.
            if let Some(below) = last.iter().find(|word| Entry(word.load(Relaxed)).is_item()) {
                self.put(found.word, Entry(below.load(Relaxed)));
                below.store(0, Release);
            }
        }
        if last.iter().all(|word| word.load(Relaxed) == 0) {
            let link =
                self.lines().map(|line| &line[LAST]).filter(|word| word.load(Relaxed) & LINK != 0).last();
            if let Some(link) = link {
                let empty = (link.load(Relaxed) & OFFSET) as u32 - 1;
                self.put(link, Entry(0));
                retire(empty);
            }
        }
    }

    fn lines(&self) -> impl Iterator<Item = &'i Line> + use<'i> {
        std::iter::once(self.first).chain(self.index.below(self.first))
    }

    fn put(&self, word: &AtomicU64, entry: Entry) {
        if std::ptr::eq(word, &self.first[0]) {
            // Other threads try to lock this word. It is changed only by exchanges, since a plain store could overwrite
            // their change.
            word.swap(entry.0 | LOCK, AcqRel);
        } else {
            word.store(entry.0 & !LOCK, Release);
        }
    }
}

impl Drop for Bucket<'_> {
    fn drop(&mut self) {
        self.first[0].fetch_and(!LOCK, Release);
    }
}

#[cfg(test)]
mod tests;
