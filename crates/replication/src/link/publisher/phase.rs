//! Where a publisher is with its subscriber.

use std::collections::VecDeque;

use super::CopyRead;
use crate::members::Cursor;

#[derive(Debug)]
pub(super) enum Phase {
    Handshake,
    /// The subscriber may ask for the log.
    Idle,
    Admitting(Cursor),
    Streaming(Stream),
    /// The subscriber may ask for a copy.
    CopyOffered,
    BeginningCopy,
    Copying(Copying),
    /// The other side pulls no log.
    Aside,
}

#[derive(Debug)]
pub(super) struct Stream {
    /// The last sequence that the subscriber was told of.
    pub(super) sent: u64,
    /// The last one that was looked at. What follows `sent` up to here is nothing to send: it waits for an entry, or
    /// two sites that keep their cursors in their logs would tell each other of that for ever.
    pub(super) read: u64,
    pub(super) is_reading: bool,
    pub(super) flight: Flight,
}

#[derive(Debug)]
pub(super) struct Copying {
    pub(super) start: u64,
    pub(super) horizon: u64,
    /// Where the next piece begins; `None`: all are read.
    pub(super) next: Option<Vec<u8>>,
    /// Pieces sent.
    pub(super) number: u64,
    pub(super) is_reading: bool,
    /// Read, and not yet durable.
    pub(super) waiting: Option<CopyRead>,
    pub(super) flight: Flight,
}

/// What was sent and is not applied yet.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) sent: VecDeque<(u64, usize)>,
    pub(super) bytes: usize,
}

impl Flight {
    pub(super) fn add(&mut self, number: u64, bytes: usize) {
        self.sent.push_back((number, bytes));
        self.bytes += bytes;
    }

    /// How many have fewer bytes.
    pub(super) fn below(&self, bytes: usize) -> usize {
        self.sent.iter().filter(|(_, sent)| *sent < bytes).count()
    }

    pub(super) fn land(&mut self, number: u64) {
        while let Some(&(first, bytes)) = self.sent.front()
            && first <= number
        {
            self.sent.pop_front();
            self.bytes -= bytes;
        }
    }
}

impl Copying {
    pub(super) fn is_over(&self) -> bool {
        self.next.is_none() && !self.is_reading && self.waiting.is_none() && self.flight.sent.is_empty()
    }
}
