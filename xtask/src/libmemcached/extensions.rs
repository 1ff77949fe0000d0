//! Debian's extensions of PHP, Python and Perl, unchanged, over either library: our programs, and their own suites.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::script::Side;
use larder_conformance::{Result, server, suite};

use super::library::Library;
use super::place::Place;
use super::programs::same;
use super::{Bench, Run, SIDES, source};
use crate::clients::doors::Door;
use crate::shell;

/// All of them, against every server.
pub(super) fn runs() -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for side in SIDES {
        let against = side.name();
        for smoke in &SMOKE {
            // Debian's memcached is built without TLS.
            if smoke.door == Door::Tls && side == Side::Reference {
                continue;
            }
            let name = format!("{} ({:?}) against {against}", smoke.words.join(" "), smoke.door);
            runs.push((name, Box::new(move |bench| suite::again(ATTEMPTS, || smoke.run(bench, side)))));
        }
        for protocol in ["text", "binary"] {
            let name = format!("php-memcached's methods ({protocol}) against {against}");
            runs.push((
                name,
                Box::new(move |bench| suite::again(ATTEMPTS, || methods(bench, side, protocol))),
            ));
        }
        for suite in [Suite::pylibmc()?, Suite::perl()?] {
            let name = format!("{} against {against}", suite.name);
            runs.push((name, Box::new(move |bench| suite::again(ATTEMPTS, || suite.run(bench, side)))));
        }
    }
    Ok(runs)
}

/// A program of `conformance/clients`. It knows what is right.
struct Smoke {
    interpreter: &'static str,
    words: &'static [&'static str],
    door: Door,
}

const SMOKE: [Smoke; 8] = [
    Smoke { interpreter: "php", words: &["php/memcached.php", "text"], door: Door::Plain },
    Smoke { interpreter: "php", words: &["php/memcached.php", "binary"], door: Door::Plain },
    Smoke { interpreter: "php", words: &["php/memcached.php", "binary"], door: Door::Sasl },
    Smoke { interpreter: "php", words: &["php/tls.php"], door: Door::Tls },
    Smoke { interpreter: PYTHON, words: &["pylibmc/smoke.py", "text"], door: Door::Plain },
    Smoke { interpreter: PYTHON, words: &["pylibmc/smoke.py", "binary"], door: Door::Plain },
    Smoke { interpreter: PYTHON, words: &["pylibmc/smoke.py", "binary"], door: Door::Sasl },
    Smoke { interpreter: PYTHON, words: &["udp/sets.py"], door: Door::Udp },
];

impl Smoke {
    fn run(&self, bench: &Bench, side: Side) -> Result<String> {
        let server = bench.doors.start(&server::of(side)?, self.door)?;
        let address = server.address();
        let mut command = Command::new(self.interpreter);
        command.arg(clients_dir().join(self.words[0])).args(&self.words[1..]);
        command
            .arg(address.ip().to_string())
            .arg(address.port().to_string())
            .args(bench.doors.words(self.door));
        shell::output(bench.ours.load(&mut command)).map(|line| line.trim().to_owned())
    }
}

/// What the methods of PHP's class answer, and with which codes.
fn methods(bench: &Bench, side: Side, protocol: &str) -> Result<String> {
    // In the binary protocol the extension mixes up the ends of several servers' answers, with either library.
    let count = if protocol == "binary" { 1 } else { 3 };
    let servers = Place::Servers(count).start(&bench.doors, side)?;
    let tell = |library: &Library| {
        let mut php = Command::new("php");
        php.arg(clients_dir().join("php/methods.php")).arg(protocol).args(&servers.words);
        shell::output(library.load(&mut php))
    };
    same(&tell(&bench.original)?, &tell(&bench.ours)?)
}

/// Whether each test passes, by its name.
type Results = BTreeMap<String, bool>;

/// A suite of an extension's authors: which of its tests pass over a library.
struct Suite {
    name: &'static str,
    folder: PathBuf,
    results: fn(&Path, &Library, &[OsString]) -> Result<Results>,
}

