//! A store behind the cache: what an engine tells it, and what a look-up that misses in memory then means.
//!
//! An engine with a [`Backing`] is the memory tier of a store. Each change of an item is passed to the store; an item
//! that was evicted is found there. The caller looks there, since the engine does no I/O, and repeats its request:
//! - A key that is not in memory is *unproven* absent: the operation changes nothing, and [`Guard::take_unproven`]
//!   returns true.
//! - The caller reads [`Backing::position_of`], waits until the store has applied that position, and looks the key up
//!   in the store. It puts an item that it finds into memory ([`Guard::fill`]), or says that there is none
//!   ([`Guard::assume_absent`]), both with that position.
//! - Both hold only as long as the position is still the key's newest one, which the engine checks under the lock of
//!   the key's bucket. So a change that came in between is never overlooked, and an older value never returns.
//!
//! A change takes its position under the same lock, so the positions of a key are in the order of its changes. The
//! store may be told of the change after that: [`Backing::submit`].

use std::sync::Arc;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef};
use crate::index::hash::Hash;
use crate::log::item::{ItemRef, STALE, TOKEN};
use crate::ops::upload::FirmValue;
use crate::request::{Expiry, Miss};

/// A place in the order of all changes of a store's items. Starts at 1; 0: before all changes.
pub type Position = u64;

/// The store behind an engine. Called from any thread; nothing here may wait.
pub trait Backing: Send + Sync {
    /// Changes of the keys with these hashes follow soon: what they read may be fetched from memory now.
    fn hint_changes(&self, hashes: &[Hash]) {
        let _ = hashes;
    }

    /// The next position, for a change of a key with this hash. Called under the lock of the key's bucket, and followed
    /// by [`Backing::submit`] with the same position.
    fn next_position(&self, hash: Hash) -> Position;

    /// The change at a position, which is visible to others by now.
    fn submit(&self, position: Position, change: Change<'_>);

    /// The position of the newest change of the key with this hash, or of another key, if that is newer.
    fn position_of(&self, hash: Hash) -> Position;

    /// The version (the CAS value) of an item that replaces one of version `replaced`, or none (0). Above `replaced`,
    /// and above all that were retired.
    fn version_above(&self, replaced: u64) -> u64;

    /// An item of this version leaves memory, for whatever reason: no later item of its key may have its version,
    /// though nobody will look whether there was one. Called under the lock of its bucket.
    fn retire_version(&self, version: u64);

    /// The version of this change of the key with this hash, which replaces version `replaced` in memory: for changes
    /// that others are told of, where an order of all changes of a key counts, deletions and touches included. `None`:
    /// nobody is, and [`Backing::version_above`] is asked. Called under the lock of the key's bucket, before
    /// [`Backing::next_position`].
    fn replicated_version(&self, hash: Hash, replaced: u64) -> Option<Issued> {
        let _ = (hash, replaced);
        None
    }

    /// A change of the key with this hash, which was made elsewhere, has this version: later ones are above it. Called
    /// under the lock of the key's bucket.
    fn note_version(&self, hash: Hash, version: u64) {
        let _ = (hash, version);
    }

    /// Flushes all items whose changes have lower positions than the one that is returned, which is the flush's own.
    fn flush(&self) -> Position;

    /// A flush is due at second `at` of the engine's clock, in place of one that was due before; `None`: none is. The
    /// engine calls [`Backing::flush`] then; the store keeps this over a restart.
    fn schedule_flush(&self, at: Option<u32>) -> Position;
}

/// A version that was given to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Above all that is known of the key.
    pub version: u64,
    /// What was known of it; 0: nothing.
    pub base_version: u64,
}

/// The versions of an item's two registers, beside that of the value, where changes are replicated; else zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// What the writer of the value knew of the key; 0: it is not known.
    pub base_version: u64,
    /// Of the expiry: above the item's version if a touch was the last change.
    pub expiry_version: u64,
}

/// A change of an item.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// It is this from now on.
    Put {
        /// The item.
        kept: Kept<'a>,
        /// Its memory.
        pinnable: Pinnable<'a>,
        /// What memory had until then, if that was neither expired nor flushed. `None` says nothing of the store.
        replaced: Option<Replaced>,
        /// The versions of its registers.
        registers: Registers,
    },
    /// It is gone.
    Delete {
        /// Its key.
        key: &'a [u8],
        /// Its own, if changes are replicated; else the version that the item had.
        version: u64,
        /// As of [`Registers`].
        base_version: u64,
    },
}

/// An item as its store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Opaque.
    pub client_flags: u32,
    /// When it expires.
    pub expiry: Expiry,
    /// The CAS value.
    pub version: u64,
    /// Marked stale ([`crate::Invalidate::stale`]).
    pub is_stale: bool,
    /// Somebody has the token to recompute it ([`crate::Token`]).
    pub is_token_held: bool,
    /// Its key came in base64.
    pub is_binary_key: bool,
}

