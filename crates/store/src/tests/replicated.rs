//! Replicated stores against a model: registers, flushes by version, notes, the log, and what cleaning keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::driver::{open_log, segment_names, small_segments};
use super::script::{START_SECS, seed_base};
use crate::files::sim::{DiskFaults, PowerLoss, SimDisk};
use crate::log::bugs::{Bug, plant};
use crate::{
    Budget, Cursor, Entry, Error, FlushBy, ItemState, KeyState, LogRead, Manifest, Marks, MemoryStore, Put,
    Result, Retention, Store, restore,
};

/// An entry that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// A put, a deletion, or a touch.
    State {
        key: Vec<u8>,
        state: KeyState,
        value: Vec<u8>,
    },
    Flush {
        prefix: Vec<u8>,
        except: Vec<Vec<u8>>,
        version: u64,
        by: FlushBy,
    },
    Note {
        name: Vec<u8>,
        value: Vec<u8>,
    },
    FlushAt,
}

impl Change {
    fn of(entry: &Entry<'_>, sequence: u64) -> Self {
        let state = |key: &[u8], state: KeyState, value: Vec<u8>| Self::State {
            key: key.to_vec(),
            state: KeyState { sequence, ..state },
            value,
        };
        match *entry {
            Entry::Put(put) => {
                let Put { key, client_flags, exptime_secs, version, marks, origin, .. } = put;
                let item = Some(ItemState { value_bytes: put.value_bytes(), client_flags, marks });
                let known = KeyState {
                    version,
                    base_version: put.base_version,
                    item,
                    expiry_value_version: put.expiry_value_version,
                    expiry_version: put.expiry_version,
                    exptime_secs,
                    origin,
                    sequence,
                };
                state(key, known, put.value.concat())
            }
            Entry::Delete { key, version, base_version } => {
                state(key, KeyState { version, base_version, ..KeyState::default() }, Vec::new())
            }
            Entry::Touch {
                key,
                expiry_value_version,
                expiry_version,
                exptime_secs,
                version,
                base_version,
            } => {
                let known = KeyState {
                    version,
                    base_version,
                    expiry_value_version,
                    expiry_version,
                    exptime_secs,
                    ..KeyState::default()
                };
                state(key, known, Vec::new())
            }
            Entry::Flush { prefix, except, version, by } => {
                Self::Flush { prefix: prefix.to_vec(), except: except.to_vec(), version, by }
            }
            Entry::Note { name, value } => Self::Note { name: name.to_vec(), value: value.to_vec() },
            Entry::FlushAt { .. } | Entry::CancelFlushAt { .. } => Self::FlushAt,
        }
    }

    fn append(&self, store: &dyn Store) -> Result<()> {
        let mut result = Ok(());
        let mut pass = |entry: Entry<'_>| result = store.append(&[entry]).map(|_| ());
        match self {
            Self::State { key, state, value } => state.visit(key, value, &mut pass),
            Self::Flush { prefix, except, version, by } => {
                pass(Entry::Flush { prefix, except, version: *version, by: *by });
            }
            Self::Note { name, value } => pass(Entry::Note { name, value }),
            Self::FlushAt => pass(Entry::FlushAt { prefix: b"later", at_secs: START_SECS * 2 }),
        }
        result
    }
}

/// All changes so far; what they mean is worked out from the list each time.
#[derive(Clone, Default)]
struct Model {
    log: Vec<Change>,
    retention: Retention,
    /// The lowest sequence that somebody was promised.
    promised_after: u64,
    now: u64,
}

fn covers(change: &Change, key: &[u8]) -> Option<(u64, FlushBy)> {
    match change {
        Change::Flush { prefix, except, version, by } => (key.starts_with(prefix)
            && !except.iter().any(|longer| key.starts_with(longer)))
        .then_some((*version, *by)),
        _ => None,
    }
}

impl Model {
    fn newest(&self, key: &[u8]) -> Option<(&KeyState, &[u8])> {
        self.log.iter().rev().find_map(|change| match change {
            Change::State { key: known, state, value } if known == key => Some((state, &value[..])),
            _ => None,
        })
    }

    /// The version below which the key was flushed.
    fn below_version(&self, key: &[u8]) -> u64 {
        let flushes = self.log.iter().filter_map(|change| covers(change, key));
        flushes.filter(|(_, by)| *by == FlushBy::Version).map(|(version, _)| version).max().unwrap_or(0)
    }

    fn state(&self, key: &[u8]) -> Option<(KeyState, Vec<u8>)> {
        let (state, value) = self.newest(key)?;
        let mut later = self.log[state.sequence as usize..].iter().filter_map(|change| covers(change, key));
        if later.any(|(_, by)| by == FlushBy::Sequence) {
            return None;
        }
        let below = self.below_version(key);
        let (mut state, mut value) = (*state, value.to_vec());
        if state.version < below {
            (state.version, state.base_version, state.item, value) = (0, 0, None, Vec::new());
        }
        if state.expiry_value_version < below {
            (state.expiry_value_version, state.expiry_version, state.exptime_secs) = (0, 0, 0);
        }
        (state.version != 0 || state.expiry_version != 0).then_some((state, value))
    }

    /// Everybody has this, and it is gone.
    fn is_forgettable(&self, state: &KeyState) -> bool {
        let secs = self.now.min(self.retention.expired_above_secs);
        let is_gone = state.item.is_none() || (state.exptime_secs != 0 && state.exptime_secs <= secs);
        is_gone && state.version.max(state.expiry_version) <= self.retention.deletions_above_version
    }

