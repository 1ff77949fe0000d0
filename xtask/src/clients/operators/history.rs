//! What happens to each server before the tools look at it: every kind of command, hit and missed, and items of many
//! sizes.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::stats::Stats;
use larder_conformance::{Result, server};

/// Plays it. Each command ends with a reply of its own.
pub(super) fn play(address: SocketAddr) -> Result<()> {
    let mut stream = server::connect(address)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let mut ask = |request: String| -> Result<String> {
        stream.write_all(request.as_bytes())?;
        let mut reply = String::new();
        loop {
            let before = reply.len();
            if replies.read_line(&mut reply)? == 0 {
                return Err(format!("the server closed after {request:.40?}").into());
            }
            let line = reply[before..].trim_end();
            if LAST_LINES.contains(&line) || line.parse::<u64>().is_ok() {
                return Ok(reply);
            }
        }
    };

    for number in 0..ITEMS {
        let ttl_secs = if number % 2 == 0 { 3600 } else { 0 };
        let value = "v".repeat(number * 37 % 5000);
        ask(format!("set user:{number} {number} {ttl_secs} {}\r\n{value}\r\n", value.len()))?;
    }
    for number in 0..LARGE_ITEMS {
        ask(format!("set large:{number} 0 0 300000\r\n{}\r\n", "l".repeat(300_000)))?;
    }
    ask("set count 0 0 1\r\n5\r\n".into())?;
    for command in [
        "incr count 3",
        "incr none 1",
        "decr count 1",
        "decr none 1",
        "delete user:0",
        "delete none",
        "touch user:2 7200",
        "touch none 10",
        "get user:3 none",
        "gat 0 user:4",
        "gat 0 none",
    ] {
        ask(format!("{command}\r\n"))?;
    }
    let reply = ask("gets user:5\r\n".into())?;
    let unique = reply.split_whitespace().nth(4).ok_or("gets tells no CAS value")?.to_owned();
    for key in ["user:5", "user:5", "none"] {
        ask(format!("cas {key} 0 0 1 {unique}\r\nx\r\n"))?;
    }
    Ok(())
}

/// Waits until memcached has moved every item to the queue that `stats cachedump` shows.
pub(super) fn settle(reference: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    while Instant::now() < deadline {
        let stats = Stats::of(reference)?;
        if stats.get("moves_to_cold")? >= stats.get("curr_items")? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Err("memcached keeps items in its hot queues".into())
}

const ITEMS: usize = 200;
const LARGE_ITEMS: usize = 20;
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// With which a reply ends, unless it is a number.
const LAST_LINES: [&str; 6] = ["STORED", "EXISTS", "NOT_FOUND", "DELETED", "TOUCHED", "END"];
