//! What the threads of replication share.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_policy::NAMESPACES_MAX;
use larder_replication::compare::Votes;
use larder_replication::entry::Beat;
use larder_replication::link::{self, LogExtent, Now};
use larder_replication::members::{CopyExtent, Cursor, Members, Position};
use larder_replication::version::{unix_micros_of, unix_secs_of, version_at};
use larder_replication::wire::Token;
use larder_store::commit::{Change, Journal, Kind, Outcome};
use larder_store::{Retention, Store};

use super::compare::CompareFigures;
use super::note::TakenCopy;
use super::waiters::{Waiter, Waiters};
use super::{ReplicationSettings, note};
use crate::shared::Shared;

/// This site, as it sees itself and the others.
pub struct Site {
    pub(super) settings: Arc<link::Settings>,
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
    pub(super) is_stopping: AtomicBool,
    /// The file with the peers is to be read again.
    has_to_reload: AtomicBool,
    /// Its store is new, and it has not heard all others yet: it takes no changes.
    is_new: AtomicBool,
    waiters: Waiters,
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

/// What this site knows of a peer that it pulls from.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerFigures {
    /// 0: not known yet.
    pub(crate) site: u8,
    pub(crate) is_connected: bool,
    /// A copy is being taken.
    pub(crate) is_copying: bool,
    /// Whole ones, since the start.
    pub(crate) copies: u64,
    /// Of the copy that is being taken, or was the last one: what was applied, also before it was interrupted.
    pub(crate) copy_bytes: u64,
    /// About how many bytes the whole of it has.
    pub(crate) copy_whole_bytes: u64,
    /// Of copies, since the start.
    pub(crate) copied_pieces: u64,
    pub(crate) copied_bytes: u64,
    /// Applied since the start.
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) conflicts: u64,
    /// Times that its log did not follow what this site has of it, and the connection was given up.
    pub(crate) gaps: u64,
    /// The highest version that was applied, of an entry or a beat.
    pub(crate) newest_version: u64,
    /// Its changes are so far ahead of the wall clock that they wait; 0: they are not.
    pub(crate) ahead_micros: u64,
    /// Why the last connection ended.
    pub(crate) last_error: String,
    pub(crate) compare: CompareFigures,
}

