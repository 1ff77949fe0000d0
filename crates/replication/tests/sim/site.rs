//! A site: its log, what is durable of it, and its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larder_replication::compare::Votes;
use larder_replication::entry::Beat;
use larder_replication::flushes::FlushMark;
use larder_replication::lineage::Lineage;
use larder_replication::link::{AHEAD_MICROS_MAX, CopyBegun, LogExtent, Now, Settings};
use larder_replication::members::{Members, Position, Standing};
use larder_replication::state::{Expiry, Item, State};
use larder_replication::version::{next_version, unix_secs_of, version_at};
use larder_replication::wire::Token;

use super::data::{Data, Key};
use super::scenario::Scenario;
use super::truth::Change;

/// 2026.
const START_MICROS: u64 = 1_770_000_000_000_000;

pub(crate) struct Site {
    pub(crate) number: u8,
    pub(crate) settings: Arc<Settings>,
    /// With what is not durable.
    pub(crate) live: Data,
    /// What a crash leaves.
    pub(crate) disk: Data,
    /// The log is whole behind this sequence.
    pub(crate) log_start: u64,
    pub(crate) members: Members,
    /// Its wall clock is so far ahead.
    pub(crate) ahead_micros: i64,
    /// No version at or below it is given.
    promised: u64,
    /// The same; kept with the store since it was restored.
    restored: u64,
    breaks_promises: bool,
    /// It was added to the others later, and takes no writes yet. Kept with the store.
    pub(crate) is_newcomer: bool,
    /// The store was found to be an older copy: the site takes no writes until it has a copy. Kept with the store.
    pub(crate) is_outdated: bool,
    /// Number of the last run.
    run: u64,
    /// Own changes that are not durable yet.
    pub(crate) pending: Vec<Change>,
    /// Copies that are taken, by site.
    pub(crate) taken: BTreeMap<u8, Taken>,
    pub(crate) backup: Option<Data>,
    /// Of comparisons.
    pub(crate) votes: Votes,
    pub(crate) last_beat_micros: u64,
}

/// A copy on its way.
pub(crate) struct Taken {
    pub(crate) begun: CopyBegun,
    pub(crate) position: Vec<u8>,
    pub(crate) mentioned: BTreeSet<Key>,
}

impl Site {
    pub(crate) fn new(number: u8, incarnation: u64, scenario: &Scenario) -> Self {
        Self {
            number,
            settings: settings(number, incarnation, 1, scenario),
            live: Data::default(),
            disk: Data::default(),
            log_start: 0,
            members: Members::new(number, Beat::default(), [], 0),
            ahead_micros: 0,
            promised: 0,
            restored: 0,
            breaks_promises: scenario.has(super::scenario::Bug::BrokenPromise),
            is_newcomer: false,
            is_outdated: false,
            run: 1,
            pending: Vec::new(),
            taken: BTreeMap::new(),
            backup: None,
            votes: Votes::default(),
            last_beat_micros: 0,
        }
    }

    pub(crate) fn unix_micros(&self, micros: u64) -> u64 {
        (START_MICROS + micros).saturating_add_signed(self.ahead_micros)
    }

    pub(crate) fn now(&self, micros: u64) -> Now {
        Now { micros, unix_micros: self.unix_micros(micros) }
    }

    /// What expiry goes by: never behind what a beat has promised.
    pub(crate) fn now_secs(&self, micros: u64) -> u64 {
        (self.unix_micros(micros) / 1_000_000).max(unix_secs_of(self.live.beat.clock))
    }

    pub(crate) fn standing(&self, other: u8) -> Standing {
        self.members.position(other).map_or(Standing::Silent, |position| position.standing)
    }

    pub(crate) fn extent(&self) -> LogExtent {
        LogExtent { incarnation: self.settings.incarnation, start: self.log_start, durable: self.disk.last }
    }

    /// Keeps a position, with the cursor that the site has confirmed by now.
    pub(crate) fn place(&mut self, position: Position) -> Position {
        let position = self.members.with_confirmed(position);
        self.live.place(position);
        position
    }

    /// Notes this run in the lineage: others hear of it from here on.
    pub(crate) fn note_run(&mut self) {
        self.live.lineage.last = self.settings.run;
        self.disk.lineage.last = self.settings.run;
    }

    /// Whether clients may change something.
    pub(crate) fn takes_writes(&mut self) -> bool {
        self.is_newcomer &= !self.members.has_heard_all();
        !self.is_newcomer && !self.is_outdated
    }

    /// A version above this one, and all that was promised.
    fn version_above(&self, floor: u64, micros: u64) -> u64 {
        let promised =
            if self.breaks_promises { 0 } else { self.promised.max(self.members.highest_horizon()) };
        let floor = floor.max(promised).max(self.restored);
        version_at(self.unix_micros(micros), self.number).max(next_version(floor, self.number))
    }