impl Suite {
    fn pylibmc() -> Result<Self> {
        let folder = source::debian("pylibmc")?;
        // Beside the package's source that one would be imported, and not Debian's.
        let tests = folder.with_extension("tests").join("tests");
        fs::create_dir_all(&tests)?;
        for entry in fs::read_dir(folder.join("tests"))? {
            let file = entry?.path();
            fs::copy(&file, tests.join(file.file_name().unwrap_or_default()))?;
        }
        let folder = tests.parent().ok_or("no folder of tests")?.to_owned();
        Ok(Self { name: "pylibmc's own tests", folder, results: pylibmc_results })
    }

    fn perl() -> Result<Self> {
        let folder = source::debian("libmemcached-libmemcached-perl")?;
        Ok(Self { name: "Memcached::libmemcached's own tests", folder, results: perl_results })
    }

    /// Ours may fail none that the original passes.
    fn run(&self, bench: &Bench, side: Side) -> Result<String> {
        let servers = Place::Servers(5).start(&bench.doors, side)?;
        let original = (self.results)(&self.folder, &bench.original, &servers.words)?;
        let ours = (self.results)(&self.folder, &bench.ours, &servers.words)?;
        let passed = |results: &Results| results.values().filter(|passes| **passes).count();
        let lost: Vec<&str> = original
            .iter()
            .filter(|(name, passes)| **passes && ours.get(*name) != Some(&true))
            .map(|(name, _)| name.as_str())
            .collect();
        if passed(&original) == 0 {
            return Err("none of its tests passes over libmemcached".into());
        }
        if !lost.is_empty() {
            return Err(format!("pass over libmemcached and not over ours: {}", lost.join(", ")).into());
        }
        let failing: Vec<&str> =
            original.iter().filter(|(_, passes)| !**passes).map(|(name, _)| name.as_str()).collect();
        let failing = if failing.is_empty() { "none".to_owned() } else { failing.join(", ") };
        Ok(format!(
            "{} of {} pass over {}, {} over {}; those that fail over the first: {failing}",
            passed(&original),
            original.len(),
            bench.original.name,
            passed(&ours),
            bench.ours.name
        ))
    }
}

fn pylibmc_results(folder: &Path, library: &Library, servers: &[OsString]) -> Result<Results> {
    let server = servers.first().ok_or("no server")?.to_string_lossy();
    let (host, port) = server.split_once(':').ok_or("no port")?;
    let mut pytest = Command::new(PYTHON);
    pytest.args(["-m", "pytest", "-rA", "-p", "no:cacheprovider", "tests"]).current_dir(folder);
    pytest.env("MEMCACHED_HOST", host).env("MEMCACHED_PORT", port).env("PYTHONDONTWRITEBYTECODE", "1");
    // It fails if a test does: what it says tells which.
    let output = library.load(&mut pytest).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut results = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (verdict, name) = (words.next(), words.next().unwrap_or_default());
        if let (Some("PASSED" | "FAILED" | "ERROR"), true) = (verdict, name.contains("::")) {
            results.insert(name.to_owned(), verdict == Some("PASSED"));
        }
    }
    Ok(results)
}

/// Each file is a test; it passes if all of its assertions do.
fn perl_results(folder: &Path, library: &Library, servers: &[OsString]) -> Result<Results> {
    let servers: Vec<_> = servers.iter().map(|server| server.to_string_lossy()).collect();
    let mut results = BTreeMap::new();
    for entry in fs::read_dir(folder.join("t"))? {
        let file = entry?.path();
        if file.extension().is_none_or(|extension| extension != "t") {
            continue;
        }
        let mut perl = Command::new("prove");
        perl.args(["-Q", "-It/lib"]).arg(&file).current_dir(folder);
        perl.env("PERL_LIBMEMCACHED_TEST_SERVERS", servers.join(","));
        let output = library.load(&mut perl).output()?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !String::from_utf8_lossy(&output.stdout).contains("NOTESTS") {
            results.insert(name, output.status.success());
        }
    }
    Ok(results)
}

fn clients_dir() -> PathBuf {
    shell::root().join("conformance/clients")
}

/// Debian's, with Debian's pylibmc.
const PYTHON: &str = "/usr/bin/python3";
const ATTEMPTS: u32 = 3;
