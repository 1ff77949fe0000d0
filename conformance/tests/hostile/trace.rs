//! Whether a scenario leaves anything behind in the server.

use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::server::{self, Server};
use larder_conformance::stats::Stats;

use crate::talk;

/// Starts a larderd with `args`, plays `scenario` on it several times, and fails if anything stays behind.
///
/// Connections, items and their bytes must return to what a fresh server has, each time. Resident memory must not keep
/// growing beyond where it was after the first [`WARM_PASSES`]: those fill the allocator's lists, for each of the
/// workers, which stay. What a pass leaks, the later ones leak again. Now and then the allocator keeps a large buffer
/// for the next one, so the better of the last two passes counts. The memory of the cache itself is touched before all
/// that.
pub(crate) fn leaves_no_trace(args: &[&str], scenario: impl Fn(&Server) -> Result<()>) -> Result<()> {
    let mut server = Server::start(&server::larderd()?, args)?;
    let fresh = Gauges::of(&server)?;
    touch_all_memory(&server)?;
    let mut warm_bytes = 0;
    let mut late_bytes = u64::MAX;
    for pass in 0..PASSES {
        scenario(&server).map_err(|error| format!("pass {pass}: {error}"))?;
        if !server.is_running() {
            return Err(format!("pass {pass}: the server is gone").into());
        }
        // Closed connections are noticed in the server's own time.
        let gauges = settle(|| Gauges::of(&server), |gauges| *gauges == fresh)?;
        if gauges != fresh {
            return Err(format!("pass {pass} left something behind: {fresh:?} became {gauges:?}").into());
        }
        if pass < WARM_PASSES {
            warm_bytes = server.resident_bytes()?.max(warm_bytes);
        } else if pass >= PASSES - 2 {
            let is_back = |bytes: &u64| *bytes <= warm_bytes + RESIDENT_SLACK_BYTES;
            late_bytes = settle(|| server.resident_bytes(), is_back)?.min(late_bytes);
        }
    }
    if late_bytes > warm_bytes + RESIDENT_SLACK_BYTES {
        return Err(format!("resident memory grew from {warm_bytes} to {late_bytes} bytes").into());
    }
    Ok(())
}

/// Looks until what it sees is right, or has been wrong for too long.
fn settle<T>(look: impl Fn() -> Result<T>, is_right: impl Fn(&T) -> bool) -> Result<T> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let seen = look()?;
        if is_right(&seen) || Instant::now() > deadline {
            return Ok(seen);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Fills the cache (64 MiB, the default of `-m`) twice over, and empties it.
fn touch_all_memory(server: &Server) -> Result<()> {
    const VALUES: usize = 12_800;
    let value = vec![b'f'; 10_000];
    let mut stream = talk::connect(server)?;
    for batch in (0..VALUES).collect::<Vec<_>>().chunks(100) {
        // Slices: byte by byte this takes seconds without optimisation.
        let sets: Vec<_> = batch.iter().map(|n| talk::set(&format!("fill{n}"), &value)).collect();
        talk::ask(&mut stream, &sets.concat(), &b"STORED\r\n".repeat(batch.len()))?;
    }
    // Some were evicted; mn tells that the others are deleted.
    let deletes: String = (0..VALUES).map(|n| format!("delete fill{n} noreply\r\n")).collect();
    talk::ask(&mut stream, &[deletes.as_bytes(), b"mn\r\n"].concat(), b"MN\r\n")
}

#[derive(Debug, PartialEq)]
struct Gauges {
    curr_connections: u64,
    curr_items: u64,
    bytes: u64,
}

impl Gauges {
    fn of(server: &Server) -> Result<Self> {
        let stats = Stats::of(server.address())?;
        Ok(Self {
            curr_connections: stats.get("curr_connections")?,
            curr_items: stats.get("curr_items")?,
            bytes: stats.get("bytes")?,
        })
    }
}

const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
const WARM_PASSES: usize = 3;
const PASSES: usize = WARM_PASSES + 4;
/// More than an allocator's whims; less than a value of 1 MiB, or 60 bytes for each of 10,000 connections, lost in each
/// pass that is not warm.
const RESIDENT_SLACK_BYTES: u64 = 3 << 19;
