//! What a connection costs that says nothing: resident memory of the server's process. The kernel's own memory for a
//! socket is the same for every server, and not counted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use larder_conformance::Result;
use larder_conformance::server::Server;
use larder_conformance::stats::Stats;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::Measured;
use super::rows::Row;
use super::speed::Bench;
use super::summary::Line;

pub(super) fn measure(bench: &Bench, row: &Row) -> Result<Measured> {
    allow_files(CONNECTIONS as u64 + 200)?;
    println!("  {:<10} {:>9} {:>22} {:>26}", "", "held", "bytes each, silent", "after a get on each");
    let mut costs = Vec::new();
    for (name, program) in [("memcached", &bench.memcached), ("larderd", &bench.larderd)] {
        let cost = cost(program)?;
        println!("  {name:<10} {:>9} {:>22.0} {:>26.0}", cost.held, cost.silent_bytes, cost.asked_bytes);
        costs.push((name, cost));
    }
    let [(_, memcached), (_, larderd)] = &costs[..] else { return Err("two servers are measured".into()) };
    let line = |what: &str, memcached_bytes: f64, larderd_bytes: f64| Line {
        what: format!("{}: {what}", row.what),
        unit: "B each",
        memcached: Some(memcached_bytes),
        larderd: larderd_bytes,
        floor: None,
        interval: None,
        goal: row.goal.to_string(),
        is_met: Some(larderd_bytes <= memcached_bytes / 2.0 && larderd.held == CONNECTIONS as u64),
    };
    let lines = vec![
        line("that never asked", memcached.silent_bytes, larderd.silent_bytes),
        line("after a get on each", memcached.asked_bytes, larderd.asked_bytes),
    ];
    let figures: Vec<_> = costs
        .iter()
        .map(|(name, cost)| {
            json!({
                "server": name,
                "held": cost.held,
                "bytes_each_silent": cost.silent_bytes,
                "bytes_each_after_a_get": cost.asked_bytes,
            })
        })
        .collect();
    Ok(Measured { figures: figures.into(), lines })
}

struct Cost {
    /// Connections that the server says are open.
    held: u64,
    silent_bytes: f64,
    asked_bytes: f64,
}

fn cost(program: &Path) -> Result<Cost> {
    let server = Server::start(program, &["-t", "4", "-c", "20000", "-m", "64"])?;
    // What the first connections bring about is no connection's.
    let mut first: Vec<TcpStream> = (0..64).map(|_| server.connect()).collect::<std::io::Result<_>>()?;
    first.iter_mut().try_for_each(ask)?;
    let base_bytes = settled_bytes(&server)?;

    let mut idle = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let stream = server.connect().map_err(|error| format!("connection {number}: {error}"))?;
        idle.push(stream);
    }
    let silent_bytes = settled_bytes(&server)?;
    idle.iter_mut().try_for_each(ask)?;
    let asked_bytes = settled_bytes(&server)?;
    // Less the ones above and the one that asks.
    let held = Stats::of(server.address())?.get("curr_connections")?.saturating_sub(64 + 1);
    let each = |bytes: u64| (bytes.saturating_sub(base_bytes)) as f64 / CONNECTIONS as f64;
    Ok(Cost {
        held: held.min(CONNECTIONS as u64),
        silent_bytes: each(silent_bytes),
        asked_bytes: each(asked_bytes),
    })
}

/// A get that misses.
fn ask(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"get nothing\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    if &answer == b"END\r\n" { Ok(()) } else { Err("a get of nothing is answered wrongly".into()) }
}

/// Resident memory when the server has accepted what waits.
fn settled_bytes(server: &Server) -> Result<u64> {
    thread::sleep(SETTLE);
    server.resident_bytes()
}

/// Raises this process's limit of open files; servers that it starts inherit that.
fn allow_files(files: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(files));
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum })
        .map_err(|error| format!("{files} open files are not allowed (ulimit -Hn): {error}"))?;
    Ok(())
}

const CONNECTIONS: usize = 15_000;
const SETTLE: Duration = Duration::from_millis(500);
