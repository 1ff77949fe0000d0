//! Applying what another site has changed: entry by entry, each where the engine and the journal have the key.
//!
//! An entry is joined with what the store knows of its key, and counts only if the key's position is then still the
//! same ([`Guard::overtake`](larder_engine::Guard)); else it is looked at again. A key that clients change all the time
//! does not hold it up: what is in memory by then is newer than the entry, or the entry is newer than all that is
//! known.

use std::sync::Arc;

use larder_engine::{Guard, Hash};
use larder_policy::Table;
use larder_replication::compare::mend;
use larder_replication::entry::{Beat, Entries, Entry};
use larder_replication::flushes::FlushMark;
use larder_replication::state::{Conflict, Expiry, Item, Register, State};
use larder_replication::version::site_of;
use larder_store::commit::{Change, Kind, Registers};
use larder_store::{KeyState, Marks, VecSink};

use super::Site;
use super::compare::is_damage;
use super::peers::PeerAddress;
use super::publish::expiry_of;
use crate::namespaces::{Handles, is_replicated};
use crate::observe::journal::{self, Rarely};
use crate::observe::watch::Event;
use crate::shared::Shared;

/// Applies entries of a peer. A thread has its own.
pub(super) struct Applier<'s> {
    shared: &'s Shared,
    site: &'s Site,
    peer: &'s PeerAddress<'s>,
    /// The longest value that the store keeps.
    value_bytes_max: usize,
    handles: Handles,
    /// Changes that are left out, for the log.
    unreadable: Rarely,
}

/// What was applied.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) entries: u64,
    pub(super) conflicts: u64,
    pub(super) newest_version: u64,
    /// The last one.
    pub(super) beat: Option<Beat>,
}

/// Why entries are not applied: the connection is of no use.
#[derive(Debug)]
pub(super) enum Failure {
    /// The site stops, or the peer is none any more.
    Stopping,
    /// The store lost a change.
    Lost,
    /// The store cannot tell what it knows.
    Store(larder_store::Error),
    /// The store would keep no such change. Nothing of it was submitted.
    Refused(larder_store::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopping => f.write_str("the site stops, or the peer is none any more"),
            Self::Lost => f.write_str("the store could not keep a change"),
            Self::Store(error) => write!(f, "the store cannot be read: {error}"),
            Self::Refused(error) => write!(f, "what the peer sends is refused: {error}"),
        }
    }
}

/// How what is given and what is known become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merge {
    /// A change, by the versions.
    Join,
    /// What a comparison has found to be right: also of the same version, and where the store cannot read its own.
    Mend,
}

/// Where a value is.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// In the store.
    Kept,
    Given(&'a [u8]),
}

impl<'s> Applier<'s> {
    pub(super) fn new(
        shared: &'s Shared,
        site: &'s Site,
        peer: &'s PeerAddress<'s>,
        handles: Handles,
    ) -> Self {
        let value_bytes_max = larder_store::VALUE_BYTES_MAX;
        Self { shared, site, peer, value_bytes_max, handles, unreadable: Rarely::default() }
    }

    /// Applies all entries of a batch or piece. When this returns the store has them, though perhaps not durably.
    pub(super) fn apply(&mut self, body: &[u8]) -> Result<Applied, Failure> {
        let mut applied = Applied::default();
        // Without a file of namespaces, and with it, there is a table where there is a store.
        let Some(table) = self.shared.namespaces.table() else { return Ok(applied) };
        let mut positions = Vec::new();
        let entries = || Entries::new(body).map_while(Result::ok);
        // Flushes first: what they mean need not be applied.
        for mark in entries().filter_map(|entry| entry.flush()) {
            self.flush(&table, mark, &mut positions)?;
        }
        for entry in entries() {
            applied.entries += 1;
            applied.newest_version = applied.newest_version.max(entry.highest_version());
            if let Entry::Beat(beat) = entry {
                applied.beat = Some(beat);
            }
            let Some((key, state)) = entry.state() else { continue };
            let number = table.find(key);
            if key.len() <= larder_engine::KEY_BYTES_MAX
                && is_replicated(&table, number)
                && let Some(conflict) = self.state(key, number, state, Merge::Join, &mut positions)?
            {
                applied.conflicts += 1;
                self.site.count_conflict(number);
                self.shared.tell_of_sites(&Event::Conflict { key, prefix: table.prefix(number), conflict });
            }
        }
        self.wait(&positions)?;
        Ok(applied)
    }

