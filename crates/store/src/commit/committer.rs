//! Appends what the journal has, in batches, and makes it durable. A state machine without a thread or a clock: its
//! owner calls [`Committer::step`] again and again. A step appends, or syncs, once.
//!
//! A batch is all that has come meanwhile, so the more changes wait, the fewer fsyncs each of them costs (group commit;
//! DeWitt et al., SIGMOD 1984).
//!
//! When the store cannot append, what was sequenced is lost: the items leave the memory, those who wait are told, and
//! new changes are refused until an attempt succeeds. A full disk takes removals all the same, as long as there is what
//! the store has set aside for them. After a failed fsync nothing is written any more.

use std::sync::Arc;

use super::change::Change;
use super::journal::{Journal, Refusal};
use crate::entry::{Entry, SequenceRange};
use crate::error::{Error, Result};
use crate::state::KeyState;
use crate::store::Store;

/// Where a committer writes: a [`Store`], or what is around one.
pub trait Destination: Send + Sync {
    /// [`Store::append`].
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange>;

    /// [`Store::sync`].
    fn sync(&self) -> Result<u64>;

    /// [`Store::state`].
    fn state(&self, key: &[u8]) -> Result<Option<KeyState>>;
}

impl<S: Store + ?Sized> Destination for Arc<S> {
    fn append(&self, entries: &[Entry<'_>]) -> Result<SequenceRange> {
        (**self).append(entries)
    }

    fn sync(&self) -> Result<u64> {
        (**self).sync()
    }

    fn state(&self, key: &[u8]) -> Result<Option<KeyState>> {
        (**self).state(key)
    }
}

/// Learns what the committer did.
pub trait Observer: Send + Sync {
    /// Changes were applied, made durable, or lost: whoever waits may look again.
    fn on_progress(&self);

    /// The change of this key was lost: the item that memory has is to be dropped, before this returns.
    fn on_lost(&self, change: &Change);

    /// The change of this key is appended in another form, since the store knew better: the item that memory has is to
    /// be dropped. Who has no memory need not know.
    fn on_overruled(&self, change: &Change) {
        let _ = change;
    }

    /// A batch was appended and, if that was asked for, made durable. `bytes`: of keys and values.
    fn on_commit(&self, changes: usize, bytes: u64, is_durable: bool);

    /// The store failed.
    fn on_error(&self, error: &Error);
}

/// What a committer wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To be called again at once.
    Again,
    /// Nothing is to do before a change comes.
    Idle,
    /// Nothing is to do before a change comes, or this time has passed.
    IdleUntil {
        /// On the clock of [`Committer::step`].
        micros: u64,
    },
}

/// Appends and syncs.
pub struct Committer {
    journal: Arc<Journal>,
    store: Box<dyn Destination>,
    observer: Arc<dyn Observer>,
    /// Changes that need no fsync of their own are made durable within this time; `None`: when the store is closed.
    interval_micros: Option<u64>,
    /// When the oldest change that is not durable was applied.
    unsynced_since_micros: Option<u64>,
    /// Changes that are not durable and that followers wait for.
    awaited: usize,
    /// When the last sync began.
    synced_micros: u64,
    /// Changes that shared it, and that followers waited for.
    synced_changes: usize,
    /// What had come until the pause after the last sync was over is applied.
    has_gathered: bool,
    /// When a failed append is tried again.
    retry_micros: u64,
    batch: Vec<Change>,
    /// Once the store is read-only: the position of the last flush that it had by then.
    floor_kept: u64,
    /// What was appended and is made durable by the next step: how many changes, and their bytes.
    appended: Option<(usize, u64)>,
}

impl Committer {
    /// A committer of this journal, its only one.
    pub fn new(
        journal: Arc<Journal>,
        store: impl Destination + 'static,
        observer: Arc<dyn Observer>,
        interval_micros: Option<u64>,
    ) -> Self {
        Self {
            journal,
            store: Box::new(store),
            observer,
            interval_micros,
            unsynced_since_micros: None,
            awaited: 0,
            synced_micros: 0,
            synced_changes: 0,
            has_gathered: false,
            retry_micros: 0,
            batch: Vec::new(),
            floor_kept: 0,
            appended: None,
        }
    }

