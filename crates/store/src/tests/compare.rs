//! The log and the store in memory execute the same commands and give the same answers.
//!
//! `LARDER_STORE_COMMANDS`: how many (instead of 300,000), in runs of 50,000; each run has the next seed.

use std::collections::BTreeMap;

use super::driver::{Driver, Log, Memory};
use super::model::{Change, append};
use super::script::{START_SECS, change, seed_base};
use crate::log::bugs::{Bug, plant};
use crate::{Budget, Cursor, LogStore, MemoryStore, Meta, Store, VecSink};

const COMMANDS: u64 = 300_000;
const RUN_COMMANDS: u64 = 50_000;
const KEYS: usize = 400;

/// Both drivers, in the same state.
struct Both {
    places: (Log, Memory),
    log: LogStore,
    memory: MemoryStore,
    now: u64,
}

/// What a scan finds.
type Found = BTreeMap<Vec<u8>, Meta>;

/// An answer, if both give the same one.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, log: T, memory: T) -> Result<T, String> {
    if log == memory { Ok(log) } else { Err(format!("{what}: the log says {log:?}, memory {memory:?}")) }
}

impl Both {
    fn new() -> Self {
        let places = (Log::new(), Memory::new());
        let (log, memory) = (places.0.open().expect("opens"), places.1.open().expect("opens"));
        Self { places, log, memory, now: START_SECS }
    }

    fn each(&self) -> [&dyn Store; 2] {
        [&self.log, &self.memory]
    }

    /// An answer of both, as text if it is an error.
    fn ask<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        ask: impl Fn(&dyn Store) -> crate::Result<T>,
    ) -> Result<T, String> {
        let [log, memory] = self.each().map(|store| ask(store).map_err(|error| format!("{what}: {error}")));
        same(what, log?, memory?)
    }

    fn get(&self, key: &[u8]) -> Result<(), String> {
        let name = format!("get {}", String::from_utf8_lossy(key));
        let found = self.ask(&name, |store| {
            let mut sink = VecSink::default();
            let meta = store.get(key, self.now, &mut sink)?;
            // The checksum, so that a difference can be read.
            Ok(meta.map(|meta| (meta, crc32c::crc32c(&sink.into_value()))))
        })?;
        match found.is_some() && self.each().iter().any(|store| !store.may_contain(key)) {
            true => Err(format!("{name}: may_contain denies it")),
            false => Ok(()),
        }
    }

    fn scan(&self, limit: usize) -> Result<Found, String> {
        self.ask("a scan", |store| {
            let mut found = Found::new();
            let mut cursor = Cursor::new();
            let mut visit = |key: &[u8], meta: &Meta| {
                found.insert(key.to_vec(), *meta);
            };
            while store.for_each_key(&mut cursor, limit, self.now, &mut visit)? {}
            Ok(found)
        })
    }

    fn numbers(&self) -> Result<(), String> {
        self.ask("the last sequence", |store| Ok(store.last_sequence()))?;
        self.ask("the highest version", |store| Ok(store.highest_version()))?;
        self.ask("delayed flushes", |store| Ok(store.pending_flushes()))?;
        Ok(())
    }

    fn reopen(self, is_clean: bool) -> Result<Self, String> {
        if is_clean {
            self.ask("closing", |store| store.close())?;
        }
        let Self { places, log, memory, now } = self;
        let (log, memory) = (places.0.reopen(log), places.1.reopen(memory));
        Ok(Self { places, log, memory, now })
    }
}

/// Runs random commands. Error: what is not the same.
fn compare(seed: u64, commands: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let keys: Vec<Vec<u8>> =
        (0..KEYS).map(|nth| format!("{}:key-{nth}", if nth % 3 == 0 { "a" } else { "b" }).into()).collect();
    let mut both = Both::new();
    let mut version = 0;
    for number in 0..commands {
        let told = |what: String| format!("seed {seed}, command {number}: {what}");
        let step = match random.u32(0..10_000) {
            0..4_500 => {
                let count = if random.u32(0..6) == 0 { random.usize(2..12) } else { 1 };
                let batch: Vec<Change> = (0..count)
                    .map(|_| {
                        loop {
                            let change = change(&mut random, &keys, both.now, &mut version);
                            // Flushes of all would leave little to compare.
                            if !matches!(change, Change::Flush { .. }) || random.u32(0..10) == 0 {
                                break change;
                            }
                        }
                    })
                    .collect();
                both.ask("appending", |store| append(store, &batch)).map(drop)
            }
            4_500..9_000 => both.get(&keys[random.usize(0..KEYS)]),
            9_000..9_400 => both.ask("syncing", |store| store.sync()).map(drop),
            9_400..9_900 => {
                both.now += random.u64(0..3);
                let bytes = if random.bool() { 3_000 } else { 1 << 20 };
                both.each()
                    .iter()
                    .try_for_each(|store| store.maintain(Budget { bytes }, both.now).map(drop))
                    .map_err(|error| format!("cleaning: {error}"))
            }
            9_900..9_990 => both.numbers(),
            // A pass of cleaning is due again.
            9_990..9_993 => {
                both.now += 3_600;
                Ok(())
            }
            9_993..9_997 => {
                let limit = random.usize(1..100);
                both.scan(limit).map(drop)
            }
            _ => {
                both = both.reopen(random.bool()).map_err(told)?;
                both.numbers().and_then(|()| both.scan(1_000)).map(drop)
            }
        };
        step.map_err(told)?;
    }
    keys.iter().try_for_each(|key| both.get(key)).map_err(|what| format!("seed {seed}, end: {what}"))
}

#[test]
fn both_drivers_give_the_same_answers() {
    let wanted = std::env::var("LARDER_STORE_COMMANDS").ok().and_then(|count| count.parse().ok());
    let wanted = wanted.unwrap_or(COMMANDS);
    let mut done = 0;
    while done < wanted {
        let seed = seed_base() + done / RUN_COMMANDS;
        let commands = RUN_COMMANDS.min(wanted - done);
        compare(seed, commands).unwrap_or_else(|what| {
            panic!(
                "{what}\nagain: LARDER_STORE_SEED={seed} LARDER_STORE_COMMANDS={commands} cargo test -p larder-store \
                 --lib both_drivers"
            )
        });
        done += commands;
    }
    println!("{done} commands");
}

#[test]
fn deletions_that_one_driver_forgets_are_found() {
    plant(Some(Bug::DropTombstones));
    let found = compare(0, RUN_COMMANDS);
    plant(None);
    let what = found.expect_err("the drivers differ");
    assert!(what.contains("the log says"), "{what}");
    println!("{what}");
}
