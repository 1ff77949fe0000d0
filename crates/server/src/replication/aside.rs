//! A connection of a peer that does not pull the log: it is told what caches have changed, or has its commands run.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use larder_replication::link::{ALIVE_MICROS, Publisher, PublisherAction};
use larder_replication::wire::Side;

use super::home::{Order, Runner};
use super::publish::{Served, is_over};
use super::stream::{INPUT_BYTES, PeerStream, ended};
use super::tell::Teller;
use super::waiters::Until;
use super::{PEERS_MAX, Site};
use crate::shared::Shared;

/// Serves it, beginning with what it said first. `share`: of what arrives.
pub(super) fn serve(
    mut stream: PeerStream,
    mut publisher: Publisher,
    (first, body): (Side, Vec<u8>),
    mut share: Share<'_>,
    connection: &Served<'_>,
) -> io::Result<()> {
    let (shared, site) = (connection.shared, connection.site);
    let Some(peer) = publisher.peer().filter(|peer| site.members().position(*peer).is_some()) else {
        return Err(io::Error::other("the site is not among the configured peers"));
    };
    let mut served = Aside {
        shared,
        site,
        peer,
        teller: None,
        runner: None,
        clock_due_micros: u64::MAX,
        asked: Vec::new(),
    };
    served.hear(first, body, &mut publisher)?;
    let waiter = site.waiter()?;
    let mut input = vec![0; INPUT_BYTES];
    let mut rest = Rest::Busy;
    loop {
        if is_over(&publisher, &connection.settings, site) {
            publisher.stop();
        }
        if let Some(ring) = shared.ring.as_ref().filter(|_| rest == Rest::Idle && served.teller.is_some()) {
            // Before it looks for the last time.
            ring.idle.add(&waiter.waker());
        }
        publisher.tick(site.now());
        let mut is_busy = served.work(&mut publisher)?;
        while let Some(action) = publisher.next_action() {
            match action {
                PublisherAction::Send(bytes) => {
                    let waited_micros = stream.write_all(&bytes, || site.is_over_for(Some(peer)))?;
                    publisher.note_written(bytes.len(), waited_micros);
                }
                PublisherAction::Side(side, body) => {
                    served.hear(side, body, &mut publisher)?;
                    is_busy = true;
                }
                PublisherAction::Close(closed) => connection.note_end(&publisher, &closed),
                _ => {}
            }
        }
        if publisher.is_closed() {
            return Ok(());
        }
        let asked_bytes: usize = served.asked.iter().map(|order| order.command.len()).sum();
        share.set(publisher.assembled_bytes() + asked_bytes)?;
        let timeout = match (is_busy, rest) {
            (true, _) => {
                rest = Rest::Busy;
                Duration::ZERO
            }
            (false, Rest::Busy) => {
                rest = Rest::Idle;
                GATHER
            }
            (false, Rest::Idle) => site.time_until(publisher.deadline_micros().min(served.clock_due_micros)),
        };
        match stream.read(&mut input, &waiter, Until { position: 0, timeout })? {
            Some(0) => return Err(ended("the peer closed the connection")),
            Some(count) => publisher.receive(&input[..count], site.now()),
            None => {}
        }
    }
}

/// What it does when there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// There was something just now: it waits [`GATHER`] at most, so that what is told next is more than one change.
    Busy,
    /// It waits until it is woken.
    Idle,
}

/// Such a connection.
struct Aside<'s> {
    shared: &'s Shared,
    site: &'s Site,
    peer: u8,
    /// It is told.
    teller: Option<Teller<'s>>,
    /// It has commands run.
    runner: Option<Runner<'s>>,
    /// When it is told this site's clock next, if it has commands run.
    clock_due_micros: u64,
    /// Commands that are to be run.
    asked: Vec<Order>,
}

