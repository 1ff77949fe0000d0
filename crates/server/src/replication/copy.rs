//! Taking a copy of a peer, piece by piece: one that is interrupted goes on where it was.
//!
//! What is applied of it is noted in the log, behind what it speaks of. If this site was put out, the keys that the
//! copy names are kept in a file ([`Named`]), and synced before the note: at the end, of each item that was not named
//! the others may have forgotten that it was deleted. Until the deletions of these are durable the peer does not pull.
//! Note and file stay until the peer knows that the copy is taken: if the connection ends before, the next one goes on
//! behind the last piece.

use std::io;

use larder_replication::entry::{Entries, Entry};
use larder_replication::link::{AHEAD_MICROS_MAX, CopyBegun, CopyPiece};
use larder_replication::members::Cursor;
use larder_replication::merge;
use larder_replication::version::unix_micros_of;
use larder_store::Cursor as ScanCursor;

use super::Site;
use super::apply::Applier;
use super::named::{Named, Part};
use super::note::TakenCopy;
use super::publish::{is_told, state_of};
use crate::shared::Shared;

/// A copy that is taken.
pub(super) struct Copy<'s> {
    shared: &'s Shared,
    site: &'s Site,
    /// Whose copy it is.
    peer: u8,
    begun: CopyBegun,
    taken: TakenCopy,
    /// If this site sweeps what the copy does not name.
    named: Option<Named>,
    /// Once all pieces are applied.
    sweep: Option<Sweep>,
}

/// How far what the copy does not name is deleted.
struct Sweep {
    /// Of the keys that the copy names.
    part: Part,
    part_is_read: bool,
    /// Of the scan of the store for this part.
    cursor: ScanCursor,
    /// Values and records that it could not read.
    unreadable: u64,
    /// Items that were deleted.
    swept: u64,
}

impl<'s> Copy<'s> {
    /// As the peer begins it. Errors: what an earlier part of it has left is of no use; the next one begins anew.
    pub(super) fn begin(shared: &'s Shared, site: &'s Site, peer: u8, begun: CopyBegun) -> io::Result<Self> {
        let CopyBegun { cursor, horizon, .. } = begun;
        let ahead_micros = unix_micros_of(horizon).saturating_sub(site.now().unix_micros);
        if horizon != 0 && ahead_micros > AHEAD_MICROS_MAX {
            return Err(io::Error::other("the copy's horizon is ahead of this clock"));
        }
        let path = site.named_path(peer);
        // What is written from here on has a version that the sweep leaves alone.
        site.journal.raise_replicated_versions(horizon);
        let (taken, named) = if begun.is_continued {
            let taken =
                site.taken_copy(peer, cursor.incarnation).filter(|taken| taken.start == cursor.sequence);
            let taken =
                taken.ok_or_else(|| io::Error::other("the peer goes on with a copy that did not begin"))?;
            let named = match horizon {
                0 => None,
                _ => Some(
                    Named::open(&path, taken.named_id, taken.named)
                        .inspect_err(|_| site.forget_copy(peer))?,
                ),
            };
            (taken, named)
        } else {
            site.forget_copy(peer);
            let named = if horizon == 0 { None } else { Some(Named::create(&path)?) };
            let (incarnation, start) = (cursor.incarnation, cursor.sequence);
            let named_id = named.as_ref().map_or(0, Named::id);
            (TakenCopy { incarnation, start, named_id, ..TakenCopy::default() }, named)
        };
        Ok(Self { shared, site, peer, begun, taken, named, sweep: None })
    }

    /// A piece of it is applied.
    pub(super) fn note_applied(&mut self, piece: &CopyPiece) -> io::Result<()> {
        if let Some(named) = &mut self.named {
            let entries = Entries::new(&piece.body).map_while(Result::ok);
            let keys: Vec<&[u8]> = entries.filter_map(|entry| Some(entry.state()?.0)).collect();
            named.add(keys.into_iter())?;
            self.taken.named = named.count();
        }
        self.taken.bytes += piece.body.len() as u64;
        // The last one has none: what is interrupted behind it asks for it again.
        if !piece.position.is_empty() {
            self.taken.position.clone_from(&piece.position);
        }
        self.site.keep_copy(self.peer, &self.taken);
        Ok(())
    }

