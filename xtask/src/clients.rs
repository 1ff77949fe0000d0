//! Real clients against a server: installs them as `conformance/clients` pins them and runs their smoke programs.

mod capable;
mod compose;
pub(crate) mod doors;
pub(crate) mod install;
mod operators;
mod page;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use larder_conformance::script::Side;
use larder_conformance::{Result, server, suite};
use lexopt::prelude::*;

use crate::{conform, needs, shell};
use compose::Compose;
use doors::{Door, Doors};
use page::Snippet;

/// `cargo xtask clients`: runs the clients against larderd, another larder (`--server`) or the installed memcached
/// (`--reference`).
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut side = Side::Larder;
    let mut program: Option<PathBuf> = None;
    let mut filter = String::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("reference") => side = Side::Reference,
            Long("keep") => conform::keep(&parser.value()?.string()?)?,
            Long("server") => program = Some(parser.value()?.into()),
            Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            Value(text) => filter = text.string()?,
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }

    needs::install()?;
    let mut clients = Clients::install()?;
    clients.filter = filter;
    let program = match (program, side) {
        (Some(program), _) => program,
        (None, side) => server::of(side)?,
    };
    let tally = clients.run(&program, side)?;
    for failure in &tally.failures {
        println!("{failure}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failures.len());
    if tally.failures.is_empty() { Ok(()) } else { Err("the clients do not all pass".into()) }
}

/// The clients, installed.
pub(crate) struct Clients {
    programs: Vec<Program>,
    /// The programs of the page about clients.
    snippets: Vec<Snippet>,
    /// The applications of the Compose files.
    compose: Vec<Compose>,
    doors: Doors,
    /// memcached_exporter.
    exporter: PathBuf,
    /// Part of the names of those that are run.
    filter: String,
}

/// A program and the door it comes through. It is told host, port, and what the door asks for.
struct Program {
    name: &'static str,
    door: Door,
    command: Vec<PathBuf>,
}

/// What a run came to: which passed, and why others did not.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failures: Vec<String>,
}

impl Clients {
    pub(crate) fn install() -> Result<Self> {
        Ok(Self {
            programs: install::programs()?,
            snippets: Snippet::all()?,
            compose: Compose::all()?,
            doors: Doors::make()?,
            exporter: install::exporter()?,
            filter: String::new(),
        })
    }

    /// Runs every program against a server of its own, a few at a time, for most of them wait for a value to expire.
    /// Then memccapable and the operators' tools.
    pub(crate) fn run(&self, server: &Path, side: Side) -> Result<Tally> {
        let wanted = |name: &str| name.contains(&self.filter);
        let has_door = |door| match door {
            Door::Http | Door::Nginx => side == Side::Larder,
            // A datagram cannot wait for the disk: the answer is an error.
            Door::Udp => side == Side::Reference || !server::keeps_in_store(),
            _ => true,
        };
        let programs = self.programs.iter().filter(|program| has_door(program.door)).map(|program| {
            let run: Box<dyn Fn() -> Result<String> + Sync> = Box::new(|| self.run_one(program, server));
            (program.title(), run)
        });
        let snippets = self.snippets.iter().map(|snippet| {
            let run: Box<dyn Fn() -> Result<String> + Sync> = Box::new(|| snippet.run(&self.doors, server));
            (snippet.title(), run)
        });
        let compose = self.compose.iter().map(|compose| {
            let run: Box<dyn Fn() -> Result<String> + Sync> = Box::new(|| compose.run(server));
            (compose.title(), run)
        });
        let runs: Vec<_> =
            programs.chain(snippets).chain(compose).filter(|(title, _)| wanted(title)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut results = Vec::new();
            while let Some((title, run)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = suite::again(ATTEMPTS, run).map_err(|error| error.to_string());
                results.push((title, result));
            }
            results
        };
        let mut tally = Tally::default();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                for (title, result) in thread.join().map_err(|_| "a thread that runs clients panicked")? {
                    tally.add(title, result.map_err(Into::into));
                }
            }
            Result::Ok(())
        })?;
        if wanted("memccapable") {
            tally.add_all(Tally::again(|tally| {
                capable::run(tally, self.doors.start(server, Door::Plain)?.address(), side)
            })?);
        }
        tally.add_all(Tally::again(|tally| operators::run(tally, &self.exporter, server, side, wanted))?);
        Ok(tally)
    }

    fn run_one(&self, program: &Program, server: &Path) -> Result<String> {
        let server = self.doors.start(server, program.door)?;
        let address = match program.door {
            Door::Http | Door::Nginx => server.http_address().ok_or("no listener for HTTP")?,
            _ => server.address(),
        };
        let mut command = Command::new(&program.command[0]);
        command.args(&program.command[1..]).arg(address.ip().to_string()).arg(address.port().to_string());
        command.args(self.doors.words(program.door));
        shell::output(&mut command).map(|line| line.trim().to_owned())
    }
}

impl Program {
    fn title(&self) -> String {
        format!("{} ({:?})", self.name, self.door)
    }
}

impl Tally {
    /// Takes a run in which nothing failed, or the last of [`ATTEMPTS`]. Each run starts its own servers.
    fn again(mut run: impl FnMut(&mut Self) -> Result<()>) -> Result<Self> {
        let mut tally = Self::default();
        let outcome = suite::again(ATTEMPTS, || {
            tally = Self::default();
            run(&mut tally)?;
            if tally.failures.is_empty() { Ok(()) } else { Err(tally.failures.join("; ").into()) }
        });
        // What was counted says more than that something failed.
        if tally.failures.is_empty() { outcome.map(|()| tally) } else { Ok(tally) }
    }

    fn add_all(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
    }

    pub(crate) fn add(&mut self, name: &str, result: Result<String>) {
        match result {
            Ok(line) => {
                println!("  ok    {line}");
                self.passed += 1;
            }
            Err(error) => self.failures.push(format!("{name}: {error}")),
        }
    }
}

const AT_A_TIME: usize = 3;

/// How often a client's program is tried, with whichever server: clients have timeouts of their own, and a busy machine
/// is no failure of the server. What is wrong fails each time, and each failure is printed.
const ATTEMPTS: u32 = 3;

const USAGE: &str =
    "usage: cargo xtask clients [--server PATH | --reference] [--keep store] [part of a client's name, or its door]
Runs conformance/clients against larderd (or --server), or against the installed memcached (--reference).
With --keep store larderd keeps its items in a store, and those clients are left out that use UDP.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_failures_is_repeated_and_the_last_one_counts() {
        for (failing_runs, expected_runs, failures) in [(0, 1, 0), (2, 3, 0), (9, 3, 1)] {
            let mut runs = 0;
            let tally = Tally::again(|tally| {
                runs += 1;
                tally.add(
                    "client",
                    if runs <= failing_runs { Err("timeout".into()) } else { Ok("ok".into()) },
                );
                Ok(())
            })
            .expect("the failures are counted");
            assert_eq!((runs, tally.failures.len(), tally.passed), (expected_runs, failures, 1 - failures));
        }
        assert!(Tally::again(|_| Err("the server does not start".into())).is_err());
    }
}
