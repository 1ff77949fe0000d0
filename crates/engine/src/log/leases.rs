//! Leases: memory that clients hold beyond guards. These are runs of values that are still arriving, and runs that slow
//! readers pin after their items left the cache.
//!
//! Eviction cannot reclaim either, so both are bounded: uploads hold at most half of the limit (or a quarter beside the
//! largest of them), pinned runs that left the cache at most a quarter (or one run of any size). A lease is revoked
//! when others need its memory: first that of the upload that stopped arriving longest ago. Stores of any size do that
//! before they evict anything or are refused. Then, only for other uploads or a lowered limit, the upload with the most
//! bytes missing is revoked; of readers, the one whose item left first. No other client's item is evicted for it. A
//! value on its way to a store has a firm pin, which is not revoked.
//!
//! Revoking increments [`crate::log::segment::Segment::revocations`] and sends the run through the limbo: a thread that
//! checked the count under a guard before may continue until that guard ends. All of this happens under the runs' lock,
//! and only when memory is low or space exhausted, once per step of an upload, and at most once a second as it arrives.
//!
//! Unsafe code lives here because runs are revoked while an upload or a reader holds them. The invariant: both check
//! the count of revocations before each use, under the guard of that use.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::*;

use crate::log::arena::Arena;
use crate::log::item::ItemRef;
use crate::log::runs::Run;
use crate::log::segment::{Claim, FREE_ON_UNPIN, SegmentId};
use crate::request::Now;

/// The part of the limit that uploads may hold.
const UPLOADS_PART: u64 = 2;
/// The part of the limit that pinned runs may hold whose items left the cache.
const ORPHANED_PART: u64 = 4;
/// An upload has stopped arriving if it neither asked for a step of memory nor received
/// [`crate::ops::upload::ARRIVING_BYTES`] for this long.
const STOPPED_SECS: u32 = 2;

/// Firm pins hold at most this part of the memory.
const FIRM_PART: u64 = 4;
/// [`Leases::oldest_arrival_secs`] without uploads.
pub(super) const NO_UPLOAD_SECS: u32 = u32::MAX;

/// The leases.
#[derive(Default)]
pub(crate) struct Leases {
    uploads: BTreeMap<SegmentId, UploadLease>,
    uploads_bytes: u64,
    /// The same uploads by the second in which they last arrived.
    by_arrival: BTreeSet<(u32, SegmentId)>,
    /// Pinned, and no longer in the index: the oldest first, with their memory.
    orphaned: VecDeque<(SegmentId, u64)>,
    orphaned_bytes: u64,
    /// Runs with pins that are not revoked.
    firm: BTreeMap<SegmentId, FirmPins>,
    firm_bytes: u64,
}

/// Of one run.
struct FirmPins {
    count: u32,
    /// Memory of the run when it was pinned first.
    bytes: u64,
}

/// A reader's hold on a run. It cannot be copied: each is given back once.
#[must_use]
pub(crate) struct RunPin {
    id: SegmentId,
    revocations: u32,
}

/// An upload.
struct UploadLease {
    charged_bytes: u64,
    missing_bytes: u64,
    /// When it last asked for memory, or received enough to count as arriving.
    arrived_secs: u32,
}

impl Leases {
    /// The upload to revoke in favour of one that has `missing_bytes` still to come.
    fn weakest_upload(&self, own: Option<SegmentId>, missing_bytes: u64, now_secs: u32) -> Option<SegmentId> {
        let others = || self.uploads.iter().filter(|&(&id, _)| Some(id) != own);
        let longest = || others().filter(|(_, upload)| upload.missing_bytes > missing_bytes);
        self.stopped_upload(own, now_secs)
            .or_else(|| longest().max_by_key(|(_, upload)| upload.missing_bytes).map(|(&id, _)| id))
    }

    /// The upload that stopped arriving longest ago.
    fn stopped_upload(&self, own: Option<SegmentId>, now_secs: u32) -> Option<SegmentId> {
        let &(arrived_secs, id) = self.by_arrival.iter().find(|&&(_, id)| Some(id) != own)?;
        has_stopped(arrived_secs, now_secs).then_some(id)
    }

    /// Notes that an upload asks for a step, or receives.
    fn note_arriving(&mut self, id: SegmentId, now_secs: u32) {
        if let Some(upload) = self.uploads.get_mut(&id)
            && upload.arrived_secs != now_secs
        {
            self.by_arrival.remove(&(upload.arrived_secs, id));
            self.by_arrival.insert((now_secs, id));
            upload.arrived_secs = now_secs;
        }
    }

