//! Sending commands to a home.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use larder_protocol::Error;
use larder_replication::link::{Subscriber, SubscriberAction};
use larder_replication::wire::Side;

use super::{Asked, DEADLINE, HomeReply, Homes};
use crate::replication::Site;
use crate::replication::stream::{PeerStream, ended};
use crate::replication::waiters::Until;
use crate::shared::Shared;
use crate::startup::random;

/// Sends commands to the peer at this address, whose home it is, until the site stops.
pub(in crate::replication) fn run(address: &str, shared: &Shared, site: &Site, homes: &Homes) {
    let mut backoff = BACKOFF_MIN;
    while !site.is_stopping() {
        let mut asker = Asker { homes, home: 0, number: 0, sent: BTreeMap::new() };
        if let Err(error) = asker.serve(address, shared, site)
            && !site.is_stopping()
        {
            tracing::info!(address, "no commands go to the peer: {error}");
        }
        backoff = if asker.home != 0 { BACKOFF_MIN } else { (backoff * 2).min(BACKOFF_MAX) };
        asker.end();
        std::thread::park_timeout(backoff);
    }
}

/// A connection to a home.
struct Asker<'a> {
    homes: &'a Homes,
    /// 0: not known yet.
    home: u8,
    /// Of the last command.
    number: u64,
    /// Commands that are not answered yet, by their numbers.
    sent: BTreeMap<u64, Arc<Asked>>,
}

impl Asker<'_> {
    fn serve(&mut self, address: &str, shared: &Shared, site: &Site) -> io::Result<()> {
        let mut stream = PeerStream::connect(address, shared, site)?;
        let mut subscriber = Subscriber::new(Arc::clone(&site.settings), random::bytes()?, site.now());
        let waiter = site.waiter()?;
        let mut input = vec![0; INPUT_BYTES];
        while !subscriber.is_closed() {
            if site.is_stopping() {
                subscriber.stop();
            }
            if self.home != 0 {
                // With an answer under way the socket is waited for, not the queue.
                let timeout = if self.sent.is_empty() { IDLE } else { Duration::ZERO };
                for asked in self.homes.take(self.home, timeout) {
                    self.number += 1;
                    subscriber.say(Side::Ask { number: self.number }, &asked.command, site.now());
                    self.sent.insert(self.number, asked);
                }
            }
            self.perform(&mut subscriber, &mut stream)?;
            match stream.read(&mut input, &waiter, Until { position: 0, timeout: PAUSE })? {
                Some(0) => return Err(ended("the peer closed the connection")),
                Some(count) => subscriber.receive(&input[..count], site.now()),
                None => {}
            }
            subscriber.tick(site.now());
            self.perform(&mut subscriber, &mut stream)?;
            if self.sent.values().next().is_some_and(|asked| asked.since.elapsed() > DEADLINE) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
            }
        }
        Ok(())
    }

    fn perform(&mut self, subscriber: &mut Subscriber, stream: &mut PeerStream) -> io::Result<()> {
        while let Some(action) = subscriber.next_action() {
            match action {
                SubscriberAction::Send(bytes) => stream.write_all(&bytes)?,
                SubscriberAction::Connected { site, .. } => {
                    self.home = site;
                    self.homes.set_connected(site, true);
                }
                SubscriberAction::Side(Side::Answer { number }, body) => {
                    let reply =
                        HomeReply::decode(&body).ok_or_else(|| io::Error::other("an answer is none"))?;
                    if let Some(asked) = self.sent.remove(&number) {
                        self.homes.answer(&asked, reply);
                    }
                }
                SubscriberAction::Close(closed) => return Err(io::Error::other(closed.to_string())),
                _ => return Err(io::Error::other("a message comes at the wrong time")),
            }
        }
        Ok(())
    }

    /// Nobody knows whether the home has run what it has not answered.
    fn end(self) {
        if self.home != 0 {
            self.homes.set_connected(self.home, false);
        }
        self.sent.values().for_each(|asked| self.homes.answer(asked, HomeReply::Error(Error::HomeSilent)));
    }
}

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
const INPUT_BYTES: usize = 64 << 10;
/// How long the socket is waited for before the queue is looked at again.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the queue is waited for before the socket is looked at again.
const IDLE: Duration = Duration::from_millis(100);
