//! The index: for each key that has a record, where the newest one is.
//!
//! 14 bytes a slot, in 1,024 shards with a lock each: 14 / (7/8 x 0.9) = 18 bytes a key on average. A shard grows by a
//! quarter at a time, alone, so no call waits for more than a thousandth of the index to be copied. Where the usage of
//! prefixes is counted, a slot has 2 bytes more.
//!
//! What an entry says beside the place: is the newest record a deletion (a *tombstone*), and how many older puts of the
//! key lie somewhere on the disk (*stale* ones). A tombstone is needed as long as there are any, and not longer:
//! without it, the next opening would find one of them newest. In a replicated store all tombstones stay until cleaning
//! is told that no other site needs them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::account::Account;
use super::digest::{Digest, SHARD_BITS};

/// Segments at one time, less one: slot 0 is none.
pub(super) const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// Where a record may begin at most, in its file.
pub(super) const START_BYTES_MAX: u64 = 1 << (OFFSET_BITS + 3);

const OFFSET_BITS: u32 = 23;
const SLOT_BITS: u32 = 20;
const CLASS_BITS: u32 = 5;
const STALE_BITS: u32 = 2;
const LOW_TAG_BITS: u32 = 12;

const SLOT_SHIFT: u32 = OFFSET_BITS;
const CLASS_SHIFT: u32 = SLOT_SHIFT + SLOT_BITS;
const TOMBSTONE_SHIFT: u32 = CLASS_SHIFT + CLASS_BITS;
const DEAD_SHIFT: u32 = TOMBSTONE_SHIFT + 1;
const STALE_SHIFT: u32 = DEAD_SHIFT + 1;
const LOW_TAG_SHIFT: u32 = STALE_SHIFT + STALE_BITS;

/// A shard's stale counts from here on are in a map of their own.
const STALE_MAX: u64 = (1 << STALE_BITS) - 1;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// The segment's slot in the table, at least 1.
    pub(super) slot: u32,
    /// In bytes, a multiple of 8, below [`START_BYTES_MAX`].
    pub(super) offset: u64,
}

/// About how long a record is: the smallest class that is not below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizeClass(pub(super) u8);

impl SizeClass {
    /// Longer than all other classes: nobody knows how long.
    pub(super) const LARGEST: Self = Self((1 << CLASS_BITS) - 1);

    pub(super) fn of(bytes: usize) -> Self {
        (0..Self::LARGEST.0).map(Self).find(|class| class.bytes() >= bytes).unwrap_or(Self::LARGEST)
    }

    /// 64, 96, 128, 192, 256 and so on, up to 2 MiB.
    pub(super) fn bytes(self) -> usize {
        let octave = 64 << (self.0 / 2);
        if self.0.is_multiple_of(2) { octave } else { octave / 2 * 3 }
    }
}

/// What the index knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) location: Location,
    pub(super) class: SizeClass,
    /// The newest record says that there is no item.
    pub(super) tombstone: bool,
    /// The newest record is a put that is known to have been flushed, or to have expired.
    pub(super) dead: bool,
    /// Of a live put, where prefixes are counted.
    pub(super) account: Account,
}

impl IndexEntry {
    /// True if there may be an item.
    pub(super) fn is_live(&self) -> bool {
        !self.tombstone && !self.dead
    }

    fn pack(&self, tag: u64, stale: u64) -> u64 {
        (self.location.offset >> 3)
            | u64::from(self.location.slot) << SLOT_SHIFT
            | u64::from(self.class.0) << CLASS_SHIFT
            | u64::from(self.tombstone) << TOMBSTONE_SHIFT
            | u64::from(self.dead) << DEAD_SHIFT
            | stale.min(STALE_MAX) << STALE_SHIFT
            | tag << LOW_TAG_SHIFT
    }

    fn unpack(word: u64) -> Self {
        let bits = |shift: u32, count: u32| word >> shift & ((1 << count) - 1);
        Self {
            location: Location {
                slot: bits(SLOT_SHIFT, SLOT_BITS) as u32,
                offset: bits(0, OFFSET_BITS) << 3,
            },
            class: SizeClass(bits(CLASS_SHIFT, CLASS_BITS) as u8),
            tombstone: bits(TOMBSTONE_SHIFT, 1) == 1,
            dead: bits(DEAD_SHIFT, 1) == 1,
            account: Account::NONE,
        }
    }
}