    /// Does what there is to do. The time is any that does not go back.
    pub fn step(&mut self, now_micros: u64) -> Step {
        if let Some((changes, bytes)) = self.appended.take() {
            self.synced_micros = now_micros;
            if self.sync() {
                self.observer.on_commit(changes, bytes, true);
            }
            return Step::Again;
        }
        match self.journal.refusal() {
            Some(Refusal::ReadOnly) => {
                // Of threads that were admitted before.
                self.lose_what_is_left(self.journal.applied());
                Step::Idle
            }
            Some(Refusal::Full) if now_micros < self.retry_micros => match self.commit(now_micros) {
                Step::Again => Step::Again,
                Step::Idle => Step::IdleUntil { micros: self.retry_micros },
                Step::IdleUntil { micros } => Step::IdleUntil { micros: micros.min(self.retry_micros) },
            },
            Some(_) if now_micros < self.retry_micros => Step::IdleUntil { micros: self.retry_micros },
            Some(_) => {
                self.journal.set_refusal(None);
                self.observer.on_progress();
                self.commit(now_micros)
            }
            None => self.commit(now_micros),
        }
    }

    /// Makes durable all that was applied, regardless of the interval. False: the store has become read-only.
    pub fn sync(&mut self) -> bool {
        self.synced_changes = std::mem::take(&mut self.awaited);
        (self.unsynced_since_micros, self.has_gathered) = (None, false);
        match self.store.sync() {
            Ok(_) => {
                self.journal.set_durable(self.journal.applied());
                self.observer.on_progress();
                true
            }
            Err(error) => {
                self.become_read_only(&error);
                false
            }
        }
    }

    fn sync_at(&mut self, now_micros: u64) -> Step {
        self.synced_micros = now_micros;
        self.sync();
        Step::Again
    }

    fn commit(&mut self, now_micros: u64) -> Step {
        let is_sync_due = self.sync_due_micros().is_some_and(|due| due <= now_micros);
        // Before more is taken: under load there always is more. Followers get with it what has come until now: who
        // waits for the pause to end waits for one sync.
        if is_sync_due && (self.has_gathered || !self.journal.is_followed()) {
            return self.sync_at(now_micros);
        }
        let first = self.journal.applied() + 1;
        let mut bytes = 0;
        while self.batch.len() < BATCH_CHANGES_MAX
            && let bytes_left =
                if self.batch.is_empty() { u64::MAX } else { BATCH_BYTES_MAX.saturating_sub(bytes) }
            && let Some(change) = self.journal.take_within(first + self.batch.len() as u64, bytes_left)
        {
            bytes += change.memory_bytes();
            self.batch.push(change);
        }
        if self.batch.is_empty() {
            if is_sync_due {
                return self.sync_at(now_micros);
            }
            return self.sync_due_micros().map_or(Step::Idle, |micros| Step::IdleUntil { micros });
        }
        self.has_gathered = is_sync_due || self.followed_due_micros() <= now_micros;
        self.keep_awaiting_expiries();
        if let Err(error) = append(&*self.store, &self.batch) {
            if let Error::ReadOnly { .. } = error {
                self.become_read_only(&error);
            } else {
                self.fail(&error, now_micros);
            }
            return Step::Again;
        }
        let is_sync = self.batch.iter().any(|change| change.is_sync);
        self.awaited += self.batch.iter().filter(|change| change.is_followed).count();
        let changes = self.batch.len();
        let payload_bytes = self.batch.iter().map(Change::payload_bytes).sum();
        self.batch.clear();
        self.journal.set_applied(first + changes as u64 - 1);
        self.unsynced_since_micros.get_or_insert(now_micros);
        if is_sync {
            self.appended = Some((changes, payload_bytes));
        } else {
            self.observer.on_progress();
            self.observer.on_commit(changes, payload_bytes, false);
        }
        Step::Again
    }

