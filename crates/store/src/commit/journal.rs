//! The changes of all threads in one order, until the committer has appended them.
//!
//! A thread takes a position ([`Journal::next_position`]) while it holds the lock of the key that it changes, so the
//! positions of a key are in the order of its changes. It submits the change afterwards, without a lock. The committer
//! takes changes in the order of positions, and waits for one whose thread has not submitted it yet.
//!
//! Of each key the journal keeps the position of its newest change, in a table by hash: keys may share an entry, which
//! then has the higher position. So a reader can tell whether what it found may not be durable yet, and whether what it
//! read from the store is still the newest.
//!
//! Its memory is bounded by the caller: before a command it asks [`Journal::admit`]. A thread that was admitted adds a
//! few changes at most, for which there is always room.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::change::Change;
use super::failures::Failures;
use super::known_versions::KnownVersions;
use super::versions::{Clock, Versions};

/// How a journal is to be built.
pub struct JournalConfig {
    /// Bytes of changes on their way, from which on commands wait.
    pub bytes_max: u64,
    /// Changes on their way, from which on commands wait: rounded up to a power of two, at least 64.
    pub changes_max: usize,
    /// The site, in versions; 0: there is one only.
    pub site: u8,
    /// The highest version of the store.
    pub highest_version: u64,
    /// The clock of versions.
    pub clock: Box<dyn Clock>,
}

/// The order of changes.
pub struct Journal {
    slots: Box<[Mutex<Option<Change>>]>,
    /// The last position given.
    given: AtomicU64,
    /// Position of the last change that followers wait for, where changes are replicated.
    followed: AtomicU64,
    /// Up to here the store has the changes, or they were lost.
    applied: AtomicU64,
    /// Up to here the changes are durable, or lost.
    durable: AtomicU64,
    /// Rises with each change of the two above, and of the refusal.
    progress: AtomicU64,
    failures: Failures,
    /// By hash.
    newest: Box<[AtomicU64]>,
    /// The position of the last flush, or of the last loss, which concern any key.
    floor: AtomicU64,
    bytes: AtomicU64,
    bytes_max: u64,
    changes_max: u64,
    /// [`Refusal`] as a number; 0: none.
    refusal: AtomicU8,
    /// Who reads the log, and needs what it has to be durable.
    followers: AtomicU32,
    versions: Versions,
    /// Of a site that others are told of.
    known: Option<KnownVersions>,
    clock: Box<dyn Clock>,
    /// The committer waits for `wake`.
    is_idle: AtomicBool,
    /// So it does, or for changes to come: until somebody waits.
    is_lingering: AtomicBool,
    /// Somebody waits for what was submitted before.
    is_hurried: AtomicBool,
    idle: Mutex<()>,
    wake: Condvar,
    /// The highest position that somebody waits for to be durable.
    wanted: AtomicU64,
    /// Somebody waits for a change to be appended.
    is_append_awaited: AtomicBool,
    /// The last submitted position whose sync nobody waits for.
    answered: AtomicU64,
    /// A sync is running: see [`beside_sync`](Self::beside_sync).
    is_syncing: AtomicBool,
    is_called: AtomicBool,
    call: Condvar,
}

/// What became of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is not known yet.
    Pending,
    /// Done.
    Done,
    /// The change is lost: nobody may be told that it was made.
    Lost,
}

/// Why no change is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// Too much is on its way: wait.
    Busy = 1,
    /// The disk is full.
    Full,
    /// The store has become read-only.
    ReadOnly,
    /// The store failed to append; it is tried again.
    Failed,
}

impl Journal {
    /// An empty journal.
    pub fn new(config: JournalConfig) -> Self {
        let changes_max = config.changes_max.next_power_of_two().max(64);
        Self {
            // The second half is for threads that were admitted.
            slots: (0..2 * changes_max).map(|_| Mutex::new(None)).collect(),
            given: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            failures: Failures::default(),
            newest: (0..TABLE_ENTRIES).map(|_| AtomicU64::new(0)).collect(),
            floor: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_max: config.bytes_max,
            changes_max: changes_max as u64,
            refusal: AtomicU8::new(0),
            followers: AtomicU32::new(0),
            versions: Versions::new(config.site, config.highest_version),
            known: (config.site != 0).then(|| KnownVersions::new(config.site)),
            clock: config.clock,
            is_idle: AtomicBool::new(false),
            is_lingering: AtomicBool::new(false),
            is_hurried: AtomicBool::new(false),
            idle: Mutex::new(()),
            wake: Condvar::new(),
            wanted: AtomicU64::new(0),
            is_append_awaited: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            is_syncing: AtomicBool::new(false),
            is_called: AtomicBool::new(false),
            call: Condvar::new(),
        }
    }