    /// Is what the store says of a key right? If it may be forgotten, a tombstone may stay for it.
    fn is_right(&self, known: Option<&KeyState>, expected: Option<&KeyState>) -> bool {
        known == expected
            || self.is_left_of_flush(known, expected)
            || expected.is_some_and(|expected| {
                self.is_forgettable(expected)
                    && known.is_none_or(|known| {
                        known.item.is_none() && known.highest_version() <= expected.highest_version()
                    })
            })
    }

    /// A mark that the horizon has passed may be gone before a touch comes of a value that it meant. The touch has no
    /// value any more, and shows nothing.
    fn is_left_of_flush(&self, known: Option<&KeyState>, expected: Option<&KeyState>) -> bool {
        let Some(known) = known.filter(|known| known.item.is_none()) else { return false };
        let bare = KeyState { expiry_value_version: 0, expiry_version: 0, exptime_secs: 0, ..*known };
        known.expiry_value_version <= self.retention.deletions_above_version
            && expected.copied() == Some(bare).filter(|bare| bare.version != 0)
    }

    fn difference(&self, store: &dyn Store, keys: &[Vec<u8>]) -> Option<String> {
        for key in keys {
            let name = String::from_utf8_lossy(key);
            let expected = self.state(key);
            let known = match store.state(key) {
                Ok(known) => known,
                Err(error) => return Some(format!("state of {name}: {error}")),
            };
            if !self.is_right(known.as_ref(), expected.as_ref().map(|(state, _)| state)) {
                return Some(format!("state of {name} is {known:?}, not {expected:?}"));
            }
            let item = expected.filter(|(state, _)| {
                state.item.is_some() && (state.exptime_secs == 0 || state.exptime_secs > self.now)
            });
            let mut sink = crate::VecSink::default();
            let found = match store.get(key, self.now, &mut sink) {
                Ok(found) => found.map(|meta| (meta.version, meta.sequence, sink.into_value())),
                Err(error) => return Some(format!("get {name}: {error}")),
            };
            let item = item.map(|(state, value)| (state.version, state.sequence, value));
            if found != item {
                return Some(format!("get {name} returns {found:?}, not {item:?}"));
            }
            let (flushed, below) = (store.newest_flush_version(key), self.below_version(key));
            if below > self.retention.deletions_above_version && flushed < below {
                return Some(format!("{name} was flushed below {below}, not {flushed}"));
            }
        }
        let mut notes = BTreeMap::new();
        for change in &self.log {
            if let Change::Note { name, value } = change {
                notes.insert(name.clone(), value.clone());
            }
        }
        let known: BTreeMap<_, _> = store.notes().into_iter().collect();
        if known != notes {
            return Some(format!("there are {} notes, not {}, or others", known.len(), notes.len()));
        }
        if store.last_sequence() != self.log.len() as u64 {
            return Some(format!("last sequence is {}, not {}", store.last_sequence(), self.log.len()));
        }
        self.difference_of_states(store).or_else(|| self.difference_of_log(store))
    }

    fn difference_of_states(&self, store: &dyn Store) -> Option<String> {
        let (mut seen, mut cursor, mut more) = (BTreeMap::new(), Cursor::new(), true);
        while more {
            cursor = Cursor::decode(&cursor.encode()).expect("a cursor");
            let mut visit = |key: &[u8], state: &KeyState, value: Option<&[u8]>| {
                seen.insert(key.to_vec(), (*state, value.expect("it is whole").to_vec()));
            };
            more = match store.for_each_state(&mut cursor, 300, None, &mut visit) {
                Ok(more) => more,
                Err(error) => return Some(format!("for_each_state: {error}")),
            };
        }
        let mut keys: Vec<&Vec<u8>> = (self.log.iter())
            .filter_map(|change| if let Change::State { key, .. } = change { Some(key) } else { None })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let (known, expected) = (seen.get(key), self.state(key));
            let states = (known.map(|(state, _)| state), expected.as_ref().map(|(state, _)| state));
            let has_value = known.is_none_or(|(state, _)| state.item.is_none())
                || known.map(|(_, value)| value) == expected.as_ref().map(|(_, value)| value);
            if !self.is_right(states.0, states.1) || !has_value {
                let name = String::from_utf8_lossy(key);
                return Some(format!("{name} is visited as {known:?}, not {expected:?}"));
            }
        }
        None
    }

    fn difference_of_log(&self, store: &dyn Store) -> Option<String> {
        let start = store.stats().log_start_sequence;
        if start > self.promised_after + 1 {
            return Some(format!("the log starts at {start}, after {} was promised", self.promised_after));
        }
        let durable = store.durable_sequence();
        for budget_bytes in [1, 500, usize::MAX] {
            let mut after = start.saturating_sub(1);
            let mut expected = after;
            loop {
                let mut wrong = None;
                let read = store.read_log(after, budget_bytes, &mut |entry| {
                    while self.log.get(expected as usize) == Some(&Change::FlushAt) {
                        expected += 1;
                    }
                    expected += 1;
                    let change = Change::of(&entry.entry, entry.sequence);
                    let is_newest = match &change {
                        Change::State { key, .. } => {
                            self.newest(key).is_some_and(|(state, _)| state.sequence == entry.sequence)
                        }
                        _ => true,
                    };
                    if entry.sequence != expected
                        || self.log.get(expected as usize - 1) != Some(&change)
                        || (is_newest && !entry.is_newest)
                    {
                        wrong = Some(format!("the log has {change:?} at {expected}: {entry:?}"));
                    }
                });
                let LogRead { through_sequence, more } = match read {
                    Ok(read) => read,
                    Err(error) => return Some(format!("the log after {after}: {error}")),
                };
                if wrong.is_some() {
                    return wrong;
                }
                if !more {
                    if through_sequence != durable.max(after) {
                        return Some(format!("the log ends at {through_sequence}, not {durable}"));
                    }
                    break;
                }
                if through_sequence <= after {
                    return Some(format!("the log stands still at {after}"));
                }
                after = through_sequence;
            }
        }
        if start > 1 {
            let read = store.read_log(start - 2, 1, &mut |_| {});
            let is_told =
                matches!(read, Err(Error::TooFarBehind { oldest_sequence }) if oldest_sequence == start);
            if !is_told {
                return Some(format!("the log before {start} can be read: {read:?}"));
            }
        }
        None
    }
}

