//! Appends the journal's changes in batches, and makes them durable. This is a state machine without a thread or a
//! clock: its owner calls [`Committer::step`] again and again. A step appends once, or begins a sync. The owner
//! performs that sync ([`Destination::sync`]) on any thread, and reports its outcome ([`Committer::synced`]); steps in
//! between append.
//!
//! A batch holds all changes that have come meanwhile, so the more changes wait, the fewer fsyncs each of them costs
//! (group commit; DeWitt et al., SIGMOD 1984).
//!
//! When the store cannot append, the sequenced changes are lost: their items leave the memory, waiting clients are
//! told, and new changes are refused until the store takes as much again. That is never tried with a change: one that
//! is answered at once would be lost unnoticed. A full disk still takes removals, as long as the space set aside for
//! them lasts. After a failed fsync nothing is written any more; changes that nobody waits for were answered before,
//! and stay readable ([`Destination::keep_readable`]).

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

    /// See [`Store::try_write`].
    fn try_write(&self, bytes: u64, entries: usize) -> Result<()>;

    /// See [`Store::keep_readable`].
    fn keep_readable(&self, entries: &[Entry<'_>]) -> Result<()>;

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

    fn try_write(&self, bytes: u64, entries: usize) -> Result<()> {
        (**self).try_write(bytes, entries)
    }

    fn keep_readable(&self, entries: &[Entry<'_>]) -> Result<()> {
        (**self).keep_readable(entries)
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

    /// A removal behind a lost change was made nevertheless, and is durable.
    fn on_kept(&self, change: &Change) {
        let _ = change;
    }

    /// Reports that changes were appended and, if somebody waits for that, made durable within `durable_micros` of
    /// their first step. `bytes` counts keys and values.
    fn on_commit(&self, changes: usize, bytes: u64, durable_micros: Option<u64>);

    /// The store failed.
    fn on_error(&self, error: &Error);
}

/// What a committer wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To be called again at once.
    Again,
    /// A sync has begun: the owner has to perform it ([`Committer::store`]) and call [`Committer::synced`] with its
    /// outcome. Until then steps append, and begin no other sync.
    Sync,
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
    store: Arc<dyn Destination>,
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
    /// The bytes and changes that could not be appended.
    refused: (u64, usize),
    batch: Vec<Change>,
    /// Once the store is read-only: the position of the last flush that it had by then.
    floor_kept: u64,
    /// The next step begins a sync, unless one runs.
    is_sync_asked: bool,
    /// Changes that were appended and that somebody waits for, and that no sync covers yet.
    held: Held,
    /// The sync that is running.
    syncing: Option<Syncing>,
    /// The batch could not be appended: it is lost once everything before it is durable.
    is_losing: bool,
}

/// Changes that somebody waits for.
#[derive(Clone, Copy, Default)]
struct Held {
    changes: usize,
    bytes: u64,
    since_micros: u64,
}

/// A sync that has begun. It does not make later changes durable.
struct Syncing {
    /// It covers the changes up to this position.
    through: u64,
    held: Held,
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
            store: Arc::new(store),
            observer,
            interval_micros,
            unsynced_since_micros: None,
            awaited: 0,
            synced_micros: 0,
            synced_changes: 0,
            has_gathered: false,
            retry_micros: 0,
            refused: (0, 0),
            batch: Vec::new(),
            floor_kept: 0,
            is_sync_asked: false,
            held: Held::default(),
            syncing: None,
            is_losing: false,
        }
    }

    /// Does what there is to do. The time is any that does not go back.
    pub fn step(&mut self, now_micros: u64) -> Step {
        if self.is_losing {
            return self.go_on_losing(now_micros);
        }
        if let Some(Refusal::Full | Refusal::Failed) = self.journal.refusal()
            && now_micros >= self.retry_micros
        {
            self.try_again(now_micros);
        }
        match self.journal.refusal() {
            _ if self.is_losing => Step::Again,
            Some(Refusal::ReadOnly) => {
                // Of threads that were admitted before.
                self.settle_what_is_left(self.journal.applied());
                Step::Idle
            }
            Some(Refusal::Full) => match self.commit(now_micros) {
                step @ (Step::Again | Step::Sync) => step,
                Step::Idle => Step::IdleUntil { micros: self.retry_micros },
                Step::IdleUntil { micros } => Step::IdleUntil { micros: micros.min(self.retry_micros) },
            },
            Some(_) => Step::IdleUntil { micros: self.retry_micros },
            None => self.commit(now_micros),
        }
    }

    /// Like [`step`](Self::step), for an owner that waits for each sync: never returns [`Step::Sync`].
    pub fn step_through(&mut self, now_micros: u64) -> Step {
        match self.step(now_micros) {
            Step::Sync => {
                let result = self.store.sync();
                self.synced(result, now_micros);
                Step::Again
            }
            step => step,
        }
    }

    /// The store on which to perform a sync that has begun.
    pub fn store(&self) -> Arc<dyn Destination> {
        Arc::clone(&self.store)
    }

    /// True from [`Step::Sync`] until [`synced`](Self::synced).
    pub fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Makes everything that was applied durable, regardless of the interval. Must not be called while a sync runs.
    /// False: the store has become read-only.
    pub fn sync(&mut self) -> bool {
        self.begin_sync(self.synced_micros);
        let result = self.store.sync();
        self.synced(result, self.synced_micros);
        self.journal.refusal() != Some(Refusal::ReadOnly)
    }

    fn begin_sync(&mut self, now_micros: u64) -> Step {
        self.synced_micros = now_micros;
        self.synced_changes = std::mem::take(&mut self.awaited);
        (self.unsynced_since_micros, self.has_gathered, self.is_sync_asked) = (None, false, false);
        let held = std::mem::take(&mut self.held);
        self.syncing = Some(Syncing { through: self.journal.applied(), held });
        Step::Sync
    }

    /// Reports the outcome of the sync that had begun.
    pub fn synced(&mut self, result: Result<u64>, now_micros: u64) {
        let Some(Syncing { through, held }) = self.syncing.take() else { return };
        match result {
            // The failure was noticed meanwhile.
            _ if self.journal.refusal() == Some(Refusal::ReadOnly) => {}
            Ok(_) => {
                self.journal.set_durable(through);
                self.observer.on_progress();
                if held.changes > 0 {
                    let micros = now_micros.saturating_sub(held.since_micros);
                    self.observer.on_commit(held.changes, held.bytes, Some(micros));
                }
            }
            Err(error) => self.become_read_only(&error),
        }
    }

    fn commit(&mut self, now_micros: u64) -> Step {
        let can_sync = self.syncing.is_none();
        if can_sync && self.is_sync_asked {
            return self.begin_sync(now_micros);
        }
        let is_sync_due = can_sync && self.sync_due_micros().is_some_and(|due| due <= now_micros);
        // Before more is taken: under load there always is more. Followers get with it what has come until now: who
        // waits for the pause to end waits for one sync.
        if is_sync_due && (self.has_gathered || !self.journal.is_followed()) {
            return self.begin_sync(now_micros);
        }
        let wanted = self.journal.wanted();
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
            if is_sync_due || can_sync && self.needs_sync_for(wanted) {
                return self.begin_sync(now_micros);
            }
            let due_micros = if can_sync { self.sync_due_micros() } else { None };
            return due_micros.map_or(Step::Idle, |micros| Step::IdleUntil { micros });
        }
        self.has_gathered = is_sync_due || self.followed_due_micros() <= now_micros;
        self.keep_awaiting_expiries();
        if let Err(error) = append(&self.batch, |entries| self.store.append(entries).map(drop)) {
            if let Error::ReadOnly { .. } = error {
                self.become_read_only(&error);
            } else {
                self.fail(&error);
            }
            return Step::Again;
        }
        let is_held = self.batch.iter().any(|change| change.is_sync);
        self.awaited += self.batch.iter().filter(|change| change.is_followed).count();
        let changes = self.batch.len();
        let payload_bytes = self.batch.iter().map(Change::payload_bytes).sum();
        self.batch.clear();
        self.journal.set_applied(first + changes as u64 - 1);
        self.unsynced_since_micros.get_or_insert(now_micros);
        self.is_sync_asked |= is_held || self.needs_sync_for(wanted);
        if self.journal.takes_append_awaited() || !is_held {
            self.observer.on_progress();
        }
        if is_held {
            if self.held.changes == 0 {
                self.held.since_micros = now_micros;
            }
            self.held.changes += changes;
            self.held.bytes += payload_bytes;
        } else {
            self.observer.on_commit(changes, payload_bytes, None);
        }
        Step::Again
    }

    /// True if somebody waits for this position to be durable, and it was appended after the last sync began.
    fn needs_sync_for(&self, wanted: u64) -> bool {
        let covered = self.syncing.as_ref().map_or_else(|| self.journal.durable(), |syncing| syncing.through);
        self.unsynced_since_micros.is_some() && (covered + 1..=self.journal.applied()).contains(&wanted)
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

    /// Takes changes again if the store does.
    fn try_again(&mut self, now_micros: u64) {
        let (bytes, changes) = self.refused;
        match self.store.try_write(bytes, changes) {
            Ok(()) => {
                self.journal.set_refusal(None);
                self.observer.on_progress();
            }
            Err(error @ Error::ReadOnly { .. }) => self.become_read_only(&error),
            Err(error) => {
                self.retry_micros = now_micros + RETRY_MICROS;
                // Of threads that were admitted before. Beside a full disk they are appended, or lost, as they come.
                let is_full = self.journal.refusal() == Some(Refusal::Full);
                if !is_full && self.journal.load().0 > 0 {
                    self.fail(&error);
                }
            }
        }
    }

    /// The batch could not be appended. It is lost, and so is every change behind it, which may build upon it.
    fn fail(&mut self, error: &Error) {
        self.observer.on_error(error);
        let is_full = matches!(error, Error::Full { .. });
        if !self.batch.is_empty() {
            let bytes = self.batch.iter().map(Change::memory_bytes).sum::<u64>();
            // A value that is longer is not what all others wait for.
            self.refused = (bytes.min(BATCH_BYTES_MAX), self.batch.len());
        }
        self.journal.set_refusal(Some(if is_full { Refusal::Full } else { Refusal::Failed }));
        self.is_losing = true;
    }

    /// Everything that was appended before is made durable first, since everything below the barrier counts as durable.
    fn go_on_losing(&mut self, now_micros: u64) -> Step {
        if self.syncing.is_some() {
            return Step::Idle;
        }
        if self.unsynced_since_micros.is_some() {
            return self.begin_sync(now_micros);
        }
        self.is_losing = false;
        // A batch of removals alone has already been tried with the space set aside for them.
        let is_full = self.journal.refusal() == Some(Refusal::Full);
        let keeps_removals = is_full && !self.batch.iter().all(Change::only_removes);
        let mut removals = Vec::new();
        self.retry_micros = now_micros + RETRY_MICROS;
        let applied = self.journal.applied();
        let mut next = applied + 1 + self.batch.len() as u64;
        let barrier = loop {
            next = self.settle(next, |position, change| {
                if keeps_removals && change.only_removes() {
                    removals.push((position, change));
                    return None;
                }
                Some(change)
            });
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
        let kept = self.keep(removals);
        self.resolve(barrier);
        if let Err(error @ Error::ReadOnly { .. }) = kept {
            self.become_read_only(&error);
        }
        Step::Again
    }

    /// Makes removals that were behind a change that found no room. Errors: those left are lost.
    fn keep(&mut self, removals: Vec<(u64, Change)>) -> Result<()> {
        let (mut positions, mut changes): (Vec<_>, Vec<_>) = removals.into_iter().unzip();
        while !changes.is_empty() {
            let later = (
                positions.split_off(positions.len().min(BATCH_CHANGES_MAX)),
                changes.split_off(changes.len().min(BATCH_CHANGES_MAX)),
            );
            let kept = append(&changes, |entries| {
                self.store.append(entries).and_then(|_| self.store.sync()).map(drop)
            });
            if let Err(error) = kept {
                changes.iter().chain(&later.1).for_each(|change| self.observer.on_lost(change));
                return Err(error);
            }
            changes.iter().for_each(|change| self.observer.on_kept(change));
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
        self.is_losing = false;
        let (applied, durable, floor) =
            (self.journal.applied(), self.journal.durable(), self.journal.floor());
        self.floor_kept = match floor <= applied {
            true => floor,
            // Of those before it only the last is known.
            false if applied > durable => applied,
            false => 0,
        };
        self.settle_what_is_left(durable);
    }

    /// Nobody is told that a change above `durable` was made. Changes that were answered before stay readable.
    fn settle_what_is_left(&mut self, durable: u64) {
        let store = Arc::clone(&self.store);
        let next = self.journal.applied() + 1 + self.batch.len() as u64;
        let next = self.settle(next, |_, change| {
            let keep = |entries: &[Entry<'_>]| store.keep_readable(entries);
            let is_kept = !change.is_sync && append(std::slice::from_ref(&change), keep).is_ok();
            (!is_kept).then_some(change)
        });
        let last = next - 1;
        if last > durable {
            self.journal.note_lost(durable + 1..=last);
            self.journal.set_floor(self.floor_kept);
            self.resolve(last);
        }
    }

    /// Takes the batch, and all changes from position `next` on. Changes that `keep` returns are lost. Returns the next
    /// position. When it returns, no item in memory has a lost change.
    fn settle(&mut self, mut next: u64, mut keep: impl FnMut(u64, Change) -> Option<Change>) -> u64 {
        loop {
            let first = next - self.batch.len() as u64;
            for (position, change) in (first..).zip(self.batch.drain(..)) {
                if let Some(lost) = keep(position, change) {
                    self.observer.on_lost(&lost);
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

/// Passes the parts of these changes that the store needs to `to`.
fn append(batch: &[Change], to: impl FnOnce(&[Entry<'_>]) -> Result<()>) -> Result<()> {
    let values: Vec<[&[u8]; 1]> = batch.iter().map(|change| [change.value()]).collect();
    let entries: Vec<_> =
        batch.iter().zip(&values).filter_map(|(change, value)| change.entry(value)).collect();
    if entries.is_empty() { Ok(()) } else { to(&entries) }
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
