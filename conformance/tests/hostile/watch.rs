//! A client that watches everything and reads nothing.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::server::{self, Server};
use larder_conformance::stats::Stats;

use crate::talk::{ask, connect, others_are_served};

/// It loses lines, and is told how many when it reads again; others are served as if nobody watched, and memory is
/// bounded.
#[test]
fn a_watcher_that_does_not_read() -> Result<()> {
    let server = Server::start(&server::larderd()?, &[] as &[&str])?;
    let mut client = connect(&server)?;
    let mut work = |batches: usize| -> Result<()> {
        for _ in 0..batches {
            ask(&mut client, &b"get missing\r\n".repeat(BATCH), &b"END\r\n".repeat(BATCH))?;
        }
        others_are_served(&server)
    };
    work(1)?;
    let unwatched_bytes = server.resident_bytes()?;

    let mut watcher = connect(&server)?;
    ask(&mut watcher, b"watch fetchers mutations evictions connevents deletions sysevents\r\n", b"OK\r\n")?;
    let deadline = Instant::now() + TIMEOUT;
    while Counts::of(&server)?.skipped == 0 {
        work(10)?;
        assert!(Instant::now() < deadline, "no line is lost: {:?}", Counts::of(&server)?);
    }
    // From now on nothing finds room any more.
    work(20)?;
    let watched_bytes = server.resident_bytes()?;
    assert!(
        watched_bytes <= unwatched_bytes + BUFFERS_BYTES,
        "{unwatched_bytes} became {watched_bytes} bytes"
    );

    // What was kept for it comes; the next line that finds room is told with the number of those that did not.
    let mut text = Vec::new();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        read_for_a_moment(&mut watcher, &mut text)?;
        let told = Told::of(&text)?;
        let counts = Counts::of(&server)?;
        // Looking at the statistics is a connection, and so a line or two more.
        let is_all = counts.sent.saturating_sub(told.lines) <= 2
            && counts.written.saturating_sub(counts.sent + told.skipped) <= 2;
        if is_all && told.skipped > 0 && told.skipped == counts.skipped {
            assert!(told.lines <= counts.sent, "{told:?}: {counts:?}");
            return Ok(());
        }
        assert!(Instant::now() < deadline, "{told:?} came: {counts:?}");
        work(0)?;
    }
}

/// What a watcher was told so far.
#[derive(Debug, Default)]
struct Told {
    lines: u64,
    skipped: u64,
}

impl Told {
    /// Of whole lines; the last one may be cut.
    fn of(text: &[u8]) -> Result<Self> {
        let mut told = Self::default();
        for line in std::str::from_utf8(text)?.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            match line.strip_prefix("skipped=") {
                Some(number) => told.skipped += number.trim_end().parse::<u64>()?,
                None => {
                    assert!(line.starts_with("ts=") && line.contains(" type="), "{line:?}");
                    told.lines += 1;
                }
            }
        }
        Ok(told)
    }
}

/// Reads what comes, up to a pause.
fn read_for_a_moment(stream: &mut TcpStream, text: &mut Vec<u8>) -> Result<()> {
    stream.set_read_timeout(Some(PAUSE))?;
    match stream.read_to_end(text) {
        Ok(_) => Err("the watcher was let go".into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What became of the lines, from all workers.
#[derive(Debug)]
struct Counts {
    written: u64,
    sent: u64,
    skipped: u64,
}

impl Counts {
    fn of(server: &Server) -> Result<Self> {
        let stats = Stats::of(server.address())?;
        Ok(Self {
            written: stats.get("log_worker_written")?,
            sent: stats.get("log_watcher_sent")?,
            skipped: stats.get("log_watcher_skipped")?,
        })
    }
}

const BATCH: usize = 1000;
/// Those of the watcher (256 KiB) and of four workers and the control thread (64 KiB), twice, and what an allocator
/// does with them.
const BUFFERS_BYTES: u64 = 4 << 20;
const PAUSE: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(60);