#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    Sync,
    Retain(Retention),
    Maintain(u64, u64),
    Reopen { clean: bool },
}

struct Script {
    steps: Vec<Step>,
    /// Prefixes whose usage is counted.
    counted: &'static [&'static [u8]],
    keys: Vec<Vec<u8>>,
}

/// Versions of two sites, out of order, but above the horizon. By seed, nothing is ever released, or the log alone, as
/// while one of many sites is away, or the deletions, too.
fn script(seed: u64, count: usize, key_count: usize) -> Script {
    let (releases_log, releases_deletions) = (!seed.is_multiple_of(4), seed % 4 > 1);
    let mut random = fastrand::Rng::with_seed(seed);
    let keys: Vec<Vec<u8>> =
        (0..key_count).map(|nth| format!("{}:{nth}", ["a", "b"][nth % 2]).into()).collect();
    let (mut now, mut clock, mut sequence) = (START_SECS, 100_u64, 0_u64);
    let mut retention = Retention {
        log_after_sequence: 0,
        log_bytes_max: u64::MAX,
        deletions_above_version: 0,
        expired_above_secs: START_SECS - 5,
        is_replicated: true,
    };
    let mut steps = vec![Step::Retain(retention)];
    for _ in 0..count {
        clock += random.u64(1..4);
        let lowest = retention.deletions_above_version + 1;
        let version = lowest.max((clock + 3).saturating_sub(random.u64(0..40)));
        let key = keys[random.usize(0..keys.len())].clone();
        let base_version = if random.bool() { version.saturating_sub(random.u64(1..20)) } else { 0 };
        let exptime_secs = if random.u32(0..4) == 0 { now + random.u64(0..20) } else { 0 };
        let origin = (version % 256) as u8;
        let step = match random.u32(0..100) {
            0..36 => {
                let length = random.usize(0..300);
                let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
                let marks = Marks::from_bits(random.u8(0..8)).unwrap_or_default();
                let item = Some(ItemState { value_bytes: value.len(), client_flags: random.u32(..), marks });
                let mut above = || if random.u32(0..3) == 0 { random.u64(0..9) } else { 0 };
                let expiry_value_version = version + above();
                let expiry_version = expiry_value_version + above();
                let state = KeyState {
                    version,
                    base_version,
                    item,
                    expiry_value_version,
                    expiry_version,
                    exptime_secs,
                    origin,
                    sequence: 0,
                };
                Step::Change(Change::State { key, state, value })
            }
            36..52 => {
                let state = KeyState { version, base_version, ..KeyState::default() };
                Step::Change(Change::State { key, state, value: Vec::new() })
            }
            52..57 => {
                let (version, base_version) = if random.bool() { (version, base_version) } else { (0, 0) };
                let expiry_value_version = version.max(1) + random.u64(0..5);
                let expiry_version = expiry_value_version.max(lowest) + random.u64(0..5);
                let state = KeyState {
                    version,
                    base_version,
                    expiry_value_version,
                    expiry_version,
                    exptime_secs,
                    ..KeyState::default()
                };
                Step::Change(Change::State { key, state, value: Vec::new() })
            }
            57..60 => {
                let prefix = [b"".as_slice(), b"a:", b"b:", b"b:1"][random.usize(0..4)].to_vec();
                let mut except = vec![b"a:".to_vec(), b"b:1".to_vec(), b"b:11".to_vec()];
                except.retain(|longer| {
                    longer.len() > prefix.len() && longer.starts_with(&prefix) && random.bool()
                });
                let by = if random.u32(0..5) == 0 { FlushBy::Sequence } else { FlushBy::Version };
                Step::Change(Change::Flush { prefix, except, version, by })
            }
            60..66 => {
                let name = format!("note-{}", random.u32(0..5)).into_bytes();
                let value = vec![random.u8(..); random.usize(0..60)];
                Step::Change(Change::Note { name, value })
            }
            66 => Step::Change(Change::FlushAt),
            67..77 => Step::Sync,
            77..82 if releases_log => {
                if releases_deletions {
                    retention.deletions_above_version =
                        retention.deletions_above_version.max(clock.saturating_sub(random.u64(20..90)));
                }
                retention.log_after_sequence =
                    retention.log_after_sequence.max(random.u64(0..=sequence).max(random.u64(0..=sequence)));
                retention.expired_above_secs = retention.expired_above_secs.max(now - random.u64(0..6));
                Step::Retain(retention)
            }
            82..84 => Step::Reopen { clean: random.bool() },
            _ => {
                now += random.u64(0..3);
                Step::Maintain(if random.bool() { 300 } else { 1 << 20 }, now)
            }
        };
        sequence += u64::from(matches!(step, Step::Change(_)));
        steps.push(step);
    }
    Script { steps, keys, counted: if seed.is_multiple_of(3) { &[b"", b"a:"] } else { &[] } }
}

