//! `cargo xtask libmemcached`: programs made for libmemcached, over liblarder_memcached.
//!
//! What is expected comes from the original, as Debian has it: every program runs over both libraries, against the same
//! servers, and tells the same.

mod checked;
mod extensions;
mod library;
mod place;
mod programs;
mod source;
mod tools;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use larder_conformance::Result;
use larder_conformance::script::Side;

use crate::clients::Tally;
use crate::clients::doors::Doors;
use crate::needs;
use library::Library;

/// Runs everything whose name contains the argument. The chore takes longer than the step of `cargo xtask test`: each
/// program is run under valgrind and with AddressSanitizer.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let filter = match args {
        [] => "",
        [word] if !word.starts_with('-') => word,
        _ => return Err(USAGE.into()),
    };
    let tally = all(filter, true)?;
    for failure in &tally.failures {
        println!("{failure}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failures.len());
    if tally.failures.is_empty() { Ok(()) } else { Err("liblarder_memcached does not pass".into()) }
}

/// Builds the library, which takes a minute or two the first time, and returns its file.
pub(crate) fn build() -> Result<PathBuf> {
    library::build()
}

/// As a step of `cargo xtask test`.
pub(crate) fn test() -> Result<Tally> {
    all("", false)
}

/// What all the runs share.
struct Bench {
    original: Library,
    ours: Library,
    doors: Doors,
}

/// A run: its name, and what it does. It tells what it saw in a line.
type Run = (String, Box<dyn Fn(&Bench) -> Result<String> + Sync>);

fn all(filter: &str, is_thorough: bool) -> Result<Tally> {
    needs::install_only(NEEDS)?;
    let bench = Bench { original: Library::original(), ours: Library::ours()?, doors: Doors::make()? };
    programs::build()?;
    let mut runs = programs::runs();
    runs.extend(tools::runs());
    runs.extend(extensions::runs()?);
    runs.extend(checked::runs(is_thorough)?);
    runs.retain(|(name, _)| name.contains(filter));

    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        while let Some((name, run)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            results.push((name, run(&bench).map_err(|error| error.to_string())));
        }
        results
    };
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            for (name, result) in thread.join().map_err(|_| "a thread that runs programs panicked")? {
                let line = result.map(|line| format!("{name}: {line}"));
                tally.add(name, line.map_err(Into::into));
            }
        }
        Result::Ok(())
    })?;
    Ok(tally)
}

/// The servers that everything runs against.
const SIDES: [Side; 2] = [Side::Reference, Side::Larder];

/// Most programs wait: for a value's end, or for a server that is away.
const AT_A_TIME: usize = 4;

const NEEDS: &[&str] = &[
    "build-essential",
    "dpkg-dev",
    "libmemcached-dev",
    "libmemcached-libmemcached-perl",
    "libmemcached-tools",
    "libsasl2-modules",
    "memcached",
    "openssl",
    "php-cli",
    "php-memcached",
    "python3-pylibmc",
    "python3-pytest",
    "sasl2-bin",
    "valgrind",
];

const USAGE: &str = "usage: cargo xtask libmemcached [part of a run's name]
Runs programs made for libmemcached over liblarder_memcached, and compares what they tell with what they tell over
Debian's libmemcached: against memcached and against larderd, under valgrind and with AddressSanitizer.";
