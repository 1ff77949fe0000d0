//! What a site's log says: a store as replication sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use larder_replication::entry::{Beat, Entry};
use larder_replication::flushes::{FlushMark, Flushes};
use larder_replication::lineage::Lineage;
use larder_replication::link::LogRead;
use larder_replication::members::Position;
use larder_replication::merge::{Merged, Replica, Source};
use larder_replication::state::State;
use larder_replication::version::unix_secs_of;

pub(crate) type Key = Vec<u8>;

/// What a site makes of its log when it is asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publishing<'a> {
    /// Only what this site has made; `None`: all.
    pub(crate) site: Option<u8>,
    /// By what a record may be replaced: the durable data, if nothing is wrong.
    pub(crate) newest: &'a Data,
    /// A planted bug: what was flushed is sent.
    pub(crate) sends_flushed: bool,
    /// A planted bug: what a record of a key has is sent at the place of the newest record alone.
    pub(crate) is_newest_only: bool,
}

/// A record of the log that is about a key: the whole state, also if only one of its registers is new.
#[derive(Debug)]
struct Record {
    sequence: u64,
    key: Key,
    state: State<Vec<u8>>,
}

/// All records of keys; the newest of each key, each flush, each position, and the last beat, with their sequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    /// By sequence.
    records: Vec<Rc<Record>>,
    pub(crate) states: BTreeMap<Key, (State<Vec<u8>>, u64)>,
    pub(crate) flushes: Flushes,
    flush_sequences: BTreeMap<FlushMark, u64>,
    pub(crate) positions: BTreeMap<u8, Position>,
    pub(crate) beat: Beat,
    beat_sequence: u64,
    pub(crate) lineage: Lineage,
    pub(crate) last: u64,
}

impl Data {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn put(&mut self, key: Key, state: State<Vec<u8>>) {
        let sequence = self.next();
        self.records.push(Rc::new(Record { sequence, key: key.clone(), state: state.clone() }));
        self.states.insert(key, (state, sequence));
    }

    /// What no log tells of: a state becomes another one, or is gone.
    pub(crate) fn replace_silently(&mut self, key: &[u8], state: Option<State<Vec<u8>>>) {
        let Some((known, _)) = self.states.get_mut(key) else { return };
        match state {
            Some(state) => *known = state,
            None => drop(self.states.remove(key)),
        }
    }

    pub(crate) fn flush(&mut self, mark: FlushMark) {
        let sequence = self.next();
        if self.flushes.add(mark.clone()) {
            self.flush_sequences.insert(mark, sequence);
            let marks: BTreeSet<&FlushMark> = self.flushes.marks().iter().collect();
            self.flush_sequences.retain(|mark, _| marks.contains(mark));
        }
    }

    pub(crate) fn place(&mut self, position: Position) {
        self.next();
        self.positions.insert(position.site, position);
    }

    pub(crate) fn append_beat(&mut self, beat: Beat) {
        self.beat = beat;
        self.beat_sequence = self.next();
    }

    pub(crate) fn append(&mut self, merged: &Merged<'_>) {
        for (&key, state) in &merged.states {
            let kept = self.states.get(key).and_then(|(state, _)| state.value.as_ref()?.item.clone());
            let state = state.map(|source| match source {
                Source::Given(value) => value.to_vec(),
                Source::Kept => kept.expect("a value that is kept is there").value,
            });
            self.put(key.to_vec(), state);
        }
        merged.flushes.iter().for_each(|mark| self.flush(mark.clone()));
    }

    /// The state without what was flushed.
    pub(crate) fn known(&self, key: &[u8]) -> State<Vec<u8>> {
        let state = self.states.get(key).map(|(state, _)| state.clone()).unwrap_or_default();
        state.flushed(self.flushes.newest(key))
    }

    /// The highest version that it has.
    pub(crate) fn highest(&self) -> u64 {
        let states = self.states.values().map(|(state, _)| state.highest_version());
        let flushes = self.flushes.marks().iter().map(|mark| mark.version);
        states.chain(flushes).max().unwrap_or(0)
    }

    /// What is published after a sequence.
    pub(crate) fn read(&self, after: u64, bytes_max: usize, publishing: Publishing<'_>) -> LogRead {
        let Publishing { site, newest, sends_flushed, is_newest_only } = publishing;
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut record = |sequence: u64, entries: &mut dyn Iterator<Item = Entry<'_>>| {
            let mut body = Vec::new();
            entries.for_each(|entry| entry.encode(&mut body));
            if sequence > after && !body.is_empty() {
                records.push((sequence, body));
            }
        };
        let first = self.records.partition_point(|record| record.sequence <= after);
        for Record { sequence, key, state } in self.records[first..].iter().map(Rc::as_ref) {
            let is_newest = newest.states.get(key).is_some_and(|(_, newest)| newest == sequence);
            if is_newest_only && !is_newest {
                continue;
            }
            // What was flushed here may be new elsewhere, where the flush is forgotten.
            let left = match newest.states.get(key) {
                Some((state, _)) if sends_flushed => state.clone(),
                _ => newest.known(key),
            };
            let state = state.as_ref().map(Vec::as_slice);
            match site {
                Some(site) => record(*sequence, &mut Entry::own_of_record(key, &state, &left, site)),
                None if is_newest => {
                    let left = left.as_ref().map(Vec::as_slice);
                    record(*sequence, &mut Entry::of_state(key, &left));
                }
                None => {}
            }
        }
        for (mark, &sequence) in &self.flush_sequences {
            let entry = entry_of(mark);
            record(
                sequence,
                &mut Some(entry).into_iter().filter(|entry| site.is_none_or(|site| entry.is_of(site))),
            );
        }
        record(self.beat_sequence, &mut Some(Entry::Beat(self.beat)).into_iter());
        records.sort_unstable();
        let (mut to, mut body) = (self.last, Vec::new());
        for (index, (sequence, bytes)) in records.iter().enumerate() {
            body.extend_from_slice(bytes);
            if body.len() >= bytes_max && index + 1 < records.len() {
                to = *sequence;
                break;
            }
        }
        LogRead::Entries { to, body }
    }

    /// Drops what nobody will ask for again.
    pub(crate) fn clean(&mut self, horizon: u64, confirmed: u64, drops_deletions_early: bool) -> u64 {
        let (flushes, secs) = (&self.flushes, unix_secs_of(horizon));
        let before = self.states.len();
        self.states.retain(|key, (state, sequence)| {
            let known = state.clone().flushed(flushes.newest(key));
            let is_deleted = known.value.as_ref().is_some_and(|register| register.item.is_none());
            !(known.is_unknown()
                || (known.is_obsolete(horizon, secs) && *sequence <= confirmed)
                || drops_deletions_early && is_deleted)
        });
        self.flushes.forget(horizon);
        self.flush_sequences.retain(|mark, _| mark.version > horizon);
        (before - self.states.len()) as u64
    }
}

/// A flush as it is sent.
pub(crate) fn entry_of(mark: &FlushMark) -> Entry<'_> {
    let exceptions = mark.exceptions.iter().map(Vec::as_slice).collect();
    Entry::Flush { prefix: &mark.prefix, exceptions, version: mark.version }
}

impl Replica for Data {
    type Error = std::convert::Infallible;

    fn state(&self, key: &[u8]) -> Result<State<()>, Self::Error> {
        Ok(self.known(key).map(|_| ()))
    }

    fn newest_flush(&self, key: &[u8]) -> u64 {
        self.flushes.newest(key)
    }
}
