//! A client: what it has asked on its connection, and whether the replies are right.

use std::collections::VecDeque;

use larder_client::codec::{Event, Pipeline, Protocol, ViolationKind};

use crate::check::{Answer, Check, Found, ShownMarks, op_in_words};
use crate::request::{KnownVersion, Op, Request};
use crate::witness::{Tick, Witness};

/// A client, and its connection.
pub(crate) struct Client {
    pub(crate) connection: u32,
    pipeline: Pipeline<u64>,
    requests: VecDeque<Request>,
    /// Received, and not understood yet.
    input: Vec<u8>,
    found: Vec<Found>,
    /// Keys of the request that failed, each with an error of its own.
    failed_keys: usize,
    /// The moment of its last request that was answered.
    point: Tick,
    /// The CAS value that it has seen last.
    pub(crate) known: KnownVersion,
    /// It sends nothing before all is answered.
    is_blocked: bool,
    /// It gives up: it cannot tell which of its requests an error belongs to.
    pub(crate) is_lost: bool,
}

impl Client {
    pub(crate) fn new(connection: u32, protocol: Protocol) -> Self {
        Self {
            connection,
            pipeline: Pipeline::new(protocol),
            requests: VecDeque::new(),
            input: Vec::new(),
            found: Vec::new(),
            failed_keys: 0,
            point: 0,
            known: None,
            is_blocked: false,
            is_lost: false,
        }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.pipeline.protocol()
    }

    /// Requests without a reply, those included that will have none.
    pub(crate) fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// True if a quiet request is the last: a later one is to show that it was executed.
    pub(crate) fn ends_quietly(&self) -> bool {
        self.requests.back().is_some_and(|request| request.is_quiet)
    }

    /// Sends nothing before all is answered: whether a quiet request had an effect could not be told from that of a
    /// later one that asks for the same.
    pub(crate) fn block(&mut self) {
        self.is_blocked = true;
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked && !self.requests.is_empty()
    }

    /// The oldest request without a reply.
    pub(crate) fn oldest(&self) -> Option<String> {
        self.requests.front().map(|request| op_in_words(&request.op))
    }

    /// Sends a request. Returns its bytes.
    pub(crate) fn send(&mut self, number: u64, op: Op, is_quiet: bool, sent: Tick) -> Vec<u8> {
        let mut output = Vec::new();
        op.write(&mut self.pipeline, &mut output, (!is_quiet).then_some(number));
        self.is_blocked &= !self.requests.is_empty();
        self.requests.push_back(Request { number, op, sent, is_quiet });
        output
    }

    /// Bytes arrive. Errors: what is wrong with them.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        witness: &mut Witness,
        is_sync: bool,
        is_disk_faulty: bool,
    ) -> Result<u32, String> {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        let hi = witness.next_tick();
        let mut replies = 0;
        loop {
            let event = match self.pipeline.receive(&mut rest) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(violation) if violation.kind == ViolationKind::Ambiguous => {
                    self.is_lost = true;
                    return Ok(replies);
                }
                Err(violation) => return Err(violation.to_string()),
            };
            match event {
                Event::Value(value) => {
                    let marks = (self.pipeline.protocol() == Protocol::Meta).then(|| {
                        let has = |flag: &[u8]| {
                            value.meta_flags.split(|byte| *byte == b' ').any(|word| word == flag)
                        };
                        ShownMarks { is_stale: has(b"X"), is_won: has(b"W"), is_held: has(b"Z") }
                    });
                    self.found.push(Found {
                        index: value.index,
                        value: value.bytes.to_vec(),
                        client_flags: value.client_flags,
                        version: value.cas,
                        marks,
                    });
                }
                Event::KeyFailed(_) => self.failed_keys += 1,
                Event::Stat(..) | Event::QuietFailed(_) => {}
                Event::Done(number, outcome) => {
                    let answer = Answer::of(&outcome);
                    replies += 1;
                    self.settle(number, answer, witness, hi, is_sync, is_disk_faulty)?;
                }
            }
        }
        self.input = rest.to_vec();
        Ok(replies)
    }

    /// A request is answered; those before it that wanted no reply were executed before.
    fn settle(
        &mut self,
        number: u64,
        answer: Answer,
        witness: &mut Witness,
        hi: Tick,
        is_sync: bool,
        is_disk_faulty: bool,
    ) -> Result<(), String> {
        let found = std::mem::take(&mut self.found);
        let failed_keys = std::mem::take(&mut self.failed_keys);
        while let Some(request) = self.requests.pop_front() {
            let is_it = request.number == number && !request.is_quiet;
            if !is_it && !request.is_quiet {
                return Err(format!("a reply was left out, to {}", op_in_words(&request.op)));
            }
            let mut check = Check {
                witness,
                connection: self.connection,
                lo: request.sent.max(self.point),
                hi,
                is_shown: is_it && is_sync,
                is_disk_faulty,
                failed_keys: if is_it { failed_keys } else { 0 },
            };
            let op = &request.op;
            let point = if is_it { check.check(op, answer, &found) } else { check.check_quiet(op) };
            self.point = point.map_err(|wrong| format!("connection {}: {wrong}", self.connection))?;
            if is_it {
                if let (Op::Get { keys, .. }, Some(found)) = (op, found.last())
                    && let (Some(key), Some(version)) = (keys.get(found.index as usize), found.version)
                {
                    self.known = Some((key.clone(), version));
                }
                return Ok(());
            }
        }
        Err("a reply to nothing".to_owned())
    }
}