    /// Whether a command may make changes now. `Err(Busy)`: once `applied` has advanced.
    pub fn admit(&self) -> Result<(), Refusal> {
        self.refusal().map_or_else(|| self.admit_load(), Err)
    }

    /// Like [`admit`](Self::admit), for changes that only remove: on a full disk space is set aside for them.
    pub fn admit_removal(&self) -> Result<(), Refusal> {
        match self.refusal() {
            None | Some(Refusal::Full) => self.admit_load(),
            Some(refusal) => Err(refusal),
        }
    }

    fn admit_load(&self) -> Result<(), Refusal> {
        let changes = self.given.load(Relaxed).saturating_sub(self.applied.load(Relaxed));
        let is_busy = self.bytes.load(Relaxed) >= self.bytes_max || changes >= self.changes_max;
        if is_busy { Err(Refusal::Busy) } else { Ok(()) }
    }

    /// Why no change is admitted for now; never [`Refusal::Busy`].
    pub fn refusal(&self) -> Option<Refusal> {
        let refusal = self.refusal.load(Acquire);
        [Refusal::Full, Refusal::ReadOnly, Refusal::Failed].into_iter().find(|known| *known as u8 == refusal)
    }

    /// A change of a key with this hash follows soon. Loads do not wait for each other: what those of a batch of keys
    /// read is in the cache by then.
    pub fn hint_change(&self, hash: u64) {
        black_box(self.newest[entry_of(hash)].load(Relaxed));
        if let Some(known) = &self.known {
            black_box(known.known(hash));
        }
    }

    /// The next position, for a change of a key with this hash. Call under the lock of the key, and submit the change
    /// afterwards in any case.
    pub fn next_position(&self, hash: u64) -> u64 {
        let position = self.given.fetch_add(1, AcqRel) + 1;
        self.newest[entry_of(hash)].fetch_max(position, AcqRel);
        position
    }

    /// A position that concerns all keys: of a flush.
    pub fn next_position_of_all(&self) -> u64 {
        let position = self.given.fetch_add(1, AcqRel) + 1;
        self.floor.fetch_max(position, AcqRel);
        position
    }

    /// A position of which no key depends: of the note of a flush that is due later.
    pub fn next_position_of_none(&self) -> u64 {
        self.given.fetch_add(1, AcqRel) + 1
    }

    /// Submits the change of a position, and wakes the committer.
    pub fn submit(&self, position: u64, change: Change) {
        self.place(position, change);
        self.wake_if_idle();
    }

    /// Like [`submit`](Self::submit), without waking the committer. A caller that places several changes, or will wait
    /// for one ([`hurry`](Self::hurry)), wakes it once after them ([`wake_if_idle`](Self::wake_if_idle)).
    pub fn place(&self, position: u64, change: Change) {
        self.bytes.fetch_add(change.memory_bytes(), Relaxed);
        let is_answered = !change.is_sync;
        if change.is_followed && self.known.is_some() {
            self.followed.fetch_max(position, AcqRel);
        }
        let mut change = Some(change);
        loop {
            let mut slot = lock(self.slot(position));
            if slot.is_none() {
                *slot = change.take();
                break;
            }
            // More threads were admitted at once than there are changes to spare.
            drop(slot);
            self.wake_if_idle();
            std::thread::yield_now();
        }
        if is_answered {
            self.answered.fetch_max(position, SeqCst);
            if self.is_syncing.load(SeqCst) {
                self.call_stand_in();
            }
        }
    }

    /// Wakes the committer if it is idle and changes wait.
    pub fn wake_if_idle(&self) {
        if self.is_idle.load(SeqCst) && self.load().0 > 0 && self.is_idle.swap(false, AcqRel) {
            self.notify();
        }
    }

