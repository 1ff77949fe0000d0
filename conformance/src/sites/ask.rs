//! What the test asks of a site.

use std::net::SocketAddr;

use super::Step;
use super::client::{now_micros, reply};
use super::keys::{ALL_KEYS, name};
use super::ledger::Seen;
use crate::Result;
use crate::wire::Wire;

/// What a site has of each key.
pub(super) fn look(address: SocketAddr) -> Result<Vec<Option<Seen>>> {
    let mut wire = Wire::connect(address)?;
    let mut seen = Vec::new();
    for first in (0..ALL_KEYS).step_by(100) {
        let keys = first..(first + 100).min(ALL_KEYS);
        let requests: String = keys.clone().map(|key| format!("mg {} c f t v\r\n", name(key))).collect();
        wire.send(requests.as_bytes())?;
        for _ in keys {
            let (words, value) = reply(&mut wire)?;
            if words == ["EN"] {
                seen.push(None);
                continue;
            }
            let [_, _, cas, flags, ttl] = words.as_slice() else { return Err(format!("{words:?}").into()) };
            let ttl: i64 = ttl[1..].parse()?;
            let exptime_secs = u64::try_from(ttl).ok().map(|ttl| now_micros() / 1_000_000 + ttl);
            seen.push(Some(Seen {
                value,
                flags: flags[1..].parse()?,
                version: cas[1..].parse()?,
                exptime_secs,
            }));
        }
    }
    Ok(seen)
}

/// Sets a mark of this round, which is in the log of the site behind all that came before.
pub(super) fn mark(address: SocketAddr, site: usize, round: Step) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    wire.send(format!("set mark{site} 0 0 20\r\n{round:020}\r\n").as_bytes())?;
    match wire.line()?.as_str() {
        "STORED" => Ok(()),
        reply => Err(format!("the mark is answered {reply}").into()),
    }
}

/// Whether the site has everybody's mark of this round.
pub(super) fn has_marks(address: SocketAddr, sites: usize, round: Step) -> Result<bool> {
    let mut wire = Wire::connect(address)?;
    for site in 0..sites {
        wire.send(format!("mg mark{site} v\r\n").as_bytes())?;
        let (_, value) = reply(&mut wire)?;
        if value != format!("{round:020}").as_bytes() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `stats replication`.
pub(super) fn figures(address: SocketAddr) -> Result<String> {
    let mut wire = Wire::connect(address)?;
    wire.send(b"stats replication\r\n")?;
    let mut figures = String::new();
    loop {
        let line = wire.line()?;
        let Some(figure) = line.strip_prefix("STAT ") else { return Ok(figures) };
        figures += &format!("{figure}\n");
    }
}

/// One of them, added up over all peers.
pub(super) fn figure(address: SocketAddr, suffix: &str) -> Result<u64> {
    let figures = figures(address)?;
    let values =
        figures.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| name.ends_with(suffix));
    Ok(values.map(|(_, value)| value.parse::<u64>()).sum::<std::result::Result<_, _>>()?)
}
