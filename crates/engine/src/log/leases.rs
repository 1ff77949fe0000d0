//! What clients hold beyond turns: runs of values that are still arriving, and runs that slow readers pin after their
//! items have gone.
//!
//! Both are memory that eviction cannot win, so both are bounded: values in arrival hold half of the limit at most
//! (or a quarter beside the largest of them), pinned runs that left the cache a quarter (or one of any size). Who
//! holds what others need is cut off: a value that stopped arriving, or else the one that has most still to come; the
//! reader whose item has been gone for longest. Nobody else's item goes for it.
//!
//! Cutting off counts [`crate::log::segment::Segment::cuts`] up and sends the run through the limbo: who looked at the
//! count in a turn before, may go on until that turn ends. All of it happens under the runs' lock, and only where
//! space or memory lacks, or once per step of an upload.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::*;

use crate::engine::Engine;
use crate::epoch::limbo::Retired;
use crate::log::segment::{DOOMED, Id};
use crate::request::{NoRoom, Now};

/// The part of the limit that values in arrival hold at most.
const UPLOADS_PART: u64 = 2;
/// The part of the limit that pinned runs hold at most whose items are no longer in the cache.
const DOOMED_PART: u64 = 4;
/// An upload that took no step of memory for so long has stopped arriving.
const STOPPED_SECS: u32 = 2;

/// Who holds runs beyond turns.
#[derive(Default)]
pub(crate) struct Held {
    uploads: BTreeMap<Id, Arriving>,
    uploads_bytes: u64,
    /// Pinned, and in the index no longer: the oldest first, with their memory.
    doomed: VecDeque<(Id, u64)>,
    doomed_bytes: u64,
}

/// A value that is arriving.
struct Arriving {
    charged_bytes: u64,
    missing_bytes: u64,
    /// When memory was charged last.
    stepped_secs: u32,
}

impl Held {
    /// The upload that is to make way for one that has `missing_bytes` still to come.
    fn least_worthy(&self, own: Option<Id>, missing_bytes: u64, now_secs: u32) -> Option<Id> {
        let others = || self.uploads.iter().filter(|&(&id, _)| Some(id) != own);
        let has_stopped = |upload: &Arriving| upload.stepped_secs.saturating_add(STOPPED_SECS) <= now_secs;
        let stopped = others().filter(|(_, upload)| has_stopped(upload));
        let longest = || others().filter(|(_, upload)| upload.missing_bytes > missing_bytes);
        let id = |(&id, _): (&Id, &Arriving)| id;
        stopped
            .min_by_key(|(_, upload)| upload.stepped_secs)
            .or_else(|| longest().max_by_key(|(_, upload)| upload.missing_bytes))
            .map(id)
    }

    fn remove_upload(&mut self, id: Id) {
        if let Some(upload) = self.uploads.remove(&id) {
            self.uploads_bytes -= upload.charged_bytes;
        }
    }

    fn remove_doomed(&mut self, id: Id) {
        if let Some(at) = self.doomed.iter().position(|&(doomed, _)| doomed == id)
            && let Some((_, bytes)) = self.doomed.remove(at)
        {
            self.doomed_bytes -= bytes;
        }
    }
}

impl Engine {
    /// Was a hold on this run cut off that began at this count?
    pub(crate) fn is_cut(&self, id: Id, cuts: u32) -> bool {
        self.segments.get(id).cuts.load(Acquire) != cuts
    }

    /// Makes room among the values in arrival for so many bytes more of one that has `missing_bytes` still to come.
    /// Errors: the others have more right to theirs.
    pub(crate) fn admit_step(
        &self,
        own: Option<Id>,
        bytes: u64,
        missing_bytes: u64,
        now: Now,
    ) -> Result<(), NoRoom> {
        let bytes_max = self.budget.limit_bytes() / UPLOADS_PART;
        loop {
            let mut held = self.runs.held();
            let is_alone = held.uploads.len() == usize::from(own.is_some());
            if is_alone || held.uploads_bytes + bytes <= bytes_max {
                return Ok(());
            }
            // Beside one that is as large as items may be there is room for others: else they would cut it off
            // shortly before its end.
            let largest_bytes = held.uploads.values().map(|upload| upload.charged_bytes).max();
            if held.uploads_bytes + bytes - largest_bytes.unwrap_or(0) <= bytes_max / 2 {
                return Ok(());
            }
            let least_worthy = held.least_worthy(own, missing_bytes, now.secs).ok_or(NoRoom::OutOfMemory)?;
            held.remove_upload(least_worthy);
            self.cut(least_worthy);
            drop(held);
            self.retire(Retired::Run(least_worthy));
        }
    }