    /// Somebody waits for changes that were submitted: the committer takes them now.
    pub fn hurry(&self) {
        // The committer says that it lingers, and then looks whether it may; this does it the other way round.
        self.is_hurried.store(true, SeqCst);
        let takes = |flag: &AtomicBool| flag.load(SeqCst) && flag.swap(false, AcqRel);
        let (was_lingering, was_idle) = (takes(&self.is_lingering), takes(&self.is_idle));
        if was_lingering || was_idle {
            self.notify();
        }
    }

    /// Asks for this position to become durable: once it is appended, it is synced without delay.
    pub fn want_durable(&self, position: u64) {
        if self.wanted.load(Relaxed) < position {
            self.wanted.fetch_max(position, SeqCst);
            if self.is_sync_wanted() && self.is_idle.swap(false, AcqRel) {
                self.notify();
            }
        }
    }

    /// True if somebody waits for an appended change to become durable.
    pub fn is_sync_wanted(&self) -> bool {
        (self.durable() + 1..=self.applied()).contains(&self.wanted())
    }

    pub(super) fn wanted(&self) -> u64 {
        self.wanted.load(SeqCst)
    }

    /// Asks for changes to be appended without delay, even while a sync runs.
    pub fn hurry_append(&self) {
        self.is_append_awaited.store(true, SeqCst);
        if self.is_syncing.load(SeqCst) {
            self.call_stand_in();
        }
    }

    pub(super) fn takes_append_awaited(&self) -> bool {
        self.is_append_awaited.load(SeqCst) && self.is_append_awaited.swap(false, SeqCst)
    }

    /// Runs a sync. A second thread is called meanwhile to append changes that were answered already, or that somebody
    /// waits for, since the disk may take long. Changes that wait for the next sync anyway do not call it.
    pub fn beside_sync<T>(&self, sync: impl FnOnce() -> T) -> T {
        self.is_syncing.store(true, SeqCst);
        if self.answered.load(SeqCst) > self.applied() || self.is_append_awaited.load(SeqCst) {
            self.call_stand_in();
        }
        let result = sync();
        self.is_syncing.store(false, SeqCst);
        result
    }

    fn call_stand_in(&self) {
        if !self.is_called.swap(true, SeqCst) {
            drop(lock(&self.idle));
            self.call.notify_one();
        }
    }

    /// Waits, on the second thread, until it is called, for `timeout` at most. It then lets changes gather for
    /// `linger`, unless somebody waits for one. False: nobody has called it.
    pub fn stand_by(&self, timeout: Duration, linger: Duration) -> bool {
        let (idle, _) = self
            .call
            .wait_timeout_while(lock(&self.idle), timeout, |()| !self.is_called.load(SeqCst))
            .unwrap_or_else(PoisonError::into_inner);
        drop(idle);
        if !self.is_called.load(SeqCst) {
            return false;
        }
        if !self.is_append_awaited.load(SeqCst) {
            std::thread::sleep(linger);
        }
        self.is_called.swap(false, SeqCst)
    }

    fn notify(&self) {
        drop(lock(&self.idle));
        self.wake.notify_one();
    }

    /// The position of the newest change of the key with this hash; of another key, or a flush, if that is higher.
    #[inline]
    pub fn position_of(&self, hash: u64) -> u64 {
        self.newest[entry_of(hash)].load(Acquire).max(self.floor.load(Acquire))
    }

    /// True if the store has all changes up to this position.
    #[inline]
    pub fn is_applied(&self, position: u64) -> bool {
        position <= self.applied.load(Acquire)
    }

    /// Whether all changes up to this position are durable, or this one is lost.
    #[inline]
    pub fn outcome(&self, position: u64) -> Outcome {
        if position > self.durable.load(Acquire) {
            Outcome::Pending
        } else if self.failures.contain(position) {
            Outcome::Lost
        } else {
            Outcome::Done
        }
    }

    /// Like [`outcome`](Self::outcome), for a change that only removes. Such a change is made even if it is behind one
    /// that found the disk full, but whatever was shown to others meanwhile counts as lost.
    pub fn removal_outcome(&self, position: u64) -> Outcome {
        match self.outcome(position) {
            Outcome::Lost if self.failures.has_kept(position) => Outcome::Done,
            outcome => outcome,
        }
    }

