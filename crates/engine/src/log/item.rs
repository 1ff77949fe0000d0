//! An item's layout in memory.
//!
//! ```text
//! offset  bytes
//!      0      8  CAS value                                        atomic
//!      8      4  last use in seconds << 4 | marks                 atomic
//!     12      4  shape: key length (8) | fields (5) | value length (19), immutable
//!     16      4  expiry in seconds, and by which clock, if the shape has EXPIRY  atomic
//!      .      4  client flags, if the shape has CLIENT_FLAGS
//!      .      4  value length, if the shape has LARGE
//!      .      4  checksum, if the shape has CHECKSUM              atomic
//!      .         key, value, padding to 8
//! ```
//!
//! Key, value and shape never change once the item can be found. CAS, expiry and the marks STALE and TOKEN change under
//! the lock of the item's bucket. The time of the last use and FETCHED change without it (a lost update there costs
//! nothing).
//!
//! In a cache that is kept in a file every item has a checksum, since another process may find nothing else of it
//! (`warm.rs`). There an item is born DEAD, so that a process that walks the file never takes a half-written item for a
//! whole one; [`ItemRef::complete`] removes the mark just before the item can be found.
//!
//! Unsafe code lives here because items are read where they lie. The invariant: an [`ItemRef`] points to an item that
//! was completely written before its offset was published, in memory that is not reused before the reader's guard ends.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, fence};

use crate::crash_points::crash_point;
use crate::mem::region::Region;
use crate::request::Expiry;

/// Items start at multiples of this.
pub(crate) const ALIGN_BYTES: usize = 8;
const HEADER_BYTES: usize = 16;
/// The smallest dead item: a walk needs its header to skip it.
pub(crate) const FILLER_BYTES_MIN: usize = HEADER_BYTES;

const EXPIRY: u32 = 1 << 8;
const CLIENT_FLAGS: u32 = 1 << 9;
const BINARY_KEY: u32 = 1 << 10;
const LARGE: u32 = 1 << 11;
const CHECKSUM: u32 = 1 << 12;
const VALUE_SHIFT: u32 = 13;
/// The bits of the shape that say which fields the item has.
const FIELDS_SHIFT: u32 = 8;
const OPTIONAL_FIELDS: u32 = EXPIRY | CLIENT_FLAGS | LARGE | CHECKSUM;
/// The key's offset, by those bits. Every look-up needs it, and counting bits is not one instruction on every
/// processor.
const KEY_OFFSETS: [u8; 32] = {
    let mut offsets = [0; 32];
    let mut bits = 0;
    while bits < 32 {
        let fields = (bits << FIELDS_SHIFT) & OPTIONAL_FIELDS;
        offsets[bits as usize] = HEADER_BYTES as u8 + 4 * fields.count_ones() as u8;
        bits += 1;
    }
    offsets
};
/// Values up to this length fit the shape.
const VALUE_BYTES_MAX: usize = (1 << 19) - 1;

/// Fetched since it was stored.
pub(crate) const FETCHED: u32 = 1;
/// Stale, see `Invalidate::stale`.
pub(crate) const STALE: u32 = 2;
/// The token to recompute the value was given.
pub(crate) const TOKEN: u32 = 4;
/// Unlinked, or moved: a walk of the segment need not ask the index, and a hint is known to be stale. Set after the
/// index has changed and before that is acknowledged. An item with a checksum has it also until it is complete.
pub(crate) const DEAD: u32 = 8;
const MARKS: u32 = 15;
const SECS_SHIFT: u32 = 4;

/// The parts of an item, before it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) client_flags: u32,
    pub(crate) has_expiry: bool,
    pub(crate) binary_key: bool,
    /// In a run of its own. Such an item always has an expiry field, so that a touch never has to copy it.
    pub(crate) large: bool,
    /// In a cache that is kept in a file.
    pub(crate) has_checksum: bool,
}

