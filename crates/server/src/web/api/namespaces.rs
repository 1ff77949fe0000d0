//! `/api/namespaces`: each namespace in figures; `POST /api/flush?prefix=<prefix>&delay=<secs>` empties one.

use std::time::Duration;

use larder_policy::Keep;
use larder_protocol::{Error, KEY_BYTES_MAX, Key, number};
use larder_store::commit::Outcome;
use serde::Serialize;
use tokio::time::sleep;

use super::{Refused, only_once_each, parameter};
use crate::namespaces::{Right, Rights};
use crate::web::state::State;

/// Counters count from the start, or from the last `stats reset`.
#[derive(Serialize)]
pub(super) struct Namespace {
    /// `<null>`: the default.
    name: String,
    keep: &'static str,
    is_read_only: bool,
    items: u64,
    bytes: u64,
    limit_bytes: u64,
    used_bytes: u64,
    /// Of the store, where that is counted.
    disk_bytes: Option<u64>,
    disk_limit_bytes: Option<u64>,
    gets: u64,
    get_hits: u64,
    sets: u64,
    evicted: u64,
    expired: u64,
    refused: u64,
}

pub(super) fn namespaces(state: &State) -> Vec<Namespace> {
    let reports = state.shared.namespaces.reports(state.shared.persistence.as_ref());
    let namespace = |report: &crate::namespaces::Report| Namespace {
        name: report.name(),
        keep: report.keep,
        is_read_only: report.is_read_only,
        items: report.engine.items,
        bytes: report.engine.bytes,
        limit_bytes: report.memory_limit_bytes,
        used_bytes: report.engine.memory_used_bytes,
        disk_bytes: report.disk.map(|disk| disk.bytes),
        disk_limit_bytes: report.disk_limit_bytes,
        gets: report.totals.cmd_get,
        get_hits: report.totals.get_hits,
        sets: report.totals.cmd_set,
        evicted: report.engine.evictions,
        expired: report.engine.reclaimed,
        refused: report.totals.refused(),
    };
    reports.iter().map(namespace).collect()
}

/// Empties a namespace; where it is kept, durably, as the reply of `flush_prefix` says.
pub(super) async fn flush(query: &str, state: &State) -> Result<(), Refused> {
    let shared = &*state.shared;
    // A misspelled delay would else flush at once.
    only_once_each(query, &["prefix", "delay"]).ok_or(Refused::BadQuery)?;
    let delay = parameter(query, "delay").map_or(Some(0), number::parse_u32).ok_or(Refused::BadQuery)?;
    let prefix = parameter(query, "prefix").and_then(Key::percent).ok_or(Refused::BadQuery)?;
    if !shared.settings.flush_all {
        return Err(Refused::NotAllowed);
    }
    if shared.is_read_only() {
        return Err(Refused::Answered(Error::Maintenance));
    }
    let mut buffer = [0; KEY_BYTES_MAX];
    let number = shared.namespaces.named(prefix.bytes(&mut buffer)).ok_or(Refused::NoSuchNamespace)?;
    let table = shared.namespaces.table();
    let policy = table.as_deref().map(|table| table.policy(number));
    if let Some(policy) = policy {
        Rights::ALL.check(number, policy, Right::Write).map_err(Refused::Answered)?;
    }
    let is_kept = policy.is_none_or(|policy| policy.keep == Keep::Store);
    let persistence = shared.persistence.as_ref().filter(|_| is_kept);
    let mut pause = Backoff::default();
    if let Some(persistence) = persistence {
        if let Some(refusal) = persistence.site_refusal()
            && shared.is_replicated(number)
        {
            return Err(Refused::Answered(refusal));
        }
        while let Err(refusal) = persistence.admit(true) {
            match refusal {
                Some(error) => return Err(Refused::Answered(error)),
                None => pause.wait().await,
            }
        }
    }
    let position = shared.flush(number, delay.into(), shared.clock.now());
    if let (Some(persistence), Some(position)) = (persistence, position) {
        pause = Backoff::default();
        loop {
            match persistence.outcome(position) {
                Outcome::Pending => pause.wait().await,
                Outcome::Done => break,
                Outcome::Lost => return Err(Refused::Answered(persistence.loss(position))),
            }
        }
    }
    tracing::info!(namespace = %prefix.written().escape_ascii(), delay, "flushed over HTTP");
    Ok(())
}

/// The time between two looks at what the committer has done: longer each time.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(COMMIT_PAUSE_MIN)
    }
}

impl Backoff {
    async fn wait(&mut self) {
        sleep(self.next()).await;
    }

    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(COMMIT_PAUSE_MAX);
        pause
    }
}

/// An fsync of a quick disk.
const COMMIT_PAUSE_MIN: Duration = Duration::from_millis(2);
const COMMIT_PAUSE_MAX: Duration = Duration::from_millis(128);

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Poll;

    use larder_store::MemoryStore;
    use larder_store::commit::Committer;

    use super::*;
    use crate::net::worker_pool::WorkerPool;
    use crate::observe::process::ProcessFiles;
    use crate::persistence::{self, StoreSettings};

    fn kept() -> (State, Committer) {
        let store = Arc::new(MemoryStore::new());
        let (shared, committer) = persistence::tests::kept(StoreSettings::default(), store);
        let pool = Arc::new(WorkerPool::new(1, Vec::new()).expect("descriptors"));
        (State::new(shared, pool, ProcessFiles::default()).expect("random numbers"), committer)
    }

    #[test]
    fn who_waits_long_looks_less_and_less() {
        let mut pause = Backoff::default();
        let pauses: Vec<_> = (0..9).map(|_| pause.next().as_millis()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 128, 128]);
    }

    #[test]
    fn a_flush_of_what_is_kept_is_answered_once_it_is_durable() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (state, mut committer) = kept();
        runtime.block_on(async {
            let mut flush = pin!(flush("prefix=%3Cnull%3E", &state));
            let first = poll_fn(|cx| Poll::Ready(flush.as_mut().poll(cx))).await;
            assert!(first.is_pending(), "nothing is durable yet");
            committer.step_through(0);
            committer.sync();
            assert_eq!(flush.await, Ok(()));
        });
    }
}
