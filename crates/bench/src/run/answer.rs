//! Takes answers, and counts them.

use larder_client::codec::{ErrorKind, ErrorReply, Event, Outcome, Value};

use super::lane::{Lane, Request};
use super::plan::GroupPlan;
use super::socket::Asked;
use super::tally::ThreadTally;
use crate::outcome::Failure;
use crate::scenario::Kind;

/// What has to be known to judge an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) group: &'a GroupPlan,
    /// When the answer came, and when counting begins, on the clock of the run.
    pub(crate) now_nanos: u64,
    pub(crate) begin_nanos: u64,
    /// Latency counts from when a request was due; the server's part of it is counted as well.
    pub(crate) is_open: bool,
}

impl Context<'_> {
    #[inline]
    fn counts(&self, asked: &Asked) -> bool {
        asked.due_nanos >= self.begin_nanos && !asked.is_own
    }
}

/// Takes an answer, or a part of one. `front`: what asked for a value.
#[inline]
pub(crate) fn take(
    context: Context<'_>,
    lane: &mut Lane,
    front: Option<&Asked>,
    event: Event<'_, Asked>,
    tally: &mut ThreadTally,
) {
    match event {
        Event::Done(asked, outcome) => {
            if !asked.is_own {
                lane.in_flight -= 1;
            }
            done(context, lane, &asked, &outcome, tally);
        }
        Event::Value(value) => {
            if let Some(asked) = front {
                found(context, lane, asked, &value, tally);
            }
        }
        Event::KeyFailed(error) | Event::QuietFailed(Outcome::Error(error)) => refused(&error, tally),
        // A condition of a quiet command that did not hold.
        Event::QuietFailed(_) | Event::Stat(..) => {}
    }
}

#[inline]
fn found(context: Context<'_>, lane: &mut Lane, asked: &Asked, value: &Value<'_>, tally: &mut ThreadTally) {
    let command = &context.group.commands[usize::from(asked.command)];
    if command.command.kind == Kind::Cas
        && let Some(cas) = value.cas
    {
        let request = Request { kind: Kind::Cas, cas, ..follow_up(asked) };
        lane.follow_ups.push_back(request);
    }
    if context.counts(asked) {
        tally.command(asked.kind).value_bytes += value.bytes.len() as u64;
    }
}

#[inline]
fn done(
    context: Context<'_>,
    lane: &mut Lane,
    asked: &Asked,
    outcome: &Outcome<'_>,
    tally: &mut ThreadTally,
) {
    let (hits, misses) = match (outcome, asked.kind) {
        (Outcome::Error(error), _) => {
            refused(error, tally);
            (0, 0)
        }
        (Outcome::Found { hits, keys }, _) => (u64::from(*hits), u64::from(keys - hits)),
        (Outcome::NotFound, _) | (Outcome::NotStored, Kind::Replace | Kind::Append | Kind::Prepend) => (0, 1),
        (Outcome::Stored { .. } | Outcome::NotStored, Kind::Set | Kind::Add)
        | (Outcome::Version(_) | Outcome::Ok, _) => (0, 0),
        _ => (1, 0),
    };
    if context.group.group.look_aside && misses > 0 && asked.keys == 1 && is_get(asked.kind) {
        lane.follow_ups.push_back(follow_up(asked));
    }
    if !context.counts(asked) {
        return;
    }
    let figures = tally.command(asked.kind);
    figures.requests += 1;
    figures.keys += u64::from(asked.keys);
    figures.hits += hits;
    figures.misses += misses;
    figures.value_bytes += u64::from(asked.value_bytes);
    // The bounds are an hour; what takes longer counts as that.
    figures.latency_nanos.saturating_record(context.now_nanos.saturating_sub(asked.due_nanos));
    if context.is_open {
        figures.service_nanos.saturating_record(context.now_nanos.saturating_sub(asked.sent_nanos));
    }
}

fn refused(error: &ErrorReply<'_>, tally: &mut ThreadTally) {
    let failure = match error.kind {
        ErrorKind::OutOfMemory => Failure::OutOfMemory,
        _ => Failure::ErrorReply,
    };
    tally.fail(failure, 1, || error.to_string());
}

/// A store of the key of a get.
fn follow_up(asked: &Asked) -> Request {
    Request {
        command: asked.command.into(),
        kind: Kind::Set,
        number: asked.number,
        value_bytes: None,
        cas: 0,
    }
}

fn is_get(kind: Kind) -> bool {
    matches!(kind, Kind::Get | Kind::Gets | Kind::Gat)
}
