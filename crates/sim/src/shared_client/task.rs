//! A task: one operation after the other, each of whose answers is compared with the history.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use larder_client::client::StoreOutcome;
use larder_client::{AsyncClient, Error, Ttl};
use tokio::time::{Instant, timeout, timeout_at};

use super::Totals;
use super::history::{History, counter_name, key_name};
use super::network::Log;
use super::scenario::{Bug, ClientScenario};
use crate::backing::lock;
use crate::rng::Choose as _;

/// A task, and what it shares with the others.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) number: usize,
    pub(super) scenario: Arc<ClientScenario>,
    pub(super) client: AsyncClient,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) totals: Arc<Mutex<Totals>>,
    pub(super) log: Log,
    pub(super) started: Instant,
}

/// What came of an operation. `Err`: what is wrong with it.
type Checked = Result<Verdict, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    Failed,
}

impl Task {
    pub(super) async fn run(self, mut rng: Rng) -> Result<(), String> {
        for _ in 0..self.scenario.operations {
            if rng.percent(30) {
                tokio::time::sleep(Duration::from_millis(rng.u64(..20))).await;
            }
            let (kind, key, bytes) = (rng.u32(..12), rng.usize(..self.scenario.keys), value_bytes(&mut rng));
            let name = NAMES[kind as usize];
            let patience = Duration::from_millis(rng.u64(..self.scenario.timeout.as_millis() as u64));
            let is_cancelled = self.scenario.cancels && rng.percent(15);
            let number = self.number;
            self.log.line(self.started, format_args!("task {number}: {name} of key {key} begins"));
            let asked = self.ask(kind, key, bytes);
            let verdict = if is_cancelled {
                timeout(patience, asked).await.ok().transpose()?
            } else {
                // The clock is the simulator's, so whoever is late is at fault.
                let deadline = Instant::now() + self.scenario.timeout + TICK;
                let verdict = timeout_at(deadline, asked).await;
                Some(verdict.map_err(|_| format!("task {number}: {name} goes on after its deadline"))??)
            };
            self.log.line(self.started, format_args!("task {number}: {name} of key {key}: {verdict:?}"));
            let mut totals = lock(&self.totals);
            totals.operations += 1;
            match verdict {
                Some(Verdict::Right) => totals.right += 1,
                Some(Verdict::Failed) => totals.failed += 1,
                None => totals.cancelled += 1,
            }
        }
        Ok(())
    }

    /// An operation of this kind.
    pub(super) async fn ask(&self, kind: u32, key: usize, bytes: usize) -> Checked {
        match kind {
            0..=2 => self.get(key).await,
            3 | 4 => {
                let (change, value) = lock(&self.history).begin(key, Some(bytes));
                let stored = self.client.set(key_name(key), value, DAY).await;
                self.end_change(change, stored.map(|()| true))
            }
            5 => {
                let (change, _) = lock(&self.history).begin(key, None);
                let deleted = self.client.delete(key_name(key)).await;
                // What was not there is not there either.
                self.end_change(change, deleted.map(|_| true))
            }
            6 => {
                let (change, value) = lock(&self.history).begin(key, Some(bytes));
                let stored = self.client.add(key_name(key), value, DAY).await;
                self.end_change(change, stored.map(|outcome| outcome == StoreOutcome::Stored))
            }
            7 => self.compare_and_swap(key, bytes).await,
            8 => self.count(key).await,
            9 => {
                let (change, value) = lock(&self.history).begin(key, Some(bytes));
                let sent = self.client.noreply().set(key_name(key), value, DAY).await;
                match sent {
                    Ok(()) => Ok(Verdict::Right),
                    Err(error) => self.end_change(change, Err(error)),
                }
            }
            10 => {
                let begin = lock(&self.history).now();
                let found = self.client.get_and_touch(key_name(key), DAY).await;
                self.check(key, begin, found.map(|item| item.map(|item| item.value)))
            }
            _ => self.get_many(key).await,
        }
    }

    pub(super) async fn get(&self, key: usize) -> Checked {
        let begin = lock(&self.history).now();
        let found = self.client.get(key_name(key)).await;
        self.check(key, begin, found.map(|item| item.map(|item| item.value)))
    }

