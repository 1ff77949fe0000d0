//! All drivers do the same on random commands with restarts.

use std::sync::Arc;

use super::model::{State, append};
use super::script::{START_SECS, Script, Step, seed_base};
use crate::files::sim::SimDisk;
use crate::{Budget, LogOptions, LogStore, MemoryStore, Store};

/// A store that can be opened again.
trait Driver {
    fn open(&mut self) -> Box<dyn Store>;
    /// Without `close`: the process died.
    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store>;
}

struct Log {
    disk: SimDisk,
}

pub(super) fn small_segments() -> LogOptions {
    LogOptions { segment_bytes: 4096, secret: Some([7; 16]), ..LogOptions::default() }
}

pub(super) fn open_log(disk: &SimDisk) -> crate::Result<LogStore> {
    LogStore::open_files(Arc::new(disk.clone()), small_segments())
}

impl Driver for Log {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(open_log(&self.disk).expect("the disk has no faults"))
    }

    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store> {
        drop(store);
        self.open()
    }
}

/// Keeps a copy beside, since a driver in memory ends with its value.
struct Memory {
    batches: Vec<Vec<super::model::Change>>,
}

fn run(driver: &mut dyn Driver, seed: u64, steps: usize, keys: usize) {
    let script = Script::random(seed, steps, keys, true);
    let mut store = driver.open();
    let mut state = State::default();
    let mut now = START_SECS;
    for (number, step) in script.steps.iter().enumerate() {
        match step {
            Step::Append(batch) => {
                let range = append(&*store, batch).expect("appends");
                assert_eq!(range.first, state.last_sequence + 1);
                state.apply(batch);
                assert_eq!(range.last, state.last_sequence);
            }
            Step::Sync => assert_eq!(store.sync().expect("syncs"), state.last_sequence),
            Step::Maintain(bytes, at) => {
                now = *at;
                store.maintain(Budget { bytes: *bytes }, now).expect("maintains");
            }
            Step::Reopen { clean } => {
                if *clean {
                    store.close().expect("closes");
                    assert!(append(&*store, &[]).is_err(), "a closed store takes nothing");
                }
                store = driver.reopen(store);
            }
        }
        if number % 40 == 0 || matches!(step, Step::Reopen { .. }) {
            let difference = state.difference(&*store, &script.keys, now);
            assert_eq!(difference, None, "seed {seed}, step {number}, {step:?}");
        }
    }
    assert_eq!(state.difference(&*store, &script.keys, now), None, "seed {seed}, end");
}

#[test]
fn the_log_equals_the_model() {
    for seed in 0..40 {
        run(&mut Log { disk: SimDisk::new() }, seed_base() + seed, 2_000, 30);
    }
    for seed in 100..104 {
        run(&mut Log { disk: SimDisk::new() }, seed_base() + seed, 20_000, 300);
    }
}

impl Driver for Memory {
    fn open(&mut self) -> Box<dyn Store> {
        let store = MemoryStore::new();
        for batch in &self.batches {
            append(&store, batch).expect("appends");
        }
        Box::new(store)
    }

    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store> {
        store
    }
}

#[test]
fn the_memory_driver_equals_the_model() {
    for seed in 0..20 {
        let script = Script::random(seed, 2_000, 30, false);
        let mut driver = Memory { batches: Vec::new() };
        let store = driver.open();
        let mut state = State::default();
        let mut now = START_SECS;
        for step in &script.steps {
            match step {
                Step::Append(batch) => {
                    append(&*store, batch).expect("appends");
                    state.apply(batch);
                }
                Step::Sync => assert_eq!(store.sync().expect("syncs"), state.last_sequence),
                Step::Maintain(_, at) => now = *at,
                Step::Reopen { .. } => {}
            }
        }
        assert_eq!(state.difference(&*store, &script.keys, now), None, "seed {seed}");
    }
}
