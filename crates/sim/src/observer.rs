//! Tells the witness what the committer has lost.

use std::sync::{Arc, Mutex};

use larder_store::Error;
use larder_store::commit::{Change, Journal, Kind, Observer};

use crate::backing::lock;
use crate::disk::Disk;
use crate::witness::{Place, Witness};

/// The server's own observer, watched.
pub(crate) struct WitnessObserver {
    pub(crate) inner: Arc<dyn Observer>,
    pub(crate) witness: Arc<Mutex<Witness>>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) disk: Arc<Disk>,
    /// What was shown is never lost.
    pub(crate) is_sync: bool,
}

impl WitnessObserver {
    /// The place up to which the store has all changes.
    fn applied(&self, witness: &Witness) -> Place {
        let (changes, _) = self.journal.load();
        witness.place_of(self.journal.last_given() - changes)
    }
}

impl Observer for WitnessObserver {
    fn on_progress(&self) {
        self.inner.on_progress();
    }

    fn on_lost(&self, change: &Change) {
        self.inner.on_lost(change);
        let mut witness = lock(&self.witness);
        let due = match change.kind() {
            Kind::Put { .. } | Kind::Delete { .. } => {
                let kept = self.disk.item(change.key());
                let applied = self.applied(&witness);
                return witness.on_lost(change.key(), applied, kept.as_ref(), self.is_sync);
            }
            Kind::Flush => None,
            Kind::FlushAt { at_secs } => Some(Some(i64::try_from(at_secs).unwrap_or(i64::MAX))),
            Kind::CancelFlushAt => Some(None),
            Kind::Nothing | Kind::Note | Kind::Touch { .. } | Kind::FlushBelow { .. } => return,
        };
        let applied = self.applied(&witness);
        witness.on_lost_flush(due, applied, &self.disk.items(), self.is_sync);
    }

    fn on_kept(&self, change: &Change) {
        let mut witness = lock(&self.witness);
        let applied = self.applied(&witness);
        match change.kind() {
            Kind::Delete { .. } => witness.on_kept_removal(change.key(), applied),
            _ => witness.on_kept_flush(applied, &self.disk.items()),
        }
    }

    fn on_commit(&self, changes: usize, bytes: u64, durable_micros: Option<u64>) {
        self.inner.on_commit(changes, bytes, durable_micros);
    }

    fn on_error(&self, _: &Error) {
        // The server logs it.
    }
}
