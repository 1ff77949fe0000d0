//! The side that sends its log.

mod action;
mod admission;
mod comparison;
mod phase;

use std::sync::Arc;

use super::channel::{Channel, End};
use super::{Closed, Now, Peer, Settings, closed, other_protocol, same_number, told_by_peer, unexpected};
use crate::compare::Answering;
use crate::members::CopyExtent;
use crate::wire::{
    Assembly, Challenge, Hello, Message, PROTOCOL, Proof, Refusal, Role, SENTENCE_BYTES_MAX, Side,
};
pub use action::{CopyRead, CopyStart, LogRead, PublisherAction};
pub use admission::{Admission, LogExtent, Subscription, admit};
use phase::{Copying, Flight, Phase, Stream};

/// Serves one subscriber.
#[derive(Debug)]
pub struct Publisher {
    channel: Channel<PublisherAction>,
    settings: Arc<Settings>,
    challenge: Challenge,
    phase: Phase,
    answering: Answering,
    /// What it lets be under way.
    window_bytes: usize,
    /// All of the own log up to here is durable. Nothing else is ever sent: what a peer has, its origin cannot lose.
    durable: u64,
    /// Of a command for this site.
    assembly: Assembly,
    /// Why the connection ends as soon as nothing is under way any more.
    failure: Option<Closed>,
}

