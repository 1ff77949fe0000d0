//! What a site keeps in its log of itself and of the others, and waiting for its log.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use larder_replication::entry::Beat;
use larder_replication::members::{CopyExtent, Cursor, Members, Position};
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
        self.keep_standing_in(&mut lock(&self.live), position)
    }

    /// The same of what `change` makes of the site's standing. Nothing comes in between, so it overwrites no standing
    /// that `change` has not seen. `None`: no change. Errors: another one is on its way to the log.
    pub(in crate::replication) fn change_standing(
        &self,
        site: u8,
        change: impl FnOnce(&Members) -> Option<Position>,
    ) -> io::Result<Option<(Position, u64)>> {
        let mut live = lock(&self.live);
        let members = self.members();
        let Some(position) = change(&members) else { return Ok(None) };
        let durable = members.position(site).map(|position| position.standing);
        let is_other = |noted: &Noted| match noted {
            Noted::Position(noted) => noted.site == site && Some(noted.standing) != durable,
            Noted::Beat(_) => false,
        };
        if lock(&self.pending).iter().any(|(_, noted)| is_other(noted)) {
            return Err(io::Error::other("what the site is to this one changes just now"));
        }
        drop(members);
        let kept = self.keep_standing_in(&mut live, position);
        Ok(Some((position, kept)))
    }

    /// The same, durably.
    pub(in crate::replication) fn change_standing_durably(
        &self,
        site: u8,
        change: impl FnOnce(&Members) -> Option<Position>,
    ) -> io::Result<Option<Position>> {
        let Some((position, kept)) = self.change_standing(site, change)? else { return Ok(None) };
        self.durably(kept)?;
        Ok(Some(position))
    }

    /// What another site is to this one, and was lost on its way to the log, is what it was before.
    pub(in crate::replication) fn forget_lost_standings(&self) {
        let mut live = lock(&self.live);
        let members = self.members();
        let pending = lock(&self.pending);
        for position in live.values_mut() {
            let is_of_it =
                |noted: &Noted| matches!(noted, Noted::Position(noted) if noted.site == position.site);
            if let Some(durable) = members.position(position.site)
                && !pending.iter().any(|(_, noted)| is_of_it(noted))
            {
                (position.standing, position.incarnation) = (durable.standing, durable.incarnation);
            }
        }
    }

    fn keep_standing_in(&self, live: &mut BTreeMap<u8, Position>, position: Position) -> u64 {
        let known = live.get(&position.site).copied().unwrap_or(position);
        if known.standing != position.standing {
            // A copy of before is of no use.
            self.submit_note(&note::name_of_copy_for(position.site), b"", false);
        }
        let position = Position { cursor: known.cursor, beat: known.beat, ..position };
        live.insert(position.site, position);
        self.keep(position)
    }

    /// Notes it durably.
    pub(in crate::replication) fn keep_standing_durably(&self, position: Position) -> io::Result<()> {
        self.durably(self.keep_standing(position))
    }

    fn durably(&self, kept: u64) -> io::Result<()> {
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
        let position = self.members().with_confirmed(position);
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
        self.journal.hurry_append();
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

#[cfg(test)]
mod tests {
    use larder_replication::members::Standing;
    use larder_store::MemoryStore;

    use super::super::tests::{commit, site};
    use super::*;

    /// An operator removes a site while another thread finds that it was silent for too long.
    #[test]
    fn a_standing_overwrites_none_that_it_was_not_made_of() {
        let (_shared, site, mut committer) = site(MemoryStore::new());
        for number in 2..4 {
            let added = site.members().add(number, 0).expect("it is new");
            site.keep_standing(added);
        }
        commit(&mut committer);
        let silent = |number| {
            move |members: &Members| {
                Some(Position { standing: Standing::Silent, ..members.position(number)? })
            }
        };
        let removed = site.members().removed(3).expect("it is there");
        site.keep_standing(removed);
        let refused = site.change_standing(3, silent(3));
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(site.live(3).map(|position| position.standing), Some(Standing::Removed));
        let changed = site.change_standing(2, silent(2)).expect("nothing of it is on its way");
        assert_eq!(changed.map(|(position, _)| position.standing), Some(Standing::Silent));
        commit(&mut committer);
        let standings = [2, 3].map(|number| site.members().position(number).map(|known| known.standing));
        assert_eq!(standings, [Some(Standing::Silent), Some(Standing::Removed)]);
        let changed = site.change_standing(3, |members| members.introduced(3, 9));
        assert_eq!(changed.expect("nothing is on its way"), None);
    }
}
