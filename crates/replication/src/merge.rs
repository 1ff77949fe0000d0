//! Merging entries of other sites into a site's data.

use std::collections::BTreeMap;

use crate::entry::{Beat, Entries, Entry};
use crate::flushes::{FlushMark, Flushes};
use crate::link::Batch;
use crate::members::Cursor;
use crate::state::{Conflict, State};
use crate::version::next_version;

/// What merging asks of a site's data.
///
/// Between a look-up and the append of what [`merge`] makes of it, the key does not change, neither by a client.
pub trait Replica {
    /// Why it cannot answer.
    type Error;

    /// All that is known of a key, without the value: deletions, items that have expired, and touches whose value is
    /// still to come included; what was flushed left out.
    fn state(&self, key: &[u8]) -> Result<State<()>, Self::Error>;

    /// See [`Flushes::newest`].
    fn newest_flush(&self, key: &[u8]) -> u64;
}

/// Where the value of a merged state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// Where it was: the key's value stays.
    Kept,
    /// In the batch.
    Given(&'a [u8]),
}

/// What merging found. All of it is appended as one batch, with the position of the site that it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged<'a> {
    /// The new states of keys, by key.
    pub states: BTreeMap<&'a [u8], State<Source<'a>>>,
    /// Flushes.
    pub flushes: Vec<FlushMark>,
    /// The last beat.
    pub beat: Option<Beat>,
    /// Concurrent changes, of which one is lost each.
    pub conflicts: Vec<Conflict>,
    /// Entries that were looked at.
    pub entries: u64,
}

/// Merges the entries of a batch or piece, whose bytes the [`Subscriber`](crate::link::Subscriber) has checked.
pub fn merge<'a, R: Replica>(replica: &R, body: &'a [u8]) -> Result<Merged<'a>, R::Error> {
    let entries = || Entries::new(body).map_while(Result::ok);
    let mut flushes = Flushes::default();
    entries().filter_map(|entry| entry.flush()).for_each(|mark| {
        flushes.add(mark);
    });
    let mut merged = Merged::default();
    for entry in entries() {
        merged.entries += 1;
        if let Entry::Beat(beat) = entry {
            merged.beat = Some(beat);
        }
        let Some((key, theirs)) = entry.state() else { continue };
        let newest_flush = flushes.newest(key).max(replica.newest_flush(key));
        let ours = match merged.states.get(key) {
            Some(state) => *state,
            None => replica.state(key)?.map(|()| Source::Kept),
        };
        let ours = ours.flushed(newest_flush);
        let theirs = theirs.map(Source::Given).flushed(newest_flush);
        let (joined, outcome) = ours.join(theirs);
        merged.conflicts.extend(outcome.conflict);
        if outcome.is_changed {
            merged.states.insert(key, joined);
        }
    }
    merged.flushes = flushes.marks().to_vec();
    Ok(merged)
}

/// What a site that was out does with a key which is not in its copy, as the copy begins with this horizon: the version
/// and base version of a deletion, which it makes and publishes; `None`: nothing.
///
/// Everybody else had the value before the horizon, or has lost it with this site. The deletion is just above the
/// value, so that every later change of anybody stays. A touch since then does not matter: nobody has what it touches.
pub fn sweep<V>(state: &State<V>, horizon: u64, site: u8) -> Option<(u64, u64)> {
    let register = state.value.as_ref().filter(|register| register.item.is_some())?;
    (register.version <= horizon).then(|| (next_version(register.version, site), register.version))
}

/// How a batch fits the cursor that its site's position has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is the next one.
    Next,
    /// All of it is applied already.
    Known,
    /// Entries before it are missing, or its incarnation or run is another: the connection is useless.
    Gap,
}

impl Batch {
    /// Compares this batch, of a log with this incarnation and run, with a site's cursor.
    pub fn fit(&self, incarnation: u64, run: u64, cursor: Cursor) -> Fit {
        let is_of_log = (cursor.incarnation, cursor.run) == (incarnation, run);
        if !is_of_log || self.from > cursor.sequence {
            Fit::Gap
        } else if self.to <= cursor.sequence {
            Fit::Known
        } else {
            // What it repeats changes nothing.
            Fit::Next
        }
    }
}
