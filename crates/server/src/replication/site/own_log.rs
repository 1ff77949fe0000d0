//! The site's own log as others know it: its incarnation and its runs. If the store turns out to be an older copy, the
//! log goes on under another incarnation.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_replication::lineage::Lineage;
use larder_replication::link::{self, AHEAD_MICROS_MAX};
use larder_replication::version::version_at;

use super::{Site, lock};
use crate::replication::note;
use crate::startup::random;

/// Lineage of the log as this process has noted it.
pub(super) struct Runs {
    pub(super) lineage: Lineage,
    /// Position of the note that contains this run; 0: there is none.
    pub(super) noted: u64,
}

/// A random number other than 0. Errors: the system provides none.
pub(super) fn random_number() -> io::Result<u64> {
    Ok(u64::from_le_bytes(random::bytes()?).max(1))
}

impl Site {
    /// Settings of this site for new connections.
    pub(in crate::replication) fn settings(&self) -> Arc<link::Settings> {
        Arc::clone(&lock(&self.settings))
    }

    /// False: the log has switched to another incarnation, and a connection that began with these settings is useless.
    pub(in crate::replication) fn is_current(&self, settings: &Arc<link::Settings>) -> bool {
        Arc::ptr_eq(&lock(&self.settings), settings)
    }

    /// Runs of the log, returned once this one is among them durably, so that others may hear of it. Errors: the store
    /// takes no note.
    pub(in crate::replication) fn lineage(&self) -> io::Result<Lineage> {
        let mut runs = lock(&self.runs);
        if runs.noted == 0 || self.journal.is_lost(runs.noted) {
            runs.lineage.last = self.run;
            runs.noted = self.submit_runs(&runs.lineage);
        }
        let (lineage, noted) = (runs.lineage.clone(), runs.noted);
        drop(runs);
        if self.wait_durable(noted) { Ok(lineage) } else { Err(io::Error::other("the store takes no note")) }
    }

    pub(super) fn submit_runs(&self, lineage: &Lineage) -> u64 {
        self.submit_note(note::RUNS, &note::encode_runs(lineage), true)
    }

    /// Reason why the store is known to be an older copy; empty: it is not.
    pub(in crate::replication) fn why_outdated(&self) -> String {
        lock(&self.why_outdated).clone()
    }

    /// Called when another site has found, over a connection with these settings, that this store is an older copy. The
    /// site takes no changes from here on, and its log gets another incarnation, which tells the others that it needs a
    /// copy.
    pub(in crate::replication) fn become_outdated(&self, settings: &Arc<link::Settings>, why: &str) {
        // Only one thread does this at a time. A reader of the reason does not wait for the disk.
        let _renewing = lock(&self.renewing);
        if !self.is_current(settings) {
            return;
        }
        if !self.is_outdated.swap(true, Relaxed) {
            tracing::error!(
                "this store is an older copy: the site takes no changes before it has a copy of another site: {why}"
            );
        }
        why.clone_into(&mut lock(&self.why_outdated));
        // If it is not noted, the next connection finds it again.
        if let Err(error) = self.renew_log(settings, why) {
            tracing::error!("the log cannot go on as another one yet: {error}");
        }
    }

    fn renew_log(&self, settings: &Arc<link::Settings>, why: &str) -> io::Result<()> {
        let incarnation = random_number()?;
        let renewed = note::Renewed { of: self.store.incarnation(), incarnation, why: why.to_owned() };
        let noted = self.submit_note(note::RENEWED, &note::encode_renewed(&renewed), true);
        if !self.wait_durable(noted) {
            return Err(io::Error::other("the store takes no note"));
        }
        // A restart from here on finds another incarnation than before, and does the rest.
        self.forget_what_was_given();
        let copies: Vec<u8> = lock(&self.copies).keys().copied().collect();
        copies.into_iter().for_each(|site| self.forget_copy(site));
        for position in self.positions() {
            self.submit_note(&note::name_of_copy_for(position.site), b"", false);
            self.keep_standing(position.restored());
        }
        {
            let mut runs = lock(&self.runs);
            runs.lineage.renew(self.run, self.store.last_sequence());
            runs.noted = self.submit_runs(&runs.lineage);
        }
        let own = self.submit_note(note::OWN, &note::encode_own(self.number, incarnation), true);
        if !self.wait_durable(own) {
            return Err(io::Error::other("the store takes no note"));
        }
        *lock(&self.settings) = Arc::new(link::Settings { incarnation, ..link::Settings::clone(settings) });
        self.wake_all();
        Ok(())
    }

    /// The versions given since the present state of the store are unknown. None was more than `AHEAD_MICROS_MAX` ahead
    /// of the clock, since others hold back changes further ahead.
    pub(super) fn forget_what_was_given(&self) {
        let micros = self.journal.unix_micros() + AHEAD_MICROS_MAX;
        self.journal.raise_replicated_versions(version_at(micros, self.number));
    }

    /// Called when a peer lets this site pull its log, over a connection with these settings: the site has its copy, if
    /// it needed one.
    pub(in crate::replication) fn end_being_outdated(&self, settings: &Arc<link::Settings>) {
        let mut why_outdated = lock(&self.why_outdated);
        let is_this =
            |known: note::Renewed| known.incarnation == settings.incarnation && !known.why.is_empty();
        let is_renewed = self.store_renewed().is_some_and(is_this);
        if why_outdated.is_empty() || !is_renewed || !self.is_current(settings) {
            return;
        }
        tracing::warn!("this site has a copy of another one, and takes changes again");
        self.note_that_nothing_is_outdated(settings.incarnation);
        why_outdated.clear();
        self.is_outdated.store(false, Relaxed);
    }

    pub(super) fn note_that_nothing_is_outdated(&self, incarnation: u64) {
        let renewed = note::Renewed { of: self.store.incarnation(), incarnation, why: String::new() };
        self.submit_note(note::RENEWED, &note::encode_renewed(&renewed), true);
    }

    fn store_renewed(&self) -> Option<note::Renewed> {
        note::decode_renewed(&self.store.note(note::RENEWED)?)
    }
}
