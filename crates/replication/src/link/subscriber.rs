//! The side that pulls the log of another site.

use std::collections::VecDeque;
use std::sync::Arc;

use super::channel::{Action, Channel, End};
use super::{
    AHEAD_MICROS_MAX, Closed, Now, Peer, Settings, closed, other_protocol, told_by_peer, unexpected,
};
use crate::compare::{Answer, Arrived, Asking, AskingStep, Output, ScanRead, check_asked};
use crate::entry::Entries;
use crate::members::{Cursor, Position};
use crate::version::unix_micros_of;
use crate::wire::{Assembly, Challenge, CopyReason, Hello, Message, PROTOCOL, Proof, Refusal, Role, Side};

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

/// What the caller has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriberAction {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Both sides know the token. Answer: [`Subscriber::subscribe`], or [`Subscriber::say`].
    Connected {
        /// The publisher's site.
        site: u8,
        /// Of its log.
        incarnation: u64,
    },
    /// The log follows. If the publisher is not [in](crate::members::Standing), end the connection, and try again
    /// later.
    Started,
    /// The log is of no use without a copy. If the reason is silence, this site counts anew
    /// ([`Members::count_anew`](crate::members::Members::count_anew)). If
    /// [`Members::trust`](crate::members::Members::trust) allows it, answer: [`Subscriber::copy`]; else end the
    /// connection, and try again later.
    CopyNeeded(CopyReason),
    /// Merge these entries, and keep the cursor in the same batch. Answer: [`Subscriber::applied`], and
    /// [`Subscriber::durable`] when it is.
    Apply(Batch),
    /// A copy begins.
    CopyBegun(CopyBegun),
    /// Merge these states. Answer: [`Subscriber::piece_applied`].
    ApplyPiece(CopyPiece),
    /// All pieces are applied: drop what the copy does not have, keep cursor and positions, make all durable. Answer:
    /// [`Subscriber::copy_taken`].
    FinishCopy,
    /// The other side says this, with its body, on a connection that does not pull its log.
    Side(Side, Vec<u8>),
    /// Changes of the publisher are so far ahead of the wall clock. They wait.
    Ahead {
        /// Ahead of the wall clock.
        micros: u64,
    },
    /// They wait no longer.
    NoLongerAhead,
    /// Do this for the comparison that [`Subscriber::compare`] has begun.
    Compare(AskingStep),
    /// Close the connection, after what was sent.
    Close(Closed),
}

/// A part of the publisher's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What was applied before it.
    pub from: u64,
    /// What is applied with it.
    pub to: u64,
    /// For [`Entries`], which are known to be well-formed, and the publisher's own.
    pub body: Vec<u8>,
    /// The publisher's wall clock when it was sent.
    pub unix_micros: u64,
}

/// How a copy begins: see [`Message::CopyBegin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyBegun {
    /// The cursor that the copy ends with.
    pub cursor: Cursor,
    /// What the copy does not have, up to this version, is gone.
    pub horizon: u64,
    /// About how many bytes the whole copy has.
    pub whole_bytes: u64,
    /// True if the copy goes on where it was interrupted.
    pub is_continued: bool,
    /// How far the publisher is in other logs.
    pub others: Vec<Position>,
}

/// A piece of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPiece {
    /// 1, 2, 3 and so on.
    pub number: u64,
    /// For [`Entries`], which are known to be well-formed.
    pub body: Vec<u8>,
    /// Where an interrupted copy continues after this.
    pub position: Vec<u8>,
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

#[derive(Debug)]
enum Work {
    Batch(Batch),
    Piece(CopyPiece),
    /// Of a comparison.
    List(Vec<u8>),
    States(Vec<u8>),
}

#[derive(Debug)]
struct Queued {
    work: Work,
    bytes: usize,
    /// The highest version in it.
    version: u64,
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

    /// Begins to compare this site with the publisher, of what every site has at this horizon. False: the log does not
    /// follow yet, this site does not keep all keys, or a comparison is under way.
    pub fn compare(&mut self, horizon: u64, now: Now) -> bool {
        let is_possible = self.is_pulling() && self.settings.prefixes.is_empty() && self.asking.is_idle();
        if is_possible {
            self.asking.begin(horizon);
            self.go_on_comparing(now);
        }
        is_possible
    }

    /// True from [`compare`](Self::compare) to [`AskingStep::Ended`].
    pub fn is_comparing(&self) -> bool {
        !self.asking.is_idle()
    }

    /// The answer to [`AskingStep::Scan`].
    pub fn compare_scanned(&mut self, read: ScanRead, now: Now) {
        self.asking.scanned(read);
        self.go_on_comparing(now);
    }

    /// The answer to [`AskingStep::Judge`]: the keys whose states this site asks for.
    pub fn compare_judged(&mut self, keys: Vec<Vec<u8>>, now: Now) {
        self.asking.judged(keys);
        self.compared_step(now);
    }

    /// The answer to [`AskingStep::Mend`].
    pub fn compare_mended(&mut self, now: Now) {
        self.asking.mended();
        self.compared_step(now);
    }

    /// This side ends the connection.
    pub fn stop(&mut self) {
        self.leave();
    }

    /// The first of the queue was of a comparison, and is done.
    fn compared_step(&mut self, now: Now) {
        self.queued_bytes -= self.applying_bytes.take().unwrap_or(0);
        self.work(now);
        self.go_on_comparing(now);
    }

