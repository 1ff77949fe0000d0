//! The side that pulls the log of another site.

mod action;
mod comparison;
mod queue;

use std::collections::VecDeque;
use std::sync::Arc;

use super::channel::{Channel, End};
use super::{Closed, Now, Peer, Settings, closed, other_protocol, same_number, told_by_peer, unexpected};
use crate::compare::Asking;
use crate::members::Cursor;
use crate::wire::{Assembly, Challenge, Hello, Message, PROTOCOL, Proof, Refusal, Role, Side};
pub use action::{Batch, CopyBegun, CopyPiece, SubscriberAction};
use queue::{Queued, Work};

/// Pulls from one publisher.
#[derive(Debug)]
pub struct Subscriber {
    channel: Channel<SubscriberAction>,
    settings: Arc<Settings>,
    nonce: [u8; 32],
    phase: Phase,
    asking: Asking,
    assembly: Assembly,
    queue: VecDeque<Queued>,
    /// Of the queue, and of what the caller has.
    queued_bytes: usize,
    /// The caller applies so many bytes.
    applying_bytes: Option<usize>,
    /// [`SubscriberAction::Ahead`] was the last word.
    is_ahead: bool,
}

#[derive(Debug)]
enum Phase {
    Handshake,
    /// The publisher has to prove that it knows the token.
    Greeted {
        challenge: Challenge,
        hello: Hello,
    },
    /// The caller has to say what it wants.
    Connected,
    Subscribing(Cursor),
    Pulling {
        received: u64,
        applied: u64,
        durable: u64,
    },
    AwaitingCopy {
        start: u64,
    },
    Copying {
        received: u64,
        has_last: bool,
    },
    /// All pieces are applied.
    Finishing,
    /// This connection pulls no log.
    Aside,
}

