//! Requests over UDP. Source: memcached, doc/protocol.txt, "UDP protocol".
//!
//! A request is one datagram with a number. Each datagram of its reply has that number, and a sequence number. Replies
//! arrive in any order, or not at all. memcached answers a get of many keys with several messages of the same number,
//! each counted from 0.

use larder_protocol::udp::Header;

use super::{Event, Pipeline, Protocol, Violation};

/// Requests that wait for their datagrams, with a tag `T` for each; for one server and one socket.
#[derive(Debug)]
pub struct DatagramPipeline<T> {
    protocol: Protocol,
    /// In the order of sending.
    waiting: Vec<Waiting<T>>,
    /// For reuse.
    spare: Vec<Waiting<T>>,
    next_id: u16,
    counts: DatagramCounts,
}

/// Counters of unusual datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// Arrived after a later one of the same reply.
    pub disordered: u64,
    /// Of a reply that no request waits for, or a duplicate.
    pub stray: u64,
}

/// A reply that breaks the protocol. Other requests are not affected.
#[derive(Debug)]
pub struct DatagramFailure<T> {
    /// The tag of its request.
    pub tag: Option<T>,
    /// The violation.
    pub violation: Violation,
}

/// A request, and the datagrams of its reply.
#[derive(Debug)]
struct Waiting<T> {
    id: u16,
    pipeline: Pipeline<T>,
    /// Received in order, and not taken yet.
    input: Vec<u8>,
    /// Sequence number of the next datagram in the current message.
    next: u16,
    /// Arrived too early: sequence number and payload, together at most [`EARLY_BYTES_MAX`].
    early: Vec<(u16, Vec<u8>)>,
}

impl<T> DatagramPipeline<T> {
    /// For a new socket.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            waiting: Vec::new(),
            spare: Vec::new(),
            next_id: 0,
            counts: DatagramCounts::default(),
        }
    }

    /// Requests that wait for a reply.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The counters so far.
    pub fn counts(&self) -> DatagramCounts {
        self.counts
    }

    /// The tag of the oldest request.
    pub fn front(&self) -> Option<&T> {
        self.waiting.first()?.pipeline.front()
    }

    /// Appends one datagram to `output`. `ask` makes exactly one request.
    pub fn request(&mut self, output: &mut Vec<u8>, ask: impl FnOnce(&mut Pipeline<T>, &mut Vec<u8>)) {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        output.extend_from_slice(&Header { request_id: id, sequence: 0, total: 1, reserved: 0 }.to_bytes());
        let mut waiting = self.spare.pop().unwrap_or_else(|| Waiting::new(self.protocol));
        ask(&mut waiting.pipeline, output);
        waiting.id = id;
        if waiting.pipeline.is_empty() {
            self.recycle(waiting);
        } else {
            self.waiting.push(waiting);
        }
    }

    /// Takes a datagram. Passes events to `each`, with the pipeline of their request, which has its tag.
    ///
    /// # Errors
    /// It does not fit its request, which is then dropped.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        mut each: impl FnMut(&Pipeline<T>, Event<'_, T>),
    ) -> Result<(), DatagramFailure<T>> {
        let split = Header::split(datagram).filter(|(header, _)| header.sequence < header.total);
        let Some((header, payload)) = split else {
            self.counts.stray += 1;
            return Ok(());
        };
        let Some(place) = self.waiting.iter().position(|waiting| waiting.id == header.request_id) else {
            self.counts.stray += 1;
            return Ok(());
        };
        let waiting = &mut self.waiting[place];
        let received = waiting.receive(header, payload, &mut self.counts, &mut each);
        if received.is_ok() && !waiting.pipeline.is_empty() {
            return Ok(());
        }
        let mut waiting = self.waiting.remove(place);
        let tag = waiting.pipeline.reset().next();
        self.recycle(waiting);
        received.map_err(|violation| DatagramFailure { tag, violation })
    }

    /// Drops requests, the oldest first, while `is_over` returns true for their tags. Calls `each` with the tags.
    pub fn give_up(&mut self, mut is_over: impl FnMut(&T) -> bool, mut each: impl FnMut(T)) {
        let over = self
            .waiting
            .iter()
            .take_while(|waiting| waiting.pipeline.front().is_some_and(&mut is_over))
            .count();
        for mut waiting in self.waiting.drain(..over) {
            waiting.pipeline.reset().for_each(&mut each);
        }
    }

    fn recycle(&mut self, mut waiting: Waiting<T>) {
        waiting.input.clear();
        waiting.early.clear();
        waiting.next = 0;
        self.spare.push(waiting);
    }
}

impl<T> Waiting<T> {
    fn new(protocol: Protocol) -> Self {
        Self { id: 0, pipeline: Pipeline::new(protocol), input: Vec::new(), next: 0, early: Vec::new() }
    }

    fn receive(
        &mut self,
        header: Header,
        payload: &[u8],
        counts: &mut DatagramCounts,
        each: &mut impl FnMut(&Pipeline<T>, Event<'_, T>),
    ) -> Result<(), Violation> {
        if header.sequence < self.next {
            counts.stray += 1;
            return Ok(());
        }
        if header.sequence > self.next {
            counts.disordered += 1;
            let kept_bytes: usize = self.early.iter().map(|(_, kept)| kept.len() + OVERHEAD_BYTES).sum();
            let is_known = self.early.iter().any(|(sequence, _)| *sequence == header.sequence);
            if !is_known && kept_bytes + payload.len() <= EARLY_BYTES_MAX {
                self.early.push((header.sequence, payload.to_vec()));
            }
            return Ok(());
        }
        self.take(payload, each)?;
        self.next += 1;
        while let Some(at) = self.early.iter().position(|(sequence, _)| *sequence == self.next) {
            let (_, payload) = self.early.swap_remove(at);
            self.take(&payload, each)?;
            self.next += 1;
        }
        if self.next == header.total {
            // If the reply is not complete, another message follows.
            self.next = 0;
        }
        Ok(())
    }

    fn take(
        &mut self,
        payload: &[u8],
        each: &mut impl FnMut(&Pipeline<T>, Event<'_, T>),
    ) -> Result<(), Violation> {
        if self.input.is_empty() {
            let mut rest = payload;
            drain(&mut self.pipeline, &mut rest, each)?;
            self.input.extend_from_slice(rest);
            return Ok(());
        }
        self.input.extend_from_slice(payload);
        let mut rest = &self.input[..];
        drain(&mut self.pipeline, &mut rest, each)?;
        let taken = self.input.len() - rest.len();
        self.input.drain(..taken);
        Ok(())
    }
}

fn drain<T>(
    pipeline: &mut Pipeline<T>,
    input: &mut &[u8],
    each: &mut impl FnMut(&Pipeline<T>, Event<'_, T>),
) -> Result<(), Violation> {
    while let Some(event) = pipeline.receive(input)? {
        each(pipeline, event);
    }
    Ok(())
}

/// So much is kept of a reply that waits for an earlier datagram: more than an item of memcached's default size has.
/// What comes beyond it is as good as lost.
const EARLY_BYTES_MAX: usize = 2 << 20;
/// What a datagram takes besides its payload.
const OVERHEAD_BYTES: usize = 64;