    fn insert_upload(&mut self, id: SegmentId, upload: UploadLease) {
        self.uploads_bytes += upload.charged_bytes;
        self.by_arrival.insert((upload.arrived_secs, id));
        self.uploads.insert(id, upload);
    }

    fn remove_upload(&mut self, id: SegmentId) {
        if let Some(upload) = self.uploads.remove(&id) {
            self.uploads_bytes -= upload.charged_bytes;
            self.by_arrival.remove(&(upload.arrived_secs, id));
        }
    }

    /// When the upload last arrived that has not for longest; [`NO_UPLOAD_SECS`]: there is none.
    pub(super) fn oldest_arrival_secs(&self) -> u32 {
        self.by_arrival.first().map_or(NO_UPLOAD_SECS, |&(arrived_secs, _)| arrived_secs)
    }

    /// The run to revoke whose item left the cache first.
    fn oldest_orphan(&self) -> Option<SegmentId> {
        self.orphaned.iter().map(|&(id, _)| id).find(|id| !self.firm.contains_key(id))
    }

    fn remove_orphaned(&mut self, id: SegmentId) {
        if let Some(at) = self.orphaned.iter().position(|&(orphaned, _)| orphaned == id)
            && let Some((_, bytes)) = self.orphaned.remove(at)
        {
            self.orphaned_bytes -= bytes;
        }
    }
}

fn has_stopped(arrived_secs: u32, now_secs: u32) -> bool {
    arrived_secs.saturating_add(STOPPED_SECS) <= now_secs
}

impl Arena {
    /// True if a lease on this run that began at this count was revoked.
    pub(crate) fn is_revoked(&self, id: SegmentId, revocations: u32) -> bool {
        self.segments.get(id).revocations.load(Acquire) != revocations
    }

    /// Makes room for another `bytes` of an upload that has `missing_bytes` still to come. False: the other uploads
    /// have a stronger claim to the memory.
    pub(crate) fn admit_step(
        &self,
        own: Option<SegmentId>,
        bytes: u64,
        missing_bytes: u64,
        now: Now,
    ) -> bool {
        let bytes_max = self.budget.limit_bytes() / UPLOADS_PART;
        loop {
            let mut leases = self.runs.leases();
            if let Some(own) = own {
                leases.note_arriving(own, now.secs);
                self.runs.note_oldest_arrival(&leases);
            }
            let is_alone = leases.uploads.len() == usize::from(own.is_some());
            if is_alone || leases.uploads_bytes + bytes <= bytes_max {
                return true;
            }
            // Beside an upload of the largest item size there is room for others: otherwise they would revoke it
            // shortly before its end.
            let largest_bytes = leases.uploads.values().map(|upload| upload.charged_bytes).max();
            if leases.uploads_bytes + bytes - largest_bytes.unwrap_or(0) <= bytes_max / 2 {
                return true;
            }
            let Some(weakest_upload) = leases.weakest_upload(own, missing_bytes, now.secs) else {
                return false;
            };
            self.take_upload(leases, weakest_upload);
        }
    }

    /// Notes that an upload is arriving, unless it was revoked.
    pub(crate) fn note_arriving(&self, run: &Run, revocations: u32, now_secs: u32) {
        let mut leases = self.runs.leases();
        if !self.is_revoked(run.id(), revocations) {
            leases.note_arriving(run.id(), now_secs);
            self.runs.note_oldest_arrival(&leases);
        }
    }

    /// Revokes the upload that stopped arriving longest ago, in favour of any store. False: all are arriving.
    #[inline]
    pub(crate) fn revoke_stopped_upload(&self, now: Now) -> bool {
        has_stopped(self.runs.oldest_arrival_secs(), now.secs) && self.revoke_longest_stopped(now)
    }

    #[cold]
    fn revoke_longest_stopped(&self, now: Now) -> bool {
        let leases = self.runs.leases();
        let Some(id) = leases.stopped_upload(None, now.secs) else { return false };
        self.take_upload(leases, id);
        true
    }

    /// For exhausted address space: revokes an upload with a weaker claim. `Some(false)`: there are uploads, but none
    /// with a weaker claim; `None`: there are none.
    pub(crate) fn revoke_upload(&self, missing_bytes: u64, now: Now) -> Option<bool> {
        let leases = self.runs.leases();
        if leases.uploads.is_empty() {
            return None;
        }
        let Some(id) = leases.weakest_upload(None, missing_bytes, now.secs) else {
            return Some(false);
        };
        self.take_upload(leases, id);
        Some(true)
    }

