//! What becomes of the changes that the committer has made, or lost.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use larder_store::Error;
use larder_store::commit::{Change, Observer};

use super::Persistence;
use crate::namespaces::Handles;
use crate::observe::journal::Rarely;
use crate::shared::Shared;

/// Tells the workers what the committer did, and drops from memory what it lost.
pub(super) struct CommitObserver {
    shared: Arc<Shared>,
    /// Wakes a worker.
    wake: Box<dyn Fn(usize) + Send + Sync>,
    handles: Mutex<Handles>,
    /// Failures, for the log.
    failures: Rarely,
}

impl CommitObserver {
    /// Errors: no engine handle is left.
    pub(super) fn new(shared: &Arc<Shared>, wake: Box<dyn Fn(usize) + Send + Sync>) -> io::Result<Self> {
        let handles = shared.namespaces.handles().ok_or_else(|| io::Error::other("no engine handle left"))?;
        let failures = Rarely::default();
        Ok(Self { shared: Arc::clone(shared), wake, handles: Mutex::new(handles), failures })
    }

    fn persistence(&self) -> Option<&Persistence> {
        self.shared.persistence.as_ref()
    }
}

impl Observer for CommitObserver {
    fn on_progress(&self) {
        let Some(persistence) = self.persistence() else { return };
        for worker in persistence.take_waiting() {
            (self.wake)(worker);
        }
        if let Some(site) = persistence.replication.get() {
            site.on_progress();
        }
    }

    fn on_lost(&self, change: &Change) {
        let number = self.shared.namespaces.number(change.key());
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = handles.handle_mut(number) {
            let guard = handle.pin(self.shared.clock.now());
            guard.drop_from_memory(change.key(), guard.prepare(change.key()));
        }
    }

    fn on_overruled(&self, change: &Change) {
        self.on_lost(change);
    }

    fn on_commit(&self, changes: usize, bytes: u64, durable_micros: Option<u64>) {
        if let Some(persistence) = self.persistence() {
            persistence.meters.committer.commit(changes as u64, bytes, durable_micros);
        }
    }

    fn on_error(&self, error: &Error) {
        if let Some(persistence) = self.persistence() {
            persistence.meters.committer.fail();
        }
        // As long as the disk is full it fails several times a second; it becomes read-only once.
        let is_last = matches!(error, Error::ReadOnly { .. });
        let times = self.failures.happened(self.shared.clock.now().secs);
        if let Some(times) = times.or_else(|| is_last.then_some(1)) {
            tracing::error!(times, "the store cannot keep changes: {error}");
        }
    }
}
