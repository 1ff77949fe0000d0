//! What peers are sent: the own log, and copies.

use std::io;

use larder_replication::entry::{Entry, Put};
use larder_replication::link::{CopyRead, LogRead};
use larder_replication::state::State;
use larder_replication::version::{site_of, unix_secs_of};
use larder_store::{Cursor as ScanCursor, FlushBy, KeyState, LogEntry, VecSink};

use super::Served;
use super::state::{is_told, state_of, state_of_entry};
use crate::observe::journal;
use crate::replication::compare::is_damage;
use crate::replication::note;

impl Served<'_> {
    /// The registers, flushes and beats that this site wrote itself.
    pub(super) fn read_log(&mut self, after: u64, bytes_max: usize) -> io::Result<LogRead> {
        let (site, number) = (self.site, self.site.number());
        let table = self.shared.namespaces.table();
        let mut body = Vec::with_capacity(self.body_bytes + self.body_bytes / 8);
        let (mut failure, mut trusts_undurable) = (None, false);
        // Of those that are read now the last, unless a later one is durable.
        let (mut beat, newest_clock) = (None, site.members().clock());
        let read = site.store.read_log(after, bytes_max, &mut |entry| match entry.entry {
            // Nothing behind it is sent, beats neither: they say that all before them has been.
            _ if failure.is_some() => {}
            larder_store::Entry::Flush { prefix, except, version, by: FlushBy::Version }
                if site_of(version) == number =>
            {
                let exceptions = except.iter().map(Vec::as_slice).collect();
                Entry::Flush { prefix, exceptions, version }.encode(&mut body);
            }
            larder_store::Entry::Note { name: note::BEAT, value } => {
                beat = note::decode_beat(value).filter(|beat| beat.clock >= newest_clock);
            }
            _ => {
                if let Some((key, state)) = state_of_entry(&entry.entry)
                    && is_told(table.as_deref(), key)
                    // What others wrote is passed over without a look at what has replaced it.
                    && Entry::own_of_state(key, &state, number).next().is_some()
                {
                    let body_bytes = body.len();
                    if let Err(error) =
                        self.push_record(key, &entry, &state, &mut trusts_undurable, &mut body)
                    {
                        body.truncate(body_bytes);
                        failure = Some((entry.sequence, error));
                    }
                }
            }
        });
        let whole_to = match failure {
            // What is before it is sent; the next read fails.
            Some((sequence, _)) if sequence > after + 1 => sequence - 1,
            Some((_, error)) => return Err(error),
            None => u64::MAX,
        };
        if let Some(beat) = beat {
            Entry::Beat(beat).encode(&mut body);
        }
        if trusts_undurable && !site.sync() {
            return Err(io::Error::other("the store failed"));
        }
        match read {
            Ok(read) => {
                self.body_bytes = body.len().min(2 * bytes_max);
                Ok(LogRead::Entries { to: read.through_sequence.min(whole_to), body })
            }
            Err(larder_store::Error::TooFarBehind { .. }) => Ok(LogRead::Gone),
            Err(error) => {
                if is_damage(&error) {
                    // Nobody knows of which key it was: who needs it takes a copy, which reads what is newest.
                    site.note_unreadable(after + 1);
                }
                Err(io::Error::other(error))
            }
        }
    }

    /// Appends what a record has of this site's, but for what has been replaced. Errors: it cannot be read; they name
    /// the key.
    fn push_record(
        &self,
        key: &[u8],
        entry: &LogEntry<'_>,
        state: &State<&[u8]>,
        trusts_undurable: &mut bool,
        body: &mut Vec<u8>,
    ) -> io::Result<()> {
        let of_key = |why| {
            let digest = journal::key_digest(key);
            io::Error::other(format!("the item of the key with SHA-256 {digest} cannot be read: {why}"))
        };
        let newest =
            self.newest(key, entry, state, trusts_undurable).map_err(|error| of_key(error.to_string()))?;
        for own in Entry::own_of_record(key, state, &newest, self.site.number()) {
            match own {
                Entry::Put(put) if entry.is_damaged => {
                    self.push_from_elsewhere(entry.sequence, &put, body).map_err(of_key)?;
                }
                own => own.encode(body),
            }
        }
        Ok(())
    }

    /// Appends a put whose value is damaged in its record, from the key's newest one. Errors: that is damaged, or has
    /// just been replaced.
    fn push_from_elsewhere(&self, sequence: u64, put: &Put<'_>, body: &mut Vec<u8>) -> Result<(), String> {
        let mut value = VecSink::default();
        match self.site.store.get(put.key, 0, &mut value).map_err(|error| error.to_string())? {
            Some(meta) if meta.version == put.version => {
                Entry::Put(Put { value: &value.into_value(), ..*put }).encode(body);
                Ok(())
            }
            _ => Err(format!("the value of entry {sequence} of the log is damaged")),
        }
    }

    /// The state of a record's key by all records and flushes that are durable; if that is not known, or cannot be
    /// read, the record's. `trusts_undurable`: it goes by a flush which may not be durable. Then nothing of it is sent
    /// before that is.
    fn newest(
        &self,
        key: &[u8],
        entry: &LogEntry<'_>,
        record: &State<&[u8]>,
        trusts_undurable: &mut bool,
    ) -> larder_store::Result<State<()>> {
        let store = &self.site.store;
        let flushed_below = store.newest_flush_version(key);
        let newest = if entry.is_newest && !entry.is_damaged {
            None
        } else {
            match store.state(key) {
                Ok(state) => Some(state),
                // What has replaced it is damaged, and fails at its own place.
                Err(error) if is_damage(&error) => None,
                Err(error) => return Err(error),
            }
        };
        let is_undurable = |state: &KeyState| state.sequence > store.durable_sequence();
        if entry.is_damaged && newest.flatten().as_ref().is_some_and(is_undurable) {
            // So that it counts what has replaced it. Damaged ones behind it find that durable, too.
            self.site.sync();
        }
        let durable = store.durable_sequence();
        let record = record.map(|_| ());
        let newest = match newest {
            None => record,
            Some(Some(state)) if state.sequence > durable => record,
            Some(Some(state)) => state_of(&state, &[]).map(|_| ()),
            // Flushed, or forgotten because everybody knows better.
            Some(None) => State::default(),
        };
        let newest = newest.flushed(flushed_below);
        let goes_by_flush = newest.is_unknown() || record.version() < flushed_below;
        *trusts_undurable |= goes_by_flush && store.last_sequence() > durable;
        Ok(newest)
    }

    /// States of all sites, and at first the flushes; not what may be forgotten at the horizon, if it is not 0.
    pub(super) fn read_copy(&self, position: &[u8], bytes_max: usize, horizon: u64) -> io::Result<CopyRead> {
        let store = &self.site.store;
        let table = self.shared.namespaces.table();
        let mut body = Vec::new();
        // One that is none says nothing of what its site has: the copy begins anew.
        let cursor = ScanCursor::decode(position).filter(|_| !position.is_empty());
        let mut cursor = cursor.unwrap_or_else(|| {
            for flush in store.version_flushes() {
                let exceptions = flush.except.iter().map(Vec::as_slice).collect();
                Entry::Flush { prefix: &flush.prefix, exceptions, version: flush.version }.encode(&mut body);
            }
            ScanCursor::new()
        });
        let has_more = store
            .for_each_state(&mut cursor, bytes_max, None, &mut |key, state, value| {
                if is_told(table.as_deref(), key) {
                    let state = state_of(state, value.unwrap_or_default());
                    if horizon != 0 && state.is_obsolete(horizon, unix_secs_of(horizon)) {
                        return;
                    }
                    Entry::of_state(key, &state).for_each(|entry| entry.encode(&mut body));
                }
            })
            .map_err(io::Error::other)?;
        Ok(CopyRead { body, position: has_more.then(|| cursor.encode()), appended: store.last_sequence() })
    }
}