    /// A touch that has come before its value waits for it, and the older value lives as long meanwhile. A touch of
    /// that older value does not replace it: an expiry of a newer value counts, and others have it. Memory does not
    /// know of which value an expiry is, so the store is asked, if there is such an expiry at all.
    fn keep_awaiting_expiries(&mut self) {
        for change in &mut self.batch {
            let Some(version) = change.touched_version() else { continue };
            if !self.journal.may_await_above(version) {
                continue;
            }
            match self.store.state(change.key()) {
                Ok(Some(known)) if known.item.is_some() && known.expiry_value_version > version => {
                    change.keep_expiry(&known);
                    self.observer.on_overruled(change);
                }
                Ok(_) => {}
                Err(error) => self.observer.on_error(&error),
            }
        }
    }

    /// When what was applied is to be made durable; `None`: all is, or nobody asks for it.
    fn sync_due_micros(&self) -> Option<u64> {
        let since_micros = self.unsynced_since_micros?;
        let by_interval = self.interval_micros.map(|interval| since_micros.saturating_add(interval));
        let by_followers = self.awaited > 0 && self.journal.is_followed();
        let by_followers = by_followers.then(|| since_micros.max(self.followed_due_micros()));
        by_interval.into_iter().chain(by_followers).min()
    }

    /// From when on followers get the next sync.
    fn followed_due_micros(&self) -> u64 {
        let is_busy = self.synced_changes >= BUSY_CHANGES;
        let pause_micros = if is_busy { BUSY_PAUSE_MICROS } else { FOLLOWED_PAUSE_MICROS };
        self.synced_micros.saturating_add(pause_micros)
    }

    /// How long changes that nobody waits for are to be gathered before the next step: a wake-up and an append for each
    /// would cost more than the change. Followers wait for the pause after the last sync only.
    pub fn linger_micros(&self, now_micros: u64) -> u64 {
        match self.gathers_until_sync() {
            true => self.followed_due_micros().saturating_sub(now_micros),
            false => LINGER_MICROS,
        }
    }

    /// Of too many changes the first would have left the processor's cache by then.
    fn gathers_until_sync(&self) -> bool {
        self.journal.is_followed() && self.synced_changes < GATHERED_CHANGES_MAX
    }

    /// For how long nothing is to be appended now, unless somebody waits for it: what has come since the last sync for
    /// followers goes with the next one, and is appended at once then.
    pub fn gather_micros(&self, now_micros: u64) -> u64 {
        let has_gap = self.gathers_until_sync() && self.unsynced_since_micros.is_none();
        if has_gap { self.followed_due_micros().saturating_sub(now_micros) } else { 0 }
    }

    /// The batch could not be appended. It is lost, and so is every change behind it, which may build upon it.
    /// What was appended before is made durable first: below the barrier everything counts as durable.
    fn fail(&mut self, error: &Error, now_micros: u64) {
        self.observer.on_error(error);
        if self.unsynced_since_micros.is_some() && !self.sync() {
            return;
        }
        let is_full = matches!(error, Error::Full { .. });
        self.journal.set_refusal(Some(if is_full { Refusal::Full } else { Refusal::Failed }));
        // Removals alone have been tried with what is set aside for them.
        let keeps = is_full && !self.batch.iter().all(Change::only_removes);
        let mut removals = keeps.then(Vec::new);
        self.retry_micros = now_micros + RETRY_MICROS;
        let applied = self.journal.applied();
        let mut next = applied + 1 + self.batch.len() as u64;
        let barrier = loop {
            next = self.lose(next, &mut removals);
            // From here on what was read from the store before says nothing, and a key whose change was lost is as the
            // store has it. If no change came in between, none builds upon what was lost: memory had lost it before.
            let barrier = self.journal.next_position_of_all();
            self.journal.submit(barrier, Change::nothing());
            if barrier == next {
                break barrier;
            }
        };
        while self.journal.take(barrier).is_none() {
            std::thread::yield_now();
        }
        self.journal.note_lost(applied + 1..=barrier - 1);
        let kept = self.keep(removals.unwrap_or_default());
        self.resolve(barrier);
        if let Err(error @ Error::ReadOnly { .. }) = kept {
            self.become_read_only(&error);
        }
    }

