//! All changes that write a new item go through [`Guard::change`]: look up the old item, decide, write the new item
//! where nobody sees it, lock the bucket, verify that the old item is unchanged, point the index to the new one.

use std::sync::atomic::Ordering::Relaxed;

use crate::handle::Guard;
use crate::index::buckets::{Bucket, SlotRef};
use crate::index::hash::Hash;
use crate::log::allocator::WriteStream;
use crate::log::fresh::FreshItem;
use crate::log::item::{FETCHED, ItemRef, Shape, accounted_bytes};
use crate::log::offset::Offset;
use crate::log::segment::{LARGE, SMALL, SegmentRef};
use crate::ops::backing::{Backing, Replaced};
use crate::ops::digits::Digits;
use crate::ops::get::Lookup;
use crate::ops::prefetch::LookupHint;
use crate::ops::upload::Upload;
use crate::request::{Expiry, Miss, WriteError};

/// What to do with a key.
pub(crate) enum Plan<'a, R> {
    /// Change nothing, and return this.
    Answer(R),
    /// Write a new item.
    Write(New<'a>),
}

/// What a change needs to know of the key, where a store is behind the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Nothing: it replaces whatever is there.
    Replace,
    /// The item that is there, or that there is none.
    Update,
    /// That the store has nothing newer: it puts an item of the store into memory, which changes nothing.
    Fill,
}

/// The new item.
pub(crate) struct New<'a> {
    pub(crate) body: Body<'a>,
    pub(crate) client_flags: u32,
    pub(crate) expiry: NewExpiry,
    pub(crate) cas: NewCas,
    /// Marks to set, and marks to copy from the old item.
    pub(crate) marks: u32,
    pub(crate) marks_kept: u32,
    pub(crate) binary_key: bool,
}

pub(crate) enum Body<'a> {
    Join(&'a [u8], &'a [u8]),
    Number(Digits),
    /// The value is in the upload already.
    Uploaded,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum NewExpiry {
    Set(Expiry),
    /// That of the old item.
    Keep,
}

#[derive(Clone, Copy)]
pub(crate) enum NewCas {
    Fresh,
    Given(u64),
    Keep,
}

impl NewCas {
    pub(crate) fn given_or_fresh(cas: Option<u64>) -> Self {
        cas.filter(|&cas| cas != 0).map_or(Self::Fresh, Self::Given)
    }
}

/// The result of a change.
pub(crate) enum Outcome<'t, R> {
    Answer(R),
    Written(Written<'t>),
    WriteError(WriteError),
}

pub(crate) struct Written<'t> {
    pub(crate) offset: Offset,
    pub(crate) raw: ItemRef<'t>,
    pub(crate) expiry_before: Expiry,
    /// There was no item, or only an expired or flushed one.
    pub(crate) is_new: bool,
}

/// A new item that is not published yet.
pub(crate) struct Draft<'t> {
    /// The queue that it enters.
    queue: usize,
    storage: DraftStorage<'t>,
}

enum DraftStorage<'t> {
    /// In an open segment of this handle.
    Shared(FreshItem<'t>),
    /// In a run of its own. Boxed, so that a draft is a few words.
    Large(Box<Upload>),
}

