//! The programs of Debian's libmemcached-tools, over either library.

use std::fs;
use std::process::Command;

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::script::Side;

use super::library::Library;
use super::place::Place;
use super::programs::same;
use super::{Bench, Run, SIDES};

/// All of them, against every server.
pub(super) fn runs() -> Vec<Run> {
    let of_side = |side: Side| -> Run {
        (format!("libmemcached-tools against {}", side.name()), Box::new(move |bench| run(bench, side)))
    };
    SIDES.into_iter().map(of_side).collect()
}

fn run(bench: &Bench, side: Side) -> Result<String> {
    let servers = Place::Servers(2).start(&bench.doors, side)?;
    let words: Vec<_> = servers.words.iter().map(|word| word.to_string_lossy()).collect();
    let list = format!("--servers={}", words.join(","));
    let folder = Folder::create();
    let file = folder.arg("stored");
    let tell = |library: &Library| {
        fs::write(&file, "a value\n")?;
        let mut told = String::new();
        for words in COMMANDS {
            let words: Vec<String> = words.iter().map(|word| word.replace("FILE", &file)).collect();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            if !matches!(words[0].as_str(), "memcerror" | "memcparse") {
                command.arg(&list);
            }
            let output = library.load(&mut command).output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            told += &format!("{}: {}\n", words.join(" "), output.status);
            for line in text.lines().chain(errors.lines()) {
                told += &without_chance(&words[0], line);
            }
        }
        Result::Ok(told)
    };
    same(&tell(&bench.original)?, &tell(&bench.ours)?)
}

/// A line without what differs between two runs: times and counters, and where and by which client an error was seen.
fn without_chance(program: &str, line: &str) -> String {
    let line = line.split(" -> ").next().unwrap_or(line);
    // An error begins with the address of its client.
    let line = line.strip_prefix("(0x").and_then(|rest| rest.split_once(") ")).map_or(line, |(_, rest)| rest);
    let counts = matches!(program, "memcstat" | "memcslap" | "memcaslap");
    let kept: String =
        line.chars().filter(|char| !(counts && (char.is_ascii_digit() || *char == '.'))).collect();
    format!("  {}\n", kept.trim_end())
}

const COMMANDS: &[&[&str]] = &[
    &["memcflush"],
    &["memcping"],
    &["memccp", "FILE"],
    &["memccp", "--add", "FILE"],
    &["memccp", "--replace", "--binary", "FILE"],
    &["memccat", "stored"],
    &["memccat", "--flags", "--binary", "stored"],
    &["memccat", "none"],
    &["memcexist", "stored"],
    &["memcexist", "none"],
    &["memctouch", "--expire=600", "stored"],
    &["memctouch", "--binary", "--expire=600", "stored"],
    &["memctouch", "--expire=600", "none"],
    &["memcdump"],
    &["memcstat"],
    &["memcstat", "--args=settings"],
    &["memcstat", "--server-version"],
    &["memcrm", "stored"],
    &["memcrm", "--binary", "stored"],
    &["memcslap", "--test=set", "--concurrency=2", "--execute-number=20", "--silent"],
    &["memcslap", "--test=get", "--concurrency=2", "--execute-number=20", "--initial-load=50", "--silent"],
    &["memcslap", "--test=mget", "--concurrency=2", "--execute-number=20", "--initial-load=50", "--silent"],
    &["memcflush"],
    &["memcerror", "0", "3", "33", "48"],
    &["memcparse", "--SERVER=localhost:11211 --BINARY-PROTOCOL"],
    &["memcparse", "nonsense"],
];