    /// Revokes an upload.
    fn take_upload(&self, mut leases: MutexGuard<'_, Leases>, id: SegmentId) {
        assert!(leases.uploads.contains_key(&id), "only an upload's lease is taken here");
        leases.remove_upload(id);
        self.runs.note_oldest_arrival(&leases);
        self.revoke(id);
        drop(leases);
        // SAFETY: it was a lease, and is none from here on.
        unsafe { self.retire_revoked(id) };
    }

    /// Registers an upload, which may be revoked from here on.
    pub(crate) fn lease_upload(&self, run: &Run, item_bytes: usize, now_secs: u32) {
        let id = run.id();
        let charged_bytes = self.segments.memory_bytes(id);
        let missing_bytes = (item_bytes as u64).saturating_sub(charged_bytes);
        let mut leases = self.runs.leases();
        leases.insert_upload(id, UploadLease { charged_bytes, missing_bytes, arrived_secs: now_secs });
        self.runs.note_oldest_arrival(&leases);
    }

    /// Notes that [`Arena::extend_run`] gave memory for another step of an upload. False: it was revoked meanwhile, and
    /// the memory went back to the system. Call under a guard under which it was not revoked.
    pub(crate) fn note_step(&self, run: &Run, revocations: u32, bytes: u64) -> bool {
        let id = run.id();
        let mut leases = self.runs.leases();
        let usage = &self.segments.get(id).usage;
        if self.is_revoked(id, revocations) {
            drop(leases);
            let charged_bytes = usage.filled_bytes();
            assert!(charged_bytes + bytes <= self.segments.bytes_of(run.units()));
            // SAFETY: nobody else knows of this memory, which lies behind what the run had when it was revoked. Before
            // this guard ends the run has no other owner.
            unsafe {
                self.region.decommit(self.segments.start(id) + charged_bytes as usize, bytes as usize);
            }
            self.give_run_bytes(bytes);
            return false;
        }
        usage.add_filled(bytes);
        if let Some(upload) = leases.uploads.get_mut(&id) {
            upload.charged_bytes += bytes;
            upload.missing_bytes = upload.missing_bytes.saturating_sub(bytes);
            leases.uploads_bytes += bytes;
        }
        true
    }

    /// Ends the lease: the upload is not revoked from here on. False: it was revoked already.
    pub(crate) fn release_upload(&self, run: &Run, revocations: u32) -> bool {
        let id = run.id();
        let mut leases = self.runs.leases();
        let is_whole = !self.is_revoked(id, revocations);
        if is_whole {
            leases.remove_upload(id);
            self.runs.note_oldest_arrival(&leases);
        }
        is_whole
    }

    /// Frees an unlinked run with its last pin, or when too much is pinned.
    ///
    /// # Safety
    /// The index does not point to it, and no guard can see it.
    pub(super) unsafe fn free_run_on_unpin(&self, claim: Claim) {
        let id = claim.id();
        let mut leases = self.runs.leases();
        if self.segments.get(id).pins.fetch_or(FREE_ON_UNPIN, AcqRel) == 0 {
            drop(leases);
            // SAFETY: by the caller's promise; and it is not pinned.
            return unsafe { self.free_run_at(id) };
        }
        let bytes = self.segments.memory_bytes(id);
        leases.orphaned.push_back((id, bytes));
        leases.orphaned_bytes += bytes;
        let bytes_max = self.budget.limit_bytes() / ORPHANED_PART;
        while leases.orphaned_bytes > bytes_max
            && leases.orphaned.len() > 1
            && let Some(oldest) = leases.oldest_orphan()
        {
            leases.remove_orphaned(oldest);
            self.revoke(oldest);
            drop(leases);
            // SAFETY: it is unlinked, its pins are revoked, and it was taken out of the list: nobody else frees it.
            unsafe { self.retire_revoked(oldest) };
            leases = self.runs.leases();
        }
    }

    /// Pins the run of an item beyond the guard under which the item was found. `None`: it is in no run.
    pub(crate) fn pin_run(&self, item: ItemRef<'_>) -> Option<RunPin> {
        let id = self.segments.id_at_byte(item.place(&self.region));
        if !self.segments.is_run(id) {
            return None;
        }
        let segment = self.segments.get(id);
        segment.pins.fetch_add(1, Relaxed);
        Some(RunPin { id, revocations: segment.revocations.load(Relaxed) })
    }

