//! Telling a site what the ring has.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use larder_replication::link::{Now, Publisher};
use larder_replication::told::Told;
use larder_replication::wire::{Gap, RingCursor, Side};

use super::ring::{Change, Mark, Read, Ring};
use crate::namespaces::Handles;
use crate::observe::journal::{self, Rarely};
use crate::shared::Shared;

/// Tells one site, over one connection.
pub(super) struct Teller<'s> {
    shared: &'s Shared,
    ring: Arc<Ring>,
    site: u8,
    /// What was told.
    cursor: RingCursor,
    /// What was sent and is not applied yet: shard, sequence, bytes.
    sent: VecDeque<(u8, u64, usize)>,
    sent_bytes: usize,
    /// For values. `None`: none are told.
    handles: Option<Handles>,
    /// The longest body that the site takes.
    body_bytes_max: usize,
    /// Values that it does not take, for the log.
    too_large: Rarely,
}

impl<'s> Teller<'s> {
    /// Begins where the site is, which takes no longer bodies than these. Errors: no engine handle is left.
    pub(super) fn begin(
        shared: &'s Shared,
        ring: &Arc<Ring>,
        site: u8,
        cursor: RingCursor,
        body_bytes_max: usize,
        publisher: &mut Publisher,
        now: Now,
    ) -> io::Result<Self> {
        let handles = match ring.tells_values() {
            true => {
                let handles = shared.namespaces.handles();
                Some(handles.ok_or_else(|| io::Error::other("no engine handle left"))?)
            }
            false => None,
        };
        ring.with_follower(site, |figures| figures.connections += 1);
        let (cursor, gap) = match ring.is_own(&cursor) {
            true => (cursor, Gap::Of(Vec::new())),
            false => (ring.end(), Gap::All),
        };
        if gap == Gap::All {
            ring.with_follower(site, |figures| figures.gaps += 1);
        }
        publisher.say(Side::Following(cursor.clone(), gap), &[], now);
        let ring = Arc::clone(ring);
        Ok(Self {
            shared,
            ring,
            site,
            cursor,
            sent: VecDeque::new(),
            sent_bytes: 0,
            handles,
            body_bytes_max,
            too_large: Rarely::default(),
        })
    }

    /// The site has applied what was sent up to here.
    pub(super) fn taken(&mut self, shard: u8, to: u64) {
        while let Some(&(first, sequence, bytes)) = self.sent.front() {
            self.sent.pop_front();
            self.sent_bytes -= bytes;
            if (first, sequence) == (shard, to) {
                return;
            }
        }
    }

    /// Tells what there is, as far as the site takes it. True: there was something.
    pub(super) fn tell(&mut self, publisher: &mut Publisher, now: Now) -> bool {
        let mut is_busy = false;
        for shard in 0..self.cursor.sequences.len() {
            if self.sent_bytes >= WINDOW_BYTES {
                return is_busy;
            }
            let after = self.cursor.sequences[shard];
            match self.ring.read(shard, after, BATCH_BYTES) {
                Read::Marks(marks, to) => {
                    if to == after {
                        continue;
                    }
                    self.cursor.sequences[shard] = self.tell_marks(shard as u8, &marks, to, publisher, now);
                }
                Read::Gap => self.tell_gap(publisher, now),
            }
            is_busy = true;
        }
        if let Some(handles) = self.handles.as_mut().filter(|_| is_busy) {
            handles.release();
        }
        is_busy
    }

    /// Tells of marks up to this sequence, or until the window is full. Returns the last sequence that was told.
    fn tell_marks(&mut self, shard: u8, marks: &[Mark], to: u64, publisher: &mut Publisher, now: Now) -> u64 {
        let (mut body, mut told, mut last) = (Vec::new(), 0, to);
        for (at, mark) in marks.iter().enumerate() {
            let before = body.len();
            self.encode(mark, &mut body);
            told += u64::from(body.len() > before);
            // Values are of any size: what was encoded goes, so that no body is much longer than a batch.
            if body.len() >= BATCH_BYTES && at + 1 < marks.len() {
                last = to - (marks.len() - 1 - at) as u64;
                self.send(shard, last, &std::mem::take(&mut body), publisher, now);
                if self.sent_bytes >= WINDOW_BYTES {
                    break;
                }
                last = to;
            }
        }
        if told > 0 {
            if last == to {
                self.send(shard, to, &body, publisher, now);
            }
            self.ring.with_follower(self.site, |figures| figures.told += told);
        }
        last
    }