    /// Bytes of the pieces that are applied.
    pub(super) fn bytes(&self) -> u64 {
        self.taken.bytes
    }

    /// All of it is applied: sweeps a step, so that the caller can say meanwhile that this site is alive. After the
    /// last one the copy's end is where this site is from here on, durably. `None`: call again.
    pub(super) fn finish(&mut self, applier: &mut Applier<'_>) -> io::Result<Option<Cursor>> {
        if self.sweep_step(applier)? {
            return Ok(None);
        }
        let site = self.site;
        if let Some(Sweep { swept, unreadable, .. }) = self.sweep {
            tracing::warn!(
                site = self.peer,
                swept,
                unreadable,
                "this site was away: items that no other one has any more were deleted"
            );
        }
        let CopyBegun { cursor, horizon, ref others, .. } = self.begun;
        for &theirs in others {
            if theirs.site == site.number() {
                site.journal.raise_replicated_versions(theirs.beat.clock);
            } else if let Some(learned) = site.live(theirs.site).and_then(|ours| ours.learn(theirs)) {
                site.keep_cursor(learned.site, learned.cursor, Some(learned.beat));
            }
        }
        let kept = site.keep_cursor(self.peer, cursor, None);
        if !site.wait_durable(kept) {
            return Err(io::Error::other("the store could not keep the copy"));
        }
        if horizon != 0 {
            site.members().count_anew(site.now().micros);
        }
        tracing::info!(site = self.peer, "the copy of the peer is complete");
        Ok(Some(cursor))
    }

    /// Reads on in the names, or makes a deletion of each item at or below the copy's horizon that was not named.
    /// False: all is swept, or nothing is to be.
    fn sweep_step(&mut self, applier: &mut Applier<'_>) -> io::Result<bool> {
        let (site, horizon) = (self.site, self.begun.horizon);
        let Some(named) = &mut self.named else { return Ok(false) };
        let sweep = self.sweep.get_or_insert_with(|| Sweep::of(Part::new(0, named.parts(DIGESTS_MAX))));
        if !sweep.part_is_read {
            let read = named.read_on(&mut sweep.part, DIGESTS_AT_ONCE);
            // What names no key for sure is of no use: the next copy begins anew.
            sweep.part_is_read = !read.inspect_err(|_| site.forget_copy(self.peer))?;
            return Ok(true);
        }
        let table = self.shared.namespaces.table();
        let mut body = Vec::new();
        let has_more = site
            .store
            .for_each_state(
                &mut sweep.cursor,
                STEP_BYTES,
                Some(&mut sweep.unreadable),
                &mut |key, state, value| {
                    // What has expired, too: it may live longer elsewhere. And whatever its value is.
                    let state = state_of(state, value.unwrap_or_default());
                    if let Some((version, base_version)) = merge::sweep(&state, horizon, site.number())
                        && is_told(table.as_deref(), key)
                        && sweep.part.lacks(named.digest(key))
                    {
                        Entry::Delete { key, version, base_version }.encode(&mut body);
                        sweep.swept += 1;
                    }
                },
            )
            .map_err(io::Error::other)?;
        applier.apply(&body).map_err(|failure| io::Error::other(failure.to_string()))?;
        if has_more {
            return Ok(true);
        }
        let Some(part) = sweep.part.next() else { return Ok(false) };
        *sweep = Sweep { swept: sweep.swept, ..Sweep::of(part) };
        Ok(true)
    }
}

impl Sweep {
    fn of(part: Part) -> Self {
        Self { part, part_is_read: false, cursor: ScanCursor::new(), unreadable: 0, swept: 0 }
    }
}

/// Digests that are in memory at once: 64 MiB.
const DIGESTS_MAX: u64 = 4 << 20;
/// What one step reads of them,
const DIGESTS_AT_ONCE: u64 = 1 << 20;
/// or of the store.
const STEP_BYTES: usize = 1 << 20;