impl Aside<'_> {
    fn hear(&mut self, side: Side, body: Vec<u8>, publisher: &mut Publisher) -> io::Result<()> {
        match side {
            Side::Follow { cursor, body_bytes_max } if self.teller.is_none() => {
                // A peer whose file has such namespaces, and this site's has not, is told of nothing.
                if let Some(ring) = &self.shared.ring {
                    let (now, body_bytes_max) =
                        (self.site.now(), usize::try_from(body_bytes_max).unwrap_or(usize::MAX));
                    let teller =
                        Teller::begin(self.shared, ring, self.peer, cursor, body_bytes_max, publisher, now)?;
                    self.teller = Some(teller);
                }
            }
            Side::Taken { shard, to } => {
                if let Some(teller) = &mut self.teller {
                    teller.taken(shard, to);
                }
            }
            Side::OpenHome if self.runner.is_none() => {
                self.runner = Some(Runner::new(self.shared, self.site)?);
                self.clock_due_micros = 0;
            }
            Side::Ask { number, until_micros } if self.runner.is_some() => {
                self.asked.push(Order { number, until_micros, command: body });
            }
            _ => return Err(io::Error::other("a message comes at the wrong time")),
        }
        Ok(())
    }

    /// True: there was something to do.
    fn work(&mut self, publisher: &mut Publisher) -> io::Result<bool> {
        let now = self.site.now();
        if now.micros >= self.clock_due_micros {
            self.clock_due_micros = now.micros + ALIVE_MICROS;
            let command_bytes_max = self.site.settings().body_bytes_max as u64;
            publisher.say(Side::HomeClock { clock_micros: now.micros, command_bytes_max }, &[], now);
        }
        let mut is_busy = !self.asked.is_empty();
        if let Some(runner) = self.runner.as_mut().filter(|_| is_busy) {
            for (number, answer) in runner.run_all(&std::mem::take(&mut self.asked)) {
                publisher.say(Side::Answer { number }, &answer, self.site.now());
            }
        }
        if let Some(teller) = &mut self.teller {
            is_busy |= teller.tell(publisher, self.site.now());
        }
        Ok(is_busy)
    }
}

/// What a connection has of the bytes that all of them may have of what peers say beside the log.
pub(super) struct Share<'a> {
    all: &'a AtomicUsize,
    bytes_max: usize,
    bytes: usize,
}

impl<'a> Share<'a> {
    pub(super) fn of(site: &'a Site) -> Self {
        Self::within(&site.asked_bytes, BODIES_MAX * site.settings().body_bytes_max)
    }

    fn within(all: &'a AtomicUsize, bytes_max: usize) -> Self {
        Self { all, bytes_max, bytes: 0 }
    }

    /// Errors: that is long, and all of them have too much then.
    pub(super) fn set(&mut self, bytes: usize) -> io::Result<()> {
        self.all.fetch_add(bytes, SeqCst);
        let before = std::mem::replace(&mut self.bytes, bytes);
        let all_bytes = self.all.fetch_sub(before, SeqCst) - before;
        if bytes > SHORT_BYTES && all_bytes > self.bytes_max {
            return Err(io::Error::other("other connections have too many long commands under way"));
        }
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, SeqCst);
    }
}

/// Each of seven peers may have the longest command under way, and a little more.
const BODIES_MAX: usize = PEERS_MAX + 1;
/// What is no longer is within the bound on connections.
const SHORT_BYTES: usize = 64 << 10;
/// Between a change that was told and the next look.
const GATHER: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_of_all_connections_have_one_bound() {
        let all = AtomicUsize::new(0);
        let [mut one, mut other] = [(); 2].map(|()| Share::within(&all, 300_000));
        one.set(200_000).expect("it is alone");
        other.set(SHORT_BYTES).expect("there is room");
        other.set(100_001).expect_err("they have too much");
        one.set(300_000).expect_err("they have too much");
        other.set(SHORT_BYTES).expect("it is short");
        drop(one);
        other.set(300_000).expect("it is alone");
        drop(other);
        assert_eq!(all.into_inner(), 0);
    }
}
