//! What clients hold beyond guards: runs of values that are still arriving, and runs that slow readers pin after their
//! items have gone.
//!
//! Both are memory that eviction cannot win, so both are bounded: values in arrival hold half of the limit at most
//! (or a quarter beside the largest of them), pinned runs that left the cache a quarter (or one of any size). Who
//! holds what others need is revoked: a value that stopped arriving, or else the one that has most still to come; the
//! reader whose item has been gone for longest. Nobody else's item goes for it.
//!
//! Cutting off counts [`crate::log::segment::Segment::revocations`] up and sends the run through the limbo: who looked
//! at the count under a guard before, may go on until that guard ends. All of it happens under the runs' lock, and only
//! where space or memory lacks, or once per step of an upload.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::*;

use crate::log::arena::{Arena, Retired};
use crate::log::segment::{FREE_ON_UNPIN, SegmentId};
use crate::request::Now;

/// The part of the limit that values in arrival hold at most.
const UPLOADS_PART: u64 = 2;
/// The part of the limit that pinned runs hold at most whose items are no longer in the cache.
const ORPHANED_PART: u64 = 4;
/// An upload that took no step of memory for so long has stopped arriving.
const STOPPED_SECS: u32 = 2;

/// Who holds runs beyond guards.
#[derive(Default)]
pub(crate) struct Leases {
    uploads: BTreeMap<SegmentId, UploadLease>,
    uploads_bytes: u64,
    /// Pinned, and in the index no longer: the oldest first, with their memory.
    orphaned: VecDeque<(SegmentId, u64)>,
    orphaned_bytes: u64,
}

/// A value that is arriving.
struct UploadLease {
    charged_bytes: u64,
    missing_bytes: u64,
    /// When memory was charged last.
    stepped_secs: u32,
}

impl Leases {
    /// The upload that is to make way for one that has `missing_bytes` still to come.
    fn least_worthy(&self, own: Option<SegmentId>, missing_bytes: u64, now_secs: u32) -> Option<SegmentId> {
        let others = || self.uploads.iter().filter(|&(&id, _)| Some(id) != own);
        let has_stopped = |upload: &UploadLease| upload.stepped_secs.saturating_add(STOPPED_SECS) <= now_secs;
        let stopped = others().filter(|(_, upload)| has_stopped(upload));
        let longest = || others().filter(|(_, upload)| upload.missing_bytes > missing_bytes);
        let id = |(&id, _): (&SegmentId, &UploadLease)| id;
        stopped
            .min_by_key(|(_, upload)| upload.stepped_secs)
            .or_else(|| longest().max_by_key(|(_, upload)| upload.missing_bytes))
            .map(id)
    }

    fn remove_upload(&mut self, id: SegmentId) {
        if let Some(upload) = self.uploads.remove(&id) {
            self.uploads_bytes -= upload.charged_bytes;
        }
    }

    fn remove_orphaned(&mut self, id: SegmentId) {
        if let Some(at) = self.orphaned.iter().position(|&(orphaned, _)| orphaned == id)
            && let Some((_, bytes)) = self.orphaned.remove(at)
        {
            self.orphaned_bytes -= bytes;
        }
    }
}

impl Arena {
    /// Was a hold on this run revoked that began at this count?
    pub(crate) fn is_revoked(&self, id: SegmentId, revocations: u32) -> bool {
        self.segments.get(id).revocations.load(Acquire) != revocations
    }