    /// Brings keys into states that a comparison has found to be right, unless they are newer here by now.
    pub(super) fn mend(&mut self, body: &[u8]) -> Result<(), Failure> {
        let Some(table) = self.shared.namespaces.table() else { return Ok(()) };
        let mut positions = Vec::new();
        for entry in Entries::new(body).map_while(Result::ok) {
            let Some((key, state)) = entry.state() else { continue };
            let number = table.find(key);
            if key.len() <= larder_engine::KEY_BYTES_MAX && is_replicated(&table, number) {
                self.state(key, number, state, Merge::Mend, &mut positions)?;
            }
        }
        self.wait(&positions)
    }

    /// Waits until the store has these positions.
    fn wait(&self, positions: &[u64]) -> Result<(), Failure> {
        let Some(last) = positions.last() else { return Ok(()) };
        if !self.site.wait_applied(*last) {
            return Err(Failure::Stopping);
        }
        if positions.iter().any(|position| self.site.journal.is_lost(*position)) {
            return Err(Failure::Lost);
        }
        Ok(())
    }

    /// Applies what is known of a key. A conflict: two sites had changed it, and did not know of each other.
    fn state(
        &mut self,
        key: &[u8],
        number: u8,
        theirs: State<&[u8]>,
        merge: Merge,
        positions: &mut Vec<u64>,
    ) -> Result<Option<Conflict>, Failure> {
        let site = self.site;
        for attempt in 0.. {
            self.admit(number)?;
            let Some(handle) = self.handles.handle_mut(number) else { return Ok(None) };
            let (hash, position) = {
                let guard = handle.pin(self.shared.clock.now());
                let hash = guard.prepare(key);
                if attempt > 0
                    && let Some(conflict) = newer_in_memory(&guard, key, hash, &theirs)
                {
                    return Ok(Some(conflict));
                }
                (hash, site.journal.position_of(hash.bits()))
            };
            let (known, newest) = site.journal.known_versions(hash.bits());
            let is_newest = merge == Merge::Join && theirs.version() > known;
            let knew = theirs.value.as_ref().map_or(0, |register| register.base_version);
            let (ours, newest_flush) = if is_newest && (newest <= knew || attempt > 0) {
                (State::default(), 0)
            } else {
                if !site.wait_applied(position) {
                    return Err(Failure::Stopping);
                }
                let ours = match site.store.state(key) {
                    Err(error) if is_damage(&error) => {
                        let guard = handle.pin(self.shared.clock.now());
                        if let Some(conflict) = newer_in_memory(&guard, key, hash, &theirs) {
                            return Ok(Some(conflict));
                        }
                        drop(guard);
                        // What nobody can read is not served. A deletion brings nothing back, whatever it was.
                        let is_deletion =
                            theirs.value.as_ref().is_some_and(|register| register.item.is_none());
                        if merge == Merge::Join && !is_newest && !is_deletion {
                            self.pass_over(key, &error);
                            return Ok(None);
                        }
                        None
                    }
                    ours => ours.map_err(Failure::Store)?,
                };
                (
                    ours.map_or_else(State::default, |state| state_of(&state)),
                    site.store.newest_flush_version(key),
                )
            };
            let winner = theirs.version();
            let theirs = theirs.map(Source::Given).flushed(newest_flush);
            let ours = ours.flushed(newest_flush);
            let (joined, conflict) = match merge {
                Merge::Join => {
                    let (joined, outcome) = ours.join(theirs);
                    let passed_over = is_newest && attempt > 0 && newest > knew;
                    let conflict = outcome
                        .conflict
                        .or_else(|| passed_over.then_some(Conflict { winner, loser: newest }));
                    (outcome.is_changed.then_some(joined), conflict)
                }
                Merge::Mend => (mend(ours, theirs), None),
            };
            let Some(joined) = joined else { return Ok(conflict) };
            let change = match self.change(key, &joined) {
                Err(Failure::Store(error)) if is_damage(&error) => {
                    self.pass_over(key, &error);
                    return Ok(conflict);
                }
                change => change?,
            };
            let Some(change) = change else { continue };
            change.validate().map_err(Failure::Refused)?;
            let Some(handle) = self.handles.handle_mut(number) else { return Ok(None) };
            let guard = handle.pin(self.shared.clock.now());
            if let Some(position) = guard.overtake(key, hash, position, joined.highest_version()) {
                drop(guard);
                if let Some(persistence) = &self.shared.persistence {
                    persistence.write_budgets.spend(number, change.memory_bytes());
                }
                site.journal.submit(position, change.unfollowed());
                positions.push(position);
                return Ok(conflict);
            }
        }
        Ok(None)
    }

    /// Leaves a key as it is, of which the store cannot read what a change depends on. A comparison mends it, or a
    /// client; what follows does not wait for them.
    fn pass_over(&self, key: &[u8], error: &larder_store::Error) {
        if let Some(times) = self.unreadable.happened(self.shared.clock.now().secs) {
            let key_sha256 = journal::key_digest(key);
            tracing::error!(
                key_sha256,
                times,
                "a peer's change of an item that the store cannot read is left out: {error}"
            );
        }
    }