/// An item that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Of its value.
    pub value_bytes: u32,
    /// When it would have expired.
    pub expiry: Expiry,
}

impl Replaced {
    pub(crate) fn of(item: ItemRef<'_>) -> Self {
        Self { value_bytes: item.value_bytes() as u32, expiry: item.expiry() }
    }
}

/// The memory of an item that was put.
#[derive(Clone, Copy)]
pub struct Pinnable<'a> {
    engine: &'a Arc<Engine>,
    item: ItemRef<'a>,
}

impl Pinnable<'_> {
    /// The value, to be kept readable without a copy. `None`: copy it. It is small, or a quarter of the memory is kept
    /// so already.
    pub fn pin(&self) -> Option<FirmValue> {
        FirmValue::new(self.engine, self.item)
    }
}

impl std::fmt::Debug for Pinnable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinnable").finish_non_exhaustive()
    }
}

/// What became of an item that was read from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// It is in memory, for now.
    Filled,
    /// The key was changed meanwhile, or is in memory already: look it up again.
    Changed,
    /// There is no memory for it.
    OutOfMemory,
    /// Memory is being reclaimed: drop the guard, pin a new one, try again.
    TryAgain,
}

/// A change that has its position, and of which the store is not told yet.
struct Sequenced<'t> {
    position: Position,
    change: Change<'t>,
}

/// What the store is to be told once the bucket is unlocked: [`Guard::submit`]. Nothing without a store.
#[must_use]
#[derive(Default)]
pub(crate) struct Unsubmitted<'t> {
    change: Option<Sequenced<'t>>,
    /// The deletion of the same key by a flush that overtook the change.
    deletion: Option<Sequenced<'t>>,
}

