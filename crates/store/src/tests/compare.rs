//! The log and RocksDB do the same commands, and give the same answers.
//!
//! `LARDER_STORE_COMMANDS`: how many (instead of 300,000), in runs of 50,000; each run has the next seed.

use std::collections::BTreeMap;

use super::driver::{Driver, Log, Rocks};
use super::model::{Change, append};
use super::script::{START_SECS, change, seed_base};
use crate::log::bugs::{Bug, plant};
use crate::{Budget, Cursor, LogStore, Meta, RocksStore, Store, VecSink};

const COMMANDS: u64 = 300_000;
const RUN_COMMANDS: u64 = 50_000;
const KEYS: usize = 400;

/// Both engines, in the same state.
struct Both {
    places: (Log, Rocks),
    log: LogStore,
    rocks: RocksStore,
    now: u64,
}

/// What a scan finds.
type Found = BTreeMap<Vec<u8>, Meta>;

/// An answer, if both give the same one.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, log: T, rocks: T) -> Result<T, String> {
    if log == rocks { Ok(log) } else { Err(format!("{what}: the log says {log:?}, RocksDB {rocks:?}")) }
}

impl Both {
    fn new() -> Self {
        let places = (Log::new(), Rocks::new());
        let (log, rocks) = (places.0.open().expect("opens"), places.1.open().expect("opens"));
        Self { places, log, rocks, now: START_SECS }
    }

    fn each(&self) -> [&dyn Store; 2] {
        [&self.log, &self.rocks]
    }

    /// An answer of both, as text if it is an error.
    fn ask<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        ask: impl Fn(&dyn Store) -> crate::Result<T>,
    ) -> Result<T, String> {
        let [log, rocks] = self.each().map(|store| ask(store).map_err(|error| format!("{what}: {error}")));
        same(what, log?, rocks?)
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

    fn reopen(mut self, is_clean: bool) -> Result<Self, String> {
        if is_clean {
            self.ask("closing", |store| store.close())?;
        }
        self.log = self.places.0.reopen(self.log);
        // Its directory has a lock: the one before must be gone.
        let Self { places, log, rocks, now } = self;
        let rocks = places.1.reopen(rocks);
        Ok(Self { places, log, rocks, now })
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
fn both_engines_give_the_same_answers() {
    let wanted = std::env::var("LARDER_STORE_COMMANDS").ok().and_then(|count| count.parse().ok());
    let wanted = wanted.unwrap_or(COMMANDS);
    let mut done = 0;
    while done < wanted {
        let seed = seed_base() + done / RUN_COMMANDS;
        let commands = RUN_COMMANDS.min(wanted - done);
        compare(seed, commands).unwrap_or_else(|what| {
            panic!(
                "{what}\nagain: LARDER_STORE_SEED={seed} LARDER_STORE_COMMANDS={commands} cargo test -p larder-store \
                 --features rocksdb --lib both_engines"
            )
        });
        done += commands;
    }
    println!("{done} commands");
}

#[test]
fn a_flush_that_one_engine_ignores_is_found() {
    plant(Some(Bug::IgnoreFlush));
    let found = compare(0, RUN_COMMANDS);
    plant(None);
    let what = found.expect_err("the engines differ");
    assert!(what.contains("the log says"), "{what}");
    println!("{what}");
}
