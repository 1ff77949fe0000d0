//! A connection that this site makes to a peer: to pull its log, to follow its caches, to ask it as a home.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use larder_replication::link::{Settings, Subscriber};

use super::Site;
use super::peers::PeerAddress;
use super::stream::{INPUT_BYTES, PeerStream, ended};
use super::waiters::{Until, Waiter};
use crate::shared::Shared;
use crate::startup::random;

pub(super) struct Outgoing<'s> {
    site: &'s Site,
    peer: &'s PeerAddress<'s>,
    pub(super) settings: Arc<Settings>,
    /// Time just before the connection was made.
    pub(super) began_micros: u64,
    pub(super) stream: PeerStream,
    pub(super) subscriber: Subscriber,
    pub(super) waiter: Waiter<'s>,
    input: Vec<u8>,
}

impl<'s> Outgoing<'s> {
    pub(super) fn connect(peer: &'s PeerAddress<'s>, shared: &Shared, site: &'s Site) -> io::Result<Self> {
        let (settings, began_micros) = (site.settings(), site.now().micros);
        Ok(Self {
            stream: PeerStream::connect(peer.address, shared, site)?,
            subscriber: Subscriber::new(Arc::clone(&settings), random::bytes()?, site.now()),
            settings,
            began_micros,
            waiter: site.waiter()?,
            input: vec![0; INPUT_BYTES],
            site,
            peer,
        })
    }

    /// Passes on what has come until then, and that time has passed; sends what the socket takes, from the front of
    /// `output`. True: something has come. Errors: also if the peer has closed the connection.
    pub(super) fn hear(&mut self, output: &mut VecDeque<u8>, until: Until) -> io::Result<bool> {
        // The caller has already met a server that is known by now.
        let was_met_last = |(site, run)| self.site.was_met_last(site, run);
        if self.peer.is_over(self.site)
            || !self.site.is_current(&self.settings)
            || !self.subscriber.peer_run().is_none_or(was_met_last)
        {
            self.subscriber.stop();
            return Ok(false);
        }
        let timeout = until.timeout.min(self.site.time_until(self.subscriber.deadline_micros()));
        let until = Until { timeout, ..until };
        let heard = self.stream.exchange(output, &mut self.input, &self.waiter, until)?;
        match heard {
            Some(0) => return Err(ended("the peer closed the connection")),
            Some(count) => self.subscriber.receive(&self.input[..count], self.site.now()),
            None => {}
        }
        if self.peer.is_over(self.site) {
            self.subscriber.stop();
        }
        self.subscriber.tick(self.site.now());
        Ok(heard.is_some())
    }
}