    /// Reason why the change of a position was lost.
    pub fn loss(&self, position: u64) -> Refusal {
        self.failures.why(position).or_else(|| self.refusal()).unwrap_or(Refusal::Failed)
    }

    /// See [`Versions::above`].
    pub fn version_above(&self, replaced: u64) -> u64 {
        self.versions.above(replaced, &*self.clock)
    }

    /// See [`Versions::retire`].
    pub fn retire_version(&self, version: u64) {
        self.versions.retire(version, &*self.clock);
    }

    /// See [`Versions::raise`]: of a store that was opened after the journal was made.
    pub fn raise_versions(&self, highest: u64) {
        self.versions.raise(highest, &*self.clock);
    }

    /// A version for a change of the key with this hash, above all that is known of the key, of which `replaced` is in
    /// memory; and what was known. `None`: this journal has no site. Call under the lock of the key, before
    /// [`next_position`](Self::next_position).
    pub fn replicated_version(&self, hash: u64, replaced: u64) -> Option<(u64, u64)> {
        Some(self.known.as_ref()?.next(hash, replaced, &*self.clock))
    }

    /// No version of the key with this hash that is higher is known; the second one: of those since the start, or of
    /// other keys.
    pub fn known_versions(&self, hash: u64) -> (u64, u64) {
        self.known.as_ref().map_or((0, 0), |known| known.known(hash))
    }

    /// A version for a flush: above all that was ever given or noted. `None`: this journal has no site.
    pub fn replicated_flush_version(&self) -> Option<u64> {
        Some(self.known.as_ref()?.above_all(&*self.clock))
    }

    /// The key with this hash has this version, which another site gave. Call under the lock of the key.
    pub fn note_version(&self, hash: u64, version: u64) {
        if let Some(known) = &self.known {
            known.note(hash, version);
        }
    }

    /// From here on replicated changes have versions above this one.
    pub fn raise_replicated_versions(&self, version: u64) {
        if let Some(known) = &self.known {
            known.raise(version, &*self.clock);
        }
    }

    /// The expiry of a key waits for a value of this version, which another site gave: a touch of the older value that
    /// is there does not replace it. Call before the change is submitted that brings this expiry.
    pub fn await_value(&self, version: u64) {
        if let Some(known) = &self.known {
            known.await_value(version);
        }
    }

    /// All values of all sites up to this version are here.
    pub fn note_arrived(&self, version: u64) {
        if let Some(known) = &self.known {
            known.note_arrived(version);
        }
    }

    pub(super) fn may_await_above(&self, version: u64) -> bool {
        self.known.as_ref().is_some_and(|known| known.may_await_above(version))
    }

    /// The wall clock of versions.
    pub fn unix_micros(&self) -> u64 {
        self.clock.unix_micros()
    }

    /// True if the change of a position that was applied is lost.
    pub fn is_lost(&self, position: u64) -> bool {
        self.failures.contain(position)
    }

    /// Changes and bytes on their way.
    pub fn load(&self) -> (u64, u64) {
        let changes = self.given.load(Relaxed).saturating_sub(self.applied.load(Relaxed));
        (changes, self.bytes.load(Relaxed))
    }

    /// Waits until there may be something to take, at most for `timeout`. Once there is, it waits as long as `linger`
    /// says for more, unless somebody waits ([`hurry`](Self::hurry)): a wake-up for each would cost more than the
    /// change.
    pub fn wait(&self, timeout: Duration, linger: impl FnOnce() -> Duration) {
        self.is_lingering.store(true, SeqCst);
        let idle = lock(&self.idle);
        self.is_idle.store(true, SeqCst);
        if self.has_next() || self.is_sync_wanted() {
            self.is_idle.store(false, Relaxed);
            self.is_lingering.store(false, Relaxed);
            return;
        }
        let (idle, _) = self
            .wake
            .wait_timeout_while(idle, timeout, |()| self.is_idle.load(Acquire))
            .unwrap_or_else(PoisonError::into_inner);
        self.is_idle.store(false, Relaxed);
        if self.has_next() {
            self.linger(idle, linger().min(timeout));
        }
        self.is_lingering.store(false, Relaxed);
    }

