//! What a site keeps in its log of itself and of the others, and waiting for its log.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use larder_replication::entry::Beat;
use larder_replication::members::{CopyExtent, Cursor, Position};
use larder_store::commit::{Change, Kind, Outcome};

use super::{Site, lock};
use crate::replication::note::{self, TakenCopy};

/// On its way to the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Noted {
    Position(Position),
    Beat(Beat),
}

impl Site {
    /// Notes what another site is to this one; how far this one is in its log stays. Returns the note's position.
    pub(in crate::replication) fn keep_standing(&self, position: Position) -> u64 {
        let mut live = lock(&self.live);
        let known = live.get(&position.site).copied().unwrap_or(position);
        if known.standing != position.standing {
            // A copy of before is of no use.
            self.submit_note(&note::name_of_copy_for(position.site), b"", false);
        }
        let position = Position { cursor: known.cursor, beat: known.beat, ..position };
        live.insert(position.site, position);
        self.keep(position)
    }

    /// The same, durably.
    pub(in crate::replication) fn keep_standing_durably(&self, position: Position) -> io::Result<()> {
        let kept = self.keep_standing(position);
        if self.wait_durable(kept) { Ok(()) } else { Err(io::Error::other("the store failed")) }
    }

    /// Notes how far this site is in another one's log. Call when all before it is applied.
    pub(in crate::replication) fn keep_cursor(&self, site: u8, cursor: Cursor, beat: Option<Beat>) -> u64 {
        let mut live = lock(&self.live);
        let known = live.get(&site).copied().unwrap_or_else(|| Position { site, ..Position::default() });
        let position = Position { cursor, beat: beat.unwrap_or(known.beat), ..known };
        live.insert(site, position);
        self.keep(position)
    }

    /// With the live positions locked, so that notes of a site are in the order in which they were made.
    fn keep(&self, position: Position) -> u64 {
        let bytes = note::encode_position(&position);
        self.note(Noted::Position(position), &note::name_of(position.site), &bytes, false)
    }

    /// How far a copy of this log of another site is taken; `None`: none was begun.
    pub(in crate::replication) fn taken_copy(&self, site: u8, incarnation: u64) -> Option<TakenCopy> {
        lock(&self.copies).get(&site).filter(|copy| copy.incarnation == incarnation).cloned()
    }

    /// Notes how far a copy is taken. Call when all before it is applied.
    pub(in crate::replication) fn keep_copy(&self, site: u8, copy: &TakenCopy) {
        let mut copies = lock(&self.copies);
        // One that has no place in a note begins anew.
        let Some(bytes) = note::encode_copy(copy) else { return };
        copies.insert(site, copy.clone());
        self.submit_note(&note::name_of_copy(site), &bytes, false);
    }

    /// The copy of another site is taken, and that one knows; or it is of no use.
    pub(in crate::replication) fn forget_copy(&self, site: u8) {
        let mut copies = lock(&self.copies);
        if copies.remove(&site).is_some()
            && let Some(bytes) = note::encode_copy(&TakenCopy::default())
        {
            self.submit_note(&note::name_of_copy(site), &bytes, false);
        }
        drop(copies);
        // If it stays, the next copy replaces it.
        let _ = std::fs::remove_file(self.named_path(site));
    }

    /// Notes that another site takes a copy of this one, so that it can go on with it after a restart of this one.
    pub(in crate::replication) fn keep_copy_for(&self, site: u8, copy: &CopyExtent) {
        self.submit_note(&note::name_of_copy_for(site), &note::encode_extent(copy), false);
    }

    /// Where the keys are kept that the copy of another site has named.
    pub(in crate::replication) fn named_path(&self, site: u8) -> PathBuf {
        self.directory.join(format!("copy-of-{site}.named"))
    }

    /// Notes a beat, which is made durable without delay.
    pub(in crate::replication) fn keep_beat(&self, beat: Beat) -> u64 {
        self.note(Noted::Beat(beat), note::BEAT, &note::encode_beat(&beat), true)
    }

    fn note(&self, noted: Noted, name: &[u8], bytes: &[u8], is_sync: bool) -> u64 {
        let mut pending = lock(&self.pending);
        let position = self.submit_note(name, bytes, is_sync);
        pending.push_back((position, noted));
        position
    }

    pub(super) fn submit_note(&self, name: &[u8], bytes: &[u8], is_sync: bool) -> u64 {
        let position = self.journal.next_position_of_none();
        self.journal.submit(position, Change::new(Kind::Note, name, bytes, is_sync).unfollowed());
        position
    }

    /// Asks for all that was appended to be made durable.
    pub(in crate::replication) fn ask_for_sync(&self) -> u64 {
        let position = self.journal.next_position_of_none();
        let change = Change::new(Kind::Nothing, b"", b"", true);
        self.journal.submit(position, change);
        self.journal.hurry();
        position
    }

    /// Waits until a position is durable. False: it is lost, or the site stops.
    pub(in crate::replication) fn wait_durable(&self, position: u64) -> bool {
        self.ask_for_sync();
        self.wait_settled(position)
    }

    /// Makes all durable that was appended. False: it is lost, or the site stops.
    pub(in crate::replication) fn sync(&self) -> bool {
        self.wait_settled(self.ask_for_sync())
    }

    fn wait_settled(&self, position: u64) -> bool {
        loop {
            match self.journal.outcome(position) {
                Outcome::Done => return true,
                Outcome::Lost => return false,
                Outcome::Pending if self.is_stopping() => return false,
                Outcome::Pending => std::thread::sleep(WAIT),
            }
        }
    }

    /// Waits until the store has a position. False: the site stops.
    pub(in crate::replication) fn wait_applied(&self, position: u64) -> bool {
        self.journal.hurry();
        let mut pause = Duration::from_micros(20);
        while !self.journal.is_applied(position) {
            if self.is_stopping() {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(WAIT);
        }
        true
    }
}

const WAIT: Duration = Duration::from_micros(500);
