//! A connection of a peer that does not pull the log: it is told what caches have changed, or has its commands run.

use std::io;
use std::time::Duration;

use larder_replication::link::{Publisher, PublisherAction};
use larder_replication::members::Standing;
use larder_replication::wire::Side;

use super::Site;
use super::home::Runner;
use super::stream::{PeerStream, ended};
use super::tell::Teller;
use super::waiters::Until;
use crate::shared::Shared;

/// Serves it, beginning with what it said first.
pub(super) fn serve(
    mut stream: PeerStream,
    mut publisher: Publisher,
    (first, body): (Side, Vec<u8>),
    shared: &Shared,
    site: &Site,
) -> io::Result<()> {
    let Some(peer) = publisher.peer().filter(|peer| site.members().position(*peer).is_some()) else {
        return Err(io::Error::other("the site is not among the configured peers"));
    };
    let mut served = Aside { shared, site, peer, teller: None, runner: None, asked: Vec::new() };
    served.hear(first, body, &mut publisher)?;
    let waiter = site.waiter()?;
    let mut input = vec![0; INPUT_BYTES];
    let mut pause = PAUSE_MIN;
    while !publisher.is_closed() {
        let is_removed = site.live(peer).is_some_and(|position| position.standing == Standing::Removed);
        if site.is_stopping() || is_removed {
            publisher.stop();
        }
        let mut is_busy = served.work(&mut publisher)?;
        while let Some(action) = publisher.next_action() {
            match action {
                PublisherAction::Send(bytes) => stream.write_all(&bytes)?,
                PublisherAction::Side(side, body) => served.hear(side, body, &mut publisher)?,
                PublisherAction::Close(closed) => {
                    tracing::info!(site = peer, "a peer's connection ends: {closed}")
                }
                _ => {}
            }
            is_busy = true;
        }
        if is_busy {
            pause = PAUSE_MIN;
            continue;
        }
        match stream.read(&mut input, &waiter, Until { position: 0, timeout: pause })? {
            Some(0) => return Err(ended("the peer closed the connection")),
            Some(count) => publisher.receive(&input[..count], site.now()),
            None => pause = (pause * 2).min(PAUSE_MAX),
        }
        publisher.tick(site.now());
    }
    Ok(())
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
    /// Commands that are to be run, by their numbers.
    asked: Vec<(u64, Vec<u8>)>,
}

impl Aside<'_> {
    fn hear(&mut self, side: Side, body: Vec<u8>, publisher: &mut Publisher) -> io::Result<()> {
        match side {
            Side::Follow(cursor) if self.teller.is_none() => {
                // A peer whose file has such namespaces, and this site's has not, is told of nothing.
                if let Some(ring) = &self.shared.ring {
                    let now = self.site.now();
                    self.teller = Some(Teller::begin(self.shared, ring, self.peer, cursor, publisher, now)?);
                }
            }
            Side::Taken { shard, to } => {
                if let Some(teller) = &mut self.teller {
                    teller.taken(shard, to);
                }
            }
            Side::Ask { number } => self.asked.push((number, body)),
            _ => return Err(io::Error::other("a message comes at the wrong time")),
        }
        Ok(())
    }

    /// True: there was something to do.
    fn work(&mut self, publisher: &mut Publisher) -> io::Result<bool> {
        let mut is_busy = false;
        if !self.asked.is_empty() {
            is_busy = true;
            if self.runner.is_none() {
                self.runner = Some(Runner::new(self.shared, self.site)?);
            }
            if let Some(runner) = &mut self.runner {
                for (number, answer) in runner.run_all(&self.asked) {
                    publisher.say(Side::Answer { number }, &answer, self.site.now());
                }
            }
            self.asked.clear();
        }
        if let Some(teller) = &mut self.teller {
            is_busy |= teller.tell(publisher, self.site.now());
        }
        Ok(is_busy)
    }
}

/// Between looks at what there is to tell or to answer.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);
const INPUT_BYTES: usize = 64 << 10;