/// What this site knows of a site that pulls from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PullerFigures {
    pub(crate) connections: u64,
    /// It has our log up to here, durably.
    pub(crate) confirmed: u64,
    /// Under way.
    pub(crate) in_flight_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Noted {
    Position(Position),
    Beat(Beat),
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
        let incarnation = store.incarnation();
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
        if let Some((site, _)) = own.filter(|(site, _)| *site != settings.site) {
            let error = format!("the store is that of site {site}, and --site says {}", settings.site);
            return Err(io::Error::other(error));
        }
        if is_restored {
            // What this site gave since is not known, and was not further ahead.
            let micros = journal.unix_micros() + RESTORED_MICROS;
            journal.raise_replicated_versions(version_at(micros, settings.site));
        }
        // Expiries from before the start may wait for values.
        journal.await_value(store.highest_version());
        journal.raise_replicated_versions(beat.clock.max(members.highest_horizon()));
        let token = token.unwrap_or_else(|| Token::new(Vec::new()));
        let mut link = link::Settings::new(settings.site, incarnation, token);
        link.body_bytes_max = link.body_bytes_max.max(shared.settings.item_bytes_max as usize + (1 << 20));
        let figures = peers.iter().map(|address| (address.clone(), PeerFigures::default())).collect();
        let live = positions.iter().copied().map(|position| (position.site, position)).collect();
        let site = Self {
            settings: Arc::new(link),
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
            is_stopping: AtomicBool::new(false),
            is_new: AtomicBool::new(store_is_new),
            waiters: Waiters::default(),
            compare_interval: (settings.compare_hours != 0)
                .then(|| Duration::from_secs(u64::from(settings.compare_hours) * 3600)),
            compares_asked: AtomicU64::new(0),
            votes: Mutex::default(),
            has_to_reload: AtomicBool::new(false),
            peers: Mutex::new(figures),
            pullers: Mutex::default(),
            conflicts: [const { AtomicU64::new(0) }; NAMESPACES_MAX + 1],
        };
        if is_restored {
            positions.iter().for_each(|position| {
                site.keep_standing(*position);
            });
        }
        if peers.is_empty() {
            site.end_being_new();
        }
        site.submit_note(note::OWN, &note::encode_own(settings.site, incarnation), true);
        Ok(site)
    }

    /// The number of this site.
    pub(crate) fn number(&self) -> u8 {
        self.settings.site
    }

    pub(super) fn now(&self) -> Now {
        let micros = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Now { micros, unix_micros: self.journal.unix_micros() }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }

    /// All threads end soon.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, SeqCst);
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
        let start = self.store.stats().log_start_sequence.saturating_sub(1);
        LogExtent { incarnation: self.settings.incarnation, start, durable: self.store.durable_sequence() }
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

    /// True as long as the site takes no changes: it would give versions below horizons of others.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new.load(Relaxed)
    }

    /// Takes changes from here on, if this site has heard all others out of their own logs: an address of which nobody
    /// has answered may be that of one more.
    pub(super) fn end_being_new_if_all_are_heard(&self) {
        let are_known = lock(&self.peers).values().all(|peer| peer.site != 0 && !peer.is_copying);
        if self.is_new() && are_known && self.members().has_heard_all() {
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

    /// Notes what another site is to this one; how far this one is in its log stays. Returns the note's position.
    pub(super) fn keep_standing(&self, position: Position) -> u64 {
        let mut live = lock(&self.live);
        let known = live.get(&position.site).copied().unwrap_or(position);
        if known.standing != position.standing {
            // A copy of before is of no use.
            self.submit_note(&note::name_of_copy_for(position.site), b"", false);
        }
        let position = Position { cursor: known.cursor, beat: known.beat, ..position };
        live.insert(position.site, position);
        self.keep(position)
    }

    /// Notes how far this site is in another one's log. Call when all before it is applied.
    pub(super) fn keep_cursor(&self, site: u8, cursor: Cursor, beat: Option<Beat>) -> u64 {
        let mut live = lock(&self.live);
        let known = live.get(&site).copied().unwrap_or_else(|| Position { site, ..Position::default() });
        let position = Position { cursor, beat: beat.unwrap_or(known.beat), ..known };
        live.insert(site, position);
        self.keep(position)
    }

    /// With the live positions locked, so that notes of a site are in the order in which they were made.
    fn keep(&self, position: Position) -> u64 {
        let bytes = note::encode_position(&position);
        self.note(Noted::Position(position), &note::name_of(position.site), &bytes, false)
    }

    /// How far a copy of this log of another site is taken; `None`: none was begun.
    pub(super) fn taken_copy(&self, site: u8, incarnation: u64) -> Option<TakenCopy> {
        lock(&self.copies).get(&site).filter(|copy| copy.incarnation == incarnation).cloned()
    }

    /// Notes how far a copy is taken. Call when all before it is applied.
    pub(super) fn keep_copy(&self, site: u8, copy: &TakenCopy) {
        let mut copies = lock(&self.copies);
        // One that has no place in a note begins anew.
        let Some(bytes) = note::encode_copy(copy) else { return };
        copies.insert(site, copy.clone());
        self.submit_note(&note::name_of_copy(site), &bytes, false);
    }

    /// The copy of another site is taken, or of no use.
    pub(super) fn forget_copy(&self, site: u8) {
        let mut copies = lock(&self.copies);
        if copies.remove(&site).is_some()
            && let Some(bytes) = note::encode_copy(&TakenCopy::default())
        {
            self.submit_note(&note::name_of_copy(site), &bytes, false);
        }
    }

    /// Notes that another site takes a copy of this one, so that it can go on with it after a restart of this one.
    pub(super) fn keep_copy_for(&self, site: u8, copy: &CopyExtent) {
        self.submit_note(&note::name_of_copy_for(site), &note::encode_extent(copy), false);
    }

    /// Where the keys are kept that the copy of another site has named.
    pub(super) fn named_path(&self, site: u8) -> PathBuf {
        self.directory.join(format!("copy-of-{site}.named"))
    }

    /// Notes a beat, which is made durable without delay.
    pub(super) fn keep_beat(&self, beat: Beat) -> u64 {
        self.note(Noted::Beat(beat), note::BEAT, &note::encode_beat(&beat), true)
    }

    fn note(&self, noted: Noted, name: &[u8], bytes: &[u8], is_sync: bool) -> u64 {
        let mut pending = lock(&self.pending);
        let position = self.submit_note(name, bytes, is_sync);
        pending.push_back((position, noted));
        position
    }

    fn submit_note(&self, name: &[u8], bytes: &[u8], is_sync: bool) -> u64 {
        let position = self.journal.next_position_of_none();
        self.journal.submit(position, Change::new(Kind::Note, name, bytes, is_sync).unfollowed());
        position
    }

    /// Asks for all that was appended to be made durable.
    pub(super) fn ask_for_sync(&self) -> u64 {
        let position = self.journal.next_position_of_none();
        let change = Change::new(Kind::Nothing, b"", b"", true);
        self.journal.submit(position, change);
        self.journal.hurry();
        position
    }

    /// Waits until a position is durable. False: it is lost, or the site stops.
    pub(super) fn wait_durable(&self, position: u64) -> bool {
        self.ask_for_sync();
        loop {
            match self.journal.outcome(position) {
                Outcome::Done => return true,
                Outcome::Lost => return false,
                Outcome::Pending if self.is_stopping() => return false,
                Outcome::Pending => std::thread::sleep(WAIT),
            }
        }
    }

    /// Waits until the store has a position. False: the site stops.
    pub(super) fn wait_applied(&self, position: u64) -> bool {
        self.journal.hurry();
        let mut pause = Duration::from_micros(20);
        while !self.journal.is_applied(position) {
            if self.is_stopping() {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(WAIT);
        }
        true
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

    /// Reads or changes the figures of a peer.
    pub(super) fn with_peer<R>(&self, address: &str, change: impl FnOnce(&mut PeerFigures) -> R) -> R {
        change(lock(&self.peers).entry(address.to_owned()).or_default())
    }

    /// A peer is none any more.
    pub(super) fn forget_peer(&self, address: &str) {
        lock(&self.peers).remove(address);
    }

    /// Changes the figures of a site that pulls.
    pub(super) fn with_puller(&self, site: u8, change: impl FnOnce(&mut PullerFigures)) {
        change(lock(&self.pullers).entry(site).or_default());
    }

    /// Compares this site with each of its peers, as soon as it can.
    pub(crate) fn ask_for_comparisons(&self) {
        self.compares_asked.fetch_add(1, SeqCst);
        self.waiters.wake_all();
    }

    /// Counts a conflict of a key of this namespace.
    pub(super) fn count_conflict(&self, number: u8) {
        if let Some(count) = self.conflicts.get(usize::from(number)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Conflicts of keys of this namespace, since the start.
    pub(crate) fn conflicts_of(&self, number: u8) -> u64 {
        self.conflicts.get(usize::from(number)).map_or(0, |count| count.load(Relaxed))
    }

    /// What is known of the peers, by address.
    pub(crate) fn peers(&self) -> BTreeMap<String, PeerFigures> {
        lock(&self.peers).clone()
    }

    /// What is known of the sites that pull.
    pub(crate) fn pullers(&self) -> BTreeMap<u8, PullerFigures> {
        lock(&self.pullers).clone()
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

    /// How old the newest version is that was applied of a peer, in microseconds; `None`: none was.
    pub(crate) fn lag_micros(&self, peer: &PeerFigures) -> Option<u64> {
        let since = |version: u64| self.journal.unix_micros().saturating_sub(unix_micros_of(version));
        (peer.newest_version != 0).then(|| since(peer.newest_version))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A restored site gives no version up to so far ahead of its clock: its peers hold what is further ahead.
const RESTORED_MICROS: u64 = 61_000_000;
const WAIT: Duration = Duration::from_micros(500);