/// Runs a script until something fails, or to its end. `check_every`: so many steps; 0: never.
/// Returns the model and the sequence up to which all was acknowledged as durable.
fn run<S: Store>(
    script: &Script,
    open: &mut dyn FnMut(Option<S>, bool) -> Result<S>,
    check_every: usize,
) -> std::result::Result<(Model, u64, Option<S>), String> {
    let mut model = Model { now: START_SECS, ..Model::default() };
    let mut durable = 0;
    let Ok(mut store) = open(None, true) else { return Ok((model, 0, None)) };
    let mut usage = store.count_prefixes(script.counted).expect("counts");
    let incarnation = store.incarnation();
    for (number, step) in script.steps.iter().enumerate() {
        let result = match step {
            Step::Change(change) => {
                let mut change = change.clone();
                if let Change::State { state, .. } = &mut change {
                    state.sequence = model.log.len() as u64 + 1;
                }
                model.log.push(change.clone());
                change.append(&store)
            }
            Step::Sync => store.sync().map(|through| durable = through),
            Step::Retain(retention) => {
                let result = store.retain(*retention);
                model.retention = *retention;
                model.promised_after = retention.log_after_sequence;
                result
            }
            Step::Maintain(bytes, now) => {
                model.now = *now;
                usage.ask_for_room(0);
                store.maintain(Budget { bytes: *bytes }, *now).map(|_| ())
            }
            Step::Reopen { clean } => {
                let closed = if *clean { store.close() } else { Ok(()) };
                if closed.is_err() {
                    return Ok((model, durable, None));
                }
                match open(Some(store), *clean) {
                    Ok(opened) => store = opened,
                    Err(_) => return Ok((model, durable, None)),
                }
                usage = store.count_prefixes(script.counted).expect("counts");
                durable = store.durable_sequence();
                if store.incarnation() != incarnation {
                    return Err(format!("step {number}: another incarnation"));
                }
                store.retain(model.retention)
            }
        };
        if result.is_err() {
            return Ok((model, durable, None));
        }
        let is_checked =
            check_every > 0 && (number % check_every == 0 || matches!(step, Step::Reopen { .. }));
        if is_checked && let Some(what) = model.difference(&store, &script.keys) {
            return Err(format!("step {number}, {step:?}: {what}"));
        }
    }
    if check_every > 0
        && let Some(what) = model.difference(&store, &script.keys)
    {
        return Err(format!("end: {what}"));
    }
    Ok((model, durable, Some(store)))
}

fn run_log(seed: u64, steps: usize, keys: usize) -> std::result::Result<Model, String> {
    let disk = SimDisk::new();
    let script = script(seed, steps, keys);
    let mut open = |before, _| {
        drop(before);
        open_log(&disk)
    };
    let (model, _, store) = run(&script, &mut open, 20)?;
    let store = store.ok_or_else(|| "the disk has no faults".to_owned())?;
    let usage = store.count_prefixes(script.counted).expect("counts");
    usage.ask_for_room(0);
    while store.maintain(Budget { bytes: 1 << 20 }, model.now).map_err(|error| error.to_string())?.more {}
    if let Some(what) = model.difference(&store, &script.keys) {
        return Err(format!("after cleaning: {what}"));
    }
    let items = || script.keys.iter().filter_map(|key| Some((key, model.state(key)?.0)));
    let bytes_of = |(key, state): (&Vec<u8>, KeyState)| {
        // With an extension or without.
        state.item.map_or(0, |item| (48 + 16 + key.len() + item.value_bytes + 7) as u64)
    };
    let live = items().filter(|(_, state)| !state.is_expired(model.now)).map(bytes_of).sum::<u64>();
    let all = items().map(bytes_of).sum::<u64>();
    let counted: u64 = (0..script.counted.len()).map(|nth| usage.bytes(nth)).sum();
    let slack = 32 * script.keys.len() as u64;
    if !script.counted.is_empty() && !(live.saturating_sub(slack)..=all + slack).contains(&counted) {
        return Err(format!("{counted} bytes are counted of {live} (and, with expired ones, {all})"));
    }
    Ok(model)
}

