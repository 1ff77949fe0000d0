//! Following what a peer's caches have changed.
//!
//! What is applied is not told again, so nothing goes around. After a gap, namespaces that may have missed something
//! are flushed: they serve nothing that the peer has changed.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use larder_engine::{Expiry, Invalidate, LookupHint, Mode, Store as Terms, Stored, WriteError};
use larder_policy::{Table, Told as Policy};
use larder_replication::link::{AHEAD_MICROS_MAX, SubscriberAction};
use larder_replication::told::{FlushTime, Told, decode_told};
use larder_replication::version::{is_version, unix_micros_of};
use larder_replication::wire::{Gap, RingCursor, Side};

use super::Site;
use super::outgoing::Outgoing;
use super::peers::PeerAddress;
use super::ring::Ring;
use super::stream::keep_connected;
use super::waiters::Until;
use crate::clock;
use crate::namespaces::Handles;
use crate::shared::Shared;

/// Follows a peer until the site stops, or the peer is none any more.
pub(super) fn run(peer: &PeerAddress<'_>, shared: &Shared, site: &Site, ring: &Ring, handles: &mut Handles) {
    let address = peer.address;
    let mut pull = CachePull { peer, address, shared, site, ring, handles, cursor: RingCursor::default() };
    keep_connected(peer, site, || {
        let mut has_connected = false;
        if let Err(error) = pull.follow(&mut has_connected)
            && !site.is_stopping()
        {
            tracing::info!(address, "the peer's caches are not followed: {error}");
        }
        ring.with_followed(address, |figures| figures.is_connected = false);
        has_connected
    });
}

/// What one peer's caches tell.
struct CachePull<'f> {
    peer: &'f PeerAddress<'f>,
    address: &'f str,
    shared: &'f Shared,
    site: &'f Site,
    ring: &'f Ring,
    handles: &'f mut Handles,
    /// Up to where the peer's changes are applied.
    cursor: RingCursor,
}