    /// The same with a pin that is never revoked. `None` also if such pins hold too much of the memory already: others
    /// need it.
    pub(crate) fn pin_run_firmly(&self, item: ItemRef<'_>) -> Option<RunPin> {
        let mut leases = self.runs.leases();
        let pin = self.pin_run(item)?;
        match leases.firm.get_mut(&pin.id) {
            Some(pins) => pins.count += 1,
            None => {
                let bytes = self.segments.memory_bytes(pin.id);
                if leases.firm_bytes + bytes > self.budget.limit_bytes() / FIRM_PART {
                    drop(leases);
                    self.unpin_run(pin);
                    return None;
                }
                leases.firm_bytes += bytes;
                leases.firm.insert(pin.id, FirmPins { count: 1, bytes });
            }
        }
        Some(pin)
    }

    /// Gives a firm pin back.
    pub(crate) fn unpin_firm_run(&self, pin: RunPin) {
        let mut leases = self.runs.leases();
        if let Some(pins) = leases.firm.get_mut(&pin.id) {
            pins.count -= 1;
            if pins.count == 0 {
                leases.firm_bytes -= pins.bytes;
                leases.firm.remove(&pin.id);
            }
        }
        drop(leases);
        self.unpin_run(pin);
    }

    /// Number and memory in bytes of the pinned runs. Looks at all segments.
    pub(crate) fn pinned_runs(&self) -> (usize, u64) {
        let is_pinned = |id: &SegmentId| {
            self.segments.is_run(*id) && self.segments.get(*id).pins.load(Relaxed) & !FREE_ON_UNPIN != 0
        };
        let pinned = self.ids().filter(is_pinned);
        pinned.fold((0, 0), |(runs, bytes), id| (runs + 1, bytes + self.segments.memory_bytes(id)))
    }

    /// True if the run of this pin may have another item by now.
    pub(crate) fn is_pin_revoked(&self, pin: &RunPin) -> bool {
        self.is_revoked(pin.id, pin.revocations)
    }

    /// Gives a pin back.
    pub(crate) fn unpin_run(&self, RunPin { id, revocations }: RunPin) {
        let mut leases = self.runs.leases();
        // A revoked run has another owner.
        if self.is_revoked(id, revocations)
            || self.segments.get(id).pins.fetch_sub(1, AcqRel) != FREE_ON_UNPIN | 1
        {
            return;
        }
        leases.remove_orphaned(id);
        drop(leases);
        // SAFETY: it came out of limbo when it was marked, and this was its last pin.
        unsafe { self.free_run_at(id) };
    }

    /// Call under the runs' lock. What is retired afterwards is reused once every guard has ended that may not have
    /// seen this.
    fn revoke(&self, id: SegmentId) {
        self.segments.get(id).revocations.fetch_add(1, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log::arena::ArenaConfig;
    use crate::log::superblock::Geometry;

    #[test]
    fn the_oldest_step_is_known_without_the_lock() {
        const SEGMENT_BYTES: usize = 16 << 10;
        let arena = Arena::new(&ArenaConfig {
            memory_bytes: 8 * SEGMENT_BYTES as u64,
            geometry: Geometry { segment_bytes: SEGMENT_BYTES, segments: 8, run_segments: 8 },
            handles_max: 1,
            superblock: None,
        })
        .expect("address space");
        let at = |secs| Now { secs, micros: 1 };
        let lease = |secs| {
            let run = arena.take_run(2 * SEGMENT_BYTES, SEGMENT_BYTES, 0).expect("memory");
            let revocations = arena.begin_run(&run);
            arena.lease_upload(&run, 2 * SEGMENT_BYTES, secs);
            (run, revocations)
        };
        let oldest_arrival_secs = || arena.runs.oldest_arrival_secs();
        assert_eq!(oldest_arrival_secs(), NO_UPLOAD_SECS);
        let (first, second, third) = (lease(5), lease(6), lease(7));
        assert_eq!(oldest_arrival_secs(), 5);
        assert!(arena.admit_step(Some(first.0.id()), 0, 0, at(8)));
        assert_eq!(oldest_arrival_secs(), 6);
        assert!(!arena.revoke_stopped_upload(at(7)), "all are arriving");
        assert!(arena.revoke_stopped_upload(at(8)));
        assert!(arena.is_revoked(second.0.id(), second.1));
        assert_eq!(oldest_arrival_secs(), 7);
        assert!(arena.release_upload(&third.0, third.1));
        assert_eq!(oldest_arrival_secs(), 8);
        assert_eq!(arena.revoke_upload(0, at(9)), Some(true), "it has most still to come");
        assert_eq!(oldest_arrival_secs(), NO_UPLOAD_SECS);
        assert!(!arena.revoke_stopped_upload(at(u32::MAX - 1)));
    }
}