#[test]
fn the_log_equals_the_model() {
    for seed in (0..40).map(|seed| seed_base() + seed) {
        run_log(seed, 1_500, 12).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn the_memory_driver_equals_the_model() {
    for seed in (0..30).map(|seed| seed_base() + seed) {
        let script = script(seed, 1_500, 12);
        let mut open =
            |before: Option<MemoryStore>, _| Ok(before.map_or_else(MemoryStore::new, |store| store.kill()));
        run(&script, &mut open, 20).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

/// The power goes at this change of the disk.
fn crash_at(script: &Script, point: u64, seed: u64) -> std::result::Result<(), String> {
    let disk = SimDisk::with_faults(DiskFaults { power_off_at: Some(point), ..DiskFaults::default() });
    let mut open = |before, _| {
        drop(before);
        open_log(&disk)
    };
    let (model, durable, store) = run(script, &mut open, 0)?;
    drop(store);
    for loss in PowerLoss::ALL {
        let after = disk.power_loss(loss, seed);
        let told = |what: String| format!("point {point}, {loss:?}: {what}");
        for round in 0..2 {
            let store = open_log(&after).map_err(|error| told(format!("does not open: {error}")))?;
            let last = store.last_sequence();
            if last < durable || last > model.log.len() as u64 {
                return Err(told(format!("{last} entries are there, {durable} were durable")));
            }
            let mut model = model.clone();
            model.log.truncate(last as usize);
            let told = |what| told(format!("round {round}: {what}"));
            model.difference(&store, &script.keys).map_or(Ok(()), |what| Err(told(what)))?;
            if last > 0 && model.retention.is_replicated {
                store.retain(model.retention).map_err(|error| told(error.to_string()))?;
            }
            for _ in 0..100 {
                let step = store.maintain(Budget { bytes: 1 << 20 }, model.now);
                if !step.map_err(|error| told(error.to_string()))?.more {
                    break;
                }
            }
            model.difference(&store, &script.keys).map_or(Ok(()), |what| Err(told(what)))?;
        }
    }
    Ok(())
}

fn changes_of(script: &Script) -> u64 {
    let disk = SimDisk::new();
    let mut open = |before, _| {
        drop(before);
        open_log(&disk)
    };
    run(script, &mut open, 0).expect("runs");
    disk.counts().changes
}

#[test]
fn a_power_loss_at_every_point() {
    for seed in (0..4).map(|seed| seed_base() + seed) {
        let script = script(seed, 160, 6);
        for point in 1..=changes_of(&script) + 1 {
            crash_at(&script, point, seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
    }
    for seed in (100..103).map(|seed| seed_base() + seed) {
        let script = script(seed, 1_500, 12);
        let changes = changes_of(&script);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..60 {
            let point = random.u64(1..=changes);
            crash_at(&script, point, seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
    }
}

/// Each is found by the scripts above.
#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::ForgetDeletions, Bug::CleanNeededLog, Bug::LoseNotes, Bug::FlushNewer] {
        plant(Some(bug));
        let found = (0..80).find_map(|seed| run_log(seed, 1_500, 12).err());
        plant(None);
        assert!(found.is_some(), "{bug:?} is not found");
        println!("{bug:?}: {}", found.unwrap_or_default());
    }
}

fn item(key: &str, version: u64, value: Vec<u8>) -> Change {
    let item = Some(ItemState { value_bytes: value.len(), ..ItemState::default() });
    let state = KeyState {
        version,
        item,
        expiry_value_version: version,
        expiry_version: version,
        ..KeyState::default()
    };
    Change::State { key: key.into(), state, value }
}

fn deletion(key: &str, version: u64) -> Change {
    let state = KeyState { version, ..KeyState::default() };
    Change::State { key: key.into(), state, value: Vec::new() }
}

const KEEP_ALL: Retention = Retention {
    log_after_sequence: 0,
    log_bytes_max: u64::MAX,
    deletions_above_version: 0,
    expired_above_secs: 0,
    is_replicated: true,
};

fn clean_all(store: &dyn Store) {
    for _ in 0..1_000 {
        if !store.maintain(Budget { bytes: 1 << 20 }, START_SECS).expect("cleans").more {
            return;
        }
    }
    panic!("cleaning does not end");
}

/// Deletions of keys that were never here stay until they are released, over restarts, too; then they go from the
/// memory and the disk.
#[test]
fn deletions_stay_until_they_are_released() {
    for clean in [true, false] {
        let disk = SimDisk::new();
        let store = open_log(&disk).expect("opens");
        store.retain(KEEP_ALL).expect("retains");
        let count = 500;
        for version in 1..=count {
            deletion(&format!("key-{version}"), version).append(&store).expect("appends");
        }
        clean_all(&store);
        assert_eq!(store.stats().tombstones, count);
        if clean {
            store.close().expect("closes");
        }
        drop(store);
        let store = open_log(&disk).expect("opens");
        clean_all(&store);
        assert_eq!(store.stats().tombstones, count, "nobody has said yet that they may go");
        let released = Retention { log_after_sequence: count, ..KEEP_ALL };
        store.retain(Retention { deletions_above_version: count / 2, ..released }).expect("retains");
        clean_all(&store);
        for version in 1..=count {
            let state = store.state(format!("key-{version}").as_bytes()).expect("reads");
            assert!(state.is_some() || version <= count / 2, "{version}");
        }
        store.retain(Retention { deletions_above_version: count, ..released }).expect("retains");
        // A little more, so that the last segment is sealed.
        for version in 0..100 {
            item("other", count + version, vec![1; 100]).append(&store).expect("appends");
        }
        clean_all(&store);
        let stats = store.stats();
        assert!(stats.tombstones < 60, "{stats:?}");
        assert!(stats.disk_bytes < 8 * small_segments().segment_bytes, "{stats:?}");
    }
}

/// Who reads too slowly loses its place; the disk is bounded.
#[test]
fn the_log_is_kept_up_to_its_bound() {
    let log_bytes_max = 10 * small_segments().segment_bytes;
    let store = open_log(&SimDisk::new()).expect("opens");
    store.retain(Retention { log_bytes_max, ..KEEP_ALL }).expect("retains");
    for version in 1..3_000 {
        item(&format!("key-{}", version % 10), version, vec![1; 100]).append(&store).expect("appends");
        store.maintain(Budget { bytes: 5_000 }, START_SECS).expect("cleans");
    }
    store.sync().expect("syncs");
    clean_all(&store);
    let stats = store.stats();
    assert!(stats.log_bytes <= log_bytes_max + 2 * small_segments().segment_bytes, "{stats:?}");
    assert!(stats.log_bytes >= log_bytes_max / 2, "{stats:?}");
    let last = store.last_sequence();
    let behind = [0, last - 100, last].map(|sequence| store.log_bytes_after(sequence));
    assert!(behind[0] == stats.log_bytes && behind[0] > behind[1] && behind[1] > 0, "{behind:?} {stats:?}");
    assert_eq!(behind[2], 0);
    let start = stats.log_start_sequence;
    assert!((2..3_000).contains(&start));
    let read = store.read_log(0, 1, &mut |_| {});
    assert!(
        matches!(read, Err(Error::TooFarBehind { oldest_sequence }) if oldest_sequence == start),
        "{read:?}"
    );
    let (mut after, mut count) = (start - 1, 0);
    loop {
        let LogRead { through_sequence, more } =
            store.read_log(after, 1_000, &mut |_| count += 1).expect("is there");
        after = through_sequence;
        if !more {
            break;
        }
    }
    assert_eq!((after, count), (2_999, 2_999 - (start - 1)));
}

/// What does not change meanwhile is in a copy, deletions too; of what changes, never an older state after a newer.
#[test]
fn copies_while_changes_go_on() {
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..20 {
        let store = open_log(&SimDisk::new()).expect("opens");
        store.retain(KEEP_ALL).expect("retains");
        let mut version = 0;
        let mut expected = BTreeMap::new();
        for nth in 0..400 {
            version += 1;
            let name = format!("key-{}", nth % 150);
            let change = if random.u32(0..4) == 0 {
                deletion(&name, version)
            } else {
                item(&name, version, vec![version as u8; random.usize(0..200)])
            };
            change.append(&store).expect("appends");
            expected.insert(name.into_bytes(), (version, change));
        }
        store.sync().expect("syncs");
        store.retain(Retention { log_after_sequence: store.last_sequence(), ..KEEP_ALL }).expect("retains");
        let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let (mut cursor, mut changed) = (Cursor::new(), std::collections::BTreeSet::new());
        let mut more = true;
        while more {
            let mut visit = |key: &[u8], state: &KeyState, value: Option<&[u8]>| {
                let value = value.expect("it is whole");
                let before = seen.insert(key.to_vec(), state.version);
                assert!(before.is_none_or(|before| before <= state.version), "an older state after a newer");
                assert!(value.iter().all(|&byte| byte == state.version as u8), "the value of another state");
            };
            more = store.for_each_state(&mut cursor, 700, None, &mut visit).expect("scans");
            for _ in 0..3 {
                version += 1;
                let name = format!("key-{}", random.u32(0..40));
                item(&name, version, vec![version as u8; 50]).append(&store).expect("appends");
                changed.insert(name.into_bytes());
            }
            store.maintain(Budget { bytes: 3_000 }, START_SECS).expect("cleans");
        }
        for (key, (version, _)) in expected.iter().filter(|(key, _)| !changed.contains(*key)) {
            assert_eq!(seen.get(key), Some(version), "{}", String::from_utf8_lossy(key));
        }
    }
}

/// What cleaning moves while a scan goes on has a place further on: a copy that lacks an item would sweep it.
#[test]
fn a_scan_meets_what_cleaning_moves_behind_it() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let store = open_log(&SimDisk::new()).expect("opens");
        store.retain(KEEP_ALL).expect("retains");
        let mut version = 0;
        let mut change = |number: u32, store: &dyn Store| {
            version += 1;
            let value = vec![version as u8; 20];
            item(&format!("key-{number}"), version, value).append(store).expect("appends");
        };
        let clean = |store: &dyn Store, steps: u32| {
            store.sync().expect("syncs");
            let log_after_sequence = store.last_sequence();
            store.retain(Retention { log_after_sequence, ..KEEP_ALL }).expect("retains");
            (0..steps).for_each(|_| {
                store.maintain(Budget { bytes: 3_000 }, START_SECS).expect("cleans");
            });
        };
        (0..300).for_each(|number| change(number, &store));
        // Most of them are there to die, which leaves something for cleaning to move, into a file that stays open.
        (0..200).for_each(|_| change(300 + random.u32(..30), &store));
        clean(&store, random.u32(1..60));
        (400..700).for_each(|number| change(number, &store));
        (0..2).for_each(|_| {
            let dying = (400..700).filter(|number| number % 3 != 0);
            dying.for_each(|number| change(number, &store));
        });
        let (mut cursor, mut seen, mut more) = (Cursor::new(), std::collections::BTreeSet::new(), true);
        while more {
            let mut visit = |key: &[u8], _: &KeyState, _: Option<&[u8]>| {
                seen.insert(key.to_vec());
            };
            more = store.for_each_state(&mut cursor, 700, None, &mut visit).expect("scans");
            (0..4).for_each(|_| change(400 + 3 * random.u32(..100), &store));
            clean(&store, if random.u8(..30) == 0 { 4 } else { 0 });
        }
        for number in (0..300).chain((400..700).filter(|number| number % 3 == 0)) {
            let key = format!("key-{number}");
            assert!(
                seen.contains(key.as_bytes()),
                "seed {seed}: {key} was there all the time, and not visited"
            );
        }
    }
}

/// A restored store has all of it, and another incarnation.
#[test]
fn a_restored_store_is_another_one() {
    let script = script(3, 1_500, 12);
    let disk = SimDisk::new();
    let mut open = |before, _| {
        drop(before);
        open_log(&disk)
    };
    let (model, _, store) = run(&script, &mut open, 0).expect("runs");
    let store = store.expect("the disk has no faults");
    let (target, restored) = (SimDisk::new(), SimDisk::new());
    store.backup(&target, None).expect("is written");
    let manifest: Manifest = restore(&[&target], &restored).expect("restores");
    assert_eq!(manifest.last_sequence(), store.last_sequence());
    let copy = open_log(&restored).expect("opens");
    assert_ne!(copy.incarnation(), store.incarnation());
    assert_ne!(copy.incarnation(), 0);
    assert_eq!(model.difference(&copy, &script.keys), None);
    let incarnation = copy.incarnation();
    drop(copy);
    assert_eq!(open_log(&restored).expect("opens").incarnation(), incarnation);
}

#[test]
fn what_is_no_entry_is_refused() {
    let stores: [Box<dyn Store>; 2] =
        [Box::new(open_log(&SimDisk::new()).expect("opens")), Box::new(MemoryStore::new())];
    for store in stores {
        let refuses = |entry: Entry<'_>| {
            let result = store.append(&[entry]);
            assert!(matches!(result, Err(Error::Invalid { .. })), "{entry:?}");
        };
        refuses(Entry::Note { name: b"", value: b"" });
        refuses(Entry::Note { name: &[b'n'; 65], value: b"" });
        refuses(Entry::Note { name: b"n", value: &[0; 1_025] });
        // Of each: version, that of the expiry's value, and that of the expiry.
        for (key, [version, expiry_value_version, expiry_version]) in [
            (&b"k"[..], [0, 0, 0]),
            (b"k", [0, 0, 4]),
            (b"k", [5, 4, 6]),
            (b"k", [0, 5, 4]),
            (b"", [0, 4, 4]),
        ] {
            let (exptime_secs, base_version) = (0, 0);
            refuses(Entry::Touch {
                key,
                expiry_value_version,
                expiry_version,
                exptime_secs,
                version,
                base_version,
            });
        }
        for [expiry_value_version, expiry_version] in [[0, 4], [4, 6], [4, 4], [6, 0], [7, 6]] {
            refuses(Entry::Put(Put {
                key: b"k",
                value: &[],
                client_flags: 0,
                exptime_secs: 0,
                version: 5,
                marks: Marks::NONE,
                origin: 0,
                base_version: 0,
                expiry_value_version,
                expiry_version,
            }));
        }
        for nth in 0..1_024 {
            let name = format!("note-{nth}");
            store.append(&[Entry::Note { name: name.as_bytes(), value: b"1" }]).expect("appends");
        }
        refuses(Entry::Note { name: b"one more", value: b"1" });
        store.append(&[Entry::Note { name: b"note-7", value: b"2" }]).expect("it replaces one");
        assert_eq!((store.note(b"note-7"), store.notes().len()), (Some(b"2".to_vec()), 1_024));
    }
}

/// Long keys with an extension, and large values, also after cleaning.
#[test]
fn long_entries_are_read_whole() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    store.retain(KEEP_ALL).expect("retains");
    let mut model = Model { now: START_SECS, retention: KEEP_ALL, ..Model::default() };
    let keys: Vec<Vec<u8>> = [1, 400, 450, 511, 512, 4_000, 65_535].map(|length| vec![b'k'; length]).to_vec();
    let apply = |model: &mut Model, mut change: Change| {
        change.append(&store).expect("appends");
        if let Change::State { state, .. } = &mut change {
            state.sequence = model.log.len() as u64 + 1;
        }
        model.log.push(change);
    };
    for (nth, key) in keys.iter().enumerate() {
        for value_bytes in [0, 70_000, 600_000, nth * 1_000] {
            let version = model.log.len() as u64 + 10;
            let item = Some(ItemState { value_bytes, ..ItemState::default() });
            let state = KeyState {
                version,
                base_version: 5,
                item,
                expiry_value_version: version,
                expiry_version: version + 1,
                ..KeyState::default()
            };
            apply(&mut model, Change::State { key: key.clone(), state, value: vec![nth as u8; value_bytes] });
        }
    }
    store.sync().expect("syncs");
    assert_eq!(model.difference(&store, &keys), None);
    model.promised_after = store.last_sequence();
    model.retention.log_after_sequence = model.promised_after;
    store.retain(model.retention).expect("retains");
    clean_all(&store);
    assert!(store.stats().log_start_sequence > 1, "{:?}", store.stats());
    assert_eq!(model.difference(&store, &keys), None);
    drop(store);
    let store = open_log(&disk).expect("opens");
    assert_eq!(model.difference(&store, &keys), None);
}

/// What is left of a damaged store is another log; its notes are there.
#[test]
fn a_repaired_store_is_another_one() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    store.retain(KEEP_ALL).expect("retains");
    for version in 1..=200 {
        item(&format!("key-{version}"), version, vec![1; 100]).append(&store).expect("appends");
        Change::Note { name: b"note".to_vec(), value: vec![version as u8] }.append(&store).expect("appends");
    }
    store.close().expect("closes");
    let incarnation = store.incarnation();
    drop(store);
    disk.flip_bit(&segment_names(&disk)[1], 100, 3).expect("flips");
    assert!(crate::check(&disk, true).expect("repairs").is_repaired);
    let store = open_log(&disk).expect("opens");
    assert_ne!(store.incarnation(), incarnation);
    assert_eq!(store.note(b"note"), Some(vec![200]));
    assert!(matches!(store.read_log(0, 1, &mut |_| {}), Err(Error::TooFarBehind { .. })));
    let last = store.last_sequence();
    assert_eq!(store.stats().log_start_sequence, last + 1);
    item("new", 201, vec![1; 10]).append(&store).expect("appends");
    store.sync().expect("syncs");
    let mut count = 0;
    store.read_log(last, 1, &mut |_| count += 1).expect("is there");
    assert_eq!(count, 1);
    // Without a manifest the notes are those of the segments that are left.
    drop(store);
    crate::files::Files::remove(&disk, "MANIFEST").expect("removes");
    assert!(crate::check(&disk, true).expect("repairs").is_repaired);
    let store = open_log(&disk).expect("opens");
    assert_eq!(store.note(b"note"), Some(vec![200]));
}

/// Two readers of the log beside appender and cleaner: each sees every entry once, in order, and durable ones alone.
#[test]
fn readers_of_the_log_beside_appender_and_cleaner() {
    const COUNT: u64 = 6_000;
    let store = open_log(&SimDisk::new()).expect("opens");
    store.retain(KEEP_ALL).expect("retains");
    let read_up_to = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for (reader, place) in read_up_to.iter().enumerate() {
            let store = &store;
            scope.spawn(move || {
                let mut after = 0;
                while after < COUNT {
                    let mut expected = after;
                    let durable_before = store.last_sequence();
                    let read = store.read_log(after, 100 + 3_000 * reader, &mut |entry| {
                        expected += 1;
                        assert_eq!((entry.sequence, entry.entry.version()), (expected, expected));
                    });
                    after = read.expect("it is kept").through_sequence;
                    assert_eq!(after, expected);
                    assert!(after <= durable_before.max(store.durable_sequence()));
                    place.store(after, SeqCst);
                    std::thread::yield_now();
                }
            });
        }
        let (store, read_up_to) = (&store, &read_up_to);
        scope.spawn(move || {
            let needed = || read_up_to.iter().map(|place| place.load(SeqCst)).min().unwrap_or(0);
            while needed() < COUNT {
                let retention = Retention { log_after_sequence: needed(), ..KEEP_ALL };
                store.retain(retention).expect("retains");
                store.maintain(Budget { bytes: 5_000 }, START_SECS).expect("cleans");
                std::thread::yield_now();
            }
        });
        for version in 1..=COUNT {
            item(&format!("key-{}", version % 50), version, vec![1; 100]).append(store).expect("appends");
            if version % 3 == 0 {
                store.sync().expect("syncs");
            }
        }
        store.sync().expect("syncs");
    });
    assert!(store.stats().log_start_sequence > 1);
}