    /// Says and asks for what is due of a comparison.
    fn go_on_comparing(&mut self, now: Now) {
        self.asking.work(now.micros, self.settings.compare_bytes_per_sec);
        while let Some(output) = self.asking.next_output() {
            self.channel.act(match output {
                Output::Send(bytes) => SubscriberAction::Send(bytes),
                Output::Act(step) => SubscriberAction::Compare(step),
            });
        }
    }

    /// An answer of a comparison has arrived. Lists and states wait for the log before them.
    fn receive_answer(&mut self, answer: &Answer<'_>) -> Result<(), Closed> {
        match self.asking.receive(answer).map_err(|_| unexpected())? {
            Arrived::Nothing => Ok(()),
            Arrived::List(list) => self.enqueue(Work::List(list)),
            Arrived::States(keys) => {
                let body = self.assembly.take();
                check_asked(&keys, &body).map_err(|_| unexpected())?;
                self.enqueue(Work::States(body))
            }
        }
    }

    /// The first of the queue is applied.
    fn done(&mut self, confirmation: &Message<'_>, now: Now) {
        self.queued_bytes -= self.applying_bytes.take().unwrap_or(0);
        self.channel.send(confirmation);
        self.channel.sent_micros = now.micros;
        self.work(now);
    }

    /// Gives the first of the queue to the caller, unless it has one, or it is ahead of the clock.
    fn work(&mut self, now: Now) {
        if self.applying_bytes.is_some() {
            return;
        }
        let Some(queued) = self.queue.front() else { return };
        let micros = unix_micros_of(queued.version).saturating_sub(now.unix_micros);
        let was_ahead = std::mem::replace(&mut self.is_ahead, micros > AHEAD_MICROS_MAX);
        match (was_ahead, self.is_ahead) {
            (false, true) => self.channel.act(SubscriberAction::Ahead { micros }),
            (true, false) => self.channel.act(SubscriberAction::NoLongerAhead),
            _ => {}
        }
        if self.is_ahead {
            return;
        }
        let Some(queued) = self.queue.pop_front() else { return };
        self.applying_bytes = Some(queued.bytes);
        self.channel.act(match queued.work {
            Work::Batch(batch) => SubscriberAction::Apply(batch),
            Work::Piece(piece) => SubscriberAction::ApplyPiece(piece),
            Work::List(list) => SubscriberAction::Compare(self.asking.judge(list)),
            Work::States(body) => SubscriberAction::Compare(AskingStep::Mend { body }),
        });
    }

    fn greet(&mut self, challenge: Challenge) -> Result<(), Closed> {
        if challenge.protocol != PROTOCOL {
            return Err(other_protocol(challenge.protocol));
        }
        let Settings { site, incarnation, ref token, window_bytes, .. } = *self.settings;
        let window_bytes = u32::try_from(window_bytes).unwrap_or(u32::MAX);
        let hello = Hello { protocol: PROTOCOL, site, incarnation, window_bytes, nonce: self.nonce };
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
        let Challenge { site, incarnation, .. } = *challenge;
        if site == 0 || site == self.settings.site || incarnation == 0 {
            return Err(unexpected());
        }
        self.channel.peer = Some(Peer { site, incarnation });
        self.phase = Phase::Connected;
        self.channel.act(SubscriberAction::Connected { site, incarnation });
        Ok(())
    }

    /// Checks what arrived, and queues it.
    fn enqueue(&mut self, work: Work) -> Result<(), Closed> {
        let nothing = Vec::new();
        let (body, origin) = match &work {
            Work::Batch(batch) => (&batch.body, self.channel.peer.map(|peer| peer.site)),
            Work::Piece(piece) => (&piece.body, None),
            Work::States(body) => (body, None),
            Work::List(_) => (&nothing, None),
        };
        let mut version = 0;
        for entry in Entries::new(body) {
            let entry = entry.map_err(|malformed| {
                closed(Refusal::Violation, format!("the other site sends what is no entry: {malformed}"))
            })?;
            if origin.is_some_and(|origin| !entry.is_of(origin)) {
                let sentence = "the other site sends a change that another one has made";
                return Err(closed(Refusal::Violation, sentence));
            }
            version = version.max(entry.highest_version());
        }
        // Of a comparison there is one answer at most, beside the window.
        let is_answer = matches!(work, Work::List(_) | Work::States(_));
        let bytes = if is_answer { 0 } else { body.len() + QUEUED_BYTES };
        if !is_answer && self.queued_bytes > self.settings.window_bytes {
            let sentence = "the other site sends more than it may before it is confirmed";
            return Err(closed(Refusal::Violation, sentence));
        }
        self.queued_bytes += bytes;
        self.queue.push_back(Queued { work, bytes, version });
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
                self.phase = Phase::Pulling { received: sequence, applied: sequence, durable: sequence };
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
                let cursor = Cursor { incarnation: peer.incarnation, sequence: start };
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

impl Action for SubscriberAction {
    fn send(bytes: Vec<u8>) -> Self {
        Self::Send(bytes)
    }

    fn close(closed: Closed) -> Self {
        Self::Close(closed)
    }
}

/// What a batch counts beside its body: less than its frame, so that the publisher counts at least as much.
const QUEUED_BYTES: usize = 32;
