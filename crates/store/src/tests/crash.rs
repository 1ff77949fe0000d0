//! Power loss at every change of the disk: what was synced is there, batches are whole, nothing comes back.

use super::driver::{open_log, small_segments};
use super::model::{Change, State, append};
use super::script::{START_SECS, Script, Step, seed_base};
use crate::files::sim::{DiskFaults, PowerLoss, SimDisk};
use crate::{Budget, Marks, Store};

/// What happened until the power went.
struct History {
    /// After each batch; the first is the empty one.
    states: Vec<State>,
    /// The batch up to which all was acknowledged as durable.
    durable: usize,
    now: u64,
}

/// Runs a script until the power is off, or to its end.
fn run_until_off(disk: &SimDisk, script: &Script) -> History {
    let mut history = History { states: vec![State::default()], durable: 0, now: START_SECS };
    let Ok(store) = open_log(disk) else { return history };
    let mut store = store;
    for step in &script.steps {
        let result = match step {
            Step::Append(batch) => {
                let mut next = history.states.last().expect("the empty state").clone();
                next.apply(batch);
                // A batch may be there though its append did not return.
                history.states.push(next);
                append(&store, batch).map(|_| ())
            }
            Step::Sync => store.sync().map(|_| history.durable = history.states.len() - 1),
            Step::Maintain(bytes, at) => {
                history.now = *at;
                store.maintain(Budget { bytes: *bytes }, *at).map(|_| ())
            }
            Step::Reopen { clean } => {
                let closed = if *clean { store.close() } else { Ok(()) };
                if closed.is_ok() && *clean {
                    history.durable = history.states.len() - 1;
                }
                drop(store);
                match open_log(disk) {
                    Ok(opened) => {
                        // What an opening finds is durable.
                        history.durable = history.states.len() - 1;
                        store = opened;
                        closed
                    }
                    Err(_) => return history,
                }
            }
        };
        if result.is_err() {
            break;
        }
    }
    history
}

impl History {
    /// What is wrong with the store on this disk, if anything is. `durable`: at least so much must be there.
    fn check(&self, disk: &SimDisk, durable: usize, keys: &[Vec<u8>]) -> Result<usize, String> {
        let store = open_log(disk).map_err(|error| format!("does not open: {error}"))?;
        let last = store.last_sequence();
        let Some(batch) = self.states.iter().position(|state| state.last_sequence == last) else {
            return Err(format!("a batch is there in part: up to {last}"));
        };
        if batch < durable {
            return Err(format!("only {batch} batches are there, but {durable} were durable"));
        }
        match self.states[batch].difference(&store, keys, self.now) {
            Some(difference) => Err(format!("after {batch} batches: {difference}")),
            None => Ok(batch),
        }
    }

    /// The store goes on: it cleans, takes more, and is opened again.
    fn check_life_after(&self, disk: &SimDisk, batch: usize, keys: &[Vec<u8>]) -> Result<(), String> {
        let mut state = self.states[batch].clone();
        let mut now = self.now;
        for round in 0..3 {
            let store = open_log(disk).map_err(|error| format!("round {round} does not open: {error}"))?;
            let failed = |error: crate::Error| format!("round {round}: {error}");
            for (nth, key) in keys.iter().enumerate().filter(|(nth, _)| nth % 3 == round) {
                let version = state.highest_version + 1;
                let put = Change::Put {
                    key: key.clone(),
                    value: vec![nth as u8; 700],
                    client_flags: 1,
                    exptime_secs: 0,
                    version,
                    marks: Marks::NONE,
                };
                let delete = Change::Delete { key: key.clone(), version: version + 1 };
                let batch = if nth % 2 == 0 { vec![put, delete] } else { vec![put] };
                append(&store, &batch).map_err(failed)?;
                state.apply(&batch);
                now += 1;
                store.maintain(Budget { bytes: 1 << 20 }, now).map_err(failed)?;
            }
            if round == 1 {
                store.close().map_err(failed)?;
            }
            drop(store);
            let store = open_log(disk).map_err(|error| format!("round {round} does not open: {error}"))?;
            if let Some(difference) = state.difference(&store, keys, now) {
                return Err(format!("life after, round {round}: {difference}"));
            }
        }
        Ok(())
    }
}

