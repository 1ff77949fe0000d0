//! The commands of memcached's text and meta protocols (doc/protocol.txt), as the shell knows them.

use std::io::Write as _;

use anstyle::Style;

use super::request::Expected;
use crate::{Failure, output};

/// A command.
pub(super) struct Command {
    pub name: &'static str,
    /// Its words.
    pub usage: &'static str,
    pub help: &'static str,
    pub expected: Expected,
    /// What may follow the name, for completion.
    pub keywords: &'static [&'static str],
}

const fn command(
    name: &'static str,
    usage: &'static str,
    help: &'static str,
    expected: Expected,
    keywords: &'static [&'static str],
) -> Command {
    Command { name, usage, help, expected, keywords }
}

const STATS: &[&str] = &[
    "settings",
    "items",
    "slabs",
    "sizes",
    "conns",
    "latency",
    "detail on",
    "detail off",
    "detail dump",
    "reset",
];
const CRAWLER: &[&str] = &["enable", "disable", "crawl all", "metadump all", "metadump hash", "mgdump all"];
const STORE: &str = "KEY VALUE";

/// All of them, in the order of `help`.
pub(super) const COMMANDS: &[Command] = &[
    command("get", "KEY...", "print values", Expected::Values, &[]),
    command("gets", "KEY...", "print values with their CAS values", Expected::Values, &[]),
    command("gat", "EXPTIME KEY...", "print values, and set a new expiry", Expected::Values, &[]),
    command("gats", "EXPTIME KEY...", "the same with CAS values", Expected::Values, &[]),
    command("set", STORE, "store a value", Expected::Line, &[]),
    command("add", STORE, "store a value if the key does not exist", Expected::Line, &[]),
    command("replace", STORE, "store a value if the key exists", Expected::Line, &[]),
    command("append", STORE, "append bytes to a value", Expected::Line, &[]),
    command("prepend", STORE, "prepend bytes to a value", Expected::Line, &[]),
    command("cas", "KEY FLAGS EXPTIME BYTES CAS", "store a value if it has not changed", Expected::Line, &[]),
    command("delete", "KEY", "delete an item", Expected::Line, &[]),
    command("incr", "KEY NUMBER", "add to a number", Expected::Line, &[]),
    command("decr", "KEY NUMBER", "subtract from a number, down to 0", Expected::Line, &[]),
    command("touch", "KEY EXPTIME", "set a new expiry", Expected::Line, &[]),
    command("mg", "KEY FLAG...", "meta get; v value, t TTL, f flags, c CAS", Expected::Meta, &[]),
    command("ms", "KEY BYTES FLAG...", "meta set; T TTL, F flags, M mode", Expected::Meta, &[]),
    command("md", "KEY FLAG...", "meta delete", Expected::Meta, &[]),
    command("ma", "KEY FLAG...", "meta arithmetic; D delta, J value if missing", Expected::Meta, &[]),
    command("me", "KEY", "meta debug: what is known about an item", Expected::Line, &[]),
    command("mf", "PREFIX FLAG...", "meta flush_prefix; T SECS", Expected::Line, &[]),
    command("mn", "", "meta no-op", Expected::Line, &[]),
    command("stats", "[GROUP]", "statistics", Expected::Stats, STATS),
    command("version", "", "the server's version", Expected::Line, &[]),
    command("verbosity", "LEVEL", "how much the server logs", Expected::Line, &[]),
    command("flush_all", "[SECS]", "delete all items, now or later", Expected::Line, &[]),
    command("flush_prefix", "PREFIX [SECS]", "delete the items of a namespace", Expected::Line, &[]),
    command("cache_memlimit", "MIB", "set the memory limit", Expected::Line, &[]),
    command("lru_crawler", "SUBCOMMAND", "search for expired items, list keys", Expected::Line, CRAWLER),
    command("lru", "SUBCOMMAND", "tune the LRU", Expected::Line, &["tune", "mode", "temp_ttl"]),
    command("slabs", "SUBCOMMAND", "move memory between classes", Expected::Line, &["reassign", "automove"]),
    command("refresh_certs", "", "read the certificates again", Expected::Line, &[]),
    command("shutdown", "[graceful]", "stop the server", Expected::Close, &["graceful"]),
    command("quit", "", "end the shell, as exit and Ctrl-D do", Expected::Line, &[]),
];

pub(super) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Prints all commands, or one.
pub(super) fn help(topic: &str) -> Result<(), Failure> {
    const BOLD: Style = Style::new().bold();
    let mut out = anstream::AutoStream::auto(std::io::stdout()).lock();
    let listed: Vec<&Command> = match topic {
        "" => COMMANDS.iter().collect(),
        topic => find(topic).into_iter().collect(),
    };
    if listed.is_empty() {
        return output::write(|out| {
            writeln!(out, "{topic}: no such command; help lists all").map_err(Failure::of_output)
        });
    }
    let width = |command: &Command| command.name.len() + 1 + command.usage.len();
    let widest = listed.iter().map(|command| width(command)).max().unwrap_or_default();
    let mut print = || {
        for command in &listed {
            let Command { name, usage, help, .. } = command;
            let gap = widest - width(command);
            writeln!(out, "{BOLD}{name}{BOLD:#} {usage}{:gap$}   {help}", "")?;
        }
        if topic.is_empty() {
            writeln!(out, "\n{NOTES}")?;
        }
        out.flush()
    };
    print().map_err(Failure::of_output)
}

const NOTES: &str = "\
VALUE: one word, or text in double quotes with \\n, \\t, \\xHH. The protocol's form
  works as well: set KEY FLAGS EXPTIME [BYTES]; the value is the next line.
EXPTIME: 0 never; up to 2592000 (30 days) seconds from now; more a Unix time;
  negative at once.
larder watch, larder hotkeys and larder top show what a server does.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_into_80_columns() {
        let usage = COMMANDS.iter().map(|command| command.name.len() + 1 + command.usage.len()).max();
        let help = COMMANDS.iter().map(|command| command.help.len()).max();
        assert!(usage.zip(help).is_some_and(|(usage, help)| usage + 3 + help <= 80));
        assert!(NOTES.lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn names_are_unique() {
        for command in COMMANDS {
            assert_eq!(COMMANDS.iter().filter(|other| other.name == command.name).count(), 1);
        }
    }
}