    async fn compare_and_swap(&self, key: usize, bytes: usize) -> Checked {
        let begin = lock(&self.history).now();
        let asked = Instant::now();
        let found = self.client.gets(key_name(key)).await;
        let unique = match &found {
            Ok(Some(item)) => item.cas,
            _ => None,
        };
        self.check(key, begin, found.map(|item| item.map(|item| item.value)))?;
        let left = self.scenario.timeout.saturating_sub(asked.elapsed());
        let Some(unique) = unique.filter(|_| !left.is_zero()) else { return Ok(Verdict::Right) };
        let (change, value) = lock(&self.history).begin(key, Some(bytes));
        let client = self.client.with_timeout(left);
        let stored = client.cas(key_name(key), value, DAY, unique).await;
        if matches!(stored, Ok(StoreOutcome::Stored)) {
            lock(&self.history).compared(key, unique)?;
        }
        self.end_change(change, stored.map(|outcome| outcome == StoreOutcome::Stored))
    }

    async fn count(&self, key: usize) -> Checked {
        let made_before = lock(&self.history).begin_count(key);
        match self.client.incr(counter_name(key), 1).await {
            Ok(Some(shown)) => {
                lock(&self.history).count(key, made_before, Some(shown))?;
                Ok(Verdict::Right)
            }
            Ok(None) if !self.scenario.moves_keys() => Err(format!("{} is gone", counter_name(key))),
            Ok(None) => Ok(Verdict::Right),
            Err(error) => {
                if self.is_certain(&error) {
                    lock(&self.history).count(key, made_before, None)?;
                }
                allowed(&error)
            }
        }
    }

    /// All keys, one of them first and last.
    async fn get_many(&self, first: usize) -> Checked {
        let begin = lock(&self.history).now();
        let keys: Vec<_> = [first].into_iter().chain(0..self.scenario.keys).chain([first]).collect();
        let found = self.client.get_many(keys.iter().map(|key| key_name(*key))).collect().await;
        let mut is_known = vec![true; keys.len()];
        for failure in &found.failures {
            allowed(&failure.error)?;
            failure.places.iter().for_each(|place| is_known[*place] = false);
        }
        for ((key, item), is_known) in keys.iter().zip(&found.items).zip(&is_known) {
            if *is_known {
                let value = item.as_ref().map(|item| &item.value[..]);
                lock(&self.history).read(*key, begin, value)?;
            } else if item.is_some() {
                return Err(format!("{} is found, and told as failed", key_name(*key)));
            }
        }
        Ok(if found.failures.is_empty() { Verdict::Right } else { Verdict::Failed })
    }

    fn check(&self, key: usize, begin: u64, found: Result<Option<Vec<u8>>, Error>) -> Checked {
        match found {
            Ok(value) => lock(&self.history).read(key, begin, value.as_deref()).map(|()| Verdict::Right),
            Err(error) => allowed(&error),
        }
    }

    fn end_change(&self, change: usize, made: Result<bool, Error>) -> Checked {
        match made {
            Ok(is_made) => lock(&self.history).end(change, is_made).map(|()| Verdict::Right),
            Err(error) => {
                if self.is_certain(&error) {
                    lock(&self.history).end(change, false)?;
                }
                allowed(&error)
            }
        }
    }

    /// True if the change is told as not made.
    fn is_certain(&self, error: &Error) -> bool {
        !error.is_unknown() || self.scenario.has(Bug::CertainFailure)
    }
}

/// Errors that a broken network explains. The servers refuse nothing.
fn allowed(error: &Error) -> Checked {
    match error {
        Error::Unknown(reason) => allowed(reason),
        Error::Timeout
        | Error::Closed
        | Error::Io(_)
        | Error::Connect(_)
        | Error::Ejected(_)
        | Error::Violation(_)
        | Error::Interrupted(_) => Ok(Verdict::Failed),
        error => Err(format!("an operation fails: {error}")),
    }
}

fn value_bytes(rng: &mut Rng) -> usize {
    if rng.percent(5) { rng.usize(..9000) } else { rng.usize(..200) }
}

const NAMES: [&str; 12] = [
    "get",
    "get",
    "get",
    "set",
    "set",
    "delete",
    "add",
    "cas",
    "incr",
    "noreply set",
    "get and touch",
    "get of many",
];
const DAY: Ttl = Ttl::After(Duration::from_secs(24 * 60 * 60));
/// tokio's clock counts milliseconds.
const TICK: Duration = Duration::from_millis(1);