    fn send(&mut self, shard: u8, to: u64, body: &[u8], publisher: &mut Publisher, now: Now) {
        publisher.say(Side::Told { shard, to }, body, now);
        self.sent.push_back((shard, to, body.len()));
        self.sent_bytes += body.len();
    }

    fn tell_gap(&mut self, publisher: &mut Publisher, now: Now) {
        let numbers = self.ring.close_gap(&mut self.cursor);
        if !numbers.is_empty() {
            tracing::warn!(site = self.site, "a site is told too slowly what caches have changed");
            self.ring.with_follower(self.site, |figures| figures.gaps += 1);
        }
        let table = self.shared.namespaces.table();
        let prefix =
            |number: &u8| table.as_ref().map_or_else(Vec::new, |table| table.prefix(*number).to_vec());
        let gap = Gap::Of(numbers.iter().map(prefix).collect());
        publisher.say(Side::Following(self.cursor.clone(), gap), &[], now);
    }

    fn encode(&mut self, mark: &Mark, body: &mut Vec<u8>) {
        let version = mark.version;
        match &mark.change {
            Change::Applied => {}
            Change::Flushed(when) => {
                if let Some(table) = self.shared.namespaces.table() {
                    Told::Flushed { prefix: table.prefix(mark.number), when: *when }.encode(body);
                }
            }
            Change::Marked { key, is_stale, blank, exptime_secs } => {
                let (is_stale, blank, exptime_secs) = (*is_stale, *blank, *exptime_secs);
                Told::Marked { key, version, is_stale, blank, exptime_secs }.encode(body);
            }
            Change::Gone(key) => {
                if !self.encode_value(mark.number, version, key, body) {
                    Told::Gone { key, version }.encode(body);
                }
            }
            // Evicted or expired since: that is no news. If it was deleted, that has a mark of its own.
            Change::Changed(key) => _ = self.encode_value(mark.number, version, key, body),
        }
    }

    /// Appends the value that the key has now; that it is gone, if the site does not take one so large. False: it has
    /// none, or none is told.
    fn encode_value(&mut self, number: u8, version: u64, key: &[u8], body: &mut Vec<u8>) -> bool {
        let (clock, now) = (&self.shared.clock, self.shared.clock.now());
        let Some(handle) = self.handles.as_mut().filter(|_| version != 0) else { return false };
        let Some(handle) = handle.handle_mut(number) else { return false };
        let guard = handle.pin(now);
        let hash = guard.prepare(key);
        let Ok(found) = guard.peek(key, hash) else { return false };
        let item = found.item;
        let value = item.value();
        // Whatever else the body has.
        if value.len().saturating_add(2 * BATCH_BYTES) > self.body_bytes_max {
            Told::Gone { key, version }.encode(body);
            let (value_bytes, site) = (value.len(), self.site);
            self.ring.with_follower(site, |figures| figures.too_large += 1);
            if let Some(times) = self.too_large.happened(now.secs) {
                let key_sha256 = journal::key_digest(key);
                tracing::warn!(
                    site,
                    key_sha256,
                    value_bytes,
                    times,
                    "the site takes no value so large, and is told that it is gone: give all sites the same -I"
                );
            }
            return true;
        }
        let exptime_secs = clock.exptime_secs(item.expiry());
        let (client_flags, is_binary_key) = (item.client_flags(), item.is_binary_key());
        Told::Value { key, version, client_flags, is_binary_key, exptime_secs, value }.encode(body);
        true
    }
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        self.ring.with_follower(self.site, |figures| {
            figures.connections = figures.connections.saturating_sub(1);
        });
    }
}

/// Under way at most, beside one value.
const WINDOW_BYTES: usize = 1 << 20;
/// Of one message, about.
const BATCH_BYTES: usize = 64 << 10;
