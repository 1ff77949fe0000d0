//! What the events of replies are for the requests that wait.

use super::{Driver, Sent};
use crate::Error;
use crate::async_client::end::End;
use crate::async_client::reply::{Answer, FoundItem, Reply, Sink};
use crate::client::{Item, Statistics};
use crate::codec::{Event, Protocol, Value, Violation, ViolationKind};
use crate::error::Interruption;

impl Driver<'_> {
    pub(super) fn take_event(&mut self, event: Event<'_, Sent>) -> Result<(), End> {
        match event {
            Event::Value(value) => self.take_value(&value)?,
            Event::Stat(name, value) => {
                let wanted = self.pipeline.front().map_or(&[][..], |sent| sent.wanted_stats);
                if wanted.is_empty() {
                    self.statistics.add(name, value);
                } else if !self.statistics.add_wanted(name, value, wanted) {
                    return Err(End::Violation(Statistics::violation()));
                }
            }
            // Who sent it is gone.
            Event::QuietFailed(outcome) => {
                return Err(End::Interrupted(Interruption::Refused(outcome.to_string())));
            }
            Event::KeyFailed(error) => {
                self.key_failure = Some(Answer::Refused(error.kind, error.to_string()))
            }
            Event::Done(sent, outcome) => {
                // A request of many keys is refused if one of them is.
                let answer = self.key_failure.take().unwrap_or_else(|| outcome.into());
                if let (false, Some(delivery)) = (self.values.is_empty(), &sent.sink.values) {
                    delivery.deliver(std::mem::take(&mut self.values), self.connection);
                }
                return self.complete(sent, answer);
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn take_value(&mut self, value: &Value<'_>) -> Result<(), End> {
        if value.bytes.len() > self.value_bytes_max {
            return Err(self.refuse_value(value.bytes.len()));
        }
        match self.pipeline.front() {
            Some(Sent { sink: Sink { values: Some(delivery), .. }, .. }) => {
                self.values.push(value, delivery.positions.len(), self.filled);
            }
            front => {
                let needs_flags = front.is_some_and(|sent| sent.needs_flags);
                let meta_flags = if needs_flags { value.meta_flags.to_vec() } else { Vec::new() };
                self.found = Some(FoundItem { item: Item::of(value), meta_flags });
            }
        }
        Ok(())
    }

    /// Delivers values of a get of many keys, whose other replies have not come yet. Those that are not delivered are
    /// not settled either, so that they are asked for again.
    pub(super) fn deliver_values(&mut self) {
        if self.values.is_empty() {
            return;
        }
        let values = std::mem::take(&mut self.values);
        if let Some(delivery) = self.pipeline.front().and_then(|sent| sent.sink.values.as_ref()) {
            delivery.deliver(values, self.connection);
        }
    }

    fn complete(&mut self, sent: Sent, answer: Answer) -> Result<(), End> {
        if sent.begin >= self.sent_bytes() {
            let end = End::Violation(Violation::new(ViolationKind::Unasked, b"before the request was sent"));
            sent.fail(end.error(), self.sent_bytes());
            return Err(end);
        }
        let found = self.found.take();
        let stats = std::mem::take(&mut self.statistics).whole();
        let end = match &answer {
            // It may be the error of that one, and the next reply would be the one to this request.
            Answer::Refused(_, text) if sent.follows_quiet && self.pipeline.protocol() == Protocol::Text => {
                let end = End::Interrupted(Interruption::Refused(text.clone()));
                sent.fail(end.error(), self.sent_bytes());
                return Err(end);
            }
            Answer::Refused(kind, text) if kind.is_doubtful() => {
                Err(End::Interrupted(Interruption::Refused(text.clone())))
            }
            _ => Ok(()),
        };
        match stats {
            Ok(stats) => sent.answer(Reply { answer, found, stats }),
            Err(error) => sent.fail(error, self.sent_bytes()),
        }
        end
    }

    /// A value is too large for its request, and ends the connection for all.
    pub(super) fn refuse_value(&mut self, value_bytes: usize) -> End {
        self.deliver_values();
        let sent_bytes = self.sent_bytes();
        let end = End::Interrupted(Interruption::ValueTooLarge);
        for (index, sent) in self.pipeline.reset().enumerate() {
            let error = if index == 0 { Error::ValueTooLarge { value_bytes } } else { end.error() };
            sent.fail(error, sent_bytes);
        }
        end
    }
}