impl Shape {
    /// Size in memory.
    pub(crate) fn size(&self) -> usize {
        self.size_unpadded().next_multiple_of(ALIGN_BYTES)
    }

    /// Size up to the end of the value.
    pub(crate) fn size_unpadded(&self) -> usize {
        self.key_offset() + self.key_bytes + self.value_bytes
    }

    #[inline]
    fn key_offset(&self) -> usize {
        let fields = usize::from(self.has_expiry)
            + usize::from(self.client_flags != 0)
            + usize::from(self.large)
            + usize::from(self.has_checksum);
        HEADER_BYTES + 4 * fields
    }

    #[inline]
    fn word(&self) -> u32 {
        let mut word = self.key_bytes as u32;
        word |= if self.has_expiry { EXPIRY } else { 0 };
        word |= if self.client_flags != 0 { CLIENT_FLAGS } else { 0 };
        word |= if self.binary_key { BINARY_KEY } else { 0 };
        word |= if self.has_checksum { CHECKSUM } else { 0 };
        word | if self.large { LARGE } else { (self.value_bytes as u32) << VALUE_SHIFT }
    }
}

/// An item that is kept beyond guards, in a run: [`crate::ops::upload`] knows until when it may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnboundItem(NonNull<u8>);

impl UnboundItem {
    /// # Safety
    /// The memory is not reused during `'l`.
    pub(crate) unsafe fn bind<'l>(self) -> ItemRef<'l> {
        ItemRef(self.0, PhantomData)
    }
}

/// An item, readable for `'g`, the life of the guard under which it was found. Safe code cannot keep it longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemRef<'g>(NonNull<u8>, PhantomData<&'g [u8]>);

impl<'g> ItemRef<'g> {
    /// The item at an offset of the log.
    ///
    /// # Safety
    /// An item was completely written there, its offset was published to this thread, and the memory is not reused
    /// during `'g`.
    #[inline]
    pub(crate) unsafe fn at(log: &Region, offset: usize) -> Self {
        Self(log.at(offset), PhantomData)
    }

    /// The same item, without the right to read it.
    pub(crate) fn unbound(self) -> UnboundItem {
        UnboundItem(self.0)
    }

    /// Where an item of this log lies, in bytes from its start.
    pub(super) fn place(self, log: &Region) -> usize {
        self.0.addr().get() - log.base().addr().get()
    }

