//! `cargo xtask test` and `cargo xtask ci`: everything that a change must pass.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use std::{env, thread};

use larder_conformance::script::Side;
use larder_conformance::{Result, server, suite};

use crate::clients::{Clients, Tally};
use crate::{
    bench, browser, diff, documents, generators, libmemcached, needs, packaging, sanitize, sessions, shell,
    sites, soak, tidy,
};

/// Runs all tests. Steps go on after a failure, so that one run tells everything; the end says which failed.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return Err("usage: cargo xtask test".into());
    }
    let mut steps = Steps::default();
    steps.test();
    steps.finish()
}

/// `test`, which takes 30 minutes from a fresh clone on two processors, and what takes longer or needs more of the
/// network.
pub(crate) fn ci(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return Err("usage: cargo xtask ci".into());
    }
    let mut steps = Steps::default();
    steps.test();
    steps.run("the documentation builds without warnings", || {
        let mut doc =
            shell::cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"]);
        shell::run(doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
    });
    steps.run("the engine's tests under AddressSanitizer", sanitize::address);
    steps.run("some of the engine's tests in Miri", sanitize::miri);
    steps.run("no request costs more than in the last release", bench::since_last_tag);
    steps.run("no dependency has a known flaw (cargo-deny reads the database at github.com)", || {
        deny(&["advisories"])
    });
    steps.finish()
}

#[derive(Default)]
struct Steps {
    passed: usize,
    failed: Vec<String>,
    /// Runs of scripts and clients, counted one by one.
    tally: Tally,
}

impl Steps {
    fn test(&mut self) {
        self.run("what the tests need is installed", || suite::again(ATTEMPTS, needs::install));
        self.run("rustfmt", || shell::run(&mut shell::cargo(&["fmt", "--all", "--check"])));
        self.run("clippy", || {
            shell::run(&mut shell::cargo(&[
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ]))
        });
        self.run("the comparison with other caches: rustfmt and clippy", check_comparison);
        self.run("the tests are built", || {
            shell::run(&mut shell::cargo(&["test", "--quiet", "--workspace", "--no-run"]))
        });
        // The tests mostly wait: meanwhile others build what later steps need. What fails, these steps tell.
        let ahead = thread::spawn(|| {
            // This thread and what it starts: the tests go first.
            let _ = rustix::process::nice(NICE);
            let _ = cargo_deny();
            let _ = server::larderd();
            let _ = generators::larder();
            let _ = libmemcached::build();
            Clients::install().ok()
        });
        // Unit tests, golden scripts, hostile clients, the command line.
        self.run("cargo test", || {
            let mut test = shell::cargo(&["test", "--quiet", "--workspace", "--no-fail-fast"]);
            // What .cargo/config.toml says is for small machines.
            if env::var_os("RUST_TEST_THREADS").is_some_and(|threads| threads == "4") {
                let cores = thread::available_parallelism()?;
                test.env("RUST_TEST_THREADS", cores.get().max(4).to_string());
            }
            shell::run(&mut test)
        });
        // Flags of its own would have everything built anew each time: a folder of its own.
        self.run("the index and the life of a segment in every order of two threads", || {
            let mut test =
                shell::cargo(&["test", "--quiet", "--package", "larder-engine", "--lib", "orders"]);
            shell::run(
                test.env("RUSTFLAGS", "--cfg loom")
                    .env("CARGO_TARGET_DIR", shell::root().join("target/loom")),
            )
        });
        let mut clients = ahead.join().ok().flatten();
        self.run("larderd builds for release", || server::larderd().map(drop));
        self.run("tidy", || tidy::run(&[]));
        self.run("the commands of the documents exist", documents::test);
        for side in [Side::Reference, Side::Larder] {
            self.run(&format!("golden scripts: {}", side.name()), || {
                let report = suite::run(&server::of(side)?, side, &suite::scripts("")?)?;
                Ok(Tally { passed: report.passed, failures: report.failures })
            });
        }
        self.run("random requests: larderd and memcached agree", diff::short);
        server::keep_in_store(true);
        self.run("golden scripts: larderd with a store", || {
            let report = suite::run(&server::of(Side::Larder)?, Side::Larder, &suite::scripts("")?)?;
            Ok(Tally { passed: report.passed, failures: report.failures })
        });
        self.run("random requests: larderd with a store and memcached agree", diff::short);
        server::keep_in_store(false);
        self.run("licences and sources of dependencies", || deny(&["licenses", "bans", "sources"]));
        self.run("clients are installed", || {
            if clients.is_none() {
                clients = Some(suite::again(ATTEMPTS, Clients::install)?);
            }
            Ok(())
        });
        for side in [Side::Reference, Side::Larder] {
            self.run(&format!("real clients: {}", side.name()), || {
                clients.as_ref().ok_or("the clients are not installed")?.run(&server::of(side)?, side)
            });
        }
        self.run("values of real clients", values_of_clients);
        // The browser mostly waits, for seconds of the page.
        let page = thread::spawn(|| suite::again(ATTEMPTS, browser::test).map_err(|error| error.to_string()));
        self.run("libmemcached's programs over liblarder_memcached", libmemcached::test);
        self.run("the live page in a browser", || {
            println!("{}", page.join().map_err(|_| "it panicked")??);
            Ok(())
        });
        self.run("packages, Dockerfile, Helm chart, dashboard and alerts", packaging::test);
        self.run("sites that replicate: faults, deaths, and what every key has then", sites::short);
        self.run("PHP sessions at two sites, of which one dies", || sessions::run(&[]));
        self.run("a short soak", || soak::run(&["--secs".to_owned(), SOAK_SECS.to_string()]));
        self.run("a short soak of large values", || {
            soak::run(&["--large", "--secs", &SOAK_SECS.to_string()].map(str::to_owned))
        });
        self.run("a short soak of a store", || {
            soak::run(&["--keep", "store", "--secs", &SOAK_SECS.to_string()].map(str::to_owned))
        });
    }

