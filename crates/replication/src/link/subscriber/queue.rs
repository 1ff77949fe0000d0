//! What has arrived and is not applied yet.

use super::super::{AHEAD_MICROS_MAX, Closed, Now, closed};
use super::{Batch, CopyPiece, Subscriber, SubscriberAction};
use crate::compare::AskingStep;
use crate::entry::Entries;
use crate::version::unix_micros_of;
use crate::wire::{Message, Refusal};

#[derive(Debug)]
pub(super) enum Work {
    Batch(Batch),
    Piece(CopyPiece),
    /// Of a comparison.
    List(Vec<u8>),
    States(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) work: Work,
    pub(super) bytes: usize,
    /// The highest version in it.
    pub(super) version: u64,
}

impl Subscriber {
    /// The first of the queue is applied.
    pub(super) fn done(&mut self, confirmation: &Message<'_>, now: Now) {
        self.queued_bytes -= self.applying_bytes.take().unwrap_or(0);
        self.channel.send(confirmation);
        self.channel.sent_micros = now.micros;
        self.work(now);
    }

    /// Gives the first of the queue to the caller, unless it has one, or it is ahead of the clock.
    pub(super) fn work(&mut self, now: Now) {
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

    /// Checks what arrived, and queues it.
    pub(super) fn enqueue(&mut self, work: Work) -> Result<(), Closed> {
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

/// What a batch counts beside its body: less than its frames, so that the publisher counts at least as much.
const QUEUED_BYTES: usize = 32;
