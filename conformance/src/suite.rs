//! All scripts of `scripts/`, each with a server of its own, in every way of delivery.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use crate::play::{self, Delivery};
use crate::script::{Script, Side};
use crate::server::{self, Server};
use crate::{Error, Result};

/// What a run of scripts came to.
#[derive(Default)]
pub struct Report {
    /// How many runs (a script in one way of delivery) went as written.
    pub passed: usize,
    /// One sentence for each that did not.
    pub failures: Vec<String>,
    /// Scripts whose options a store refuses, where larderd keeps its items in one.
    pub left_out: usize,
}

/// The script files whose path contains `filter`, sorted.
pub fn scripts(filter: &str) -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut found = Vec::new();
    for dir in fs::read_dir(&root).map_err(|error| format!("{}: {error}", root.display()))? {
        for file in fs::read_dir(dir?.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "script")
                && path.to_string_lossy().contains(filter)
            {
                found.push(path);
            }
        }
    }
    found.sort();
    if found.is_empty() { Err(format!("no script has {filter:?} in its name").into()) } else { Ok(found) }
}

/// Plays `scripts` against `program`.
pub fn run(program: &Path, side: Side, scripts: &[PathBuf]) -> Result<Report> {
    let version = server::version(program)?;
    let mut runs = Vec::new();
    let mut left_out = 0;
    for path in scripts {
        let script = Script::read(path)?;
        if side == Side::Larder && server::keeps_in_store() && !suits_store(&script.server_args(side)) {
            left_out += 1;
            continue;
        }
        if side == Side::Reference && script.recorded.as_deref() != Some(version.as_str()) {
            let recorded = script.recorded.as_deref().unwrap_or("nothing");
            let file = path.display();
            return Err(format!(
                "{file} was recorded from {recorded}, this is {version}: install that, or record anew"
            )
            .into());
        }
        runs.extend(
            DELIVERIES
                .iter()
                .filter(|&&way| way == Delivery::Whole || !script.is_whole)
                .map(|&way| (path, way)),
        );
    }

    let report = Mutex::new(Report::default());
    for_each(&runs, |&(path, delivery)| {
        let result = again(attempts(side), || run_one(program, side, path, delivery));
        let mut report = report.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match result {
            Ok(()) => report.passed += 1,
            Err(error) => report.failures.push(format!("{} ({delivery}): {error}", path.display())),
        }
    });
    let mut report = report.into_inner().map_err(|_| Error::from("a script's thread panicked"))?;
    report.failures.sort();
    report.left_out = left_out;
    Ok(report)
}

/// Replaces the replies in `scripts` by those of `program`, a real memcached.
pub fn record(program: &Path, scripts: &[PathBuf]) -> Result<()> {
    let version = server::version(program)?;
    if !version.starts_with("memcached ") {
        return Err(format!("replies are recorded from a real memcached only, this is {version:?}").into());
    }
    let failures = Mutex::new(Vec::new());
    for_each(scripts, |path| {
        if let Err(error) = record_one(program, &version, path) {
            failures
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .push(format!("{}: {error}", path.display()));
        }
    });
    let failures = failures.into_inner().map_err(|_| Error::from("a script's thread panicked"))?;
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

fn record_one(program: &Path, version: &str, path: &Path) -> Result<()> {
    let mut script = Script::read(path)?;
    let server = Server::start(program, &script.server_args(Side::Reference))?;
    let replies = play::record(&script, server.address())?;
    script.rerecord(version, replies);
    Ok(fs::write(path, script.text())?)
}

/// Does `work` for all items in a few threads: scripts mostly wait, so there are more threads than processors.
fn for_each<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// Does it, and does it again where it failed, up to `attempts` times in all. Each failure but the last is printed.
pub fn again<T>(attempts: u32, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let mut left = attempts;
    loop {
        left = left.saturating_sub(1);
        match work() {
            Err(error) if left > 0 => eprintln!("tried again, after: {error}"),
            result => return result,
        }
    }
}

/// How often a run with this server is tried. What memcached does in its own time (its clock, its background threads)
/// is no failure of larder, and a script that is wrong fails each time. larderd has one attempt.
pub fn attempts(side: Side) -> u32 {
    match side {
        Side::Larder => 1,
        Side::Reference => 4,
    }
}

/// Whether a server with a store can have these options: without eviction or CAS values it starts with none.
fn suits_store(args: &[String]) -> bool {
    !args.iter().any(|arg| matches!(arg.as_str(), "-M" | "-C"))
}

fn run_one(program: &Path, side: Side, path: &Path, delivery: Delivery) -> Result<()> {
    let script = Script::read(path)?;
    let mut server = Server::start(program, &script.server_args(side))?;
    play::check(&script, server.address(), side, delivery)?;
    if server.is_running() { Ok(()) } else { Err("the server has died".into()) }
}

const DELIVERIES: [Delivery; 5] =
    [Delivery::Whole, Delivery::Bytes, Delivery::Split(1), Delivery::Split(2), Delivery::Split(3)];

const THREADS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_tried_again_and_larderd_is_not() {
        assert_eq!(attempts(Side::Larder), 1);
        for (attempts, succeeds_at, expected) in [(1, 2, 1), (4, 3, 3), (4, 9, 4)] {
            let mut count = 0;
            let result = again(attempts, || {
                count += 1;
                if count < succeeds_at { Err("not yet".into()) } else { Ok(()) }
            });
            assert_eq!((result.is_ok(), count), (succeeds_at <= attempts, expected));
        }
    }
}