    /// Writes header and key of a new item at an offset of the log; the value follows by [`ItemRef::value_mut`].
    ///
    /// # Safety
    /// The caller owns `shape.size()` bytes from `offset`, and no other thread knows of them. The value fits the shape.
    #[inline(always)]
    pub(crate) unsafe fn write(
        log: &Region,
        offset: usize,
        shape: &Shape,
        key: &[u8],
        expiry: Expiry,
        now_secs: u32,
    ) -> Self {
        // The shape has eight bits for the length; a longer key would be read as another layout.
        assert!(key.len() <= crate::KEY_BYTES_MAX, "a key has at most 250 bytes");
        assert!(key.len() == shape.key_bytes, "the shape is that of the key");
        debug_assert!(shape.size() <= log.len_bytes() - offset);
        debug_assert!(shape.large || shape.value_bytes <= VALUE_BYTES_MAX);
        debug_assert!(shape.has_expiry || expiry == Expiry::NEVER);
        let item = Self(log.at(offset), PhantomData);
        // SAFETY: all writes are within `shape.size()` bytes that the caller owns; field offsets are multiples of 4
        // from an 8-byte boundary.
        unsafe {
            item.cas_word().store(0, Relaxed);
            crash_point();
            let marks = if shape.has_checksum { DEAD } else { 0 };
            item.use_word().store(now_secs << SECS_SHIFT | marks, Relaxed);
            crash_point();
            item.u32_ptr(12).write(shape.word());
            crash_point();
            let mut at = HEADER_BYTES;
            for (present, field) in [
                (shape.has_expiry, expiry.0),
                (shape.client_flags != 0, shape.client_flags),
                (shape.large, shape.value_bytes as u32),
                (shape.has_checksum, 0),
            ] {
                if present {
                    item.u32_ptr(at).write(field);
                    at += 4;
                }
            }
            let place = item.0.add(at);
            match (key.first_chunk::<16>(), key.last_chunk::<16>()) {
                // For most keys: two overlapping copies, in the time of a function call.
                (Some(head), Some(tail)) if key.len() <= 32 => {
                    place.cast().write_unaligned(*head);
                    place.add(key.len() - tail.len()).cast().write_unaligned(*tail);
                }
                _ => place.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len()),
            }
        }
        item
    }

    /// Writes a dead item over a piece of the log. At no moment does a live item seem to begin there, if none did
    /// before; and whoever sees the dead one sees what was written before it.
    ///
    /// # Safety
    /// As for [`ItemRef::write`], with `bytes` bytes: a multiple of [`ALIGN_BYTES`], from [`FILLER_BYTES_MIN`] to the
    /// size of a segment.
    pub(crate) unsafe fn write_filler(log: &Region, offset: usize, bytes: usize) {
        debug_assert!(bytes >= FILLER_BYTES_MIN && bytes <= log.len_bytes() - offset);
        let is_long = bytes - HEADER_BYTES > VALUE_BYTES_MAX;
        let shape = Shape {
            key_bytes: 0,
            value_bytes: bytes - HEADER_BYTES - if is_long { 4 } else { 0 },
            client_flags: 0,
            has_expiry: false,
            binary_key: false,
            large: is_long,
            has_checksum: false,
        };
        debug_assert_eq!(shape.size(), bytes);
        let item = Self(log.at(offset), PhantomData);
        fence(Release);
        // SAFETY: within the bytes that the caller owns.
        unsafe {
            item.use_word().store(DEAD, Relaxed);
            crash_point();
            item.set_cas(0);
            crash_point();
            if is_long {
                item.u32_ptr(HEADER_BYTES).write(shape.value_bytes as u32);
            }
            item.shape_word().store(shape.word(), Release);
        }
        crash_point();
    }

    /// Writes a copy of an item, without later changes of its marks and times.
    ///
    /// # Safety
    /// As for [`ItemRef::write`], with `self.size()` bytes.
    pub(crate) unsafe fn copy_to(self, log: &Region, offset: usize) -> Self {
        // SAFETY: by the caller's promise.
        unsafe {
            let copy = Self::write(log, offset, &self.shape(), self.key(), self.expiry(), 0);
            copy.follow(self);
            copy.value_mut(&self.shape()).copy_from_slice(self.value());
            if let (Some(copied), Some(checksum)) = (copy.checksum_word(), self.checksum_word()) {
                copied.store(checksum.load(Relaxed), Relaxed);
            }
            copy
        }
    }

    /// Copies changes that were made to the original since it was copied. Call under the original's lock, for a copy
    /// that nobody else sees yet.
    pub(crate) fn follow(self, original: Self) {
        let own_dead = self.use_word().load(Relaxed) & DEAD;
        self.use_word().store(original.use_word().load(Relaxed) & !DEAD | own_dead, Relaxed);
        self.set_cas(original.cas());
        if self.has_expiry_field() {
            self.set_expiry(original.expiry());
        }
    }

    /// The value of an item that is still being written.
    ///
    /// # Safety
    /// The caller owns the item, and the item has that shape, as in [`ItemRef::write`].
    pub(crate) unsafe fn value_mut(self, shape: &Shape) -> &'g mut [u8] {
        // SAFETY: within the item; exclusive by the caller's promise. Bytes of a recycled segment are initialised.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.0.add(shape.key_offset() + shape.key_bytes).as_ptr(),
                shape.value_bytes,
            )
        }
    }

    #[inline]
    pub(crate) fn key(self) -> &'g [u8] {
        // SAFETY: the type's invariant: key bytes are initialised, immutable, and outlive the guard.
        unsafe { std::slice::from_raw_parts(self.0.add(self.key_offset()).as_ptr(), self.key_bytes()) }
    }

    /// True if `key` is its key.
    #[inline]
    pub(crate) fn has_key(self, key: &[u8]) -> bool {
        let own = self.key();
        if own.len() != key.len() {
            return false;
        }
        // For keys of 8 to 32 bytes: two overlapping comparisons, in the time of a function call.
        match (own.first_chunk(), own.last_chunk(), key.first_chunk(), key.last_chunk()) {
            (Some(own_head), Some(own_tail), Some(head), Some(tail)) if key.len() <= 32 => {
                let differ = |a: &[u8; 16], b: &[u8; 16]| u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b);
                differ(own_head, head) | differ(own_tail, tail) == 0
            }
            _ => match (own.first_chunk(), own.last_chunk(), key.first_chunk(), key.last_chunk()) {
                (Some(own_head), Some(own_tail), Some(head), Some(tail)) if key.len() <= 16 => {
                    let differ = |a: &[u8; 8], b: &[u8; 8]| u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b);
                    differ(own_head, head) | differ(own_tail, tail) == 0
                }
                _ => own == key,
            },
        }
    }

    #[inline]
    pub(crate) fn value(self) -> &'g [u8] {
        // SAFETY: as for the key.
        unsafe {
            std::slice::from_raw_parts(
                self.0.add(self.key_offset() + self.key_bytes()).as_ptr(),
                self.value_bytes(),
            )
        }
    }

    pub(crate) fn shape(self) -> Shape {
        let word = self.word();
        Shape {
            key_bytes: self.key_bytes(),
            value_bytes: self.value_bytes(),
            client_flags: self.client_flags(),
            has_expiry: word & EXPIRY != 0,
            binary_key: word & BINARY_KEY != 0,
            large: word & LARGE != 0,
            has_checksum: word & CHECKSUM != 0,
        }
    }

    /// Size in memory.
    pub(crate) fn size(self) -> usize {
        self.size_unpadded().next_multiple_of(ALIGN_BYTES)
    }

    /// Size up to the end of the value.
    pub(crate) fn size_unpadded(self) -> usize {
        self.key_offset() + self.key_bytes() + self.value_bytes()
    }

    /// Key + value + 59, + 4 with client flags: memcached's size of an item (header 48, NUL after the key, CAS 8, CRLF
    /// after the value).
    pub(crate) fn accounted_bytes(self) -> u32 {
        accounted_bytes(self.key_bytes(), self.value_bytes(), self.client_flags()) as u32
    }

    #[inline]
    pub(crate) fn key_bytes(self) -> usize {
        (self.word() & 0xff) as usize
    }

    #[inline]
    pub(crate) fn value_bytes(self) -> usize {
        let word = self.word();
        if word & LARGE == 0 { (word >> VALUE_SHIFT) as usize } else { self.field(LARGE) as usize }
    }

    #[inline]
    pub(crate) fn client_flags(self) -> u32 {
        if self.word() & CLIENT_FLAGS == 0 { 0 } else { self.field(CLIENT_FLAGS) }
    }

    pub(crate) fn is_binary_key(self) -> bool {
        self.word() & BINARY_KEY != 0
    }

    #[inline]
    pub(crate) fn has_expiry_field(self) -> bool {
        self.word() & EXPIRY != 0
    }

    #[inline]
    pub(crate) fn expiry(self) -> Expiry {
        Expiry(if self.has_expiry_field() { self.expiry_word().load(Relaxed) } else { 0 })
    }

    /// Sets the expiry, if the item has the field.
    #[inline]
    pub(crate) fn set_expiry(self, expiry: Expiry) {
        if self.has_expiry_field() {
            self.expiry_word().store(expiry.0, Relaxed);
        }
    }

    pub(crate) fn cas(self) -> u64 {
        self.cas_word().load(Relaxed)
    }

    pub(crate) fn set_cas(self, cas: u64) {
        self.cas_word().store(cas, Relaxed);
    }

    pub(crate) fn marks(self) -> u32 {
        self.use_word().load(Relaxed) & MARKS
    }

    /// Sets and clears marks. Returns the marks before that.
    pub(crate) fn mark(self, set: u32, clear: u32) -> u32 {
        // Only `mark_dead` sets DEAD.
        let (set, clear) = (set & !DEAD, clear & !DEAD);
        let change = |word| Some((word | set) & !clear);
        match self.use_word().fetch_update(Relaxed, Relaxed, change) {
            Ok(word) | Err(word) => word & MARKS,
        }
    }

    /// Marks the item as unlinked. Under the bucket's lock, like all changes but those of a use; later uses of it do
    /// not count. Release: a thread that sees the mark, and then issues a fence, knows that the index has changed.
    ///
    /// # Safety
    /// The index does not point to it, and will not: its space may be filled once no guard can see it.
    #[inline]
    pub(super) unsafe fn mark_dead(self) {
        self.use_word().store(self.use_word().load(Relaxed) | DEAD, Release);
    }

    /// Enters the checksum of an item that is written whole, and that nobody can find yet.
    pub(crate) fn set_checksum(self, checksum: u32) {
        if let Some(word) = self.checksum_word() {
            word.store(checksum, Relaxed);
        }
    }

    /// The checksum that the item should have: of all that never changes. `seed` is the file's.
    pub(super) fn compute_checksum(self, seed: u32) -> u32 {
        let mut checksum = self.begin_checksum(seed);
        checksum.update(self.value());
        checksum.finalize()
    }

    /// The same up to where the value begins, for one that is arriving.
    pub(crate) fn begin_checksum(self, seed: u32) -> crc32fast::Hasher {
        let mut checksum = crc32fast::Hasher::new_with_initial(seed);
        let mut head = [0; 12];
        head[..4].copy_from_slice(&self.word().to_le_bytes());
        head[4..8].copy_from_slice(&self.client_flags().to_le_bytes());
        head[8..].copy_from_slice(&(self.value_bytes() as u32).to_le_bytes());
        checksum.update(&head);
        checksum.update(self.key());
        checksum
    }

    /// From here on whoever finds the item in a file takes it for whole. Call it for one that is written, before it is
    /// published.
    #[inline(always)]
    pub(super) fn complete(self) {
        if self.word() & CHECKSUM != 0 {
            crash_point();
            self.use_word().store(self.use_word().load(Relaxed) & !DEAD, Release);
            crash_point();
        }
    }

    /// Undoes [`ItemRef::complete`], as the item was not published after all.
    #[cold]
    pub(super) fn withdraw(self) {
        if self.word() & CHECKSUM != 0 {
            self.use_word().store(self.use_word().load(Relaxed) | DEAD, Release);
        }
    }

    /// Notes in an item that another of its key is about to be completed in its place. If the process ends before this
    /// one is marked dead, the other is the newer of the two. Under the bucket's lock.
    #[inline(always)]
    pub(crate) fn supersede(self) {
        if let Some(word) = self.checksum_word() {
            word.store(!word.load(Relaxed), Relaxed);
            crash_point();
        }
    }

    pub(crate) fn used_secs(self) -> u32 {
        self.use_word().load(Relaxed) >> SECS_SHIFT
    }

    /// Call for an item that is not published yet.
    pub(crate) fn set_used_secs(self, secs: u32) {
        self.use_word().store(secs << SECS_SHIFT | self.marks(), Relaxed);
    }

    /// Notes a use. Writes only at the first fetch and then once a minute, so that reading a hot item writes nothing.
    #[inline]
    pub(crate) fn note_use(self, now_secs: u32) {
        const REFRESH_SECS: u32 = 60;
        let word = self.use_word().load(Relaxed);
        if word & FETCHED == 0 || now_secs.saturating_sub(word >> SECS_SHIFT) >= REFRESH_SECS {
            let fresh = now_secs << SECS_SHIFT | word & MARKS | FETCHED;
            // Fails if another thread changed the word: that was a use, or a mark that must not be overwritten.
            let _ = self.use_word().compare_exchange(word, fresh, Relaxed, Relaxed);
        }
    }

    #[inline]
    fn word(self) -> u32 {
        // SAFETY: the shape is initialised and immutable.
        unsafe { self.u32_ptr(12).read() }
    }

    #[inline]
    fn key_offset(self) -> usize {
        KEY_OFFSETS[(self.word() >> FIELDS_SHIFT) as usize % KEY_OFFSETS.len()].into()
    }

    /// An immutable optional field that the shape says is there; fields before it in the layout have lower bits.
    #[inline]
    fn field(self, bit: u32) -> u32 {
        // SAFETY: the shape has the field; it is initialised and immutable.
        unsafe { self.u32_ptr(self.field_offset(bit)).read() }
    }

    #[inline]
    fn field_offset(self, bit: u32) -> usize {
        let before = (self.word() & OPTIONAL_FIELDS & (bit - 1)).count_ones() as usize;
        HEADER_BYTES + 4 * before
    }

    fn checksum_word(self) -> Option<&'g AtomicU32> {
        // SAFETY: 4 bytes at a 4-byte boundary; the shape has the field; only accessed as an atomic once it is written.
        (self.word() & CHECKSUM != 0)
            .then(|| unsafe { self.0.add(self.field_offset(CHECKSUM)).cast::<AtomicU32>().as_ref() })
    }

    fn shape_word(self) -> &'g AtomicU32 {
        // SAFETY: 4 bytes at a 4-byte boundary. Only a writer that owns the item asks for it.
        unsafe { self.0.add(12).cast::<AtomicU32>().as_ref() }
    }

    fn cas_word(self) -> &'g AtomicU64 {
        // SAFETY: 8 bytes at an 8-byte boundary, only accessed as an atomic.
        unsafe { self.0.cast::<AtomicU64>().as_ref() }
    }

    #[inline]
    fn use_word(self) -> &'g AtomicU32 {
        // SAFETY: 4 bytes at a 4-byte boundary, only accessed as an atomic.
        unsafe { self.0.add(8).cast::<AtomicU32>().as_ref() }
    }

    #[inline]
    fn expiry_word(self) -> &'g AtomicU32 {
        // SAFETY: as above; callers checked that the item has the field. It is the first optional field.
        unsafe { self.0.add(HEADER_BYTES).cast::<AtomicU32>().as_ref() }
    }

    /// # Safety
    /// `offset` is a multiple of 4 within the item.
    #[inline]
    unsafe fn u32_ptr(self, offset: usize) -> NonNull<u32> {
        // SAFETY: by the caller's promise.
        unsafe { self.0.add(offset).cast() }
    }
}