/// Who compares a store with another one sees all but what is damaged, in steps of any length.
#[test]
fn a_scan_goes_on_behind_what_cannot_be_read() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    store.retain(KEEP_ALL).expect("retains");
    for version in 1..=300 {
        item(&format!("key-{version}"), version, vec![version as u8; 100]).append(&store).expect("appends");
    }
    store.close().expect("closes");
    drop(store);
    let scan = |budget_bytes: usize| {
        let store = open_log(&disk).expect("opens");
        let (mut cursor, mut unreadable, mut keys) = (Cursor::new(), 0, BTreeSet::new());
        let mut visit = |key: &[u8], state: &KeyState, value: Option<&[u8]>| {
            let Some(value) = value else { return };
            assert_eq!(value, [state.version as u8; 100]);
            keys.insert(key.to_vec());
        };
        while store
            .for_each_state(&mut cursor, budget_bytes, Some(&mut unreadable), &mut visit)
            .expect("it goes on")
        {}
        (unreadable, keys.len())
    };
    [1, 700, usize::MAX].iter().for_each(|budget_bytes| assert_eq!(scan(*budget_bytes), (0, 300)));
    let (mut random, mut lost) = (fastrand::Rng::with_seed(7), 0);
    for _ in 0..60 {
        // In the first records, whose segment is sealed.
        let (offset, bit) = (random.u64(100..2_000), random.u8(0..8));
        disk.flip_bit("segment-0000000000000001", offset, bit).expect("flips");
        let (unreadable, keys) = scan(700);
        // There is padding between records, and not every record is of a key.
        assert!(
            300 - keys <= unreadable as usize && unreadable <= 1,
            "{unreadable} at {offset}, {keys} keys"
        );
        lost += 300 - keys;
        disk.flip_bit("segment-0000000000000001", offset, bit).expect("flips");
    }
    assert!(lost > 20, "{lost}");
}

/// A copy is read in pieces. If each of them read the footer of its file first, of a file of small items it would read
/// hundreds of times what it needs.
#[test]
fn a_scan_reads_no_footer_where_all_is_live() {
    let disk = SimDisk::new();
    let store = open_log(&disk).expect("opens");
    store.retain(KEEP_ALL).expect("retains");
    for version in 1..=300 {
        item(&format!("key-{version}"), version, vec![version as u8; 100]).append(&store).expect("appends");
    }
    let name = "segment-0000000000000001";
    let bytes =
        crate::files::Files::open_to_read(&disk, name).and_then(|file| file.len()).expect("it is there");
    disk.flip_bit(name, bytes - 30, 3).expect("flips");
    let scan = |store: &crate::LogStore| {
        let (mut cursor, mut keys) = (Cursor::new(), BTreeSet::new());
        let mut visit = |key: &[u8], _: &KeyState, _: Option<&[u8]>| _ = keys.insert(key.to_vec());
        while store.for_each_state(&mut cursor, 700, None, &mut visit)? {}
        crate::Result::Ok(keys.len())
    };
    assert_eq!(scan(&store).expect("the footer is not read"), 300);
}
