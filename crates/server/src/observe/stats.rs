//! `stats` and its sub-commands. Names, order and meaning: memcached, doc/protocol.txt, "Statistics". For what larder
//! does not have, the value is true of larder, mostly 0 (docs/statistics.md).

mod connections;
mod general;
mod larder;
mod latency;
mod namespaces;
mod queues;
mod replication;
mod settings;
mod store;

use std::fmt::Display;

use larder_protocol::{Error, Form, number};

pub(crate) use self::replication::is_compare;
pub(crate) use self::store::{backup_token, is_backup};
use crate::exec::dump::Dump;
use crate::namespaces::Rights;
use crate::shared::Shared;

/// The reply to `stats`.
#[derive(Debug)]
pub enum Answer {
    /// `STAT name value` lines, in order, then `END`.
    Lines(Vec<(String, String)>),
    /// `RESET`.
    Reset,
    /// `OK`.
    Ok,
    /// `PREFIX` lines, then `END`.
    Detail(Vec<u8>),
    /// The result of a scan of all items.
    Dump(Box<Dump>),
    /// Refused.
    Error(Error),
}

/// Answers `stats <words>` for a client with these rights. Words beyond the sub-command are ignored.
pub(crate) fn answer(shared: &Shared, rights: Rights, words: &[&[u8]], form: &Form<'_>) -> Answer {
    let is_binary = matches!(form, Form::Binary(_));
    let sub_command = words.first().copied();
    if !store::is_backup(words)
        && !replication::is_compare(words)
        && let Some(lines) = lines(shared, rights, sub_command)
    {
        return Answer::Lines(lines);
    }
    let mut lines = Lines::default();
    match sub_command {
        Some(b"sizes") if shared.settings.track_sizes => {
            return Answer::Dump(Box::new(Dump::sizes(form)));
        }
        Some(b"sizes") => lines.add("sizes_status", "disabled"),
        Some(b"store") if store::is_backup(words) => {
            return store::back_up(shared, &words[2..]).map_or_else(Answer::Error, |()| Answer::Ok);
        }
        Some(b"replication") if replication::is_compare(words) => {
            let asked = replication::compare(shared).ok_or(Error::UnknownStatistics);
            return asked.map_or_else(Answer::Error, |()| Answer::Ok);
        }
        Some(b"conns") if !is_binary => connections::report(shared, &mut lines),
        Some(b"detail") => {
            return detail(shared, rights, words.get(1).copied().unwrap_or_default()).unwrap_or_else(
                |error| Answer::Error(if is_binary { Error::UnknownStatistics } else { error }),
            );
        }
        Some(b"cachedump") if !is_binary => {
            return cachedump(shared, &words[1..])
                .map_or_else(Answer::Error, |dump| Answer::Dump(Box::new(dump)));
        }
        Some(b"reset") => {
            shared.reset_counters();
            return Answer::Reset;
        }
        _ => return Answer::Error(Error::UnknownStatistics),
    }
    Answer::Lines(lines.0)
}

/// The lines of sub-commands that show counters and settings, without namespaces that these rights do not allow to be
/// read; `None`: another sub-command.
pub(crate) fn lines(
    shared: &Shared,
    rights: Rights,
    sub_command: Option<&[u8]>,
) -> Option<Vec<(String, String)>> {
    let mut lines = Lines::default();
    match sub_command {
        None => general::report(shared, &mut lines),
        Some(b"larder") => larder::report(shared, &mut lines),
        Some(b"settings") => settings::report(shared, &mut lines),
        Some(b"latency") => latency::report(shared, &mut lines),
        Some(b"namespaces") => namespaces::report(shared, rights, &mut lines),
        Some(b"items") => queues::report_items(&shared.namespaces.stats(), &mut lines),
        Some(b"slabs") => queues::report_slabs(&shared.namespaces.stats(), &shared.totals(), &mut lines),
        // Without a store, an unknown one.
        Some(b"store") => store::report(shared, &mut lines)?,
        Some(b"replication") => replication::report(shared, rights, &mut lines)?,
        Some(_) => return None,
    }
    Some(lines.0)
}

/// `stats detail <on|off|dump>`
fn detail(shared: &Shared, rights: Rights, word: &[u8]) -> Result<Answer, Error> {
    if !shared.settings.dump {
        return Err(Error::DetailNotAllowed);
    }
    match word {
        b"on" => shared.observers.set_counts_prefixes(true),
        b"off" => shared.observers.set_counts_prefixes(false),
        b"dump" => return Ok(Answer::Detail(shared.prefixes.dump(rights))),
        _ => return Err(Error::DetailUsage),
    }
    Ok(Answer::Ok)
}

/// `stats cachedump <class> <limit>`
fn cachedump(shared: &Shared, words: &[&[u8]]) -> Result<Dump, Error> {
    if !shared.settings.dump {
        return Err(Error::CachedumpNotAllowed);
    }
    let [class, limit, ..] = words else { return Err(Error::CachedumpUsage) };
    let number = |word| number::parse_u32(word).ok_or(Error::BadFormat);
    let (class, limit) = (number(class)?, number(limit)?);
    if class > CLASS_MAX {
        return Err(Error::IllegalClass);
    }
    Ok(Dump::cached(class as usize, limit))
}

/// `STAT` lines that are being collected.
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

/// memcached's highest class number.
const CLASS_MAX: u32 = 63;
