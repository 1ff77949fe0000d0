//! `stats` and its sub-commands. Names, order and meaning: memcached, doc/protocol.txt, "Statistics"; what has no
//! counterpart here prints something true, mostly 0 (docs/statistics.md).

mod general;
mod queues;
mod settings;

use std::fmt::Display;

use crate::shared::Shared;

/// What `stats` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `STAT name value` lines, in order, then `END`.
    Lines(Vec<(String, String)>),
    /// `RESET`.
    Reset,
    /// No such sub-command: `ERROR`.
    Unknown,
}

/// Answers `stats <words>`. Words beyond the sub-command are ignored.
pub fn answer(shared: &Shared, words: &[&[u8]]) -> Answer {
    let mut lines = Lines::default();
    match words.first().copied() {
        None => general::report(shared, &mut lines),
        Some(b"settings") => settings::report(shared, &mut lines),
        Some(b"items") => queues::report_items(&shared.engine.stats(), &mut lines),
        Some(b"slabs") => queues::report_slabs(&shared.engine.stats(), &shared.totals(), &mut lines),
        Some(b"sizes") => lines.add("sizes_status", "disabled"),
        Some(b"reset") => {
            shared.reset_counters();
            return Answer::Reset;
        }
        Some(_) => return Answer::Unknown,
    }
    Answer::Lines(lines.0)
}

/// `STAT` lines in the making.
#[derive(Default)]
struct Lines(Vec<(String, String)>);

impl Lines {
    fn add(&mut self, name: impl Display, value: impl Display) {
        self.0.push((name.to_string(), value.to_string()));
    }

    fn add_all<V: Display>(&mut self, lines: impl IntoIterator<Item = (&'static str, V)>) {
        for (name, value) in lines {
            self.add(name, value);
        }
    }
}

fn yes_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}