    /// A version for a key, and what it is based on.
    fn version_for(&self, key: &[u8], micros: u64) -> (u64, u64) {
        let flushed = self.live.flushes.newest(key);
        let known = self.live.known(key);
        (self.version_above(known.highest_version().max(flushed), micros), known.version().max(flushed))
    }

    pub(crate) fn value(&self, key: &[u8], micros: u64) -> Option<Vec<u8>> {
        self.live.known(key).item(self.now_secs(micros)).map(|item| item.value.clone())
    }

    pub(crate) fn set(&mut self, key: &[u8], value: Vec<u8>, exptime_secs: u64, micros: u64) {
        let (version, base_version) = self.version_for(key, micros);
        let item = Item { client_flags: version as u32, marks: 0, value: value.clone() };
        self.live.put(key.to_vec(), State::set(version, base_version, exptime_secs, item));
        self.pending.push(Change::Put { key: key.to_vec(), version, exptime_secs, value });
    }

    pub(crate) fn delete(&mut self, key: &[u8], micros: u64) {
        let (version, base_version) = self.version_for(key, micros);
        let deleted = State::deleted(version, base_version);
        self.live.put(key.to_vec(), self.live.known(key).join(deleted).0);
        self.pending.push(Change::Delete { key: key.to_vec(), version });
    }

    pub(crate) fn touch(&mut self, key: &[u8], exptime_secs: u64, micros: u64) {
        let (version, _) = self.version_for(key, micros);
        let value_version = self.live.known(key).version();
        let touched = State::touched(Expiry { value_version, version, exptime_secs });
        self.live.put(key.to_vec(), self.live.known(key).join(touched).0);
        self.pending.push(Change::Touch { key: key.to_vec(), value_version, version, exptime_secs });
    }

    /// A flush is above all that this site has shown.
    pub(crate) fn flush(&mut self, prefix: &[u8], exceptions: Vec<Vec<u8>>, micros: u64) {
        let version = self.version_above(self.live.highest(), micros);
        let Some(mark) = FlushMark::new(prefix.to_vec(), exceptions, version) else { return };
        self.live.flush(mark.clone());
        self.pending.push(Change::Flush(mark));
    }

    pub(crate) fn beat(&mut self, micros: u64) {
        let beat = self.members.next_beat(self.unix_micros(micros));
        let beat = Beat { clock: beat.clock.max(self.promised), ..beat };
        self.promised = beat.clock;
        self.live.append_beat(beat);
        self.last_beat_micros = micros;
    }

    /// Gives no version up to this one from here on.
    pub(crate) fn promise(&mut self, version: u64) {
        self.promised = self.promised.max(version);
    }

    /// All is durable. Returns the own changes that became so.
    pub(crate) fn sync(&mut self, micros: u64) -> Vec<Change> {
        self.disk = self.live.clone();
        self.members.note_own_beat(self.disk.beat);
        for position in self.disk.positions.values() {
            if self.members.position(position.site) != Some(*position) {
                self.members.note(*position, micros);
            }
        }
        std::mem::take(&mut self.pending)
    }

    /// What is not durable is lost.
    pub(crate) fn crash(&mut self, micros: u64) {
        self.run += 1;
        self.settings = Arc::new(Settings { run: self.run, ..Settings::clone(&self.settings) });
        let last = self.disk.last;
        self.disk.lineage.open(last);
        self.live = self.disk.clone();
        self.pending.clear();
        self.promised = self.live.beat.clock;
        self.taken.clear();
        self.votes = Votes::default();
        let positions: Vec<Position> = self.live.positions.values().copied().collect();
        self.members = Members::new(self.number, self.live.beat, positions, micros);
    }

    /// An older state comes back, as another incarnation.
    pub(crate) fn restore(&mut self, backup: Data, incarnation: u64, scenario: &Scenario, micros: u64) {
        self.disk = backup;
        self.log_start = 0;
        self.backup = None;
        self.renew(incarnation, scenario, micros);
    }

    /// Replaces the store by an older copy, silently: the incarnation stays the same.
    pub(crate) fn replace_by_copy(&mut self, copy: Data, micros: u64) {
        self.disk = copy;
        self.log_start = 0;
        self.crash(micros);
    }

    /// Lets the log go on under another incarnation, since others have more of it than there is.
    pub(crate) fn renew(&mut self, incarnation: u64, scenario: &Scenario, micros: u64) {
        self.disk.positions.values_mut().for_each(|position| *position = position.restored());
        self.disk.lineage = Lineage::beginning(self.disk.last);
        self.settings = settings(self.number, incarnation, self.run, scenario);
        // What was given before is not known any more, and was not further ahead of the clock.
        self.restored = version_at(self.unix_micros(micros) + AHEAD_MICROS_MAX, self.number);
        self.crash(micros);
    }
}

fn settings(number: u8, incarnation: u64, run: u64, scenario: &Scenario) -> Arc<Settings> {
    let mut settings = Settings::new(number, incarnation, run, Token::new(*b"the token"));
    if scenario.is_tight {
        settings.batch_bytes = 80;
        settings.window_bytes = 200;
    }
    Arc::new(settings)
}
