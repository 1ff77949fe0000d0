//! Connections: bytes in order, late, cut off at any place; ends that close at different times, or never hear of it.

use std::collections::{BTreeSet, VecDeque};

use larder_replication::link::{Batch, CopyPiece, Publisher, Subscriber};
use larder_replication::members::Cursor;

/// A connection, from the site that pulls to the one that sends its log.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) puller: u8,
    pub(crate) sender: u8,
    /// The incarnation of the sender's log, and its run.
    pub(crate) incarnation: u64,
    pub(crate) run: u64,
    /// The part of the sender's log that the puller had confirmed when it connected.
    pub(crate) confirmed: Cursor,
    /// `None`: this end is closed.
    pub(crate) subscriber: Option<Subscriber>,
    pub(crate) publisher: Option<Publisher>,
    pub(crate) to_sender: VecDeque<Vec<u8>>,
    pub(crate) to_puller: VecDeque<Vec<u8>>,
}

/// What a site's threads have to do for a connection, which may be gone by then.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) connection: u64,
    pub(crate) puller: u8,
    pub(crate) sender: u8,
    pub(crate) incarnation: u64,
    pub(crate) run: u64,
    pub(crate) what: Task,
}

#[derive(Clone, Debug)]
pub(crate) enum Task {
    Apply(Batch),
    ApplyPiece(CopyPiece),
}

/// All connections, and which ways are cut.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) connections: Vec<Connection>,
    pub(crate) works: Vec<Work>,
    /// From, to: nothing arrives.
    cuts: BTreeSet<(u8, u8)>,
    pub(crate) opened: u64,
}

impl Network {
    pub(crate) fn cut(&mut self, from: u8, to: u8) {
        self.cuts.insert((from, to));
    }

    pub(crate) fn isolate(&mut self, site: u8, sites: u8) {
        for other in 1..=sites {
            self.cut(site, other);
            self.cut(other, site);
        }
    }

    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
    }

    pub(crate) fn is_open(&self, from: u8, to: u8) -> bool {
        !self.cuts.contains(&(from, to))
    }

    pub(crate) fn connects(&self, one: u8, other: u8) -> bool {
        self.is_open(one, other) && self.is_open(other, one)
    }

    pub(crate) fn has_puller(&self, puller: u8, sender: u8) -> bool {
        self.connections.iter().any(|c| c.puller == puller && c.sender == sender && c.subscriber.is_some())
    }

    /// Connections on which something can arrive: index, and whether at the sender.
    pub(crate) fn deliverable(&self) -> Vec<(usize, bool)> {
        let mut ways = Vec::new();
        for (index, connection) in self.connections.iter().enumerate() {
            let Connection { puller, sender, .. } = *connection;
            if connection.publisher.is_some()
                && !connection.to_sender.is_empty()
                && self.is_open(puller, sender)
            {
                ways.push((index, true));
            }
            if connection.subscriber.is_some()
                && !connection.to_puller.is_empty()
                && self.is_open(sender, puller)
            {
                ways.push((index, false));
            }
        }
        ways
    }

    /// One end of each connection of a crashed site closes; the other one may never hear of it.
    pub(crate) fn crash(&mut self, site: u8) {
        for connection in &mut self.connections {
            if connection.puller == site {
                connection.subscriber = None;
            }
            if connection.sender == site {
                connection.publisher = None;
            }
        }
        self.works.retain(|work| work.puller != site);
    }

    /// Ends whose other end is closed hear of it once nothing is left on the way; closed connections go.
    pub(crate) fn collect(&mut self) {
        let cuts = &self.cuts;
        for connection in &mut self.connections {
            let Connection { puller, sender, .. } = *connection;
            let hears = |from, to| !cuts.contains(&(from, to));
            if connection.publisher.is_none() && connection.to_puller.is_empty() && hears(sender, puller) {
                connection.subscriber = None;
            }
            if connection.subscriber.is_none() && connection.to_sender.is_empty() && hears(puller, sender) {
                connection.publisher = None;
            }
        }
        self.connections.retain(|c| c.subscriber.is_some() || c.publisher.is_some());
    }
}