    fn run<T: Outcome>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) {
        println!("== {}: {name}", self.passed + self.failed.len() + 1);
        let start = Instant::now();
        let error = match step() {
            Ok(outcome) => outcome.count(&mut self.tally),
            Err(error) => Some(error.to_string()),
        };
        let verdict = match error {
            None => {
                self.passed += 1;
                "ok"
            }
            Some(error) => {
                println!("{error}");
                self.failed.push(name.to_owned());
                "FAILED"
            }
        };
        println!("== {name}: {verdict} in {:.1} s", start.elapsed().as_secs_f64());
    }

    fn finish(self) -> Result<()> {
        for failure in &self.tally.failures {
            println!("failed: {failure}");
        }
        println!("scripts and clients: {} passed, {} failed", self.tally.passed, self.tally.failures.len());
        println!("steps: {} passed, {} failed", self.passed, self.failed.len());
        if self.failed.is_empty() {
            Ok(())
        } else {
            Err(format!("failed: {}", self.failed.join(", ")).into())
        }
    }
}

/// What a step that did not break down came to.
trait Outcome {
    /// Adds what it counted to the tally; an error if something failed.
    fn count(self, tally: &mut Tally) -> Option<String>;
}

impl Outcome for () {
    fn count(self, _: &mut Tally) -> Option<String> {
        None
    }
}

impl Outcome for Tally {
    fn count(self, tally: &mut Tally) -> Option<String> {
        let failed = self.failures.len();
        for failure in &self.failures {
            println!("  FAIL  {failure}");
        }
        println!("{} passed, {failed} failed", self.passed);
        tally.passed += self.passed;
        tally.failures.extend(self.failures);
        (failed > 0).then(|| format!("{failed} failed"))
    }
}

/// The folder `comparison` is no member of the workspace.
fn check_comparison() -> Result<()> {
    let check = |words: &[&str], more: &[&str]| {
        let mut check = shell::cargo(words);
        check.args(["--manifest-path", COMPARISON]).args(more);
        shell::run(check.env("CARGO_TARGET_DIR", shell::target_dir()?.join("comparison")))
    };
    check(&["fmt", "--all"], &["--check"])?;
    check(&["clippy", "--quiet", "--locked", "--workspace", "--all-targets"], &["--", "-D", "warnings"])
}

/// The program cargo-deny, which is built first if it is not there: about three minutes of processor time.
fn cargo_deny() -> Result<PathBuf> {
    let tools = shell::target_dir()?.join("tools");
    let program = tools.join("bin/cargo-deny");
    if !program.exists() {
        let mut install = shell::cargo(&[
            "install",
            "--quiet",
            "--locked",
            "cargo-deny",
            "--version",
            CARGO_DENY,
            "--root",
        ]);
        shell::run(install.arg(&tools))?;
    }
    Ok(program)
}

/// Runs checks of cargo-deny.
fn deny(checks: &[&str]) -> Result<()> {
    let program = cargo_deny()?;
    for manifest in ["Cargo.toml", COMPARISON] {
        let mut check = Command::new(&program);
        check.args(["--log-level", "error", "--all-features", "--manifest-path", manifest]);
        // An option of the program, not of its command `check`. Without it each folder would need such a file.
        check.arg("--config").arg(shell::root().join("deny.toml"));
        shell::run(check.arg("check").args(checks).current_dir(shell::root()))?;
    }
    Ok(())
}

/// Each client reads what the client library stores in its dialect; the library's features are tested as well.
fn values_of_clients() -> Result<()> {
    let installed = shell::target_dir()?.join("clients");
    let python = |name: &str| format!("{name}={}", installed.join(name).join("bin/python").display());
    let jars = format!("jars={}", installed.join("java").display());
    let clients = [python("pymemcache"), python("python-memcached"), python("pylibmc"), jars].join(" ");
    let mut test = shell::cargo(&["test", "--quiet", "--package", "larder-client"]);
    let tests = ["--test", "values", "--test", "spans"];
    shell::run(
        test.args(tests).args(["--features", "serde,tracing,zstd"]).env("LARDER_VALUE_CLIENTS", clients),
    )
}

const COMPARISON: &str = "comparison/Cargo.toml";
const SOAK_SECS: u32 = 20;
/// How often programs of others are tried: registries and browsers have a pace, and timeouts, of their own.
const ATTEMPTS: u32 = 3;
/// Of what is built while the tests run.
const NICE: i32 = 10;
const CARGO_DENY: &str = "0.20.2";