/// Open addressing with linear probing. A slot is free if its word is 0.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Place, marks, stale count, and 12 bits of the tag.
    words: Vec<u64>,
    /// The 32 bits of the tag that choose the first slot.
    highs: Vec<u32>,
    /// 16 bits of the tag.
    middles: Vec<u16>,
    len: usize,
    /// Stale counts that do not fit the word.
    stale: BTreeMap<u64, u32>,
    /// Of each slot the sequence of its record: during recovery only.
    sequences: Vec<u64>,
    keeps_sequences: bool,
    /// Of each slot, where prefixes are counted.
    accounts: Vec<u16>,
    keeps_accounts: bool,
}

impl Shard {
    /// Of an encoded one, before its arrays.
    pub(super) const HEAD_BYTES: usize = 16;

    fn high(tag: u64) -> u32 {
        (tag >> 28) as u32
    }

    fn middle(tag: u64) -> u16 {
        (tag >> LOW_TAG_BITS) as u16
    }

    fn tag(&self, slot: usize) -> u64 {
        u64::from(self.highs[slot]) << 28
            | u64::from(self.middles[slot]) << LOW_TAG_BITS
            | self.words[slot] >> LOW_TAG_SHIFT
    }

    fn home(&self, high: u32) -> usize {
        ((u64::from(high) * self.words.len() as u64) >> 32) as usize
    }

    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.words.len() { 0 } else { slot + 1 }
    }

    /// The slot of this tag, or the free one where its search ended.
    fn search(&self, tag: u64) -> std::result::Result<usize, usize> {
        let (high, middle, low) = (Self::high(tag), Self::middle(tag), tag & ((1 << LOW_TAG_BITS) - 1));
        let mut slot = self.home(high);
        loop {
            let word = self.words[slot];
            if word == 0 {
                return Err(slot);
            }
            if self.highs[slot] == high && self.middles[slot] == middle && word >> LOW_TAG_SHIFT == low {
                return Ok(slot);
            }
            slot = self.next(slot);
        }
    }

    fn slot_of(&self, tag: u64) -> Option<usize> {
        if self.words.is_empty() { None } else { self.search(tag).ok() }
    }

    pub(super) fn get(&self, tag: u64) -> Option<IndexEntry> {
        self.slot_of(tag).map(|slot| self.entry(slot))
    }

    fn entry(&self, slot: usize) -> IndexEntry {
        let account = self.accounts.get(slot).map_or(Account::NONE, |&account| Account(account));
        IndexEntry { account, ..IndexEntry::unpack(self.words[slot]) }
    }

    /// Older puts of this key on the disk.
    pub(super) fn stale(&self, tag: u64) -> u64 {
        self.slot_of(tag).map_or(0, |slot| self.stale_in(slot, tag))
    }

    fn stale_in(&self, slot: usize, tag: u64) -> u64 {
        match self.words[slot] >> STALE_SHIFT & STALE_MAX {
            STALE_MAX => u64::from(self.stale.get(&tag).copied().unwrap_or(STALE_MAX as u32)),
            few => few,
        }
    }

    fn write(&mut self, slot: usize, tag: u64, entry: &IndexEntry, stale: u64) {
        self.words[slot] = entry.pack(tag, stale);
        if self.keeps_accounts {
            self.accounts[slot] = entry.account.0;
        }
        if stale >= STALE_MAX {
            self.stale.insert(tag, u32::try_from(stale).unwrap_or(u32::MAX));
        } else if !self.stale.is_empty() {
            self.stale.remove(&tag);
        }
    }

    /// The key's newest record is now this one; what was there before becomes a stale put if it was a put. Returns it.
    /// A deletion of what is not there leaves no entry, unless it `keeps_tombstones`.
    pub(super) fn put(&mut self, tag: u64, entry: &IndexEntry, keeps_tombstones: bool) -> Option<IndexEntry> {
        self.reserve();
        match self.search(tag) {
            Ok(slot) => {
                let before = self.entry(slot);
                let stale = self.stale_in(slot, tag) + u64::from(!before.tombstone);
                self.write(slot, tag, entry, stale);
                Some(before)
            }
            Err(slot) => {
                if !entry.tombstone || keeps_tombstones {
                    self.insert(slot, tag, entry, 0, 0);
                }
                None
            }
        }
    }

    /// The newest record was copied to another place. If it still is the newest, the copy takes over, its account too,
    /// unless it is a tombstone; returns what was there. What of the two is then not named is a stale put, if it is a
    /// put.
    pub(super) fn relocate(&mut self, tag: u64, from: Location, to: &IndexEntry) -> Option<IndexEntry> {
        let slot = self.slot_of(tag)?;
        let now = self.entry(slot);
        let is_moved = now.location == from;
        let leaves_put = if is_moved { !now.tombstone } else { !to.tombstone };
        let stale = self.stale_in(slot, tag) + u64::from(leaves_put);
        let account = if is_moved && to.tombstone { Account::NONE } else { now.account };
        let named = if is_moved { to } else { &now };
        self.write(slot, tag, &IndexEntry { account, ..*named }, stale);
        is_moved.then_some(now)
    }

    /// Removes the entry if it still is of this place.
    pub(super) fn remove_at(&mut self, tag: u64, location: Location) -> Option<IndexEntry> {
        let slot = self.slot_of(tag)?;
        let entry = self.entry(slot);
        if entry.location != location {
            return None;
        }
        self.remove(slot, tag);
        Some(entry)
    }

    /// The newest record is a put that was flushed or has expired, if it still is the newest and this was not known.
    /// Returns what was there.
    pub(super) fn mark_dead(&mut self, tag: u64, location: Location) -> Option<IndexEntry> {
        let slot = self.slot_of(tag)?;
        let entry = self.entry(slot);
        if entry.location != location || !entry.is_live() {
            return None;
        }
        let stale = self.stale_in(slot, tag);
        self.write(slot, tag, &IndexEntry { dead: true, account: Account::NONE, ..entry }, stale);
        Some(entry)
    }

    /// The record is counted from now on, if it still is the newest, and was not. False: it is not.
    pub(super) fn set_account(&mut self, tag: u64, location: Location, account: Account) -> bool {
        let Some(slot) = self.slot_of(tag) else { return false };
        let entry = self.entry(slot);
        if entry.location != location || !entry.is_live() || !entry.account.is_none() || !self.keeps_accounts
        {
            return false;
        }
        self.accounts[slot] = account.0;
        true
    }

    /// Forgets all accounts; from now on there are some, or none.
    fn reset_accounts(&mut self, keeps_accounts: bool) {
        self.accounts = if keeps_accounts { vec![0; self.words.len()] } else { Vec::new() };
        self.keeps_accounts = keeps_accounts;
    }

    /// A stale put is gone from the disk. Returns the tombstone that keeps nothing from coming back any more; it is
    /// gone from the index, unless it `keeps_tombstones`.
    pub(super) fn forget_stale(&mut self, tag: u64, keeps_tombstones: bool) -> Option<IndexEntry> {
        let slot = self.slot_of(tag)?;
        let entry = self.entry(slot);
        let stale = self.stale_in(slot, tag).saturating_sub(1);
        let is_needless = stale == 0 && entry.tombstone;
        if is_needless && !keeps_tombstones {
            self.remove(slot, tag);
        } else {
            self.write(slot, tag, &entry, stale);
        }
        is_needless.then_some(entry)
    }

    /// One record found on the disk, in any order.
    pub(super) fn recover(&mut self, tag: u64, entry: &IndexEntry, sequence: u64) {
        self.reserve();
        match self.search(tag) {
            Ok(slot) => {
                let other = IndexEntry::unpack(self.words[slot]);
                let stale = self.stale_in(slot, tag);
                // Of two with one sequence (cleaning made one of the other), a tombstone counts: the put had expired.
                let is_newer = (sequence, entry.tombstone) > (self.sequences[slot], other.tombstone);
                let older_is_put = if is_newer { !other.tombstone } else { !entry.tombstone };
                let newest = if is_newer { *entry } else { other };
                self.write(slot, tag, &newest, stale + u64::from(older_is_put));
                self.sequences[slot] = self.sequences[slot].max(sequence);
            }
            Err(slot) => self.insert(slot, tag, entry, 0, sequence),
        }
    }

    fn insert(&mut self, slot: usize, tag: u64, entry: &IndexEntry, stale: u64, sequence: u64) {
        self.highs[slot] = Self::high(tag);
        self.middles[slot] = Self::middle(tag);
        self.write(slot, tag, entry, stale);
        if self.keeps_sequences {
            self.sequences[slot] = sequence;
        }
        self.len += 1;
    }

    /// Room for one more.
    fn reserve(&mut self) {
        if (self.len + 1) * 8 > self.words.len() * 7 {
            self.resize((self.words.len() * 5 / 4).max(8));
        }
    }

    fn resize(&mut self, slots: usize) {
        let mut larger = Self {
            words: vec![0; slots],
            highs: vec![0; slots],
            middles: vec![0; slots],
            sequences: if self.keeps_sequences { vec![0; slots] } else { Vec::new() },
            accounts: if self.keeps_accounts { vec![0; slots] } else { Vec::new() },
            stale: std::mem::take(&mut self.stale),
            len: self.len,
            keeps_sequences: self.keeps_sequences,
            keeps_accounts: self.keeps_accounts,
        };
        for slot in (0..self.words.len()).filter(|&slot| self.words[slot] != 0) {
            if let Err(free) = larger.search(self.tag(slot)) {
                larger.move_in(free, self, slot);
            }
        }
        *self = larger;
    }

    fn move_in(&mut self, to: usize, from: &Self, slot: usize) {
        self.words[to] = from.words[slot];
        self.highs[to] = from.highs[slot];
        self.middles[to] = from.middles[slot];
        if self.keeps_sequences {
            self.sequences[to] = from.sequences[slot];
        }
        if self.keeps_accounts {
            self.accounts[to] = from.accounts[slot];
        }
    }

    /// Frees a slot, and moves later ones up so that their search still finds them (Knuth 6.4, algorithm R).
    fn remove(&mut self, mut hole: usize, tag: u64) {
        self.stale.remove(&tag);
        let mut slot = hole;
        loop {
            slot = self.next(slot);
            if self.words[slot] == 0 {
                break;
            }
            let home = self.home(self.highs[slot]);
            // Is the home cyclically in (hole, slot]? Then the entry may not move before it.
            let stays = if hole <= slot { hole < home && home <= slot } else { hole < home || home <= slot };
            if !stays {
                self.words[hole] = self.words[slot];
                self.highs[hole] = self.highs[slot];
                self.middles[hole] = self.middles[slot];
                if self.keeps_sequences {
                    self.sequences[hole] = self.sequences[slot];
                }
                if self.keeps_accounts {
                    self.accounts[hole] = self.accounts[slot];
                }
                hole = slot;
            }
        }
        self.words[hole] = 0;
        self.len -= 1;
    }

    /// All entries with their tags.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, IndexEntry)> + '_ {
        (0..self.words.len())
            .filter(|&slot| self.words[slot] != 0)
            .map(|slot| (self.tag(slot), self.entry(slot)))
    }

    /// Removes the tombstones that keep nothing from coming back, unless it `keeps_tombstones`, and forgets the
    /// sequences.
    fn finish_recovery(&mut self, keeps_tombstones: bool) {
        let needless: Vec<u64> = self
            .entries()
            .filter(|(tag, entry)| !keeps_tombstones && entry.tombstone && self.stale(*tag) == 0)
            .map(|(tag, _)| tag)
            .collect();
        for tag in needless {
            if let Some(slot) = self.slot_of(tag) {
                self.remove(slot, tag);
            }
        }
        self.keeps_sequences = false;
        self.sequences = Vec::new();
    }

    pub(super) fn keeps_accounts(&self) -> bool {
        self.keeps_accounts
    }

    fn memory_bytes(&self) -> usize {
        self.words.capacity() * 8
            + self.highs.capacity() * 4
            + (self.middles.capacity() + self.accounts.capacity()) * 2
            + self.stale.len() * 24
    }

    /// For the snapshot: slots, entries, large stale counts, whether there are accounts; the arrays, the counts.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.words.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.len as u32).to_le_bytes());
        out.extend_from_slice(&(self.stale.len() as u32).to_le_bytes());
        out.extend_from_slice(&u32::from(self.keeps_accounts).to_le_bytes());
        out.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(self.highs.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(self.middles.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(self.accounts.iter().flat_map(|word| word.to_le_bytes()));
        for (tag, count) in &self.stale {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
    }

    /// What `encode` wrote, and how many bytes that was. `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let layout = ShardLayout::of(bytes)?;
        let ShardLayout { slots, len, keeps_accounts, .. } = layout;
        let end = layout.bytes()?;
        let words_end = Self::HEAD_BYTES + slots * 8;
        let highs_end = words_end + slots * 4;
        let middles_end = highs_end + slots * 2;
        let accounts_end = middles_end + if keeps_accounts { slots * 2 } else { 0 };
        let halves = |range: Range<usize>| -> Option<Vec<u16>> {
            let chunks = bytes.get(range)?.as_chunks().0;
            Some(chunks.iter().map(|chunk| u16::from_le_bytes(*chunk)).collect())
        };
        let words: Vec<u64> = bytes
            .get(Self::HEAD_BYTES..words_end)?
            .as_chunks()
            .0
            .iter()
            .map(|chunk| u64::from_le_bytes(*chunk))
            .collect();
        let highs = bytes
            .get(words_end..highs_end)?
            .as_chunks()
            .0
            .iter()
            .map(|chunk| u32::from_le_bytes(*chunk))
            .collect();
        let (middles, accounts) = (halves(highs_end..middles_end)?, halves(middles_end..accounts_end)?);
        let stale = (bytes.get(accounts_end..end)?.as_chunks::<12>().0.iter())
            .map(|chunk| (super::record::u64_at(chunk, 0), super::record::u32_at(chunk, 8)))
            .collect();
        // A search ends at a free slot, so there must be one.
        let used = words.iter().filter(|&&word| word != 0).count();
        if used != len {
            return None;
        }
        let shard = Self { words, highs, middles, len, stale, accounts, keeps_accounts, ..Self::default() };
        Some((shard, end))
    }
}

