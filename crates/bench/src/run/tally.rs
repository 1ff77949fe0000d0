//! What one thread counts during one period.

use crate::outcome::{CommandTally, EXAMPLES_MAX, Failure, Tally};
use crate::scenario::Kind;

/// As [`Tally`], but found by index instead of by search.
#[derive(Debug, Default)]
pub(crate) struct ThreadTally {
    commands: [Option<Box<CommandTally>>; KINDS],
    /// All else. `commands` is empty in it.
    pub(crate) rest: Tally,
}

const KINDS: usize = Kind::Noop as usize + 1;

impl ThreadTally {
    /// The figures of one command.
    #[inline]
    pub(crate) fn command(&mut self, kind: Kind) -> &mut CommandTally {
        self.commands[kind as usize].get_or_insert_with(Box::default)
    }

    /// Counts `count` failures. `example` is asked for words only while there is room for them.
    #[cold]
    pub(crate) fn fail(&mut self, failure: Failure, count: u64, example: impl FnOnce() -> String) {
        *self.rest.failures.entry(failure).or_default() += count;
        if self.rest.examples.len() < EXAMPLES_MAX {
            self.rest.examples.push(example());
        }
    }

    /// Starts counting anew, but keeps failures and retries: they count whenever they happened.
    pub(crate) fn keep_failures(&mut self) {
        let mut all = Tally::default();
        self.drain_into(&mut all);
        self.rest.failures = all.failures;
        self.rest.examples = all.examples;
        self.rest.connect_retries = all.connect_retries;
    }

    /// Adds what is counted here to `tally`, and begins anew, keeping its memory.
    pub(crate) fn drain_into(&mut self, tally: &mut Tally) {
        for (figures, kind) in self.commands.iter_mut().zip(ALL_KINDS) {
            let Some(figures) = figures else { continue };
            if figures.requests > 0 || figures.value_bytes > 0 {
                tally.commands.entry(kind).or_default().add(figures);
            }
            figures.requests = 0;
            figures.keys = 0;
            figures.hits = 0;
            figures.misses = 0;
            figures.value_bytes = 0;
            figures.latency_nanos.reset();
            figures.service_nanos.reset();
        }
        tally.add(&std::mem::take(&mut self.rest));
    }
}

/// In the order of their numbers.
const ALL_KINDS: [Kind; KINDS] = [
    Kind::Get,
    Kind::Gets,
    Kind::Gat,
    Kind::Set,
    Kind::Add,
    Kind::Replace,
    Kind::Append,
    Kind::Prepend,
    Kind::Cas,
    Kind::Delete,
    Kind::Incr,
    Kind::Decr,
    Kind::Touch,
    Kind::Version,
    Kind::Noop,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_order() {
        for (at, kind) in ALL_KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
        }
    }

    #[test]
    fn what_is_drained_is_gone_here_and_there() {
        let mut thread = ThreadTally::default();
        thread.command(Kind::Set).requests = 3;
        thread.command(Kind::Set).latency_nanos.record_n(1000, 3).unwrap();
        thread.fail(Failure::Timeout, 2, || "nothing came".into());
        let mut tally = Tally::default();
        thread.drain_into(&mut tally);
        thread.drain_into(&mut tally);
        assert_eq!(tally.commands.len(), 1);
        assert_eq!(tally.commands[&Kind::Set].requests, 3);
        assert_eq!(tally.commands[&Kind::Set].latency_nanos.len(), 3);
        assert_eq!(tally.failures[&Failure::Timeout], 2);
        assert_eq!(tally.examples, ["nothing came"]);
    }
}
