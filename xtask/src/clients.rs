//! Real clients against a server: installs them as `conformance/clients` pins them and runs their smoke programs.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::Result;
use larder_conformance::script::Side;
use larder_conformance::server::Server;

use crate::shell;

/// The clients, installed.
pub(crate) struct Clients {
    /// Names and commands; host and port are their last arguments.
    programs: Vec<(&'static str, Vec<PathBuf>)>,
}

/// What a run came to: which passed, and why others did not.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failures: Vec<String>,
}

impl Clients {
    /// Installs every client below the target directory: a Python environment for each, npm and Go packages.
    pub(crate) fn install() -> Result<Self> {
        let sources = shell::root().join("conformance/clients");
        let installed = shell::target_dir()?.join("clients");
        fs::create_dir_all(&installed)?;

        let mut programs = Vec::new();
        for name in ["pymemcache", "python-memcached", "pylibmc"] {
            let environment = installed.join(name);
            let python = environment.join("bin/python");
            if !python.exists() {
                shell::run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
            }
            let requirements = sources.join(name).join("requirements.txt");
            shell::run(
                Command::new(&python)
                    .args(["-m", "pip", "install", "--quiet", "--requirement"])
                    .arg(requirements),
            )?;
            programs.push((name, vec![python, sources.join(name).join("smoke.py")]));
        }

        programs.push(("Cache::Memcached", vec!["perl".into(), sources.join("cache-memcached/smoke.pl")]));

        let program = installed.join("gomemcache-smoke");
        let mut build = Command::new("go");
        build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
        shell::run(build.current_dir(sources.join("gomemcache")))?;
        programs.push(("gomemcache", vec![program]));

        let folder = installed.join("npm-memcached");
        fs::create_dir_all(&folder)?;
        for file in ["package.json", "package-lock.json", "smoke.js"] {
            fs::copy(sources.join("npm-memcached").join(file), folder.join(file))?;
        }
        shell::run(
            Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder),
        )?;
        programs.push(("memcached (npm)", vec!["node".into(), folder.join("smoke.js")]));

        Ok(Self { programs })
    }

    /// Runs every program and memccapable against one server each.
    pub(crate) fn run(&self, server: &Path, side: Side) -> Result<Tally> {
        let mut tally = Tally::default();
        for (name, command) in &self.programs {
            let server = Server::start::<&str>(server, &[])?;
            let address = server.address();
            let mut program = Command::new(&command[0]);
            program.args(&command[1..]).arg(address.ip().to_string()).arg(address.port().to_string());
            tally.add(name, shell::output(&mut program).map(|line| line.trim().to_owned()));
        }
        capable(&mut tally, Server::start::<&str>(server, &[])?.address(), side)?;
        Ok(tally)
    }
}

impl Tally {
    fn add(&mut self, name: &str, result: Result<String>) {
        match result {
            Ok(line) => {
                println!("  ok    {line}");
                self.passed += 1;
            }
            Err(error) => self.failures.push(format!("{name}: {error}")),
        }
    }
}

/// Runs `memccapable -a`, libmemcached's checker for servers, and judges each of its tests.
fn capable(tally: &mut Tally, address: SocketAddr, side: Side) -> Result<()> {
    let mut command = Command::new("memccapable");
    command.args(["-a", "-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    let output = command.output().map_err(|error| format!("memccapable: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let verdicts = capable_verdicts(&text);
    if verdicts.len() != CAPABLE_TESTS {
        let error = format!("{} tests ran instead of {CAPABLE_TESTS}:\n{text}", verdicts.len());
        tally.add("memccapable", Err(error.into()));
        return Ok(());
    }
    for (name, passes) in verdicts {
        let exception = CAPABLE_EXCEPTIONS.iter().find(|(test, _)| *test == name && side == Side::Larder);
        tally.add(
            &format!("memccapable {name}"),
            match (passes, exception) {
                (true, None) => Ok(format!("memccapable {name}")),
                (false, Some((_, reason))) => {
                    Ok(format!("memccapable {name} differs as documented: {reason}"))
                }
                (false, None) => Err("fails".into()),
                (true, Some(_)) => Err("passes: its exception is out of date".into()),
            },
        );
    }
    Ok(())
}

/// The names of memccapable's tests and whether each passed. Its standard output has a padded name for every test, and
/// `[pass]` and a line end after those that did; of the others it says so on standard error.
fn capable_verdicts(text: &str) -> Vec<(&str, bool)> {
    let mut verdicts = Vec::new();
    for line in text.lines() {
        let passes = line.trim_end().ends_with("[pass]");
        let names = line.split("  ").map(str::trim).filter(|name| name.starts_with("ascii "));
        verdicts.extend(names.map(|name| (name, false)));
        if let (true, Some((_, last))) = (passes, verdicts.last_mut()) {
            *last = true;
        }
    }
    verdicts
}

/// How many tests `memccapable -a` of libmemcached 1.1.4 has.
const CAPABLE_TESTS: usize = 27;

/// Its tests that larder does not pass, and why.
const CAPABLE_EXCEPTIONS: [(&str, &str); 2] =
    [("ascii delete", DELETE_REASON), ("ascii delete noreply", DELETE_REASON)];
const DELETE_REASON: &str =
    "`delete a b c d e` is no error since memcached 1.6.45, further words are ignored";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_share_a_line_with_the_next() {
        let text = "ascii cas noreply                       [pass]\nascii delete                            ascii incr            \
                    [pass]\nascii stat     \nAll tests passed\n";
        let verdicts = [
            ("ascii cas noreply", true),
            ("ascii delete", false),
            ("ascii incr", true),
            ("ascii stat", false),
        ];
        assert_eq!(capable_verdicts(text), verdicts);
    }
}