/// What the head of an encoded shard says.
#[derive(Clone, Copy)]
pub(super) struct ShardLayout {
    pub(super) slots: usize,
    /// Entries: fewer than slots, since a search ends at a free one.
    len: usize,
    /// Large stale counts, at most one of each entry.
    stale_count: usize,
    keeps_accounts: bool,
}

impl ShardLayout {
    /// `None`: no shard is like this.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<{ Shard::HEAD_BYTES }>()?;
        let number = |at: usize| super::record::u32_at(head, at) as usize;
        let keeps_accounts = number(12) == 1;
        let layout = Self { slots: number(0), len: number(4), stale_count: number(8), keeps_accounts };
        let has_free_slot = layout.len < layout.slots || layout.slots == 0;
        (has_free_slot && layout.stale_count <= layout.len && layout.len <= layout.slots).then_some(layout)
    }

    /// Of the whole shard.
    pub(super) fn bytes(self) -> Option<usize> {
        let arrays = self.slots.checked_mul(if self.keeps_accounts { 16 } else { 14 })?;
        arrays.checked_add(self.stale_count.checked_mul(12)?)?.checked_add(Shard::HEAD_BYTES)
    }
}

/// All shards.
#[derive(Debug)]
pub(super) struct Index {
    shards: Box<[RwLock<Shard>]>,
}

