//! Takes answers, and counts them.

use hdrhistogram::Histogram;
use larder_client::codec::{ErrorKind, ErrorReply, Event, Outcome, Value};

use super::asked::Asked;
use super::lane::{Lane, Request};
use super::memory::Memory;
use super::plan::GroupPlan;
use super::tally::ThreadTally;
use super::verify::Judge;
use crate::outcome::{Failure, LATENCY_MAX_NANOS};
use crate::scenario::Kind;

/// What has to be known to take an answer.
pub(crate) struct Answering<'a> {
    pub(crate) group: &'a GroupPlan,
    pub(crate) lane: &'a mut Lane,
    pub(crate) tally: &'a mut ThreadTally,
    pub(crate) judge: Judge<'a>,
    /// When counting begins, on the clock of the run.
    pub(crate) begin_nanos: u64,
    /// Latency counts from when a request was due; the server's part of it is counted as well.
    pub(crate) is_open: bool,
}

impl Answering<'_> {
    /// Takes an answer, or a part of one, that came at `now_nanos`. `front`: what asked for a value.
    #[inline]
    pub(crate) fn take(
        &mut self,
        memory: &mut Memory,
        now_nanos: u64,
        front: Option<&Asked>,
        event: Event<'_, Asked>,
    ) {
        self.judge.now_nanos = now_nanos;
        match event {
            Event::Done(asked, outcome) => {
                if !asked.is_own {
                    self.lane.in_flight -= 1;
                    self.done(memory, now_nanos, &asked, &outcome);
                }
                memory.confirm(asked.quiet_mark);
                while let Some(quiet) = memory.next_confirmed() {
                    if let Some(ledger) = &self.group.key_sets[quiet.key_set].ledger {
                        ledger.end(quiet.number, &quiet.witness, quiet.effect);
                    }
                }
            }
            Event::Value(value) => {
                if let Some(asked) = front {
                    self.found(memory, asked, &value);
                }
            }
            Event::KeyFailed(error) => {
                memory.keys_refused = true;
                self.refused(&error);
            }
            Event::QuietFailed(Outcome::Error(error)) => self.refused(&error),
            // A condition of a quiet command that did not hold.
            Event::QuietFailed(_) | Event::Stat(..) => {}
        }
    }

    #[inline]
    fn found(&mut self, memory: &mut Memory, asked: &Asked, value: &Value<'_>) {
        let command = &self.group.commands[usize::from(asked.command)];
        if command.command.kind == Kind::Cas
            && let Some(cas) = value.cas
        {
            self.lane.follow_ups.push_back(Request {
                kind: Kind::Cas,
                cas,
                ..follow_up(asked, asked.number)
            });
        }
        if self.counts(asked) {
            self.tally.command(asked.kind).value_bytes += value.bytes.len() as u64;
        }
        let keys = &self.group.key_sets[command.key_set];
        if asked.keys == 1 {
            if let Some(ledger) = &keys.ledger {
                let values = &self.group.value_sets[command.value_set];
                self.judge.found(ledger, values, asked.number, asked, &asked.witness, value, self.tally);
            }
            return;
        }
        // Those before it were passed over.
        while memory.keys_seen <= value.index
            && let Some((number, witness)) = memory.keys.pop_front()
        {
            memory.keys_seen += 1;
            if memory.keys_seen <= value.index {
                if !memory.keys_refused {
                    self.missed(asked, number, &witness);
                }
            } else if let Some(ledger) = &keys.ledger {
                let values = &self.group.value_sets[command.value_set];
                self.judge.found(ledger, values, number, asked, &witness, value, self.tally);
            }
        }
    }

    #[inline]
    fn done(&mut self, memory: &mut Memory, now_nanos: u64, asked: &Asked, outcome: &Outcome<'_>) {
        let (hits, misses) = match (outcome, asked.kind) {
            (Outcome::Error(error), _) => {
                self.refused(error);
                (0, 0)
            }
            (Outcome::Found { hits, keys }, _) => (u64::from(*hits), u64::from(keys - hits)),
            (Outcome::NotFound, _) | (Outcome::NotStored, Kind::Replace | Kind::Append | Kind::Prepend) => {
                (0, 1)
            }
            (Outcome::Stored { .. } | Outcome::NotStored, Kind::Set | Kind::Add)
            | (Outcome::Version(_) | Outcome::Ok, _) => (0, 0),
            _ => (1, 0),
        };
        if asked.keys == 1 && misses > 0 {
            self.missed(asked, asked.number, &asked.witness);
        }
        if asked.keys > 1 {
            // What has not been found by now is missing; unless the server refused.
            while memory.keys_seen < asked.keys
                && let Some((number, witness)) = memory.keys.pop_front()
            {
                memory.keys_seen += 1;
                if misses > 0 && !memory.keys_refused {
                    self.missed(asked, number, &witness);
                }
            }
            memory.keys_seen = 0;
            memory.keys_refused = false;
        }
        if asked.witness.version > 0 {
            let key_set = self.group.commands[usize::from(asked.command)].key_set;
            if let Some(ledger) = &self.group.key_sets[key_set].ledger {
                self.judge.changed(ledger, asked, outcome);
            }
        }
        if !self.counts(asked) {
            return;
        }
        let figures = self.tally.command(asked.kind);
        figures.requests += 1;
        figures.keys += u64::from(asked.keys);
        figures.hits += hits;
        figures.misses += misses;
        figures.value_bytes += u64::from(asked.value_bytes);
        record(&mut figures.latency_nanos, now_nanos.saturating_sub(asked.due_nanos));
        if self.is_open {
            record(&mut figures.service_nanos, now_nanos.saturating_sub(asked.sent_nanos));
        }
    }

    /// A key is not there.
    #[inline]
    fn missed(&mut self, asked: &Asked, number: u64, witness: &super::ledger::Witness) {
        let is_get = matches!(asked.kind, Kind::Get | Kind::Gets | Kind::Gat);
        let stores = self.group.group.look_aside || asked.follow_up_bytes.is_some();
        if stores && is_get {
            self.lane.follow_ups.push_back(follow_up(asked, number));
        }
        let key_set = self.group.commands[usize::from(asked.command)].key_set;
        if let Some(ledger) = &self.group.key_sets[key_set].ledger {
            self.judge.missed(ledger, number, asked, witness, self.tally);
        }
    }

    fn refused(&mut self, error: &ErrorReply<'_>) {
        let failure = match error.kind {
            ErrorKind::OutOfMemory => Failure::OutOfMemory,
            _ => Failure::ErrorReply,
        };
        self.tally.fail(failure, 1, || error.to_string());
    }

    #[inline]
    fn counts(&self, asked: &Asked) -> bool {
        asked.due_nanos >= self.begin_nanos
    }
}

#[inline]
fn record(histogram: &mut Histogram<u64>, nanos: u64) {
    // It grows where it has to, so there is nothing to fail.
    let _ = histogram.record(nanos.min(LATENCY_MAX_NANOS));
}

/// A store of a key that was got.
fn follow_up(asked: &Asked, number: u64) -> Request {
    Request {
        command: asked.command.into(),
        kind: Kind::Set,
        number,
        value_bytes: asked.follow_up_bytes,
        cas: 0,
        ttl_secs: None,
    }
}
