//! What the threads of replication share.

mod figures;
mod notes;
mod own_log;
mod refusals;
mod servers;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_policy::NAMESPACES_MAX;
use larder_protocol::Error;
use larder_replication::compare::Votes;
use larder_replication::lineage::Lineage;
use larder_replication::link::{self, LogExtent, Now};
use larder_replication::members::{Members, Position, Standing};
use larder_replication::version::unix_secs_of;
use larder_replication::wire::{Refusal, Token};
use larder_store::commit::{Journal, Outcome};
use larder_store::{Retention, Store};

pub(crate) use self::figures::{PeerFigures, PullerFigures};
use self::notes::Noted;
use self::own_log::{Runs, random_number};
use self::servers::Servers;
use super::note::TakenCopy;
use super::waiters::{Waiter, Waiters};
use super::{ReplicationSettings, note};
use crate::observe::journal::Rarely;
use crate::shared::Shared;

/// This site, as it sees itself and the others.
pub struct Site {
    number: u8,
    /// Run of this process: see [`Lineage`].
    run: u64,
    /// Settings of connections that begin from now on.
    settings: Mutex<Arc<link::Settings>>,
    runs: Mutex<Runs>,
    /// The store is known to be an older copy, and the site has taken no copy of another one since: it refuses changes.
    is_outdated: AtomicBool,
    why_outdated: Mutex<String>,
    /// Held while the log is switched to another incarnation.
    renewing: Mutex<()>,
    /// Servers of other sites.
    servers: Mutex<Servers>,
    /// Time until which another server is assumed to have this one's number; 0: none has. Changes are refused until
    /// then.
    twin_until_micros: AtomicU64,
    twin: Mutex<String>,
    /// Refusals between sites, counted for the log.
    refusals: [Rarely; Refusal::COUNT],
    pub(super) journal: Arc<Journal>,
    pub(super) store: Arc<dyn Store>,
    /// As the durable log has it.
    members: Mutex<Members>,
    /// Of the others: also what is not durable yet.
    live: Mutex<BTreeMap<u8, Position>>,
    /// Copies that are being taken, by the site that they are of: also what is not durable yet.
    copies: Mutex<BTreeMap<u8, TakenCopy>>,
    /// Of the store.
    directory: PathBuf,
    /// Notes on their way, in the order of their positions.
    pending: Mutex<VecDeque<(u64, Noted)>>,
    start: Instant,
    /// Who was not heard of for so long is put out.
    pub(super) silence_micros_max: u64,
    pub(super) log_bytes_max: u64,
    /// An entry of the own log that cannot be read: the log is whole behind it.
    unreadable: AtomicU64,
    pub(super) is_stopping: AtomicBool,
    /// The file with the peers is to be read again.
    has_to_reload: AtomicBool,
    /// Its store is new, and it has not heard all others yet: it takes no changes.
    is_new: AtomicBool,
    waiters: Waiters,
    /// Bytes of what peers ask this site as a home: of all connections.
    pub(super) asked_bytes: AtomicUsize,
    /// Between comparisons with a peer; `None`: only when an operator asks.
    pub(super) compare_interval: Option<Duration>,
    /// How often operators have asked for a comparison.
    pub(super) compares_asked: AtomicU64,
    /// What comparisons with several peers say of a key together.
    pub(super) votes: Mutex<Votes>,
    /// By address.
    peers: Mutex<BTreeMap<String, PeerFigures>>,
    /// By site.
    pullers: Mutex<BTreeMap<u8, PullerFigures>>,
    /// Since the start, by the numbers of the namespaces.
    conflicts: [AtomicU64; NAMESPACES_MAX + 1],
}