    /// The change that brings a key into this state. `None`: the key's value has changed meanwhile.
    fn change(&self, key: &[u8], state: &State<Source<'_>>) -> Result<Option<Change>, Failure> {
        let Expiry { value_version: expiry_value_version, version: expiry_version, exptime_secs } =
            state.expiry;
        let (version, base_version) =
            state.value.as_ref().map_or((0, 0), |register| (register.version, register.base_version));
        let Some(Register { item: Some(item), .. }) = &state.value else {
            let kind = match expiry_version {
                0 => Kind::Delete { version, base_version },
                _ => {
                    Kind::Touch { expiry_value_version, expiry_version, exptime_secs, version, base_version }
                }
            };
            return Ok(Some(Change::new(kind, key, b"", false)));
        };
        if expiry_value_version > version {
            self.site.journal.await_value(expiry_value_version);
        }
        let kind = Kind::Put {
            client_flags: item.client_flags,
            exptime_secs,
            version,
            marks: Marks::from_bits(item.marks).unwrap_or(Marks::NONE),
            registers: Registers {
                base_version,
                expiry_value_version,
                expiry_version,
                origin: site_of(version),
            },
        };
        Ok(match item.value {
            Source::Given(value) if value.len() > self.value_bytes_max => {
                return Err(Failure::Refused(larder_store::Error::Invalid {
                    what: "its value has more bytes than a store keeps",
                }));
            }
            Source::Given(value) => Some(Change::new(kind, key, value, false)),
            Source::Kept => {
                let mut sink = VecSink::default();
                // No clock: it may have expired, and live longer by this very change.
                let meta = self.site.store.get(key, 0, &mut sink).map_err(Failure::Store)?;
                let is_same = meta.is_some_and(|meta| meta.version == version);
                is_same.then(|| Change::new(kind, key, &sink.into_value(), false))
            }
        })
    }

    /// Flushes, in memory and in the store, what is below the mark's version; not namespaces that are not replicated.
    fn flush(
        &mut self,
        table: &Arc<Table>,
        mark: FlushMark,
        positions: &mut Vec<u64>,
    ) -> Result<(), Failure> {
        let FlushMark { prefix, mut exceptions, version } = mark;
        let nested = |number: &u8| {
            table.prefix(*number).len() > prefix.len() && table.prefix(*number).starts_with(&prefix)
        };
        let within = table.find(&prefix);
        let is_meant = |number: &u8| is_replicated(table, *number) && (*number == within || nested(number));
        // No key is as long as a prefix that is longer than keys may be.
        if prefix.len() > larder_engine::KEY_BYTES_MAX || !table.numbers().any(|number| is_meant(&number)) {
            return Ok(());
        }
        exceptions.extend(
            table
                .numbers()
                .filter(|number| nested(number) && !is_replicated(table, *number))
                .map(|number| table.prefix(number).to_vec()),
        );
        let exceptions: Arc<[Vec<u8>]> = exceptions.into();
        let change = || Change::flush_below(&prefix, Arc::clone(&exceptions), version, false).unfollowed();
        change().validate().map_err(Failure::Refused)?;
        for number in table.numbers().filter(is_meant) {
            self.admit(number)?;
            let journal = &self.site.journal;
            let position = self.shared.namespaces.engine(number).flush_as(|| {
                // What is in memory afterwards has a higher version.
                journal.raise_replicated_versions(version);
                let position = journal.next_position_of_all();
                journal.submit(position, change());
                position
            });
            positions.push(position);
        }
        Ok(())
    }

    /// Waits until the journal takes changes of this namespace.
    fn admit(&self, number: u8) -> Result<(), Failure> {
        let is_behind = || {
            let persistence = self.shared.persistence.as_ref();
            persistence.is_some_and(|persistence| persistence.admit_to_write(number).is_err())
        };
        while self.site.journal.admit().is_err() || is_behind() {
            // A store that is full may be so for long: nobody waits for this thread until then.
            if self.peer.is_over(self.site) {
                return Err(Failure::Stopping);
            }
            std::thread::sleep(ADMISSION_PAUSE);
        }
        Ok(())
    }
}

/// A state of the store, without its value.
fn state_of(state: &KeyState) -> State<Source<'static>> {
    let KeyState { version, base_version, item, .. } = *state;
    let item = item.map(|item| Item {
        client_flags: item.client_flags,
        marks: item.marks.bits(),
        value: Source::Kept,
    });
    State {
        value: (version != 0).then_some(Register { version, base_version, item }),
        expiry: expiry_of(state),
    }
}

