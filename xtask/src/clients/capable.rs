//! `memccapable`, libmemcached's checker for servers.

use std::net::SocketAddr;
use std::process::Command;

use larder_conformance::Result;
use larder_conformance::script::Side;

use super::Tally;

/// Runs all tests of memccapable against a server, in both protocols, and judges each.
pub(super) fn run(tally: &mut Tally, address: SocketAddr, side: Side) -> Result<()> {
    for suite in &SUITES {
        suite.run(tally, address, side)?;
    }
    Ok(())
}

struct Suite {
    option: &'static str,
    /// With which the names of its tests begin.
    prefix: &'static str,
    /// How many it has in libmemcached 1.1.4.
    tests: usize,
}

const SUITES: [Suite; 2] = [
    Suite { option: "-a", prefix: "ascii ", tests: 27 },
    Suite { option: "-b", prefix: "binary ", tests: 27 },
];

impl Suite {
    fn run(&self, tally: &mut Tally, address: SocketAddr, side: Side) -> Result<()> {
        let mut command = Command::new("memccapable");
        command.args([self.option, "-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        let output = command.output().map_err(|error| format!("memccapable: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let verdicts = verdicts(&text, self.prefix);
        if verdicts.len() != self.tests {
            let error = format!("{} tests ran instead of {}:\n{text}", verdicts.len(), self.tests);
            tally.add(&format!("memccapable {}", self.option), Err(error.into()));
            return Ok(());
        }
        for (name, passes) in verdicts {
            tally.add(&format!("memccapable {name}"), judge(name, passes, side));
        }
        Ok(())
    }
}

fn judge(name: &str, passes: bool, side: Side) -> Result<String> {
    let exception = EXCEPTIONS.iter().find(|(test, _)| *test == name && side == Side::Larder);
    match (passes, exception) {
        (true, None) => Ok(format!("memccapable {name}")),
        (false, Some((_, reason))) => Ok(format!("memccapable {name} differs as documented: {reason}")),
        (false, None) => Err("fails".into()),
        (true, Some(_)) => Err("passes: its exception is out of date".into()),
    }
}

/// The names of memccapable's tests and whether each passed. Its standard output has a padded name for every test, and
/// `[pass]` and a line end after those that did; of the others it says so on standard error.
fn verdicts<'t>(text: &'t str, prefix: &str) -> Vec<(&'t str, bool)> {
    let mut verdicts = Vec::new();
    for line in text.lines() {
        let passes = line.trim_end().ends_with("[pass]");
        let names = line.split("  ").map(str::trim).filter(|name| name.starts_with(prefix));
        verdicts.extend(names.map(|name| (name, false)));
        if let (true, Some((_, last))) = (passes, verdicts.last_mut()) {
            *last = true;
        }
    }
    verdicts
}

/// Tests that larder does not pass, and why.
const EXCEPTIONS: [(&str, &str); 2] =
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
        let expected = [
            ("ascii cas noreply", true),
            ("ascii delete", false),
            ("ascii incr", true),
            ("ascii stat", false),
        ];
        assert_eq!(verdicts(text, "ascii "), expected);
    }
}