    /// Where address space lacks: cuts off an upload that has to make way. `None`: nobody holds any.
    pub(crate) fn cut_upload(&self, missing_bytes: u64, now: Now) -> Option<Result<(), NoRoom>> {
        let mut held = self.runs.held();
        if held.uploads.is_empty() {
            return None;
        }
        let Some(id) = held.least_worthy(None, missing_bytes, now.secs) else {
            return Some(Err(NoRoom::OutOfMemory));
        };
        held.remove_upload(id);
        self.cut(id);
        drop(held);
        self.retire(Retired::Run(id));
        Some(Ok(()))
    }

    /// An upload has begun, and may be cut off.
    pub(crate) fn hold_upload(&self, id: Id, item_bytes: usize, now_secs: u32) {
        let charged_bytes = self.segments.memory_bytes(id);
        let missing_bytes = (item_bytes as u64).saturating_sub(charged_bytes);
        let mut held = self.runs.held();
        held.uploads_bytes += charged_bytes;
        held.uploads.insert(id, Arriving { charged_bytes, missing_bytes, stepped_secs: now_secs });
    }

    /// Memory was charged for another step of an upload. False: it was cut off meanwhile, and the memory is the
    /// caller's still.
    pub(crate) fn note_step(&self, id: Id, cuts: u32, bytes: u64, now_secs: u32) -> bool {
        let mut held = self.runs.held();
        if self.is_cut(id, cuts) {
            return false;
        }
        self.segments.get(id).books.filled_bytes.fetch_add(bytes, Relaxed);
        if let Some(upload) = held.uploads.get_mut(&id) {
            upload.charged_bytes += bytes;
            upload.missing_bytes = upload.missing_bytes.saturating_sub(bytes);
            upload.stepped_secs = now_secs;
            held.uploads_bytes += bytes;
        }
        true
    }

    /// From here on the upload is not cut off. False: it was.
    pub(crate) fn let_go_of_upload(&self, id: Id, cuts: u32) -> bool {
        let mut held = self.runs.held();
        let is_whole = !self.is_cut(id, cuts);
        if is_whole {
            held.remove_upload(id);
        }
        is_whole
    }

    /// A run nobody can find any more goes when its last pin does, or when too much is pinned.
    pub(crate) fn doom_run(&self, id: Id) {
        let mut held = self.runs.held();
        if self.segments.get(id).pins.fetch_or(DOOMED, AcqRel) == 0 {
            drop(held);
            return self.free_run(id);
        }
        let bytes = self.segments.memory_bytes(id);
        held.doomed.push_back((id, bytes));
        held.doomed_bytes += bytes;
        let bytes_max = self.budget.limit_bytes() / DOOMED_PART;
        while held.doomed_bytes > bytes_max && held.doomed.len() > 1 {
            let Some((oldest, bytes)) = held.doomed.pop_front() else { return };
            held.doomed_bytes -= bytes;
            self.cut(oldest);
            drop(held);
            self.retire(Retired::Cut(oldest));
            held = self.runs.held();
        }
    }

    pub(crate) fn unpin_run(&self, id: Id, cuts: u32) {
        let mut held = self.runs.held();
        // Once cut off the run is somebody else's.
        if self.is_cut(id, cuts) || self.segments.get(id).pins.fetch_sub(1, AcqRel) != DOOMED | 1 {
            return;
        }
        held.remove_doomed(id);
        drop(held);
        self.free_run(id);
    }

    /// Under the runs' lock. What is retired afterwards is used again when all turns have ended that may not have
    /// seen this.
    fn cut(&self, id: Id) {
        self.segments.get(id).cuts.fetch_add(1, Release);
    }
}
