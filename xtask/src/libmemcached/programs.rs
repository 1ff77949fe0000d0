//! The C programs of `crates/memcached-c/tests/c`: built for libmemcached, and what they tell over either library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::script::Side;
use larder_conformance::{Result, server, suite};

use super::library::{Library, work_dir};
use super::place::Place;
use super::{Bench, Run, SIDES};
use crate::clients::doors::Door;
use crate::shell;

/// A program and what it runs against.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) place: Place,
}

pub(super) const PROGRAMS: [Program; 19] = [
    // Those that wait come first.
    Program { name: "values", place: Place::Servers(3) },
    Program { name: "away", place: Place::Servers(3) },
    Program { name: "ejection", place: Place::Servers(2) },
    Program { name: "faults", place: Place::Alone },
    Program { name: "storage", place: Place::Servers(3) },
    Program { name: "retrieval", place: Place::Servers(1) },
    Program { name: "numbers", place: Place::Servers(3) },
    Program { name: "keys", place: Place::Servers(1) },
    Program { name: "buffering", place: Place::Servers(3) },
    Program { name: "information", place: Place::Servers(3) },
    Program { name: "handles", place: Place::Servers(3) },
    Program { name: "configuration", place: Place::Servers(1) },
    Program { name: "encryption", place: Place::Servers(1) },
    Program { name: "placement", place: Place::Alone },
    Program { name: "replicas", place: Place::Servers(5) },
    Program { name: "threads", place: Place::Servers(3) },
    Program { name: "sockets", place: Place::Socket },
    Program { name: "datagrams", place: Place::Behind(Door::Udp) },
    Program { name: "login", place: Place::Behind(Door::Sasl) },
];

/// What libmemcached cannot do, or does wrong: programs that know what is right, and the door that each is for.
const OWN: [(&str, Door); 7] = [
    ("tls.c", Door::Tls),
    ("limits.c", Door::Plain),
    ("waits.c", Door::Plain),
    ("injection.c", Door::Plain),
    ("ownership.c", Door::Plain),
    ("unwinding.cpp", Door::Plain),
    ("stacks.c", Door::Plain),
];

/// Builds all programs with the headers and the libraries of Debian.
pub(super) fn build() -> Result<()> {
    fs::create_dir_all(programs_dir()?)?;
    let own = OWN.iter().map(|(file, _)| Path::new(file).to_owned());
    for file in PROGRAMS.iter().map(|program| Path::new(program.name).with_extension("c")).chain(own) {
        compile(&source_dir().join(&file), &programs_dir()?.join(file).with_extension(""))?;
    }
    Ok(())
}

/// Every program against every server, and the examples.
pub(super) fn runs() -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for program in &PROGRAMS {
        for side in SIDES {
            // What needs no server needs it once.
            if matches!(program.place, Place::Alone) && side != SIDES[0] {
                continue;
            }
            let name = format!("C: {} against {}", program.name, side.name());
            runs.push((
                name,
                Box::new(move |bench| suite::again(ATTEMPTS, || compare(bench, program, side))),
            ));
        }
    }
    for example in ["example_udp", "example_udp_and_tcp"] {
        for side in SIDES {
            let name = format!("C: {example} against {}", side.name());
            runs.push((name, Box::new(move |bench| run_example(bench, example, side))));
        }
    }
    for (file, door) in OWN {
        let name = format!("C: {file} against larderd");
        runs.push((name, Box::new(move |bench| run_own(bench, file, door))));
    }
    runs
}

fn run_own(bench: &Bench, file: &str, door: Door) -> Result<String> {
    let server = bench.doors.start(&server::of(Side::Larder)?, door)?;
    let mut command = Command::new(programs_dir()?.join(file).with_extension(""));
    command.arg(server.address().to_string());
    if let Door::Tls = door {
        command.arg(bench.doors.authority());
    }
    shell::output(bench.ours.load(&mut command)).map(|line| line.trim().to_owned())
}

/// Compares what a program tells over both libraries, against the same servers.
fn compare(bench: &Bench, program: &Program, side: Side) -> Result<String> {
    let servers = program.place.start(&bench.doors, side)?;
    let tell = |library: &Library| {
        let mut command = Command::new(programs_dir()?.join(program.name));
        library.load(&mut command).args(&servers.words);
        shell::output(&mut command)
    };
    same(&tell(&bench.original)?, &tell(&bench.ours)?)
}

/// An error that shows the first lines that differ.
pub(super) fn same(original: &str, ours: &str) -> Result<String> {
    let (mut expected, mut told) = (original.lines(), ours.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (expected.next(), told.next()) {
            (None, None) => return Ok(format!("{} lines are the same", number - 1)),
            (expected, told) if expected == told => {}
            (expected, told) => {
                let shown = |line: Option<&str>| line.unwrap_or("(the end)").to_owned();
                let (expected, told) = (shown(expected), shown(told));
                return Err(format!(
                    "line {number}\n    over libmemcached: {expected}\n    over ours: {told}"
                )
                .into());
            }
        }
    }
}

/// The examples name the port 11211: the server's takes its place. Over libmemcached 1.1.4 they find no server, since
/// `memcached_server_add_udp` does nothing but say that it is deprecated; ours does what their text says.
fn run_example(bench: &Bench, example: &str, side: Side) -> Result<String> {
    let server = bench.doors.start(&server::of(side)?, Door::Udp)?;
    let port = server.address().port().to_string();
    let text = fs::read_to_string(source_dir().join(example).with_extension("c"))?;
    let source = programs_dir()?.join(format!("{example}_{port}.c"));
    let program = source.with_extension("");
    fs::write(&source, text.replace("11211", &port))?;
    compile(&source, &program)?;
    // The datagram may come later than the request that looks for it; what it set stays.
    let told = suite::again(ARRIVALS, || {
        let told = shell::output(bench.ours.load(&mut Command::new(&program)))?;
        let mut get = Command::new("memccat");
        get.arg(format!("--servers={}", server.address())).arg("foo");
        let value = shell::output(bench.original.load(&mut get))?;
        if value.trim_end() == VALUE { Ok(told) } else { Err(format!("foo is {value:?}").into()) }
    })?;
    fs::remove_file(source)?;
    fs::remove_file(program)?;
    Ok(format!("foo has its value; it prints {}", told.trim_end()))
}

/// Builds a program with Debian's headers and libraries.
fn compile(source: &Path, program: &Path) -> Result<()> {
    let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
    let mut compiler = Command::new(if is_cpp { "c++" } else { "cc" });
    compiler.args(["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-o"]).arg(program);
    compiler.arg(source).args(["-lmemcached", "-lmemcachedutil", "-lhashkit", "-lpthread"]);
    shell::output(&mut compiler).map(drop)
}

pub(super) fn source_dir() -> PathBuf {
    shell::root().join("crates/memcached-c/tests/c")
}

/// Where the built programs are.
pub(super) fn programs_dir() -> Result<PathBuf> {
    Ok(work_dir()?.join("programs"))
}

/// What the examples store.
const VALUE: &str = "when we sanitize";

/// How often libraries are compared: a busy machine lets a server's time come too early.
const ATTEMPTS: u32 = 3;

/// How often an example is run until its value is there.
const ARRIVALS: u32 = 20;