    /// Waits so long for changes to gather, unless somebody waits for one ([`hurry`](Self::hurry)).
    pub fn gather(&self, time: Duration) {
        self.is_lingering.store(true, SeqCst);
        self.linger(lock(&self.idle), time);
        self.is_lingering.store(false, Relaxed);
    }

    fn linger(&self, idle: MutexGuard<'_, ()>, time: Duration) {
        if !self.is_hurried.swap(false, SeqCst) {
            let _lingered = self
                .wake
                .wait_timeout_while(idle, time, |()| self.is_lingering.load(Acquire))
                .unwrap_or_else(PoisonError::into_inner);
            // What was submitted before is taken next.
            self.is_hurried.store(false, SeqCst);
        }
    }

    /// Wakes the committer for a reason other than a change, and the thread that stands by.
    pub fn wake(&self) {
        self.is_idle.store(false, Release);
        self.is_lingering.store(false, Release);
        self.notify();
        self.call_stand_in();
    }

    /// From here on somebody reads the log, up to what is durable: changes are made so soon after they were applied,
    /// whatever the interval, until [`unfollow`](Self::unfollow).
    pub fn follow(&self) {
        self.followers.fetch_add(1, SeqCst);
        self.wake();
    }

    /// One follower less.
    pub fn unfollow(&self) {
        self.followers.fetch_sub(1, SeqCst);
    }

    pub(super) fn is_followed(&self) -> bool {
        self.followers.load(Relaxed) != 0
    }

    /// A number that changes with whatever the committer does. Whoever reads it before it looks, and then waits for
    /// another, misses nothing.
    pub fn progress(&self) -> u64 {
        self.progress.load(SeqCst)
    }

    /// The last position given.
    pub fn last_given(&self) -> u64 {
        self.given.load(Acquire)
    }

    /// Up to this position all changes are durable, or lost.
    pub fn durable(&self) -> u64 {
        self.durable.load(Acquire)
    }

    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Acquire)
    }

    /// Upper bound on the number of changes that followers wait for and that are not durable yet; 0: all are.
    pub fn undurable_followed(&self) -> u64 {
        self.followed.load(Acquire).saturating_sub(self.durable())
    }

    fn has_next(&self) -> bool {
        lock(self.slot(self.applied() + 1)).is_some()
    }

    /// Takes the change of a position, if it was submitted.
    pub(super) fn take(&self, position: u64) -> Option<Change> {
        self.take_within(position, u64::MAX)
    }

    /// The same, if it takes no more than so many bytes.
    pub(super) fn take_within(&self, position: u64, bytes_max: u64) -> Option<Change> {
        if position > self.given.load(Acquire) {
            return None;
        }
        let change = lock(self.slot(position)).take_if(|change| change.memory_bytes() <= bytes_max)?;
        self.bytes.fetch_sub(change.memory_bytes(), Relaxed);
        Some(change)
    }

    pub(super) fn set_applied(&self, position: u64) {
        self.applied.store(position, Release);
        self.progress.fetch_add(1, SeqCst);
    }

    pub(super) fn set_durable(&self, position: u64) {
        self.durable.store(position, Release);
        self.progress.fetch_add(1, SeqCst);
    }

    pub(super) fn set_refusal(&self, refusal: Option<Refusal>) {
        self.refusal.store(refusal.map_or(0, |refusal| refusal as u8), Release);
        self.progress.fetch_add(1, SeqCst);
    }

    /// The position of the last change that concerns all keys.
    pub(super) fn floor(&self) -> u64 {
        self.floor.load(Acquire)
    }

    /// Sets it back: the flushes behind it were lost before the store had them.
    pub(super) fn set_floor(&self, position: u64) {
        self.floor.store(position, Release);
    }

    /// The changes in this range are lost.
    pub(super) fn note_kept(&self, removals: impl Iterator<Item = u64>) {
        self.failures.keep(removals);
    }

    pub(super) fn note_lost(&self, range: std::ops::RangeInclusive<u64>) {
        self.failures.add(range, self.refusal().unwrap_or(Refusal::Failed));
    }

    fn slot(&self, position: u64) -> &Mutex<Option<Change>> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry_of(hash: u64) -> usize {
    hash as usize & (TABLE_ENTRIES - 1)
}

/// Entries of the table of newest positions: half a mebibyte. Keys that share one make each other wait, no more.
const TABLE_ENTRIES: usize = 1 << 16;