    /// Makes room among the values in arrival for so many bytes more of one that has `missing_bytes` still to come.
    /// False: the others have more right to theirs.
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
            let is_alone = leases.uploads.len() == usize::from(own.is_some());
            if is_alone || leases.uploads_bytes + bytes <= bytes_max {
                return true;
            }
            // Beside one that is as large as items may be there is room for others: else they would cut it off
            // shortly before its end.
            let largest_bytes = leases.uploads.values().map(|upload| upload.charged_bytes).max();
            if leases.uploads_bytes + bytes - largest_bytes.unwrap_or(0) <= bytes_max / 2 {
                return true;
            }
            let Some(least_worthy) = leases.least_worthy(own, missing_bytes, now.secs) else { return false };
            leases.remove_upload(least_worthy);
            self.revoke(least_worthy);
            drop(leases);
            self.retire(Retired::Run(least_worthy));
        }
    }

    /// Where address space lacks: revokes an upload that has to make way. `Some(false)`: none has to; `None`: there is
    /// none.
    pub(crate) fn revoke_upload(&self, missing_bytes: u64, now: Now) -> Option<bool> {
        let mut leases = self.runs.leases();
        if leases.uploads.is_empty() {
            return None;
        }
        let Some(id) = leases.least_worthy(None, missing_bytes, now.secs) else {
            return Some(false);
        };
        leases.remove_upload(id);
        self.revoke(id);
        drop(leases);
        self.retire(Retired::Run(id));
        Some(true)
    }

    /// An upload has begun, and may be revoked.
    pub(crate) fn lease_upload(&self, id: SegmentId, item_bytes: usize, now_secs: u32) {
        let charged_bytes = self.segments.memory_bytes(id);
        let missing_bytes = (item_bytes as u64).saturating_sub(charged_bytes);
        let mut leases = self.runs.leases();
        leases.uploads_bytes += charged_bytes;
        leases.uploads.insert(id, UploadLease { charged_bytes, missing_bytes, stepped_secs: now_secs });
    }

    /// Memory was charged for another step of an upload. False: it was revoked meanwhile, and the memory is the
    /// caller's still.
    pub(crate) fn note_step(&self, id: SegmentId, revocations: u32, bytes: u64, now_secs: u32) -> bool {
        let mut leases = self.runs.leases();
        if self.is_revoked(id, revocations) {
            return false;
        }
        self.segments.get(id).usage.filled_bytes.fetch_add(bytes, Relaxed);
        if let Some(upload) = leases.uploads.get_mut(&id) {
            upload.charged_bytes += bytes;
            upload.missing_bytes = upload.missing_bytes.saturating_sub(bytes);
            upload.stepped_secs = now_secs;
            leases.uploads_bytes += bytes;
        }
        true
    }

    /// From here on the upload is not revoked. False: it was.
    pub(crate) fn release_upload(&self, id: SegmentId, revocations: u32) -> bool {
        let mut leases = self.runs.leases();
        let is_whole = !self.is_revoked(id, revocations);
        if is_whole {
            leases.remove_upload(id);
        }
        is_whole
    }

    /// A run nobody can find any more goes when its last pin does, or when too much is pinned.
    pub(crate) fn free_run_on_unpin(&self, id: SegmentId) {
        let mut leases = self.runs.leases();
        if self.segments.get(id).pins.fetch_or(FREE_ON_UNPIN, AcqRel) == 0 {
            drop(leases);
            return self.free_run(id);
        }
        let bytes = self.segments.memory_bytes(id);
        leases.orphaned.push_back((id, bytes));
        leases.orphaned_bytes += bytes;
        let bytes_max = self.budget.limit_bytes() / ORPHANED_PART;
        while leases.orphaned_bytes > bytes_max && leases.orphaned.len() > 1 {
            let Some((oldest, bytes)) = leases.orphaned.pop_front() else { return };
            leases.orphaned_bytes -= bytes;
            self.revoke(oldest);
            drop(leases);
            self.retire(Retired::Revoked(oldest));
            leases = self.runs.leases();
        }
    }

    pub(crate) fn unpin_run(&self, id: SegmentId, revocations: u32) {
        let mut leases = self.runs.leases();
        // Once revoked the run is somebody else's.
        if self.is_revoked(id, revocations)
            || self.segments.get(id).pins.fetch_sub(1, AcqRel) != FREE_ON_UNPIN | 1
        {
            return;
        }
        leases.remove_orphaned(id);
        drop(leases);
        self.free_run(id);
    }

    /// Under the runs' lock. What is retired afterwards is used again when all guards have ended that may not have
    /// seen this.
    fn revoke(&self, id: SegmentId) {
        self.segments.get(id).revocations.fetch_add(1, Release);
    }
}
