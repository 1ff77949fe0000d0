//! The counters of a running server, as `stats` tells them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crate::{Result, server};

/// The answer to one `stats` command.
pub struct Stats(HashMap<String, String>);

impl Stats {
    /// Asks the server at `address`, on a connection of its own.
    pub fn of(address: SocketAddr) -> Result<Self> {
        let mut stream = server::connect(address)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.write_all(b"stats\r\n")?;
        let mut stats = HashMap::new();
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("STAT"), Some(name), value) => {
                    stats.insert(name.to_owned(), value.unwrap_or_default().to_owned());
                }
                (Some("END"), None, None) => return Ok(Self(stats)),
                _ => return Err(format!("stats answered {line:?}").into()),
            }
        }
        Err("the server closed the connection in the middle of stats".into())
    }

    /// The counter of this name (memcached, doc/protocol.txt, "General-purpose statistics"). Errors: there is none, or
    /// it is no whole number.
    pub fn get(&self, name: &str) -> Result<u64> {
        let text = self.0.get(name).ok_or_else(|| format!("stats has no {name}"))?;
        text.parse().map_err(|_| format!("stats says {name} is {text:?}, no number").into())
    }
}

const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