impl CachePull<'_> {
    fn follow(&mut self, has_connected: &mut bool) -> io::Result<()> {
        let (site, ring) = (self.site, self.ring);
        let mut connection = Outgoing::connect(self.peer, self.shared, site)?;
        let began_micros = connection.began_micros;
        while !connection.subscriber.is_closed() {
            connection.hear(&mut VecDeque::new(), Until { position: 0, timeout: Duration::MAX })?;
            let Outgoing { stream, subscriber, .. } = &mut connection;
            while let Some(action) = subscriber.next_action() {
                match action {
                    SubscriberAction::Send(bytes) => {
                        stream.write_all(&bytes, || self.peer.is_over(site))?;
                    }
                    SubscriberAction::Connected { site: number, run, .. } => {
                        if !self.peer.meet(site, subscriber, (number, run), began_micros)? {
                            continue;
                        }
                        let (cursor, body_bytes_max) =
                            (self.cursor.clone(), site.settings().body_bytes_max as u64);
                        subscriber.say(Side::Follow { cursor, body_bytes_max }, &[], site.now());
                    }
                    SubscriberAction::Side(Side::Following(cursor, gap), _) => {
                        self.close_gap(&gap);
                        self.cursor = cursor;
                        *has_connected = true;
                        ring.with_followed(self.address, |figures| figures.is_connected = true);
                    }
                    SubscriberAction::Side(Side::Told { shard, to }, body) => {
                        // One that sends what is of no use is not asked again at once.
                        self.apply(&body).inspect_err(|_| *has_connected = false)?;
                        if let Some(sequence) = self.cursor.sequences.get_mut(usize::from(shard)) {
                            *sequence = to;
                        }
                        subscriber.say(Side::Taken { shard, to }, &[], site.now());
                    }
                    SubscriberAction::Close(closed) => return Err(io::Error::other(closed.to_string())),
                    _ => return Err(io::Error::other("a message comes at the wrong time")),
                }
            }
        }
        Ok(())
    }

    /// Flushes what may have missed something.
    fn close_gap(&mut self, gap: &Gap) {
        let Some(table) = self.shared.namespaces.table() else { return };
        let is_missing = |number: &u8| match gap {
            Gap::All => true,
            Gap::Of(prefixes) => prefixes.iter().any(|prefix| prefix == table.prefix(*number)),
        };
        let numbers: Vec<_> = self.ring.numbers().filter(is_missing).collect();
        if numbers.is_empty() {
            return;
        }
        for number in &numbers {
            self.shared.flush_untold(*number, FlushTime::Now(0), self.shared.clock.now());
            let prefix = table.prefix(*number).escape_ascii().to_string();
            tracing::warn!(
                address = self.address,
                prefix,
                "flushed, since the peer's changes are not all known"
            );
        }
        self.ring.with_followed(self.address, |figures| {
            figures.gaps += 1;
            figures.flushes += numbers.len() as u64;
        });
    }

    fn apply(&mut self, body: &[u8]) -> io::Result<()> {
        let told = decode_told(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let Some(table) = self.shared.namespaces.table() else { return Ok(()) };
        let (mut applied, mut outdated) = (0, 0);
        for told in told {
            match self.apply_one(&table, &told)? {
                Some(true) => applied += 1,
                Some(false) => outdated += 1,
                None => {}
            }
        }
        self.handles.release();
        self.ring.with_followed(self.address, |figures| {
            figures.applied += applied;
            figures.outdated += outdated;
        });
        Ok(())
    }

    /// True if it was applied; false if something newer is known; `None`: it is of no namespace that takes part.
    fn apply_one(&mut self, table: &Table, told: &Told<'_>) -> io::Result<Option<bool>> {
        let (key, version) = match *told {
            Told::Gone { key, version }
            | Told::Marked { key, version, .. }
            | Told::Value { key, version, .. } => (key, version),
            Told::Flushed { prefix, when } => {
                if let FlushTime::Now(version) = when {
                    check_clock(version)?;
                }
                return Ok(self.flush(table, prefix, when));
            }
        };
        let number = table.find(key);
        let policy = self.ring.told(number);
        let is_value = matches!(told, Told::Value { .. });
        if policy == Policy::Nothing || key.is_empty() || key.len() > larder_engine::KEY_BYTES_MAX {
            return Ok(None);
        }
        // The files differ: nothing is known of the order of changes, so the key is dropped.
        let is_blind = (policy == Policy::Values) != (version != 0);
        check_clock(version)?;
        let clock = &self.shared.clock;
        for _ in 0..TRIES_MAX {
            let Some(handle) = self.handles.handle_mut(number) else { return Ok(None) };
            let guard = handle.pin(self.shared.clock.now());
            let hash = guard.prepare(key);
            let remove = || {
                let _ = guard.delete(key, hash, None);
                true
            };
            let version = if is_blind { 0 } else { version };
            let done = self.ring.apply(number, hash.bits(), version, || match *told {
                Told::Value { client_flags, is_binary_key, exptime_secs, value, .. } if !is_blind => {
                    let terms = Terms {
                        client_flags,
                        expiry: clock.unexpired(exptime_secs).unwrap_or(Expiry::PAST),
                        mode: Mode::Set,
                        binary_key: is_binary_key,
                        ..Terms::set(key, value)
                    };
                    match guard.store_hinted(hash, &terms, LookupHint::default()) {
                        Stored::Stored { .. } => true,
                        Stored::TryAgain => false,
                        // The old value is none.
                        _ => remove(),
                    }
                }
                Told::Marked { is_stale, blank, exptime_secs, .. } if !is_blind => {
                    let expiry = exptime_secs.map(|secs| clock.unexpired(secs).unwrap_or(Expiry::PAST));
                    let how = Invalidate { compare: None, stale: is_stale, blank, expiry, cas: None };
                    !matches!(guard.invalidate(key, hash, &how), Err(WriteError::TryAgain))
                }
                _ => remove(),
            });
            if let Some(is_applied) = done {
                return Ok(Some(is_applied));
            }
            drop(guard);
            std::thread::yield_now();
        }
        // Without memory for it: nobody may read the old value.
        if is_value && let Some(handle) = self.handles.handle_mut(number) {
            let guard = handle.pin(self.shared.clock.now());
            let _ = guard.delete(key, guard.prepare(key), None);
        }
        Ok(Some(true))
    }

    fn flush(&self, table: &Table, prefix: &[u8], when: FlushTime) -> Option<bool> {
        let number = if prefix.is_empty() { larder_policy::DEFAULT } else { table.named(prefix)? };
        if self.ring.told(number) == Policy::Nothing {
            return None;
        }
        // Each shard of the peer's ring has it.
        if matches!(when, FlushTime::Now(version) if self.ring.is_flushed(number, version)) {
            return Some(false);
        }
        self.shared.flush_untold(number, when, self.shared.clock.now());
        Some(true)
    }
}

/// Errors: it is no version, or one of the two clocks is wrong. Such a change would win for ever.
fn check_clock(version: u64) -> io::Result<()> {
    if version != 0 && !is_version(version) {
        return Err(io::Error::other("the peer tells what is no version"));
    }
    let ahead_micros = unix_micros_of(version).saturating_sub(clock::unix_micros());
    if ahead_micros > AHEAD_MICROS_MAX {
        let secs = ahead_micros / 1_000_000;
        return Err(io::Error::other(format!(
            "its changes are {secs} s ahead of this clock: one of the two is wrong"
        )));
    }
    Ok(())
}

/// Guards last microseconds, unless their threads lose their cores.
const TRIES_MAX: u32 = 100_000;
