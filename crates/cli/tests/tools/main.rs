//! larder's tools as processes, against the memcached that is installed and against larderd.

mod backup;
mod capable;
mod doors;
mod events;
mod hostile;
mod keys;
mod look;
mod screen;
mod shell;
mod sites;
mod transfer;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use larder_conformance::server::{Server, any, larderd};

/// One server of each kind.
fn both() -> [Server; 2] {
    [start_memcached(&[]), start_larderd(&[])]
}

/// Where none is installed, larderd: the tools ask it the same.
fn start_memcached(args: &[&str]) -> Server {
    Server::start(&any().expect("it builds"), args).expect("it starts")
}

fn start_larderd(args: &[&str]) -> Server {
    Server::start(&larderd().expect("it builds"), args).expect("larderd starts")
}

/// `larder ...` with these servers.
fn command(servers: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(args).env("MEMCACHED_SERVERS", servers).stdin(Stdio::null());
    command
}

/// What a tool wrote, and how it ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn ended(output: &Output) -> Ended {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

fn larder(server: &Server, args: &[&str]) -> Ended {
    ended(&command(&server.address().to_string(), args).output().expect("larder runs"))
}

/// What a tool writes that must succeed.
#[track_caller]
fn ok(server: &Server, args: &[&str]) -> String {
    let ended = larder(server, args);
    assert_eq!(ended.code, 0, "{args:?}: {}", ended.err);
    ended.out
}

fn larder_fed(server: &Server, args: &[&str], stdin: &[u8]) -> Ended {
    fed(&server.address().to_string(), args, stdin)
}

fn fed(servers: &str, args: &[&str], stdin: &[u8]) -> Ended {
    let mut child = command(servers, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("larder runs");
    // It may refuse before it reads.
    let _ = child.stdin.take().expect("it is piped").write_all(stdin);
    ended(&child.wait_with_output().expect("it ends"))
}