impl Guard<'_> {
    /// Looks up, decides, writes, locks, verifies, publishes.
    pub(crate) fn change<'t, 'a, R>(
        &'t self,
        key: &[u8],
        hash: Hash,
        upload: &mut Option<Upload>,
        plan: impl FnMut(Result<Lookup<'t>, Miss>) -> Plan<'a, R>,
    ) -> Outcome<'t, R>
    where
        't: 'a,
    {
        self.change_hinted(key, hash, LookupHint::default(), upload, Intent::Update, plan)
    }

    /// The same with a hint, which may save the first look-up.
    pub(crate) fn change_hinted<'t, 'a, R>(
        &'t self,
        key: &[u8],
        hash: Hash,
        mut hint: LookupHint<'t>,
        upload: &mut Option<Upload>,
        intent: Intent,
        mut plan: impl FnMut(Result<Lookup<'t>, Miss>) -> Plan<'a, R>,
    ) -> Outcome<'t, R>
    where
        't: 'a,
    {
        loop {
            let old = self.look_up_hinted(key, hash, std::mem::take(&mut hint));
            let segment_ref = old.map(|old| self.engine().arena.segments.segment_ref_at(old.offset));
            // The CAS value changes whenever the item does, even if the item stays in place.
            let cas_of = |old: Option<Lookup<'_>>| old.map(|old| old.raw.cas());
            let cas_seen = cas_of(old);
            let liveness = || match old.zip(segment_ref) {
                None => Err(Miss::Absent),
                Some((old, segment_ref)) => {
                    self.engine().liveness_in(segment_ref, old.raw, self.now()).map(|()| old)
                }
            };
            let alive = liveness();
            let needs_proof = intent != Intent::Replace
                && matches!(alive, Err(Miss::Absent | Miss::Flushed))
                && self.is_backed();
            if needs_proof && !self.is_proven_absent(hash) {
                self.note_absent(hash);
                return Outcome::WriteError(WriteError::TryAgain);
            }
            let new = match plan(alive) {
                Plan::Answer(answer) => {
                    self.note_shown(hash);
                    return Outcome::Answer(answer);
                }
                Plan::Write(new) => new,
            };
            if old.is_none() {
                // An entry under a wrong hash would outlive its item: reclaiming finds entries by hashing keys.
                assert!(self.engine().hash_key.hash(key) == hash, "a key is stored with its own hash");
            }
            let queue = self.queue_for(hash, segment_ref);
            let draft = match self.draft(key, &new, queue, old.map(|old| old.raw), upload) {
                Ok(draft) => draft,
                Err(error) => return Outcome::WriteError(error),
            };
            let bucket = self.engine().index.lock(self.pinned(), hash);
            let still = old.and_then(|old| bucket.still(&old.found));
            let found = still.or_else(|| self.find_locked(&bucket, key, hash));
            let is_as_seen = found.map(|found| found.entry.offset()) == old.map(|old| old.offset)
                && cas_of(old) == cas_seen
                && liveness().is_ok() == alive.is_ok()
                && (!needs_proof || self.is_proven_absent(hash));
            if !is_as_seen {
                drop(bucket);
                let large = self.discard(draft);
                if matches!(new.body, Body::Uploaded) {
                    *upload = large;
                }
                continue;
            }
            let expiry_before = alive.map_or(Expiry::NEVER, |old| old.raw.expiry());
            if let (Some(old), Err(_)) = (old, alive) {
                self.count_reclaimed(old.offset, old.raw);
            }
            // Of a store alone: the old item may be written over.
            let replaced = if self.is_backed() { alive.ok().map(|old| Replaced::of(old.raw)) } else { None };
            let published = self.publish(
                &bucket,
                hash,
                &new,
                draft,
                found.zip(segment_ref),
                alive.ok().map(|old| old.raw),
            );
            let Some((offset, raw)) = published else {
                self.issued.set(None);
                return Outcome::WriteError(WriteError::OutOfMemory);
            };
            if intent != Intent::Fill {
                let place = || bucket.find(hash, |found| found.entry.offset() == offset);
                let unsubmitted = self.sequence(&bucket, hash, replaced, place);
                drop(bucket);
                self.submit(unsubmitted);
            }
            return Outcome::Written(Written { offset, raw, expiry_before, is_new: alive.is_err() });
        }
    }

    /// New keys enter the small queue, unless the ghost knows them; others stay in their queue.
    #[inline(always)]
    fn queue_for(&self, hash: Hash, old: Option<SegmentRef<'_>>) -> usize {
        match old {
            Some(segment_ref) => segment_ref.segment.queue(),
            None if self.engine().evict => self.engine().policy.queue_of_new(hash, &self.handle.adaptation),
            None => SMALL,
        }
    }

    /// Writes the new item where nobody sees it.
    #[inline(always)]
    fn draft(
        &self,
        key: &[u8],
        new: &New<'_>,
        queue: usize,
        old: Option<ItemRef<'_>>,
        upload: &mut Option<Upload>,
    ) -> Result<Draft<'_>, WriteError> {
        let (head, tail, digits) = match &new.body {
            Body::Join(head, tail) => (*head, *tail, None),
            Body::Number(digits) => (digits.text(), &b""[..], Some(digits)),
            Body::Uploaded => {
                let mut upload = upload.take().map(Box::new).ok_or(WriteError::OutOfMemory)?;
                upload.protect(self);
                return Ok(Draft { queue, storage: DraftStorage::Large(upload) });
            }
        };
        let padding = digits.map_or(0, |digits| digits.padding);
        let expiry = match new.expiry {
            NewExpiry::Set(expiry) => expiry,
            NewExpiry::Keep => old.map_or(Expiry::NEVER, ItemRef::expiry),
        };
        let keeps_field = new.expiry == NewExpiry::Keep && old.is_some_and(ItemRef::has_expiry_field);
        let mut shape = Shape {
            key_bytes: key.len(),
            value_bytes: head.len() + tail.len() + padding,
            client_flags: new.client_flags,
            // Always without eviction: there may be no memory to add the field when the item is touched.
            has_expiry: keeps_field || expiry != Expiry::NEVER || !self.engine().evict,
            binary_key: new.binary_key,
            large: false,
            has_checksum: self.engine().arena.has_checksums(),
        };
        if accounted_bytes(shape.key_bytes, shape.value_bytes, shape.client_flags)
            > u64::from(self.engine().item_bytes_max())
        {
            return Err(WriteError::TooLarge);
        }
        self.note_copied(shape.value_bytes);
        let fill = |value: &mut [u8]| {
            let (first, rest) = value.split_at_mut(head.len());
            first.copy_from_slice(head);
            if !rest.is_empty() {
                let (second, spaces) = rest.split_at_mut(tail.len());
                second.copy_from_slice(tail);
                spaces.fill(b' ');
            }
        };
        if shape.size() > self.engine().large_item_bytes() {
            shape.large = true;
            shape.has_expiry = true;
            let mut upload = self.start_upload(shape, key, shape.size(), 0)?;
            // Nobody can revoke it: it is no lease.
            fill(upload.window(self).ok_or(WriteError::OutOfMemory)?);
            upload.advance(shape.value_bytes);
            upload.protect(self);
            return Ok(Draft { queue, storage: DraftStorage::Large(Box::new(upload)) });
        }
        let room = self.append(queue, expiry, shape.size(), old)?;
        let log = &self.engine().arena.region;
        let item = room.write(self.pinned(), log, &shape, key, expiry, self.now().secs, fill);
        if let Some(seed) = self.engine().arena.checksum_seed() {
            item.protect(seed);
        }
        self.engine().arena.prefetch_ahead(item.allocation(), shape.size());
        Ok(Draft { queue, storage: DraftStorage::Shared(item) })
    }

    /// Allocates an item of this shape with memory for its first bytes. `missing_bytes` are still to come.
    pub(crate) fn start_upload(
        &self,
        shape: Shape,
        key: &[u8],
        first_bytes: usize,
        missing_bytes: usize,
    ) -> Result<Upload, WriteError> {
        self.admit_shape(&shape, key)?;
        let run = self.take_run(shape.size(), first_bytes, missing_bytes)?;
        Ok(Upload::new(&self.handle.engine, run, shape, key, self.now().secs))
    }

    /// Whether a large item of this shape may be stored. Allocates nothing.
    pub(crate) fn admit_shape(&self, shape: &Shape, key: &[u8]) -> Result<(), WriteError> {
        if shape.size() as u64 > self.engine().arena.budget.limit_bytes() {
            // Otherwise it would evict everything, step by step, before it fails.
            return Err(WriteError::OutOfMemory);
        }
        if !self.engine().evict {
            let replaced_bytes = self.look_up(key, self.prepare(key)).map_or(0, |old| old.raw.size());
            self.admit(shape.size() as i64 - replaced_bytes as i64)?;
        }
        Ok(())
    }

    /// Undoes a draft. A large draft is freed when the returned value is dropped.
    #[cold]
    fn discard(&self, draft: Draft<'_>) -> Option<Upload> {
        match draft.storage {
            DraftStorage::Shared(item) => {
                self.handle.allocator.borrow_mut().take_back(&self.engine().arena, item);
                None
            }
            DraftStorage::Large(upload) => Some(*upload),
        }
    }

    /// Completes the new item's header, and points the index to it. `None`: the index has no room.
    #[inline(always)]
    fn publish<'t>(
        &'t self,
        bucket: &Bucket<'t>,
        hash: Hash,
        new: &New<'_>,
        Draft { queue, storage }: Draft<'t>,
        replaced: Option<(SlotRef<'t>, SegmentRef<'_>)>,
        old: Option<ItemRef<'_>>,
    ) -> Option<(Offset, ItemRef<'t>)> {
        let engine = self.engine();
        let segments = &engine.arena.segments;
        // The old item's expiry and marks may have changed before the bucket was locked.
        let expiry = match new.expiry {
            NewExpiry::Set(expiry) => expiry,
            NewExpiry::Keep => old.map_or(Expiry::NEVER, ItemRef::expiry),
        };
        let (item, run) = match storage {
            DraftStorage::Shared(item) => (item, None),
            DraftStorage::Large(upload) => {
                let group = engine.policy.streams.group_of(engine.counted(expiry), self.now());
                let stream = WriteStream { queue, group, class: 0 };
                let (run, item) = upload.link(self, stream, engine.flush_mark.load(Relaxed));
                (item, Some(run))
            }
        };
        let (raw, offset) = (item.raw(), item.allocation().at());
        let old_cas = old.map_or(0, ItemRef::cas);
        raw.set_cas(match new.cas {
            // A version of a store is above that of an item that has expired or was flushed, too.
            NewCas::Fresh if self.is_backed() => self
                .fresh_cas(hash, replaced.as_ref().map_or(old_cas, |(found, _)| self.item_ref(found).cas())),
            NewCas::Fresh => self.fresh_cas(hash, old_cas),
            NewCas::Given(cas) => cas,
            // Another value of the same version would never reach the other sites.
            NewCas::Keep if new.marks_kept == 0 => self.replicated_cas(hash, old_cas).unwrap_or(old_cas),
            NewCas::Keep => old_cas,
        });
        let marks = new.marks | old.map_or(0, ItemRef::marks) & new.marks_kept;
        if marks != 0 {
            raw.mark(marks, 0);
        }
        if let Some(old) = old.filter(|_| new.marks_kept & FETCHED != 0) {
            // It is the same item in another place, so its last use stays the same.
            raw.set_used_secs(old.used_secs());
        }
        raw.set_expiry(expiry);
        let is_run = run.is_some();
        // Otherwise the expiry was noted when the item was allocated.
        if is_run || new.expiry == NewExpiry::Keep {
            segments.get(segments.id_at(offset)).note_expiry(engine.counted(expiry));
        }
        if let Some(run) = run {
            // It enters its queue before it can be found, so that a thread that replaces it can take it out.
            engine.policy.seal(segments, run);
        }
        let (raw, unlinked) = match replaced {
            Some((found, _)) => {
                let uses = found.entry.uses();
                if engine.arena.has_checksums() {
                    self.item_ref(&found).supersede();
                }
                let (raw, unlinked) = item.replace(|place| bucket.replace(found, hash, place, uses));
                (raw, Some(unlinked))
            }
            None => match item.insert(|place| bucket.insert(hash, place, &engine.arena.budget)) {
                Ok(raw) => (raw, None),
                Err(item) if is_run => {
                    segments.discard_fresh(item);
                    // Do not free it: a thread that walks segments may be reading it. Another thread may have claimed
                    // it already; that one finds it unlinked, and retires it.
                    engine.retire_unclaimed(segments.id_at(offset));
                    return None;
                }
                Err(item) => {
                    drop(self.discard(Draft { queue, storage: DraftStorage::Shared(item) }));
                    return None;
                }
            },
        };
        self.count_linked(if is_run { LARGE } else { queue }, raw);
        match unlinked {
            Some(unlinked) => self.account_dead(unlinked),
            None => self.count_item(1),
        }
        Some((offset, raw))
    }

    pub(crate) fn find_locked<'t>(
        &'t self,
        bucket: &Bucket<'t>,
        key: &[u8],
        hash: Hash,
    ) -> Option<SlotRef<'t>> {
        bucket.find(hash, |found| self.item_ref(found).has_key(key))
    }

    /// The CAS value of the next change, which replaces this one. Call under the lock of the item's bucket.
    #[inline]
    pub(crate) fn fresh_cas(&self, hash: Hash, replaced: u64) -> u64 {
        match &self.engine().backing {
            None => self.engine().cas_values.fresh(self.handle.id, replaced),
            Some(backing) => self.fresh_version(&**backing, hash, replaced),
        }
    }

    /// The same with a store.
    #[inline(never)]
    fn fresh_version(&self, backing: &dyn Backing, hash: Hash, replaced: u64) -> u64 {
        self.replicated_cas(hash, replaced).unwrap_or_else(|| backing.version_above(replaced))
    }

    /// The same where changes are replicated.
    fn replicated_cas(&self, hash: Hash, replaced: u64) -> Option<u64> {
        let issued = self.engine().backing.as_ref()?.replicated_version(hash, replaced);
        self.issued.set(issued);
        issued.map(|issued| issued.version)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Engine, LargePages, Now, Store, Stored};

    /// The item was in its queue for a moment, so a thread that walks the segments may be reading it.
    #[test]
    fn a_large_item_that_the_index_has_no_room_for_is_not_free_under_a_guard() {
        let engine = Engine::new(Config {
            memory_bytes: 4 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            handles_max: 2,
            // One bucket, for eight items.
            index_power: Some(0),
            large_pages: LargePages::Never,
            hash_key: [7, 9],
        })
        .expect("4 MiB can be reserved");
        let mut writer = engine.handle().expect("none is out");
        let mut reader = engine.handle().expect("one is out");
        engine.index.use_up_overflow();
        let now = Now { secs: 1, micros: 1 };
        let reading = reader.pin(now);
        let guard = writer.pin(now);
        for key in 0..8u8 {
            let stored = guard.store(guard.prepare(&[key]), &Store::set(&[key], b"value"));
            assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
        }
        let value = vec![b'v'; 100_000];
        assert_eq!(guard.store(guard.prepare(b"large"), &Store::set(b"large", &value)), Stored::OutOfMemory);
        drop(guard);
        engine.arena.drain_limbo();
        assert_eq!(engine.arena.committed_bytes(), 0, "somebody may still read it");
        drop(reading);
        engine.arena.drain_limbo();
        assert!(engine.arena.committed_bytes() >= 100_000, "free");
    }
}