/// The conflict that is decided already: memory has something newer.
fn newer_in_memory(guard: &Guard<'_>, key: &[u8], hash: Hash, theirs: &State<&[u8]>) -> Option<Conflict> {
    let cas = guard.peek(key, hash).map(|fetched| fetched.item.cas());
    guard.take_unproven();
    let winner = cas.ok().filter(|cas| *cas > theirs.highest_version())?;
    Some(Conflict { winner, loser: theirs.highest_version() })
}

const ADMISSION_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    use larder_replication::entry::Put;
    use larder_replication::version::version_at;
    use larder_store::commit::{Committer, Refusal};
    use larder_store::{MemoryFaults, MemoryStore};

    use super::super::site::tests::{commit, site};
    use super::*;

    fn put(key: &[u8], value: &[u8], version: u64) -> Vec<u8> {
        let expiry = Expiry { value_version: version, version, exptime_secs: 0 };
        let mut body = Vec::new();
        let put = Put { key, version, base_version: 0, expiry, client_flags: 0, marks: 0, value };
        Entry::Put(put).encode(&mut body);
        body
    }

    fn flush(prefix: &[u8], exceptions: Vec<&[u8]>, version: u64) -> Vec<u8> {
        let mut body = Vec::new();
        Entry::Flush { prefix, exceptions, version }.encode(&mut body);
        body
    }

    /// Applies it while the committer runs.
    fn apply(applier: &mut Applier<'_>, committer: &mut Committer, body: &[u8]) -> Result<Applied, Failure> {
        std::thread::scope(|scope| {
            let applying = scope.spawn(|| applier.apply(body));
            while !applying.is_finished() {
                commit(committer);
            }
            applying.join().expect("no panic")
        })
    }

    /// The committer would lose it, and all that comes behind it, of clients, too.
    #[test]
    fn what_the_store_would_refuse_is_not_submitted() {
        let (shared, site, mut committer) = site(MemoryStore::new());
        let has_to_end = AtomicBool::new(false);
        let peer = PeerAddress::of_nobody(&has_to_end);
        let handles = shared.namespaces.handles().expect("there is one");
        let mut applier = Applier::new(&shared, &site, &peer, handles);
        let version = version_at(site.now().unix_micros, 2);
        let long = vec![b'x'; 250];
        let exceptions: Vec<_> =
            (0..300_u16).map(|number| [&number.to_be_bytes(), &long[..]].concat()).collect();
        let exceptions = |count: usize| exceptions[..count].iter().map(Vec::as_slice).collect();
        let taken = apply(&mut applier, &mut committer, &flush(b"", exceptions(200), version));
        assert_eq!(taken.expect("it is kept").entries, 1);
        let refused = apply(&mut applier, &mut committer, &flush(b"", exceptions(300), version));
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
        // Nothing begins with such a prefix.
        let taken = apply(&mut applier, &mut committer, &flush(&[b'x'; 60_000], Vec::new(), version));
        assert_eq!(taken.expect("it is passed over").entries, 1);
        applier.value_bytes_max = 4;
        let taken = apply(&mut applier, &mut committer, &put(b"key", b"four", version + 256));
        assert_eq!(taken.expect("it is kept").entries, 1);
        let refused = apply(&mut applier, &mut committer, &put(b"key", b"value", version + 512));
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
        assert_eq!(site.journal.refusal(), None);
    }

    /// Whoever ends a peer waits for its threads, and the store may be full for long.
    #[test]
    fn a_peer_that_has_to_end_does_not_wait_for_a_full_store() {
        let faults = MemoryFaults { fail_append: Some(2), ..MemoryFaults::default() };
        let (shared, site, mut committer) = site(MemoryStore::with_faults(faults));
        commit(&mut committer);
        site.keep_beat(Beat::default());
        commit(&mut committer);
        assert_eq!(site.journal.refusal(), Some(Refusal::Full));
        let has_to_end = AtomicBool::new(false);
        let peer = PeerAddress::of_nobody(&has_to_end);
        let handles = shared.namespaces.handles().expect("there is one");
        let mut applier = Applier::new(&shared, &site, &peer, handles);
        let body = put(b"key", b"value", version_at(site.now().unix_micros, 2));
        std::thread::scope(|scope| {
            let applying = scope.spawn(|| applier.apply(&body));
            has_to_end.store(true, SeqCst);
            let since = Instant::now();
            while !applying.is_finished() && since.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(ADMISSION_PAUSE);
            }
            let is_ended = applying.is_finished();
            site.stop();
            assert!(is_ended && matches!(applying.join().expect("no panic"), Err(Failure::Stopping)));
        });
    }
}