impl Subscriber {
    /// For a connection that was just made. `nonce`: random bytes that were never used.
    pub fn new(settings: Arc<Settings>, nonce: [u8; 32], now: Now) -> Self {
        let assembly = Assembly::new(settings.body_bytes_max);
        Self {
            channel: Channel::new(now),
            settings,
            nonce,
            phase: Phase::Handshake,
            asking: Asking::default(),
            assembly,
            queue: VecDeque::new(),
            queued_bytes: 0,
            applying_bytes: None,
            is_ahead: false,
        }
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<SubscriberAction> {
        self.channel.next_action()
    }

    /// The publisher's site, once it has proven that it knows the token.
    pub fn peer(&self) -> Option<u8> {
        self.channel.peer.map(|peer| peer.site)
    }

    /// The publisher's site and its [run](crate::link::Settings::run).
    pub fn peer_run(&self) -> Option<(u8, u64)> {
        self.channel.peer.map(|peer| (peer.site, peer.run))
    }

    /// True after the last action.
    pub fn is_closed(&self) -> bool {
        self.channel.is_closed
    }

    /// True while the log follows. What arrives then is a sign of life: [`note_heard`](crate::members::Members).
    pub fn is_pulling(&self) -> bool {
        matches!(self.phase, Phase::Pulling { .. })
    }

    /// Bytes that arrived and are not applied yet.
    pub fn buffered_bytes(&self) -> usize {
        self.queued_bytes + self.assembly.body_bytes() + self.channel.buffered_bytes()
    }

    /// When [`tick`](Self::tick) is due, on the clock that nobody sets.
    pub fn deadline_micros(&self) -> u64 {
        self.channel.deadline_micros().min(self.asking.deadline_micros())
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        self.pass_time(now);
        self.work(now);
        self.go_on_comparing(now);
    }

    /// Bytes have arrived.
    pub fn receive(&mut self, bytes: &[u8], now: Now) {
        self.handle_bytes(bytes, now);
        self.work(now);
        self.go_on_comparing(now);
    }

    /// The answer to [`SubscriberAction::Connected`], and what follows [`copy_taken`](Self::copy_taken): where this
    /// site is in the publisher's log.
    pub fn subscribe(&mut self, cursor: Cursor) {
        if !matches!(self.phase, Phase::Connected) {
            return;
        }
        self.phase = Phase::Subscribing(cursor);
        let settings = Arc::clone(&self.settings);
        let prefixes = settings.prefixes.iter().map(Vec::as_slice).collect();
        self.channel.send(&Message::Subscribe { cursor, prefixes });
    }

    /// Says something on a connection that pulls no log: it does not from then on.
    pub fn say(&mut self, side: Side, body: &[u8], now: Now) {
        if matches!(self.phase, Phase::Connected | Phase::Aside) {
            self.phase = Phase::Aside;
            self.channel.say(side, body, now);
        }
    }

    /// The answer to [`SubscriberAction::CopyNeeded`]. `interrupted`: the start of an earlier copy, and the position of
    /// the last piece that was applied.
    pub fn copy(&mut self, interrupted: Option<(u64, &[u8])>) {
        if !matches!(self.phase, Phase::Connected) {
            return;
        }
        let (start, position) = interrupted.unwrap_or((0, b""));
        self.phase = Phase::AwaitingCopy { start };
        self.channel.send(&Message::CopyRequest { start, position });
    }

    /// A batch is applied: every look-up of this site sees it.
    pub fn applied(&mut self, to: u64, now: Now) {
        let Phase::Pulling { applied, durable, .. } = &mut self.phase else { return };
        *applied = to;
        let message = Message::Confirm { applied: to, durable: *durable };
        self.done(&message, now);
    }

    /// All that was applied up to here is durable.
    pub fn durable(&mut self, to: u64) {
        let Phase::Pulling { applied, durable, .. } = &mut self.phase else { return };
        let to = to.min(*applied);
        if to > *durable {
            *durable = to;
            let applied = *applied;
            self.channel.send(&Message::Confirm { applied, durable: to });
        }
    }

    /// A piece of a copy is applied.
    pub fn piece_applied(&mut self, number: u64, now: Now) {
        let Phase::Copying { received, has_last } = self.phase else { return };
        if has_last && number == received {
            self.phase = Phase::Finishing;
            self.channel.act(SubscriberAction::FinishCopy);
        }
        self.done(&Message::CopyConfirm { number }, now);
    }

    /// The answer to [`SubscriberAction::FinishCopy`]: the copy is durable. The log follows.
    pub fn copy_taken(&mut self, cursor: Cursor) {
        if matches!(self.phase, Phase::Finishing) {
            self.channel.send(&Message::CopyTaken);
            self.phase = Phase::Connected;
            self.subscribe(cursor);
        }
    }

    /// This side ends the connection.
    pub fn stop(&mut self) {
        self.leave();
    }

    /// Closes the connection for another reason.
    pub fn refuse(&mut self, refusal: Refusal, sentence: &str) {
        self.end(closed(refusal, sentence));
    }

    fn greet(&mut self, challenge: Challenge) -> Result<(), Closed> {
        if challenge.protocol != PROTOCOL {
            return Err(other_protocol(challenge.protocol));
        }
        let Settings { site, incarnation, run, ref token, window_bytes, .. } = *self.settings;
        let window_bytes = u32::try_from(window_bytes).unwrap_or(u32::MAX);
        let hello = Hello { protocol: PROTOCOL, site, incarnation, run, window_bytes, nonce: self.nonce };
        let proof = token.prove(Role::Subscriber, &[&challenge.said(), &hello.said()]);
        self.phase = Phase::Greeted { challenge, hello };
        self.channel.send(&Message::Hello(hello, proof));
        Ok(())
    }

    fn connect(&mut self, challenge: &Challenge, hello: &Hello, proof: &Proof) -> Result<(), Closed> {
        if !self.settings.token.verify(Role::Publisher, &[&challenge.said(), &hello.said()], proof) {
            let sentence = "the other site does not know the token: is it of another cluster?";
            return Err(closed(Refusal::Token, sentence));
        }
        let Challenge { site, incarnation, run, .. } = *challenge;
        if site == self.settings.site {
            return Err(same_number(&self.settings, run));
        }
        if site == 0 || incarnation == 0 || run == 0 {
            return Err(unexpected());
        }
        self.channel.peer = Some(Peer { site, incarnation, run });
        self.channel.note_round_trip();
        self.phase = Phase::Connected;
        self.channel.act(SubscriberAction::Connected { site, incarnation, run });
        Ok(())
    }
}

impl End for Subscriber {
    type Action = SubscriberAction;