impl Publisher {
    /// For a connection that was just accepted. `nonce`: random bytes that were never used. `durable`: the last durable
    /// sequence of the own log.
    pub fn new(settings: Arc<Settings>, nonce: [u8; 32], durable: u64, now: Now) -> Self {
        let Settings { site, incarnation, run, .. } = *settings;
        let challenge = Challenge { protocol: PROTOCOL, site, incarnation, run, nonce };
        let body_bytes_max = settings.body_bytes_max;
        let mut publisher = Self {
            channel: Channel::new(now),
            settings,
            challenge,
            phase: Phase::Handshake,
            answering: Answering::default(),
            window_bytes: 0,
            durable,
            assembly: Assembly::new(body_bytes_max),
            failure: None,
        };
        publisher.channel.send(&Message::Challenge(challenge));
        publisher
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<PublisherAction> {
        self.channel.next_action()
    }

    /// The subscriber's site, once it has proven that it knows the token.
    pub fn peer(&self) -> Option<u8> {
        self.channel.peer.map(|peer| peer.site)
    }

    /// The subscriber's site and its [run](crate::link::Settings::run).
    pub fn peer_run(&self) -> Option<(u8, u64)> {
        self.channel.peer.map(|peer| (peer.site, peer.run))
    }

    /// Site number of the subscriber, if it pulls the log.
    pub fn puller(&self) -> Option<u8> {
        let is_pulling = !matches!(self.phase, Phase::Handshake | Phase::Idle | Phase::Aside);
        self.peer().filter(|_| is_pulling)
    }

    /// Says something to a side that pulls no log.
    pub fn say(&mut self, side: Side, body: &[u8], now: Now) {
        if matches!(self.phase, Phase::Aside) {
            self.channel.say(side, body, now);
        }
    }

    /// True after the last action.
    pub fn is_closed(&self) -> bool {
        self.channel.is_closed
    }

    /// Bytes of batches that were sent and are not applied yet: not compressed, with their frames.
    pub fn in_flight_bytes(&self) -> usize {
        match &self.phase {
            Phase::Streaming(stream) => stream.flight.bytes,
            Phase::Copying(copy) => copy.flight.bytes,
            _ => 0,
        }
    }

    /// Bytes of a body beside the log that is not whole yet.
    pub fn assembled_bytes(&self) -> usize {
        self.assembly.body_bytes()
    }

    /// When [`tick`](Self::tick) is due, on the clock that nobody sets.
    pub fn deadline_micros(&self) -> u64 {
        self.channel.deadline_micros()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        self.pass_time(now);
    }

    /// So many bytes of [`PublisherAction::Send`] were written, and had to wait so long for the network.
    pub fn note_written(&mut self, bytes: usize, waited_micros: u64) {
        self.channel.pace.note_written(bytes, waited_micros);
    }

    /// Bytes have arrived.
    pub fn receive(&mut self, bytes: &[u8], now: Now) {
        self.handle_bytes(bytes, now);
    }

    /// The answer to [`PublisherAction::Admit`]; [`admit`] finds it.
    pub fn admit(&mut self, admission: Admission) {
        let Phase::Admitting(cursor) = self.phase else { return };
        match admission {
            Admission::Log => {
                self.phase = Phase::Streaming(Stream {
                    sent: cursor.sequence,
                    read: cursor.sequence,
                    is_reading: false,
                    flight: Flight::default(),
                });
                // The entries up to there may not be durable at the subscriber yet: it confirms them later.
                self.channel.send(&Message::Start { sequence: cursor.sequence });
                self.pump();
            }
            Admission::Copy(reason) => {
                self.phase = Phase::CopyOffered;
                self.channel.send(&Message::CopyNeeded(reason));
            }
            Admission::Refused(refusal) => {
                let site = self.peer().unwrap_or_default();
                let sentence = match refusal {
                    Refusal::UnknownSite => format!("site {site} is not among the configured peers"),
                    Refusal::AheadOfLog => format!(
                        "site {site} has more of the log of site {} than is there: its store is an older copy",
                        self.settings.site
                    ),
                    Refusal::OlderCopy => format!(
                        "site {site} has less of the log of site {} than it had: its store is an older copy",
                        self.settings.site
                    ),
                    _ => format!("site {site} cannot be served now"),
                };
                self.close(closed(refusal, sentence));
            }
        }
    }

    /// All of the own log up to here is durable now.
    pub fn durable(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
        self.pump();
    }

    /// The answer to [`PublisherAction::ReadLog`].
    pub fn log_read(&mut self, read: LogRead, now: Now) {
        let Phase::Streaming(stream) = &mut self.phase else { return };
        stream.is_reading = false;
        let LogRead::Entries { to, body } = read else {
            // The next connection is told that it is too far behind.
            self.close(closed(Refusal::Unavailable, "the log was cleaned while it was read"));
            return;
        };
        stream.read = stream.read.max(to);
        if !body.is_empty() {
            self.send_batch(to, &body, now);
        }
        self.pump();
    }

    fn send_batch(&mut self, to: u64, body: &[u8], now: Now) {
        let Phase::Streaming(stream) = &mut self.phase else { return };
        if to > stream.sent {
            let from = std::mem::replace(&mut stream.sent, to);
            let batch = Message::Batch { from, to, unix_micros: now.unix_micros };
            stream.flight.add(to, self.channel.send_body(body, &batch));
            self.channel.sent_micros = now.micros;
        }
    }

    /// The answer to [`PublisherAction::BeginCopy`].
    pub fn copy_begun(&mut self, begun: CopyStart) {
        if !matches!(self.phase, Phase::BeginningCopy) {
            return;
        }
        let CopyStart { extent: CopyExtent { start, horizon, others }, whole_bytes, position } = begun;
        let begin = Message::CopyBegin { start, horizon, whole_bytes, position: &position, others };
        self.channel.send(&begin);
        let copy = Copying {
            start,
            horizon,
            next: Some(position),
            number: 0,
            is_reading: false,
            waiting: None,
            flight: Flight::default(),
        };
        self.phase = Phase::Copying(copy);
        self.pump();
    }

    /// The answer to [`PublisherAction::ReadCopy`].
    pub fn copy_read(&mut self, read: CopyRead) {
        let Phase::Copying(copy) = &mut self.phase else { return };
        copy.is_reading = false;
        copy.waiting = Some(read);
        self.pump();
    }

    /// The answer to [`PublisherAction::ReadLog`] or [`PublisherAction::ReadCopy`] if nothing can be read. This side
    /// ends the connection, once all is applied that was sent, and says why, in the first [`SENTENCE_BYTES_MAX`] of the
    /// sentence.
    pub fn fail(&mut self, sentence: &str, now: Now) {
        if self.is_closed() {
            return;
        }
        // Who comes back begins behind what was nothing to send, and is told then if it needs a copy.
        if let Phase::Streaming(Stream { read, .. }) = self.phase {
            self.send_batch(read, &[], now);
        }
        let longest = sentence.len().min(SENTENCE_BYTES_MAX);
        let end = (0..=longest).rev().find(|end| sentence.is_char_boundary(*end)).unwrap_or_default();
        self.failure = Some(closed(Refusal::Unavailable, &sentence[..end]));
        if let Err(closed) = self.check_failure() {
            self.close(closed);
        }
    }

    /// Errors: it has failed, and nothing is under way any more.
    fn check_failure(&mut self) -> Result<(), Closed> {
        let is_over = self.in_flight_bytes() == 0;
        self.failure.take_if(|_| is_over).map_or(Ok(()), Err)
    }

    /// This side ends the connection.
    pub fn stop(&mut self) {
        self.leave();
    }

    /// Closes the connection for another reason.
    pub fn refuse(&mut self, refusal: Refusal, sentence: &str) {
        self.end(closed(refusal, sentence));
    }

    /// Sends and reads what may be sent and read.
    fn pump(&mut self) {
        let (window_bytes, bytes_max) = (self.window_bytes, self.settings.batch_bytes);
        match &mut self.phase {
            Phase::Streaming(stream) => {
                let has_more = stream.read < self.durable;
                let has_room = stream.flight.bytes < window_bytes
                    && stream.flight.below(bytes_max / 2) < SMALL_BATCHES_MAX;
                if has_more && !stream.is_reading && has_room {
                    stream.is_reading = true;
                    let after = stream.read;
                    self.channel.act(PublisherAction::ReadLog { after, bytes_max });
                }
            }
            Phase::Copying(copy) => {
                if let Some(read) = copy.waiting.take_if(|read| read.appended <= self.durable) {
                    copy.number += 1;
                    let (number, is_last) = (copy.number, read.position.is_none());
                    let position = read.position.as_deref().unwrap_or_default();
                    let piece = Message::CopyPiece { number, is_last, position };
                    copy.flight.add(number, self.channel.send_body(&read.body, &piece));
                    copy.next = read.position;
                }
                let may_read = !copy.is_reading && copy.waiting.is_none() && copy.flight.bytes < window_bytes;
                if let Some(position) = copy.next.take_if(|_| may_read) {
                    copy.is_reading = true;
                    let horizon = copy.horizon;
                    self.channel.act(PublisherAction::ReadCopy { position, horizon, bytes_max });
                }
            }
            _ => {}
        }
    }

    fn welcome(&mut self, hello: &Hello, proof: &Proof) -> Result<(), Closed> {
        if hello.protocol != PROTOCOL {
            return Err(other_protocol(hello.protocol));
        }
        let said = [&*self.challenge.said(), &hello.said()];
        if !self.settings.token.verify(Role::Subscriber, &said, proof) {
            let sentence = "the other site does not know the token: is it of another cluster?";
            return Err(closed(Refusal::Token, sentence));
        }
        if hello.site == 0 || hello.run == 0 {
            return Err(unexpected());
        }
        let proof = self.settings.token.prove(Role::Publisher, &said);
        if hello.site == self.settings.site {
            // Both sites have to know of the clash, and that the claim is proven.
            self.channel.send(&Message::Welcome(proof));
            return Err(same_number(&self.settings, hello.run));
        }
        let Hello { site, incarnation, run, .. } = *hello;
        self.channel.peer = Some(Peer { site, incarnation, run });
        self.window_bytes = self.settings.window_bytes.min(hello.window_bytes as usize);
        self.phase = Phase::Idle;
        self.channel.note_round_trip();
        self.channel.send(&Message::Welcome(proof));
        Ok(())
    }
}

impl End for Publisher {
    type Action = PublisherAction;

