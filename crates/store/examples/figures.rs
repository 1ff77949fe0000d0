//! What the log costs: CPU of appending, time of opening, bytes written under overwrites, reads.
//!
//!     cargo run --release -p larder-store --example figures -- DIR [RECORDS [OVERWRITES]]
//!
//! DIR must not exist, or be empty; what is written there stays. Values have 1 KiB.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::time::Instant;

use larder_store::{Budget, Entry, LogOptions, LogStore, Marks, NoValue, Put, Stats, Store, VecSink};
use rustix::time::{ClockId, clock_gettime};

const NOW_SECS: u64 = 1_900_000_000;
const VALUE_BYTES: usize = 1024;
const BATCH: u64 = 64;

fn cpu_secs() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn append(store: &LogStore, numbers: &[u64], version: u64, value: &[u8]) {
    let keys: Vec<String> = numbers.iter().map(|number| format!("key:{number:016}")).collect();
    let pieces = [value];
    let entries: Vec<Entry<'_>> = (keys.iter())
        .map(|key| {
            Entry::Put(Put {
                key: key.as_bytes(),
                value: &pieces,
                client_flags: 0,
                exptime_secs: 0,
                version,
                marks: Marks::NONE,
                origin: 0,
                base_version: 0,
                expiry_value_version: 0,
                expiry_version: 0,
            })
        })
        .collect();
    store.append(&entries).expect("appends");
}

fn written(stats: &Stats) -> u64 {
    stats.appended_bytes + stats.cleaned_bytes
}

fn open(dir: &Path) -> LogStore {
    LogStore::open(dir, LogOptions::default()).expect("opens")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("a directory");
    let records: u64 = args.next().map_or(1_000_000, |count| count.parse().expect("a number"));
    let overwrites: u64 = args.next().map_or(3 * records, |count| count.parse().expect("a number"));
    let dir = Path::new(&dir);
    let value: Vec<u8> = (0..VALUE_BYTES).map(|nth| (nth * 7) as u8).collect();
    let stored = records * (VALUE_BYTES as u64 + 20);

    let store = open(dir);
    let (start, cpu) = (Instant::now(), cpu_secs());
    for first in (0..records).step_by(BATCH as usize) {
        let numbers: Vec<u64> = (first..(first + BATCH).min(records)).collect();
        append(&store, &numbers, first + 1, &value);
    }
    let cpu = cpu_secs() - cpu;
    store.sync().expect("syncs");
    println!(
        "append: {:.2} us CPU a record of 1 KiB in batches of {BATCH}, without fsync; {:.1} s in all",
        cpu * 1e6 / records as f64,
        start.elapsed().as_secs_f64()
    );
    let stats = store.stats();
    println!(
        "written {:.3} x stored; on the disk {:.3} x; index {:.1} bytes a record",
        written(&stats) as f64 / stored as f64,
        stats.disk_bytes as f64 / stored as f64,
        stats.index_bytes as f64 / records as f64
    );
    drop(store);

    let start = Instant::now();
    let store = open(dir);
    println!("open after a crash: {:.3} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    store.close().expect("closes");
    drop(store);
    println!("close: {:.3} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let store = open(dir);
    let found = store.get(b"key:0000000000000007", NOW_SECS, &mut VecSink::default()).expect("reads");
    println!("open after close, first get: {:.3} s, {}", start.elapsed().as_secs_f64(), found.is_some());

    let mut random = fastrand::Rng::with_seed(1);
    let gets = 200_000;
    let (reads, cpu) = (store.stats().reads, cpu_secs());
    for _ in 0..gets {
        let key = format!("key:{:016}", random.u64(0..records));
        store.get(key.as_bytes(), NOW_SECS, &mut VecSink::default()).expect("reads").expect("is there");
    }
    println!(
        "get: {:.2} us CPU, {:.3} reads each",
        (cpu_secs() - cpu) * 1e6 / f64::from(gets),
        (store.stats().reads - reads) as f64 / f64::from(gets)
    );
    let cpu = cpu_secs();
    for nth in 0..gets {
        let key = format!("absent:{nth:016}");
        assert!(!store.may_contain(key.as_bytes()) || store.get(key.as_bytes(), 0, &mut NoValue).is_ok());
    }
    println!("may_contain: {:.2} us CPU", (cpu_secs() - cpu) * 1e6 / f64::from(gets));

    let before = written(&store.stats());
    let (start, cpu) = (Instant::now(), cpu_secs());
    let mut worst_share: f64 = 0.0;
    for round in 0..overwrites / BATCH {
        let numbers: Vec<u64> = (0..BATCH).map(|_| random.u64(0..records)).collect();
        append(&store, &numbers, round, &value);
        store.maintain(Budget { bytes: BATCH * 5_000 }, NOW_SECS).expect("cleans");
        if round % 1_000 == 0 {
            let stats = store.stats();
            worst_share = worst_share.max(stats.disk_bytes as f64 / stored as f64);
        }
    }
    store.sync().expect("syncs");
    let stats = store.stats();
    println!(
        "random overwrites: written {:.2} x stored, disk at most {:.2} x what lives, {:.2} us CPU each with cleaning, \
         {:.1} s",
        (written(&stats) - before) as f64 / (overwrites.max(1) * (VALUE_BYTES as u64 + 20)) as f64,
        worst_share,
        (cpu_secs() - cpu) * 1e6 / overwrites.max(1) as f64,
        start.elapsed().as_secs_f64()
    );
    println!("{stats:?}");
}