impl Guard<'_> {
    /// True if a store is behind the engine.
    pub fn is_backed(&self) -> bool {
        self.engine().backing.is_some()
    }

    /// Whether an operation since the last call met a key that is not in memory, and may be in the store: its result
    /// says nothing, and nothing was changed.
    pub fn take_unproven(&self) -> bool {
        self.unproven.take()
    }

    /// Under this guard the key with this hash counts as absent from the store, as it was at this position.
    pub fn assume_absent(&self, hash: Hash, position: Position) {
        self.absent.set(Some((hash, position)));
    }

    /// Takes back [`Guard::assume_absent`].
    pub(crate) fn forget_absent(&self) {
        self.absent.set(None);
    }

    /// The highest position that a result under this guard depends on: of a change that it made, or of one that it
    /// showed and that may not be durable yet. 0: none.
    pub fn position(&self) -> Position {
        self.position.get()
    }

    /// Resets the position: later results under this guard depend only on changes that they make or show themselves.
    pub fn forget_position(&self) {
        self.position.set(0);
    }

    /// Notes that a result depends on a position.
    pub fn note_position(&self, position: Position) {
        self.position.set(self.position.get().max(position));
    }

    /// Drops an item from memory, as if it had been evicted: what the store has counts again.
    pub fn drop_from_memory(&self, key: &[u8], hash: Hash) {
        let bucket = self.engine().index.lock(self.pinned(), hash);
        if let Some(found) = self.find_locked(&bucket, key, hash) {
            self.unlink(&bucket, found);
        }
    }

    /// Deletes a key from memory and from the store, whether it is there or not.
    pub fn remove(&self, key: &[u8], hash: Hash) {
        let bucket = self.engine().index.lock(self.pinned(), hash);
        let version = match self.find_locked(&bucket, key, hash) {
            Some(found) => {
                let version = self.item_ref(&found).cas();
                self.unlink(&bucket, found);
                version
            }
            None => 0,
        };
        let unsubmitted = Unsubmitted { change: self.sequenced_delete(hash, key, version), deletion: None };
        drop(bucket);
        self.submit(unsubmitted);
    }

    /// Gives a change of this key which was made elsewhere its position, if that of its newest change is still
    /// `position`, and drops the key from memory. The caller submits the change to its store, in any case. `version`:
    /// the highest of the change. `None`: the key has changed meanwhile.
    pub fn overtake(&self, key: &[u8], hash: Hash, position: Position, version: u64) -> Option<Position> {
        let backing = self.engine().backing.as_ref()?;
        let bucket = self.engine().index.lock(self.pinned(), hash);
        if backing.position_of(hash) != position {
            return None;
        }
        backing.note_version(hash, version);
        let position = backing.next_position(hash);
        if let Some(found) = self.find_locked(&bucket, key, hash) {
            self.unlink(&bucket, found);
        }
        Some(position)
    }

    /// Notes that the state of a key is shown to a client.
    #[inline]
    pub(crate) fn note_shown(&self, hash: Hash) {
        if let Some(backing) = &self.engine().backing {
            self.note_position(backing.position_of(hash));
        }
    }

    /// Notes that a key is not in memory, and whether that says anything.
    #[inline]
    pub(crate) fn note_absent(&self, hash: Hash) {
        if self.is_backed() {
            self.note_absent_from_memory(hash);
        }
    }

    /// Notes why an item in memory is dead. A flush may be lost on its way to the store: what the store has says
    /// whether the item is gone.
    #[inline]
    pub(crate) fn note_dead(&self, hash: Hash, miss: Miss) {
        if miss == Miss::Flushed {
            self.note_absent(hash);
        }
    }

    #[cold]
    fn note_absent_from_memory(&self, hash: Hash) {
        let Some(backing) = &self.engine().backing else { return };
        let position = backing.position_of(hash);
        self.note_position(position);
        if self.absent.get() != Some((hash, position)) {
            self.unproven.set(true);
        }
    }

    /// True if a key that is not in memory is not in the store either. Call under the lock of its bucket.
    pub(crate) fn is_proven_absent(&self, hash: Hash) -> bool {
        match &self.engine().backing {
            None => true,
            Some(backing) => self.absent.get() == Some((hash, backing.position_of(hash))),
        }
    }

    /// Gives a change of an item its position. Call under the lock of the item's bucket, after the change. `replaced`
    /// is of the moment before the change.
    #[inline]
    pub(crate) fn sequence<'t>(
        &'t self,
        bucket: &Bucket<'t>,
        hash: Hash,
        replaced: Option<Replaced>,
        found: impl FnOnce() -> Option<SlotRef<'t>>,
    ) -> Unsubmitted<'t> {
        match self.engine().backing {
            None => Unsubmitted::default(),
            Some(_) => found()
                .map_or_else(Unsubmitted::default, |found| self.sequence_put(bucket, hash, replaced, found)),
        }
    }

    fn sequence_put<'t>(
        &'t self,
        bucket: &Bucket<'t>,
        hash: Hash,
        replaced: Option<Replaced>,
        found: SlotRef<'t>,
    ) -> Unsubmitted<'t> {
        let (engine, item) = (self.engine(), self.item_ref(&found));
        let segment_ref = engine.arena.segments.segment_ref_at(found.entry.offset());
        let registers = self.registers(hash, item);
        let pinnable = Pinnable { engine: &self.handle.engine, item };
        let change = self.sequenced(hash, Change::Put { kept: kept(item), pinnable, replaced, registers });
        // The order of the two is open until here: the change counts as the earlier one.
        let deletion = engine.is_flushing(segment_ref).then(|| {
            self.unlink(bucket, found);
            // Where changes are replicated a flush means older versions, and the store tells which the item is.
            let is_replicated = registers.expiry_version != 0;
            if is_replicated { None } else { self.sequenced_delete(hash, item.key(), item.cas()) }
        });
        Unsubmitted { change, deletion: deletion.flatten() }
    }

    /// The same for an item that was unlinked.
    pub(crate) fn sequence_delete<'t>(&self, hash: Hash, item: ItemRef<'t>) -> Unsubmitted<'t> {
        Unsubmitted { change: self.sequenced_delete(hash, item.key(), item.cas()), deletion: None }
    }

    fn sequenced_delete<'t>(&self, hash: Hash, key: &'t [u8], replaced: u64) -> Option<Sequenced<'t>> {
        let issued = self.engine().backing.as_ref()?.replicated_version(hash, replaced);
        let Issued { version, base_version } =
            issued.unwrap_or(Issued { version: replaced, base_version: 0 });
        self.sequenced(hash, Change::Delete { key, version, base_version })
    }

    /// What this change wrote: a value, if its version was just given; else the expiry, or a mark, alone.
    fn registers(&self, hash: Hash, item: ItemRef<'_>) -> Registers {
        if let Some(Issued { version, base_version }) = self.issued.take()
            && version == item.cas()
        {
            return Registers { base_version, expiry_version: version };
        }
        let issued =
            self.engine().backing.as_ref().and_then(|backing| backing.replicated_version(hash, item.cas()));
        Registers { base_version: 0, expiry_version: issued.map_or(0, |issued| issued.version) }
    }

    fn sequenced<'t>(&self, hash: Hash, change: Change<'t>) -> Option<Sequenced<'t>> {
        let position = self.engine().backing.as_ref()?.next_position(hash);
        self.note_position(position);
        Some(Sequenced { position, change })
    }

    /// Tells the store of changes. Call without a lock.
    #[inline]
    pub(crate) fn submit(&self, Unsubmitted { change, deletion }: Unsubmitted<'_>) {
        if let Some(backing) = &self.engine().backing {
            for Sequenced { position, change } in [change, deletion].into_iter().flatten() {
                backing.submit(position, change);
            }
        }
    }
}

fn kept(item: ItemRef<'_>) -> Kept<'_> {
    let marks = item.marks();
    Kept {
        key: item.key(),
        value: item.value(),
        client_flags: item.client_flags(),
        expiry: item.expiry(),
        version: item.cas(),
        is_stale: marks & STALE != 0,
        is_token_held: marks & TOKEN != 0,
        is_binary_key: item.is_binary_key(),
    }
}
