//! Detects two servers with the number of one site.
//!
//! A server is identified by its run. After a restart it has another run, and the earlier run is never heard again. If
//! it is, on a connection made after the later run was met, there are two servers: a machine or a store was cloned.
//! They would give two changes the same version, and each would take the other's log for its own.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use super::{Site, lock};

/// Servers that were met, by site number.
#[derive(Default)]
pub(super) struct Servers(BTreeMap<u8, Met>);

/// Servers of one number.
#[derive(Default)]
struct Met {
    /// The servers in the order in which they were met; the last one was met most recently.
    servers: Vec<Server>,
    /// Time until which there are assumed to be two.
    until_micros: u64,
}

struct Server {
    run: u64,
    address: String,
    /// True if the server listens at this address; false if it has connected from it.
    listens: bool,
    since_micros: u64,
    met_micros: u64,
}

impl Servers {
    /// Notes a server met over a connection that was made at `connected_micros`. Errors: there are two, with their
    /// addresses.
    fn meet(
        &mut self,
        number: u8,
        run: u64,
        (address, listens): (&str, bool),
        connected_micros: u64,
        now_micros: u64,
    ) -> Result<(), String> {
        let met = self.0.entry(number).or_default();
        let known = met.servers.iter().position(|server| server.run == run);
        if let Some(last) = met.servers.last().filter(|last| known.is_some() && last.run != run) {
            if connected_micros <= last.since_micros {
                // The server behind this connection may be gone by now.
                return Ok(());
            }
            met.until_micros = now_micros + FRESH_MICROS;
        }
        let mut server = match known {
            Some(known) => met.servers.remove(known),
            None => {
                Server { run, address: address.to_owned(), listens, since_micros: now_micros, met_micros: 0 }
            }
        };
        if listens && !server.listens {
            (server.address, server.listens) = (address.to_owned(), true);
        }
        server.met_micros = now_micros;
        met.servers.push(server);
        met.servers.retain(|server| now_micros - server.met_micros < FRESH_MICROS);
        let [.., one, other] = &met.servers[..] else { return Ok(()) };
        if now_micros >= met.until_micros {
            return Ok(());
        }
        let (one, other) =
            (one.address.as_str().min(&other.address), one.address.as_str().max(&other.address));
        Err(format!("two servers have the number {number}, at {one} and {other}: give each its own `--site`"))
    }

    fn is_last(&self, number: u8, run: u64) -> bool {
        let last = self.0.get(&number).and_then(|met| met.servers.last());
        last.is_none_or(|last| last.run == run)
    }
}

impl Site {
    /// Notes the server of another site, met over a new connection, at the address where it listens or from which it
    /// connected. Errors: two servers have its number, and both are to be told.
    pub(in crate::replication) fn meet(
        &self,
        number: u8,
        run: u64,
        address: (&str, bool),
        connected_micros: u64,
    ) -> Result<(), String> {
        lock(&self.servers).meet(number, run, address, connected_micros, self.now().micros)
    }

    /// False: another server with the number was met since. The connection ends then; making a new one proves that its
    /// server still exists.
    pub(in crate::replication) fn was_met_last(&self, number: u8, run: u64) -> bool {
        lock(&self.servers).is_last(number, run)
    }

    /// Notes that another server has this one's number, as reported by a peer that knows the token. Neither takes
    /// changes meanwhile.
    pub(in crate::replication) fn note_twin(&self, why: &str) {
        let mut twin = lock(&self.twin);
        if self.twin_until_micros.swap(self.now().micros + FRESH_MICROS, Relaxed) == 0 {
            tracing::error!("this site takes no changes: {why}");
        }
        why.clone_into(&mut twin);
    }

    /// True while another server has this one's number.
    pub(in crate::replication) fn has_twin(&self) -> bool {
        let until_micros = self.twin_until_micros.load(Relaxed);
        if until_micros == 0 {
            return false;
        }
        if self.now().micros < until_micros {
            return true;
        }
        if self.twin_until_micros.compare_exchange(until_micros, 0, Relaxed, Relaxed).is_ok() {
            tracing::warn!(
                "no other server with this site's number is seen any more: it takes changes again"
            );
        }
        false
    }

    /// The latest report about the server that has this one's number; empty: there is none.
    pub(in crate::replication) fn why_twin(&self) -> String {
        if self.has_twin() { lock(&self.twin).clone() } else { String::new() }
    }
}

/// Peers reconnect every 5 s, so a server that still runs is met again within this time.
const FRESH_MICROS: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: u64 = 1_000_000;

    #[test]
    fn a_server_that_is_started_again_is_no_second_one() {
        let mut servers = Servers::default();
        let mut meet = |run, connected, now| servers.meet(1, run, ("a:1", true), connected * SEC, now * SEC);
        for (run, connected, now) in [(7, 1, 1), (7, 2, 2), (8, 5, 5), (8, 6, 6)] {
            assert_eq!(meet(run, connected, now), Ok(()));
        }
        // Data that the dead server had sent is read late.
        assert_eq!((meet(7, 4, 7), meet(8, 8, 8), meet(9, 9, 9)), (Ok(()), Ok(()), Ok(())));
    }

    #[test]
    fn two_servers_with_one_number_are_named_until_one_is_gone() {
        let mut servers = Servers::default();
        let mut meet = |run, address, secs| servers.meet(1, run, (address, true), secs * SEC, secs * SEC + 1);
        let both = "two servers have the number 1, at a:1 and b:1: give each its own `--site`".to_owned();
        assert_eq!((meet(7, "a:1", 1), meet(8, "b:1", 2)), (Ok(()), Ok(())));
        for secs in [5, 15, 55] {
            assert_eq!(
                (meet(7, "a:1", secs), meet(8, "b:1", secs + 1)),
                (Err(both.clone()), Err(both.clone()))
            );
        }
        assert_eq!(meet(8, "b:1", 100), Err(both));
        assert_eq!((meet(8, "b:1", 117), meet(8, "b:1", 300)), (Ok(()), Ok(())));
        assert!(!servers.is_last(1, 7) && servers.is_last(1, 8) && servers.is_last(2, 7));
    }
}
