//! What a site's log says: a store as replication sees it.

use std::collections::{BTreeMap, BTreeSet};

use larder_replication::entry::{Beat, Entry};
use larder_replication::flushes::{FlushMark, Flushes};
use larder_replication::link::LogRead;
use larder_replication::members::Position;
use larder_replication::merge::{Merged, Replica, Source};
use larder_replication::state::State;
use larder_replication::version::unix_secs_of;

pub(crate) type Key = Vec<u8>;

/// The newest record of each key, each flush, each position, and the last beat; with their sequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) states: BTreeMap<Key, (State<Vec<u8>>, u64)>,
    pub(crate) flushes: Flushes,
    flush_sequences: BTreeMap<FlushMark, u64>,
    pub(crate) positions: BTreeMap<u8, Position>,
    pub(crate) beat: Beat,
    beat_sequence: u64,
    pub(crate) last: u64,
}

impl Data {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn put(&mut self, key: Key, state: State<Vec<u8>>) {
        let sequence = self.next();
        self.states.insert(key, (state, sequence));
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

    /// What the site itself has made (`site`), or all (`None`), after a sequence.
    pub(crate) fn read(
        &self,
        after: u64,
        bytes_max: usize,
        site: Option<u8>,
        sends_flushed: bool,
    ) -> LogRead {
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut record = |sequence: u64, entries: &mut dyn Iterator<Item = Entry<'_>>| {
            let mut body = Vec::new();
            entries.for_each(|entry| entry.encode(&mut body));
            if sequence > after && !body.is_empty() {
                records.push((sequence, body));
            }
        };
        for (key, (state, sequence)) in &self.states {
            // What was flushed here may be new elsewhere, where the flush is forgotten.
            let state = if sends_flushed { state.clone() } else { self.known(key) };
            let state = state.as_ref().map(Vec::as_slice);
            match site {
                Some(site) => record(*sequence, &mut Entry::own_of_state(key, &state, site)),
                None => record(*sequence, &mut Entry::of_state(key, &state)),
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