/// What a walk of a file finds at a place where an item should begin.
pub(crate) enum Found<'g> {
    /// No item: whatever lies behind it cannot be found.
    Nothing,
    /// Dead, or never completed. Its size.
    Dead(usize),
    /// Alive when the process ended, by its marks; whether its contents are whole only the checksum can tell.
    Alive(ItemRef<'g>),
}

/// Whether the contents of an item are those that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wholeness {
    Torn,
    Whole,
    /// Whole, and [`ItemRef::supersede`] was called.
    Superseded,
}

impl<'g> ItemRef<'g> {
    /// Examines bytes of which nothing is known but that an item should begin at `offset`, and end before `end`.
    ///
    /// # Safety
    /// The log is readable up to `end`, nobody writes there, and the memory is not reused during `'g`.
    pub(super) unsafe fn examine(log: &'g Region, offset: usize, end: usize) -> Found<'g> {
        if offset + HEADER_BYTES > end {
            return Found::Nothing;
        }
        let item = Self(log.at(offset), PhantomData);
        let key_offset = item.key_offset();
        // Before the length is read.
        if offset + key_offset > end || item.size_unpadded() > end - offset || item.size() > end - offset {
            return Found::Nothing;
        }
        let is_item = item.word() & CHECKSUM != 0
            && (1..=crate::KEY_BYTES_MAX).contains(&item.key_bytes())
            && item.cas() != 0;
        if item.marks() & DEAD != 0 || !is_item { Found::Dead(item.size()) } else { Found::Alive(item) }
    }

    /// Compares the item with its checksum.
    pub(super) fn wholeness(self, seed: u32) -> Wholeness {
        let Some(word) = self.checksum_word() else { return Wholeness::Torn };
        let (found, expected) = (word.load(Relaxed), self.compute_checksum(seed));
        match found {
            _ if found == expected => Wholeness::Whole,
            _ if found == !expected => Wholeness::Superseded,
            _ => Wholeness::Torn,
        }
    }

    /// It is in a run of its own.
    pub(super) fn is_large(self) -> bool {
        self.word() & LARGE != 0
    }
}

/// The size of an item by memcached's formula, see [`ItemRef::accounted_bytes`].
pub(crate) fn accounted_bytes(key_bytes: usize, value_bytes: usize, client_flags: u32) -> u64 {
    (key_bytes + value_bytes) as u64 + 59 + if client_flags == 0 { 0 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let log = Region::reserve_committed(1 << 16).unwrap();
        for (client_flags, has_expiry, large, key, value) in [
            (0, false, false, &b"k"[..], &b""[..]),
            (7, false, false, b"key", b"value"),
            (0, true, false, b"a longer key of some bytes", b"v"),
            (u32::MAX, true, true, &[0xff; 250], &[9; 3000]),
        ] {
            let shape = Shape {
                key_bytes: key.len(),
                value_bytes: value.len(),
                client_flags,
                has_expiry,
                binary_key: large,
                large,
                has_checksum: client_flags == 7,
            };
            let expiry = if has_expiry { Expiry::at(77) } else { Expiry::NEVER };
            // SAFETY: this test owns the region.
            let item = unsafe {
                let item = ItemRef::write(&log, 64, &shape, key, expiry, 5);
                item.value_mut(&shape).copy_from_slice(value);
                item
            };
            item.set_cas(u64::MAX - 1);
            // SAFETY: this test owns the region.
            let examine = || unsafe { ItemRef::examine(&log, 64, 1 << 16) };
            assert!(matches!(examine(), Found::Dead(bytes) if bytes == item.size()), "not complete");
            item.set_checksum(item.compute_checksum(7));
            item.complete();
            let is_found = matches!(examine(), Found::Alive(found) if found.wholeness(7) == Wholeness::Whole);
            assert_eq!(is_found, shape.has_checksum);
            assert_ne!(item.wholeness(8), Wholeness::Whole, "another file's");
            item.supersede();
            assert!(!is_found || item.wholeness(7) == Wholeness::Superseded);
            assert_eq!((item.key(), item.value()), (key, value));
            assert_eq!((item.client_flags(), item.expiry()), (client_flags, expiry));
            assert_eq!((item.cas(), item.used_secs(), item.marks()), (u64::MAX - 1, 5, 0));
            assert_eq!((item.is_binary_key(), item.shape().size()), (large, item.size()));
            assert_eq!(item.size() % ALIGN_BYTES, 0);
            assert_eq!(item.mark(STALE | TOKEN, 0), 0);
            item.note_use(9);
            assert_eq!((item.used_secs(), item.mark(0, TOKEN)), (9, STALE | TOKEN | FETCHED));
        }
    }
}
