//! Whether a scenario leaves anything behind in the server.

use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::server::{self, Server};
use larder_conformance::stats::Stats;

/// Starts a larderd with `args`, plays `scenario` on it `passes` times, and fails if anything stays behind.
///
/// Connections, items and their bytes must return to what a fresh server has, each time. Resident memory must return to
/// where it was after the first pass: that pass touches the memory of the cache for the first time and fills the
/// allocator's lists, both of which stay. What a pass leaks, the later ones leak again.
pub(crate) fn leaves_no_trace(
    args: &[&str],
    passes: usize,
    scenario: impl Fn(&Server) -> Result<()>,
) -> Result<()> {
    let mut server = Server::start(&server::larderd()?, args)?;
    let fresh = Gauges::of(&server)?;
    let mut resident_bytes = 0;
    for pass in 0..passes {
        scenario(&server).map_err(|error| format!("pass {pass}: {error}"))?;
        if !server.is_running() {
            return Err(format!("pass {pass}: the server is gone").into());
        }
        // Closed connections are noticed, and memory given back, in the server's own time.
        let deadline = Instant::now() + CALM_TIMEOUT;
        loop {
            let gauges = Gauges::of(&server)?;
            let has_grown = pass > 0 && server.resident_bytes()? > resident_bytes + RESIDENT_SLACK_BYTES;
            if gauges == fresh && !has_grown {
                break;
            }
            if Instant::now() > deadline {
                let now = server.resident_bytes()?;
                return Err(format!(
                    "pass {pass} left something behind: {fresh:?} became {gauges:?}, \
                     resident memory {resident_bytes} became {now}"
                )
                .into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        if pass == 0 {
            resident_bytes = server.resident_bytes()?;
        }
    }
    Ok(())
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

const CALM_TIMEOUT: Duration = Duration::from_secs(10);
/// Less than two values of 1 MiB, or than 200 bytes for each of 10,000 connections; more than an allocator's whims.
const RESIDENT_SLACK_BYTES: u64 = 3 << 19;