impl Site {
    /// The site as its log has it. Errors: the store is that of another site, or has no log that others could read.
    pub(super) fn open(
        shared: &Shared,
        settings: &ReplicationSettings,
        peers: &[String],
        token: Option<Token>,
    ) -> io::Result<Self> {
        let persistence = shared.persistence.as_ref().ok_or_else(|| io::Error::other("there is no store"))?;
        let store = persistence.store().ok_or_else(|| io::Error::other("there is no store"))?;
        let (journal, store) = (Arc::clone(&persistence.journal), Arc::clone(store));
        let renewed = store.note(note::RENEWED).and_then(|bytes| note::decode_renewed(&bytes));
        let renewed = renewed.filter(|renewed| renewed.of == store.incarnation());
        let incarnation = renewed.as_ref().map_or_else(|| store.incarnation(), |renewed| renewed.incarnation);
        let unsupported = |error: larder_store::Error| io::Error::other(format!("--site: {error}"));
        let store_is_new = store.note(note::READY).is_none();
        let beat = store.note(note::BEAT).and_then(|bytes| note::decode_beat(&bytes)).unwrap_or_default();
        let own = store.note(note::OWN).and_then(|bytes| note::decode_own(&bytes));
        let is_restored = own.is_some_and(|(site, known)| site == settings.site && known != incarnation);
        let positions: Vec<_> = store
            .notes()
            .iter()
            .filter(|(name, _)| note::is_position(name))
            .filter_map(|(_, bytes)| note::decode_position(bytes))
            .map(|position| if is_restored { position.restored() } else { position })
            .collect();
        let copies = (store.notes().iter())
            .filter(|_| !is_restored)
            .filter_map(|(name, bytes)| Some((note::site_of_copy(name)?, note::decode_copy(bytes)?)))
            .collect();
        let mut members = Members::new(settings.site, beat, positions.iter().copied(), 0);
        for (name, bytes) in store.notes().iter().filter(|_| !is_restored) {
            if let (Some(site), Some(copy)) = (note::site_of_copy_for(name), note::decode_extent(bytes)) {
                members.resume_copy(site, copy);
            }
        }
        store
            .retain(Retention {
                log_after_sequence: 0,
                log_bytes_max: settings.log_bytes_max,
                deletions_above_version: members.horizon(),
                expired_above_secs: unix_secs_of(members.horizon()),
                is_replicated: true,
            })
            .map_err(unsupported)?;
        settings.check_store(&*store)?;
        // Expiries from before the start may wait for values.
        journal.await_value(store.highest_version());
        journal.raise_replicated_versions(beat.clock.max(members.highest_horizon()));
        let token = token.unwrap_or_else(|| Token::new(Vec::new()));
        let run = random_number()?;
        let last_sequence = store.last_sequence();
        let runs = store.note(note::RUNS).and_then(|bytes| note::decode_runs(&bytes));
        // Noted at the first start: a later one would take all that was written meanwhile for something of before.
        let is_first_run = runs.is_none();
        let mut lineage = runs.unwrap_or_else(|| Lineage::beginning(last_sequence));
        let has_ended_run = lineage.open(last_sequence);
        if is_restored {
            lineage.unknown_to = last_sequence;
        }
        let mut link = link::Settings::new(settings.site, incarnation, run, token);
        link.body_bytes_max = link.body_bytes_max.max(shared.settings.item_bytes_max as usize + (1 << 20));
        let figures = peers.iter().map(|address| (address.clone(), PeerFigures::default())).collect();
        let live = positions.iter().copied().map(|position| (position.site, position)).collect();
        let why_outdated = renewed.map(|renewed| renewed.why).unwrap_or_default();
        let site = Self {
            number: settings.site,
            run,
            settings: Mutex::new(Arc::new(link)),
            runs: Mutex::new(Runs { lineage, noted: 0 }),
            is_outdated: AtomicBool::new(!why_outdated.is_empty()),
            why_outdated: Mutex::new(why_outdated),
            renewing: Mutex::default(),
            servers: Mutex::default(),
            twin_until_micros: AtomicU64::new(0),
            twin: Mutex::default(),
            refusals: Default::default(),
            journal,
            store,
            members: Mutex::new(members),
            live: Mutex::new(live),
            copies: Mutex::new(copies),
            directory: shared
                .settings
                .store
                .as_ref()
                .map(|store| store.directory.clone())
                .unwrap_or_default(),
            pending: Mutex::default(),
            start: Instant::now(),
            silence_micros_max: settings.silence_secs_max.saturating_mul(1_000_000),
            log_bytes_max: settings.log_bytes_max,
            unreadable: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            is_new: AtomicBool::new(store_is_new),
            waiters: Waiters::default(),
            asked_bytes: AtomicUsize::new(0),
            compare_interval: (settings.compare_hours != 0)
                .then(|| Duration::from_secs(u64::from(settings.compare_hours) * 3600)),
            compares_asked: AtomicU64::new(0),
            votes: Mutex::default(),
            has_to_reload: AtomicBool::new(false),
            peers: Mutex::new(figures),
            pullers: Mutex::default(),
            conflicts: [const { AtomicU64::new(0) }; NAMESPACES_MAX + 1],
        };
        if is_first_run || has_ended_run || is_restored {
            // Before anything that this run writes.
            site.submit_runs(&lock(&site.runs).lineage);
        }
        if is_restored {
            site.forget_what_was_given();
            positions.iter().for_each(|position| {
                site.keep_standing(*position);
            });
        }
        if peers.is_empty() {
            site.end_being_new();
            // There is no other site to take a copy of.
            if site.is_outdated.swap(false, Relaxed) {
                site.note_that_nothing_is_outdated(incarnation);
                lock(&site.why_outdated).clear();
            }
        }
        site.submit_note(note::OWN, &note::encode_own(settings.site, incarnation), true);
        Ok(site)
    }

