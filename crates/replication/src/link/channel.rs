//! What both ends of a connection do alike: frames in, messages out, signs of life, the end.

use std::collections::VecDeque;

use super::pace::Pace;
use super::{ALIVE_MICROS, Closed, Now, Peer, TIMEOUT_MICROS, closed};
use crate::wire::{FrameDecoder, Message, Refusal, Side, push_parts};

/// What either end asks of its caller.
pub(super) trait Action {
    /// Send these bytes.
    fn send(bytes: Vec<u8>) -> Self;
    /// Close the connection.
    fn close(closed: Closed) -> Self;
}

/// A connection as either end has it.
#[derive(Debug)]
pub(super) struct Channel<A> {
    decoder: FrameDecoder,
    actions: VecDeque<A>,
    /// The other side, once that is proven.
    pub(super) peer: Option<Peer>,
    pub(super) is_closed: bool,
    pub(super) pace: Pace,
    opened_micros: u64,
    heard_micros: u64,
    pub(super) sent_micros: u64,
}

impl<A: Action> Channel<A> {
    pub(super) fn new(now: Now) -> Self {
        Self {
            decoder: FrameDecoder::new(),
            actions: VecDeque::new(),
            peer: None,
            is_closed: false,
            pace: Pace::default(),
            opened_micros: now.micros,
            heard_micros: now.micros,
            sent_micros: now.micros,
        }
    }

    pub(super) fn act(&mut self, action: A) {
        self.actions.push_back(action);
    }

    pub(super) fn next_action(&mut self) -> Option<A> {
        self.actions.pop_front()
    }

    pub(super) fn send(&mut self, message: &Message<'_>) {
        let mut out = Vec::new();
        message.encode(&mut out);
        self.act(A::send(out));
    }

    /// Says something beside the log.
    pub(super) fn say(&mut self, side: Side, body: &[u8], now: Now) {
        self.sent_micros = now.micros;
        self.send_body(body, &Message::Side(side));
    }

    /// Sends a body, and what it is. Returns how many bytes that is, not compressed, with all frames.
    pub(super) fn send_body(&mut self, body: &[u8], message: &Message<'_>) -> usize {
        let mut out = Vec::new();
        let saved_bytes = push_parts(&mut out, body, self.pace.compresses());
        message.encode(&mut out);
        let bytes = out.len() + saved_bytes;
        self.act(A::send(out));
        bytes
    }

    /// The first message of this side is answered.
    pub(super) fn note_round_trip(&mut self) {
        self.pace.note_round_trip(self.heard_micros.saturating_sub(self.opened_micros));
    }

    /// Bytes of a frame that has not arrived as a whole.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.decoder.buffered_bytes()
    }

    /// When [`End::pass_time`] is due.
    pub(super) fn deadline_micros(&self) -> u64 {
        let timeout_micros = self.heard_micros.saturating_add(TIMEOUT_MICROS);
        timeout_micros.min(self.sent_micros.saturating_add(ALIVE_MICROS))
    }

    /// Says that this side is alive, if it is time to. Errors: the other one was silent for too long.
    fn pass_time(&mut self, now: Now) -> Result<(), Closed> {
        // Who has not proven anything gets no more time by saying something.
        let since_micros = if self.peer.is_some() { self.heard_micros } else { self.opened_micros };
        if now.micros >= since_micros.saturating_add(TIMEOUT_MICROS) {
            return Err(closed(Refusal::TimedOut, "the other site was silent for too long"));
        }
        if now.micros >= self.sent_micros.saturating_add(ALIVE_MICROS) {
            self.sent_micros = now.micros;
            if self.peer.is_some() {
                self.send(&Message::Alive { unix_micros: now.unix_micros });
            }
        }
        Ok(())
    }
}

/// An end of a connection.
pub(super) trait End {
    type Action: Action;

    fn channel(&mut self) -> &mut Channel<Self::Action>;

    /// A message has arrived. Errors: it ends the connection.
    fn handle(&mut self, message: Message<'_>) -> Result<(), Closed>;

    /// The connection is over: whatever is under way is dropped, and answers to it come too late.
    fn forget(&mut self);

    /// Time has passed.
    fn pass_time(&mut self, now: Now) {
        if !self.channel().is_closed
            && let Err(closed) = self.channel().pass_time(now)
        {
            self.close(closed);
        }
    }

    /// Handles what has arrived, message by message.
    fn handle_bytes(&mut self, bytes: &[u8], now: Now) {
        if self.channel().is_closed {
            return;
        }
        self.channel().heard_micros = now.micros;
        let mut decoder = std::mem::take(&mut self.channel().decoder);
        decoder.push(bytes);
        loop {
            let handled = match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some((kind, payload))) => Message::decode(kind, payload)
                    .map_err(Closed::from)
                    .and_then(|message| self.handle(message)),
                Err(error) => Err(error.into()),
            };
            if let Err(closed) = handled {
                self.close(closed);
                return;
            }
            if self.channel().peer.is_some() {
                decoder.trust();
            }
        }
        self.channel().decoder = decoder;
    }

    /// This side ends the connection.
    fn leave(&mut self) {
        self.end(closed(Refusal::Unavailable, "the site stops"));
    }

    /// Closes the channel with a reason, unless it is closed already.
    fn end(&mut self, closed: Closed) {
        if !self.channel().is_closed {
            self.close(closed);
        }
    }

    /// The connection is over.
    fn close(&mut self, closed: Closed) {
        let channel = self.channel();
        if !closed.by_peer {
            channel.send(&Message::Refused(closed.refusal, &closed.sentence));
        }
        channel.is_closed = true;
        channel.decoder = FrameDecoder::new();
        channel.act(Self::Action::close(closed));
        self.forget();
    }
}
