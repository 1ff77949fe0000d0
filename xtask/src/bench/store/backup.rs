//! What requests notice of a backup: a steady load, with one and without, in turns.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::folder::Folder;

use super::{Bench, Contestant, What, quantile};

/// Latencies in microseconds, of gets and sets.
#[derive(Default)]
struct Latencies {
    micros: Vec<f64>,
    /// Of each round.
    slowest: Vec<f64>,
}

impl Latencies {
    fn add(&mut self, round: Vec<f64>) {
        self.slowest.push(round.iter().copied().fold(0.0, f64::max));
        self.micros.extend(round);
    }

    fn print(&mut self, name: &str) {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| quantile(&mut self.micros, share));
        let above = self.micros.iter().filter(|micros| **micros > SLOW_MICROS).count();
        let slowest: Vec<_> = self.slowest.iter().map(|micros| format!("{:.1}", micros / 1e3)).collect();
        println!(
            "  {name:<26} {:>9} {p50:>8.0} {p99:>8.0} {p999:>9.0} {above:>11}   {}",
            self.micros.len(),
            slowest.join(", ")
        );
    }
}

impl Bench<'_> {
    /// The slowest request with a backup and without.
    pub(super) fn backup(&self) -> Result<()> {
        let items = self.items;
        println!(
            "\nA backup of {} MiB, while {CONNECTIONS} connections make {REQUESTS_PER_SEC} requests/s \
             (70 % gets, 30 % sets, sync); {} rounds in turns",
            items / 1024,
            self.rounds
        );
        let backups = Folder::create();
        let directory = backups.path().display().to_string();
        let larderd = self.larderd("larderd", &["-m", "256", "--backup-dir", &directory], true)?;
        larderd.fill(items)?;
        self.settle(&larderd)?;
        let (mut without, mut with, mut backup_secs) =
            (Latencies::default(), Latencies::default(), Vec::new());
        let quiet = |length: Duration| {
            steady_load(&larderd, items, || {
                std::thread::sleep(length);
                Ok(())
            })
        };
        // Memory fills with the load first.
        quiet(WARM_UP)?;
        let mut length = WARM_UP;
        for round in 0..self.rounds {
            // Who is second has what the first one left to the disk: in turns.
            if round % 2 == 1 {
                without.add(quiet(length)?);
            }
            let name = format!("round-{round}");
            let began = Instant::now();
            with.add(steady_load(&larderd, items, || larderd.take_backup(&name))?);
            length = began.elapsed();
            backup_secs.push(length.as_secs_f64());
            std::fs::remove_dir_all(backups.file(&name))?;
            std::thread::sleep(SETTLE);
            if round % 2 == 0 {
                without.add(quiet(length)?);
            }
        }
        println!(
            "  {:<26} {:>9} {:>8} {:>8} {:>9} {:>11}   slowest of each round, ms",
            "", "requests", "p50 us", "p99 us", "p99.9 us", "above 20 ms"
        );
        with.print("during a backup");
        without.print("without");
        let secs: Vec<_> = backup_secs.iter().map(|secs| format!("{secs:.0}")).collect();
        println!("  the backups took {} s", secs.join(", "));
        Ok(())
    }
}

impl Contestant {
    fn take_backup(&self, name: &str) -> Result<()> {
        let mut stream = self.connect()?;
        std::io::Write::write_all(stream.get_mut(), format!("stats store backup {name}\r\n").as_bytes())?;
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stream, &mut line)?;
        if line.trim_end() != "OK" {
            return Err(format!("no backup: {line}").into());
        }
        loop {
            std::thread::sleep(Duration::from_millis(200));
            match &self.text_stat("stats store", "backup_state")?.unwrap_or_default()[..] {
                "running" => {}
                "done" => return Ok(()),
                state => return Err(format!("the backup {state}").into()),
            }
        }
    }
}

/// Latencies of a load at a steady rate, while something is done. A request that had to wait for the one before it on
/// its connection counts from when it was due.
fn steady_load(
    contestant: &Contestant,
    items: u64,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<Vec<f64>> {
    let is_over = AtomicBool::new(false);
    let interval = Duration::from_secs(CONNECTIONS) / REQUESTS_PER_SEC;
    let work = |seed: u64| -> std::result::Result<Vec<f64>, String> {
        let mut stream = contestant.connect().map_err(|error| error.to_string())?;
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut latencies, mut bytes) = (Vec::new(), Vec::new());
        let mut due = Instant::now() + interval * (seed as u32) / (CONNECTIONS as u32);
        while !is_over.load(Relaxed) {
            let pause = due.saturating_duration_since(Instant::now());
            std::thread::sleep(pause);
            // The scheduler's own lateness is not the server's.
            let began = if pause.is_zero() { due } else { Instant::now() };
            let what = if random.u8(0..10) < 7 { What::Get } else { What::Set };
            let item = random.u64(..items);
            contestant.ask(what, item, &mut stream, &mut bytes).map_err(|error| error.to_string())?;
            latencies.push(began.elapsed().as_secs_f64() * 1e6);
            due += interval;
        }
        Ok(latencies)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..CONNECTIONS).map(|seed| scope.spawn(move || work(seed))).collect();
        let done = meanwhile();
        is_over.store(true, Relaxed);
        let mut latencies = Vec::new();
        for thread in threads {
            latencies.extend(thread.join().unwrap_or_else(|_| Err("a panic".into()))?);
        }
        done.map(|()| latencies)
    })
}

const CONNECTIONS: u64 = 8;
const REQUESTS_PER_SEC: u32 = 5_000;
const SLOW_MICROS: f64 = 20_000.0;
const WARM_UP: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_secs(2);