/// The first failure of a script at one point of its changes, in all modes.
pub(super) fn crash_at(script: &Script, point: u64, seed: u64) -> Result<u64, String> {
    let disk = SimDisk::with_faults(DiskFaults { power_off_at: Some(point), ..DiskFaults::default() });
    let history = run_until_off(&disk, script);
    let mut states = 0;
    for loss in PowerLoss::ALL {
        let told = |what: String| format!("point {point}, {loss:?}, seed {seed}: {what}");
        let after = disk.power_loss(loss, seed);
        // The power goes again while the store recovers, and once more.
        let mut again = after.power_loss(PowerLoss::Nothing, 0);
        for round in 0..2 {
            let off = 1 + (seed + point + round) % 12;
            again.set_faults(DiskFaults { power_off_at: Some(off), ..DiskFaults::default() });
            let recovering = open_log(&again);
            if let Ok(store) = &recovering {
                let _ = append(store, &[]);
                let _ = store.maintain(Budget { bytes: 1 << 20 }, history.now);
            }
            drop(recovering);
            again = again.power_loss(loss, seed + round + 1);
        }
        history
            .check(&again, history.durable, &script.keys)
            .map_err(|what| told(format!("twice: {what}")))?;
        let batch = history.check(&after, history.durable, &script.keys).map_err(told)?;
        if point % 7 == seed % 7 {
            history.check_life_after(&after, batch, &script.keys).map_err(told)?;
        }
        states += 2;
    }
    Ok(states)
}

/// How many changes a script makes to the disk.
pub(super) fn changes_of(script: &Script) -> u64 {
    let disk = SimDisk::new();
    run_until_off(&disk, script);
    disk.counts().changes
}

#[test]
fn every_point_of_short_scripts() {
    let mut states = 0;
    for seed in (0..6).map(|nth| seed_base() + nth) {
        let script = Script::random(seed, 110, 8, seed % 2 == 0);
        for point in 1..=changes_of(&script) + 1 {
            states += crash_at(&script, point, seed).unwrap_or_else(|what| panic!("script {seed}: {what}"));
        }
    }
    println!("{states} states of short scripts");
}

#[test]
fn a_thousand_points_of_long_scripts() {
    let mut states = 0;
    for seed in (100..104).map(|nth| seed_base() + nth) {
        let script = Script::random(seed, 1_500, 25, seed % 2 == 0);
        let changes = changes_of(&script);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..250 {
            let point = random.u64(1..=changes);
            states += crash_at(&script, point, point).unwrap_or_else(|what| panic!("script {seed}: {what}"));
        }
    }
    println!("{states} states of long scripts");
}

/// Scripts reach what they are to test: several segments, cleaning, tombstones.
#[test]
fn scripts_reach_cleaning() {
    let script = Script::random(1, 1_500, 25, false);
    let disk = SimDisk::new();
    let history = run_until_off(&disk, &script);
    assert_eq!(
        history.states.len() - 1,
        script.steps.iter().filter(|step| matches!(step, Step::Append(_))).count()
    );
    let store = open_log(&disk).expect("opens");
    while store.maintain(Budget { bytes: 1 << 20 }, history.now).expect("cleans").more {}
    let stats = store.stats();
    assert!(stats.disk_bytes < stats.live_bytes * 3 / 2 + 4 * small_segments().segment_bytes, "{stats:?}");
}

/// Cleaning writes tombstones for items that a flush killed. None may survive a power loss that the flush does not.
#[test]
fn a_flush_that_was_lost_leaves_no_tombstone() {
    let script = Script::random(2_101, 1_500, 25, false);
    for point in 1_325..1_345 {
        crash_at(&script, point, 1_337).unwrap_or_else(|what| panic!("{what}"));
    }
}
