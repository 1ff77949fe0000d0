//! Between the engine and the journal: the witness of each change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_engine::{Backing, Change, Hash, Position};
use larder_server::clock::Clock;
use larder_store::commit::Journal;

use crate::scenario::{Bug, Scenario};
use crate::witness::{Item, Witness};

/// Tells the witness what the engine tells the journal.
pub(crate) struct WitnessBacking {
    pub(crate) inner: Arc<dyn Backing>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) witness: Arc<Mutex<Witness>>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) looks_past_journal: bool,
    pub(crate) unchecked_fill: Option<UncheckedFill>,
}

/// Makes the engine believe that no key has changed since it was last looked for, as long as a reader is at work.
#[derive(Default)]
pub(crate) struct UncheckedFill {
    is_filling: Arc<AtomicBool>,
    last: Mutex<BTreeMap<u64, Position>>,
}

impl WitnessBacking {
    pub(crate) fn plant(&mut self, scenario: &Scenario, is_filling: &Arc<AtomicBool>) {
        self.looks_past_journal = scenario.has(Bug::LookPastJournal);
        if scenario.has(Bug::UncheckedFill) {
            self.unchecked_fill =
                Some(UncheckedFill { is_filling: Arc::clone(is_filling), ..UncheckedFill::default() });
        }
    }

    fn second(&self, secs: u32) -> i64 {
        self.clock.wall_secs(secs).max(1)
    }
}

impl Backing for WitnessBacking {
    fn next_position(&self, hash: Hash) -> Position {
        if self.looks_past_journal {
            // Noted of another key.
            return self.journal.next_position(!hash.bits());
        }
        self.inner.next_position(hash)
    }

    fn submit(&self, position: Position, change: Change<'_>) {
        let (key, item) = match change {
            Change::Delete { key, .. } => (key, None),
            Change::Put { kept, .. } => {
                let item = Item {
                    value: kept.value.into(),
                    client_flags: kept.client_flags,
                    expires_at: self.clock.unix_secs_of(kept.expiry).map(|secs| secs.max(1)),
                    version: kept.version,
                    is_stale: kept.is_stale,
                    is_token_held: kept.is_token_held,
                };
                (kept.key, Some(item))
            }
        };
        lock(&self.witness).on_change(key, position, item);
        self.inner.submit(position, change);
    }

    fn position_of(&self, hash: Hash) -> Position {
        let position = self.inner.position_of(hash);
        let Some(unchecked) = &self.unchecked_fill else { return position };
        let mut last = lock(&unchecked.last);
        if unchecked.is_filling.load(Relaxed) {
            return last.get(&hash.bits()).copied().unwrap_or(position);
        }
        last.insert(hash.bits(), position);
        position
    }

    fn version_above(&self, replaced: u64) -> u64 {
        self.inner.version_above(replaced)
    }

    fn retire_version(&self, version: u64) {
        self.inner.retire_version(version);
    }

    fn flush(&self) -> Position {
        let position = self.inner.flush();
        lock(&self.witness).on_flush(position);
        position
    }

    fn schedule_flush(&self, at: Option<u32>) -> Position {
        let position = self.inner.schedule_flush(at);
        lock(&self.witness).on_schedule(position, at.map(|secs| self.second(secs)));
        position
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