    fn channel(&mut self) -> &mut Channel<SubscriberAction> {
        &mut self.channel
    }

    fn handle(&mut self, message: Message<'_>) -> Result<(), Closed> {
        match (message, &mut self.phase) {
            (Message::Refused(refusal, sentence), _) => Err(told_by_peer(refusal, sentence)),
            (Message::Challenge(challenge), Phase::Handshake) => self.greet(challenge),
            (Message::Welcome(proof), &mut Phase::Greeted { challenge, hello }) => {
                self.connect(&challenge, &hello, &proof)
            }
            (Message::Alive { .. }, _) if self.channel.peer.is_some() => Ok(()),
            (Message::Start { sequence }, &mut Phase::Subscribing(cursor)) if sequence == cursor.sequence => {
                self.phase = Phase::Pulling { received: sequence, applied: sequence, durable: 0 };
                self.channel.act(SubscriberAction::Started);
                Ok(())
            }
            (Message::CopyNeeded(reason), Phase::Subscribing(_)) => {
                self.phase = Phase::Connected;
                self.channel.act(SubscriberAction::CopyNeeded(reason));
                Ok(())
            }
            (
                Message::Part { body_bytes, data },
                Phase::Pulling { .. } | Phase::Copying { has_last: false, .. } | Phase::Aside,
            ) => Ok(self.assembly.push(body_bytes, data)?),
            (Message::Side(side), Phase::Aside) => {
                let body = self.assembly.take();
                self.channel.act(SubscriberAction::Side(side, body));
                Ok(())
            }
            (Message::Batch { from, to, unix_micros }, Phase::Pulling { received, .. }) => {
                if from != *received || to <= from {
                    let sentence = format!("the other site sends {from} to {to} after {received}");
                    return Err(closed(Refusal::Violation, sentence));
                }
                *received = to;
                let body = self.assembly.take();
                self.enqueue(Work::Batch(Batch { from, to, body, unix_micros }))
            }
            (Message::Compared(answer), Phase::Pulling { .. }) => self.receive_answer(&answer),
            (
                Message::CopyBegin { start, horizon, whole_bytes, position, others },
                &mut Phase::AwaitingCopy { start: asked },
            ) => {
                let Some(peer) = self.channel.peer else { return Err(unexpected()) };
                let is_continued = !position.is_empty();
                if is_continued && start != asked {
                    return Err(unexpected());
                }
                let cursor = Cursor { incarnation: peer.incarnation, run: peer.run, sequence: start };
                self.phase = Phase::Copying { received: 0, has_last: false };
                let begun = CopyBegun { cursor, horizon, whole_bytes, is_continued, others };
                self.channel.act(SubscriberAction::CopyBegun(begun));
                Ok(())
            }
            (
                Message::CopyPiece { number, is_last, position },
                Phase::Copying { received, has_last: has_last @ false },
            ) if number == *received + 1 => {
                *received = number;
                *has_last = is_last;
                let body = self.assembly.take();
                self.enqueue(Work::Piece(CopyPiece { number, body, position: position.to_vec() }))
            }
            _ => Err(unexpected()),
        }
    }

    fn forget(&mut self) {
        self.phase = Phase::Handshake;
        self.asking = Asking::default();
        self.queue.clear();
        self.queued_bytes = 0;
        self.applying_bytes = None;
        self.assembly.take();
    }
}