impl Index {
    /// Empty. `recovering`: records will come in any order.
    pub(super) fn new(recovering: bool) -> Self {
        let shard = || RwLock::new(Shard { keeps_sequences: recovering, ..Shard::default() });
        Self { shards: (0..1 << SHARD_BITS).map(|_| shard()).collect() }
    }

    pub(super) fn from_shards(shards: Vec<Shard>) -> Option<Self> {
        (shards.len() == 1 << SHARD_BITS)
            .then(|| Self { shards: shards.into_iter().map(RwLock::new).collect() })
    }

    pub(super) fn read(&self, digest: Digest) -> RwLockReadGuard<'_, Shard> {
        self.shards[usize::from(digest.shard)].read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, digest: Digest) -> RwLockWriteGuard<'_, Shard> {
        self.shards[usize::from(digest.shard)].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shards in order, each locked while it is looked at.
    pub(super) fn shards(&self) -> impl Iterator<Item = RwLockReadGuard<'_, Shard>> {
        self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// See [`Shard::reset_accounts`]. Nobody may change the index meanwhile.
    pub(super) fn reset_accounts(&self, keeps_accounts: bool) {
        for shard in &self.shards {
            shard.write().unwrap_or_else(PoisonError::into_inner).reset_accounts(keeps_accounts);
        }
    }

    pub(super) fn finish_recovery(&self, keeps_tombstones: bool) {
        for shard in &self.shards {
            shard.write().unwrap_or_else(PoisonError::into_inner).finish_recovery(keeps_tombstones);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.shards().map(|shard| shard.memory_bytes() + size_of::<RwLock<Shard>>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn entry(offset: u64) -> IndexEntry {
        let location = Location { slot: 1, offset: offset * 8 };
        let account = Account(offset as u16);
        IndexEntry { location, class: SizeClass::of(100), tombstone: false, dead: false, account }
    }

    /// Random puts and removals against a map; tags that share first slots, too.
    #[test]
    fn equals_a_map() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut shard = Shard::default();
        shard.reset_accounts(true);
        let mut map = HashMap::new();
        for step in 0..200_000_u64 {
            let tag = random.u64(0..2_000) << (48 * random.u64(0..2) / 2);
            if random.u32(0..5) < 3 {
                let new = entry(step);
                let before = shard.put(tag, &new, false);
                assert_eq!(before, map.insert(tag, new));
            } else if let Some(known) = map.remove(&tag) {
                assert_eq!(shard.remove_at(tag, known.location), Some(known));
            } else {
                assert_eq!(shard.remove_at(tag, entry(step).location), None);
            }
            assert_eq!(shard.len, map.len());
            let probe = random.u64(0..2_000) << 24;
            assert_eq!(shard.get(probe), map.get(&probe).copied());
        }
        let mut encoded = Vec::new();
        shard.encode(&mut encoded);
        let (decoded, bytes) = Shard::decode(&encoded).expect("what encode wrote");
        assert_eq!(bytes, encoded.len());
        assert!(map.iter().all(|(&tag, &entry)| decoded.get(tag) == Some(entry)));
    }

    #[test]
    fn counts_stale_puts() {
        let mut shard = Shard::default();
        for offset in 1..=10 {
            shard.put(7, &entry(offset), false);
        }
        assert_eq!(shard.stale(7), 9);
        shard.put(7, &IndexEntry { tombstone: true, ..entry(11) }, false);
        assert_eq!(shard.stale(7), 10);
        for left in (1..10).rev() {
            assert_eq!(shard.forget_stale(7, false), None);
            assert_eq!(shard.stale(7), left);
        }
        assert!(shard.forget_stale(7, false).is_some(), "the last older put is gone, so the tombstone goes");
        assert_eq!(shard.get(7), None);
    }

    #[test]
    fn classes_hold_what_they_are_of() {
        for bytes in [1, 64, 65, 96, 97, 1_100, 65_536, 2 << 20] {
            let class = SizeClass::of(bytes);
            assert!(class.bytes() >= bytes && (class.0 == 0 || SizeClass(class.0 - 1).bytes() < bytes));
        }
        assert_eq!(SizeClass::of(1 << 30), SizeClass::LARGEST);
        assert_eq!(SizeClass(30).bytes(), 2 << 20);
    }
}