    /// Makes removals that were behind what found no room. Errors: those left are lost.
    fn keep(&mut self, removals: Vec<(u64, Change)>) -> Result<()> {
        let (mut positions, mut changes): (Vec<_>, Vec<_>) = removals.into_iter().unzip();
        while !changes.is_empty() {
            let later = (
                positions.split_off(positions.len().min(BATCH_CHANGES_MAX)),
                changes.split_off(changes.len().min(BATCH_CHANGES_MAX)),
            );
            let kept = append(&*self.store, &changes).and_then(|()| self.store.sync());
            if let Err(error) = kept {
                changes.iter().chain(&later.1).for_each(|change| self.observer.on_lost(change));
                return Err(error);
            }
            self.journal.note_kept(positions.into_iter());
            (positions, changes) = later;
        }
        Ok(())
    }

    /// After a failed fsync nobody knows what the disk has. A flush that was appended concerns all keys: whether it was
    /// made is not known of any of them. What was appended and is not durable stays readable for
    /// those who were promised nothing; for others it counts as lost.
    fn become_read_only(&mut self, error: &Error) {
        self.observer.on_error(error);
        self.journal.set_refusal(Some(Refusal::ReadOnly));
        let (applied, durable, floor) =
            (self.journal.applied(), self.journal.durable(), self.journal.floor());
        self.floor_kept = match floor <= applied {
            true => floor,
            // Of those before it only the last is known.
            false if applied > durable => applied,
            false => 0,
        };
        self.lose_what_is_left(durable);
    }

    /// Everything above `durable` is lost.
    fn lose_what_is_left(&mut self, durable: u64) {
        let last = self.lose(self.journal.applied() + 1 + self.batch.len() as u64, &mut None) - 1;
        if last > durable {
            self.journal.note_lost(durable + 1..=last);
            self.journal.set_floor(self.floor_kept);
            self.resolve(last);
        }
    }

    /// Loses the batch, and all changes from position `next` on, but for `removals` if these are to be kept. Returns the
    /// next position. When it returns, no item in memory has what was lost.
    fn lose(&mut self, mut next: u64, removals: &mut Option<Vec<(u64, Change)>>) -> u64 {
        loop {
            let first = next - self.batch.len() as u64;
            for (position, change) in (first..).zip(self.batch.drain(..)) {
                match removals {
                    Some(removals) if change.only_removes() => removals.push((position, change)),
                    _ => self.observer.on_lost(&change),
                }
            }
            if next > self.journal.last_given() {
                return next;
            }
            match self.journal.take(next) {
                Some(change) => {
                    self.batch.push(change);
                    next += 1;
                }
                // Its thread is about to submit it.
                None => std::thread::yield_now(),
            }
        }
    }

    fn resolve(&mut self, position: u64) {
        self.journal.set_applied(position);
        self.journal.set_durable(position);
        self.observer.on_progress();
    }
}

fn append(store: &dyn Destination, batch: &[Change]) -> Result<()> {
    let values: Vec<[&[u8]; 1]> = batch.iter().map(|change| [change.value()]).collect();
    let entries: Vec<_> =
        batch.iter().zip(&values).filter_map(|(change, value)| change.entry(value)).collect();
    if entries.is_empty() { Ok(()) } else { store.append(&entries).map(drop) }
}

const BATCH_CHANGES_MAX: usize = 4096;
/// One change may be larger: then it is all of its batch. A store takes [`crate::BATCH_BYTES_MAX`].
const BATCH_BYTES_MAX: u64 = 16 << 20;
const _: () = assert!(BATCH_BYTES_MAX < crate::BATCH_BYTES_MAX as u64);
const RETRY_MICROS: u64 = 200_000;
const LINGER_MICROS: u64 = 300;
/// Between two syncs for followers: what a sync costs is shared by the changes of that time.
const FOLLOWED_PAUSE_MICROS: u64 = 800;
/// After a sync that so many of their changes shared. Beside other work, a sync costs as much as a hundred changes.
const BUSY_PAUSE_MICROS: u64 = 2_000;
const BUSY_CHANGES: usize = 48;
/// Changes of 1 KiB that are in a cache of 1 MiB until they are appended, beside what requests need there.
const GATHERED_CHANGES_MAX: usize = 200;