    fn channel(&mut self) -> &mut Channel<PublisherAction> {
        &mut self.channel
    }

    fn handle(&mut self, message: Message<'_>) -> Result<(), Closed> {
        let Some(Peer { site, incarnation, .. }) = self.channel.peer else {
            return match message {
                Message::Hello(hello, proof) => self.welcome(&hello, &proof),
                Message::Refused(refusal, sentence) => Err(told_by_peer(refusal, sentence)),
                _ => Err(unexpected()),
            };
        };
        match (message, &mut self.phase) {
            (Message::Refused(refusal, sentence), _) => return Err(told_by_peer(refusal, sentence)),
            (Message::Alive { .. }, _) => {}
            (Message::Part { body_bytes, data }, Phase::Idle | Phase::Aside) => {
                self.assembly.push(body_bytes, data)?;
            }
            (Message::Side(side), Phase::Idle | Phase::Aside) => {
                self.phase = Phase::Aside;
                let body = self.assembly.take();
                self.channel.act(PublisherAction::Side(side, body));
            }
            (Message::Subscribe { cursor, prefixes }, Phase::Idle) => {
                let prefixes = prefixes.into_iter().map(<[u8]>::to_vec).collect();
                self.phase = Phase::Admitting(cursor);
                self.channel.act(PublisherAction::Admit { site, incarnation, cursor, prefixes });
            }
            (Message::Confirm { applied, durable }, Phase::Streaming(stream))
                if applied <= stream.sent && durable <= applied =>
            {
                stream.flight.land(applied);
                self.channel.act(PublisherAction::Confirmed { site, incarnation, sequence: durable });
                self.pump();
            }
            (Message::Compare(ask), Phase::Streaming(_)) => self.receive_ask(&ask)?,
            (Message::CopyRequest { start, position }, Phase::CopyOffered) => {
                self.phase = Phase::BeginningCopy;
                let interrupted = (start != 0).then(|| (start, position.to_vec()));
                self.channel.act(PublisherAction::BeginCopy { site, interrupted });
            }
            (Message::CopyConfirm { number }, Phase::Copying(copy)) if number <= copy.number => {
                copy.flight.land(number);
                self.pump();
            }
            (Message::CopyTaken, Phase::Copying(copy)) if copy.is_over() => {
                let sequence = copy.start;
                self.phase = Phase::Idle;
                self.channel.act(PublisherAction::CopyTaken { site });
                self.channel.act(PublisherAction::Confirmed { site, incarnation, sequence });
            }
            _ => return Err(unexpected()),
        }
        self.check_failure()
    }

    fn forget(&mut self) {
        self.phase = Phase::Handshake;
        self.failure = None;
        self.answering = Answering::default();
    }
}

/// Small batches that may be under way: a subscriber that cannot keep up with them gets fewer, larger ones.
const SMALL_BATCHES_MAX: usize = 4;