    /// The number of this site.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    pub(super) fn now(&self) -> Now {
        let micros = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Now { micros, unix_micros: self.journal.unix_micros() }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }

    /// A connection of this site is of no use any more: this one stops, or the other one is no longer part of the
    /// cluster.
    pub(super) fn is_over_for(&self, other: Option<u8>) -> bool {
        let is_removed = |other| self.live(other).is_some_and(|other| other.standing == Standing::Removed);
        self.is_stopping() || other.is_some_and(is_removed)
    }

    /// All threads end soon.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, SeqCst);
        self.wake_all();
    }

    /// All threads that wait look around.
    pub(super) fn wake_all(&self) {
        self.waiters.wake_all();
    }

    /// For a thread that waits for a socket, and for the committer. Errors: no descriptor to be had.
    pub(super) fn waiter(&self) -> io::Result<Waiter<'_>> {
        self.waiters.register(&self.journal)
    }

    /// The committer has done something.
    pub(crate) fn on_progress(&self) {
        self.waiters.on_progress(&self.journal);
    }

    /// From now until then, on the clock of [`Now::micros`].
    pub(super) fn time_until(&self, micros: u64) -> Duration {
        Duration::from_micros(micros.saturating_sub(self.now().micros))
    }

    /// The peers may be others now: SIGHUP.
    pub(crate) fn reload_peers(&self) {
        self.has_to_reload.store(true, SeqCst);
    }

    /// True once after each [`reload_peers`](Self::reload_peers).
    pub(super) fn takes_reload(&self) -> bool {
        self.has_to_reload.swap(false, SeqCst)
    }

    /// What there is of the own log.
    pub(super) fn extent(&self) -> LogExtent {
        let start = self.log_start().max(self.unreadable.load(SeqCst));
        LogExtent { incarnation: self.settings().incarnation, start, durable: self.store.durable_sequence() }
    }

    /// The same for a site that has the log up to `sequence`: for what comes before an entry that cannot be read, it
    /// needs no copy.
    pub(super) fn extent_from(&self, sequence: u64) -> LogExtent {
        let (extent, start) = (self.extent(), self.log_start());
        let is_before_damage = (start..extent.start).contains(&sequence);
        if is_before_damage && self.store.read_log(sequence, 1, &mut |_| {}).is_ok() {
            LogExtent { start, ..extent }
        } else {
            extent
        }
    }

    /// The store has the log behind this sequence.
    fn log_start(&self) -> u64 {
        self.store.stats().log_start_sequence.saturating_sub(1)
    }

    /// An entry of the own log cannot be read: who needs it takes a copy.
    pub(super) fn note_unreadable(&self, sequence: u64) {
        self.unreadable.fetch_max(sequence, SeqCst);
    }

    /// The members, with all that is durable by now.
    pub(super) fn members(&self) -> MutexGuard<'_, Members> {
        let mut members = lock(&self.members);
        let mut pending = lock(&self.pending);
        let now_micros = self.now().micros;
        while let Some(&(position, noted)) = pending.front() {
            match (self.journal.outcome(position), noted) {
                (Outcome::Pending, _) => break,
                (Outcome::Done, Noted::Position(noted)) => members.note(noted, now_micros),
                (Outcome::Done, Noted::Beat(beat)) => members.note_own_beat(beat),
                (Outcome::Lost, _) => {}
            }
            pending.pop_front();
        }
        drop(pending);
        members
    }

    /// Reason why the site refuses changes of clients. `None`: it takes them.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.is_outdated.load(Relaxed) {
            Some(Error::OutdatedSite)
        } else if self.has_twin() {
            Some(Error::SameSite)
        } else {
            self.is_new().then_some(Error::NewSite)
        }
    }

    /// Details of the refusal for the operator; empty: the site takes changes.
    pub(crate) fn why_refused(&self) -> String {
        match self.refusal() {
            Some(Error::OutdatedSite) => self.why_outdated(),
            Some(Error::SameSite) => self.why_twin(),
            Some(_) => "the site is new, and has not heard all others".to_owned(),
            None => String::new(),
        }
    }

    /// True while the site refuses changes because its versions would be below the horizons of others.
    fn is_new(&self) -> bool {
        self.is_new.load(Relaxed)
    }

    /// Takes changes from here on, if this site has heard all others out of their own logs: an address of which nobody
    /// has answered may be that of one more.
    pub(super) fn end_being_new_if_all_are_heard(&self) {
        if !self.is_new() {
            return;
        }
        let are_known = lock(&self.peers).values().all(|peer| peer.site != 0 && !peer.is_copying);
        if are_known && self.members().has_heard_all() {
            tracing::info!("this site has heard all others, and takes changes from now on");
            self.end_being_new();
        }
    }

    fn end_being_new(&self) {
        if self.is_new.swap(false, Relaxed) {
            self.submit_note(note::READY, b"", false);
        }
    }

    /// What is known of another site, durably or not.
    pub(super) fn live(&self, site: u8) -> Option<Position> {
        lock(&self.live).get(&site).copied()
    }

    /// Tells the store what the others still need.
    pub(super) fn retain(&self) -> larder_store::Result<()> {
        let members = self.members();
        let (confirmed, horizon) = (members.confirmed(), members.horizon());
        drop(members);
        self.store.retain(Retention {
            log_after_sequence: confirmed,
            log_bytes_max: self.log_bytes_max,
            deletions_above_version: horizon,
            expired_above_secs: unix_secs_of(horizon),
            is_replicated: true,
        })
    }

    /// Compares this site with each of its peers, as soon as it can.
    pub(crate) fn ask_for_comparisons(&self) {
        self.compares_asked.fetch_add(1, SeqCst);
        self.wake_all();
    }

    /// How far this site is in the others' logs.
    pub(crate) fn positions(&self) -> Vec<Position> {
        lock(&self.live).values().copied().collect()
    }

    /// The last durable sequence of the own log.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.store.durable_sequence()
    }

    /// All sites have all changes up to this version.
    pub(crate) fn horizon(&self) -> u64 {
        self.members().horizon()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use larder_store::commit::{Committer, Step};

    use super::*;
    use crate::persistence::{self, StoreSettings};

    /// Site 1, which has no peers yet, and the committer of its store, which nobody runs.
    pub(in crate::replication) fn site(store: impl Store + 'static) -> (Arc<Shared>, Site, Committer) {
        let replication = ReplicationSettings { site: 1, ..ReplicationSettings::default() };
        let settings = StoreSettings { replication: Some(replication.clone()), ..StoreSettings::default() };
        let (shared, committer) = persistence::tests::kept(settings, Arc::new(store));
        let site = Site::open(&shared, &replication, &[], None).expect("the store is open");
        (shared, site, committer)
    }

    /// Appends all that was submitted, and makes it durable.
    pub(in crate::replication) fn commit(committer: &mut Committer) {
        while committer.step_through(0) == Step::Again {}
        committer.sync();
    }
}
