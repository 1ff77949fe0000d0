//! A client that watches everything and reads nothing.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::server::{self, Server};
use larder_conformance::stats::Stats;

use crate::talk::{ask, connect, others_are_served};

/// It loses lines, and is told how many when it reads again; others are served as if nobody watched, and memory is bounded.
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
    read_until_silence(&mut watcher, &mut text)?;
    work(0)?;
    read_until_silence(&mut watcher, &mut text)?;
    let (mut lines, mut skipped) = (0, 0);
    for line in String::from_utf8(text)?.lines() {
        match line.strip_prefix("skipped=") {
            Some(number) => skipped += number.parse::<u64>()?,
            None => {
                assert!(line.starts_with("ts=") && line.contains(" type="), "{line:?}");
                lines += 1;
            }
        }
    }
    let counts = Counts::of(&server)?;
    assert!(skipped > 0);
    assert_eq!(skipped, counts.skipped);
    // Looking at the statistics is a connection, and so a line or two more.
    for more in [counts.sent - lines, counts.written - counts.sent - skipped] {
        assert!(more <= 2, "{lines} lines came: {counts:?}");
    }
    Ok(())
}

/// Reads what comes, up to a pause.
fn read_until_silence(stream: &mut TcpStream, text: &mut Vec<u8>) -> Result<()> {
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
/// Those of the watcher (256 KiB) and of four workers and the control thread (64 KiB), twice, and what an allocator does with them.
const BUFFERS_BYTES: u64 = 4 << 20;
/// Far longer than the control thread is ever away.
const PAUSE: Duration = Duration::from_millis(1500);
const TIMEOUT: Duration = Duration::from_secs(60);
