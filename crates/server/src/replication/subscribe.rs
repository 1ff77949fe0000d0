//! Pulling the log of a peer.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use larder_replication::link::{Batch, Settings, Subscriber, SubscriberAction};
use larder_replication::members::{Cursor, Standing, Trust};
use larder_replication::merge::Fit;
use larder_replication::version::unix_micros_of;
use larder_replication::wire::{CopyReason, Refusal};
use larder_store::commit::Outcome;

use super::Site;
use super::apply::{Applied, Applier};
use super::compare::Comparer;
use super::copy::Copy;
use super::outgoing::Outgoing;
use super::peers::PeerAddress;
use super::stream::{PeerStream, Refused, ended, keep_connected};
use super::waiters::Until;
use crate::observe::journal::Rarely;
use crate::observe::watch::{Event, SiteState};
use crate::shared::Shared;

/// Pulls from a peer until the site stops, or the peer is none any more.
pub(super) fn run(peer: &PeerAddress<'_>, shared: &Shared, site: &Site, applier: &mut Applier<'_>) {
    let address = peer.address;
    let (mut comparer, refusals) = (Comparer::new(address, shared, site), Rarely::default());
    // A site that has just been added, here or there, may be refused for a moment.
    let mut refused_since = None;
    keep_connected(peer, site, || {
        let mut pull = Pull {
            at: peer,
            address,
            shared,
            site,
            applier,
            comparer: &mut comparer,
            peer: 0,
            has_applied: false,
            incarnation: 0,
            run: 0,
            subscribed: Cursor::default(),
            copy: None,
            is_copied: false,
            unsynced: VecDeque::new(),
        };
        let ended = pull.pull();
        let has_applied = pull.has_applied;
        pull.comparer.connection_ended();
        let was_connected = site.with_peer(address, |figures| {
            figures.is_copying = false;
            if let Err(error) = &ended {
                figures.last_error = error.to_string();
            }
            std::mem::take(&mut figures.is_connected)
        });
        if has_applied {
            refused_since = None;
        }
        if was_connected {
            pull.tell(SiteState::Lost);
        }
        if let Err(error) = ended
            && !site.is_stopping()
        {
            let now_micros = site.now().micros;
            let stays = Refused::is(&error)
                && now_micros - *refused_since.get_or_insert(now_micros) >= REFUSED_MICROS_MIN;
            if !stays {
                tracing::info!(address, "the connection to the peer ends: {error}");
            } else if let Some(times) = refusals.happened(shared.clock.now().secs) {
                tracing::error!(address, times, "the peer cannot be pulled from: {error}");
            }
        }
        has_applied
    });
}

/// A refusal that has lasted this long counts as permanent.
const REFUSED_MICROS_MIN: u64 = 2_000_000;

/// A connection to a peer.
struct Pull<'p, 's, 'c> {
    at: &'p PeerAddress<'p>,
    address: &'p str,
    shared: &'p Shared,
    site: &'p Site,
    applier: &'p mut Applier<'s>,
    comparer: &'p mut Comparer<'c>,
    /// Its site; 0: not known yet.
    peer: u8,
    /// Something that this site did not have. A connection without is not followed by another one at once: a peer may
    /// fail again and again to read what comes next.
    has_applied: bool,
    /// Of its log.
    incarnation: u64,
    /// Run of the peer's process.
    run: u64,
    /// The cursor that this site asked from.
    subscribed: Cursor,
    /// The copy that is taken.
    copy: Option<Copy<'p>>,
    /// All of it is applied: it is to be finished.
    is_copied: bool,
    /// Batches that are applied, and the positions of their notes.
    unsynced: VecDeque<(u64, u64)>,
}

impl Pull<'_, '_, '_> {
    /// Tells the watchers what became of the peer.
    fn tell(&self, state: SiteState) {
        let site = self.site.with_peer(self.address, |figures| figures.site);
        self.shared.tell_of_sites(&Event::Site { site, state, peer: self.address });
    }

    fn pull(&mut self) -> io::Result<()> {
        let site = self.site;
        let mut connection = Outgoing::connect(self.at, self.shared, site)?;
        loop {
            let Outgoing { stream, subscriber, settings, began_micros, .. } = &mut connection;
            let since = (&*settings, *began_micros);
            self.confirm(subscriber);
            self.comparer.begin_if_due(subscriber);
            self.go_on_finishing(subscriber)?;
            while let Some(action) = subscriber.next_action() {
                self.perform(action, subscriber, stream, since)?;
            }
            if subscriber.is_closed() {
                return Ok(());
            }
            let position = self.unsynced.front().map_or(0, |(_, position)| *position);
            let timeout = if self.is_copied { Duration::ZERO } else { Duration::MAX };
            let has_come = connection.hear(&mut VecDeque::new(), Until { position, timeout })?;
            let subscriber = &connection.subscriber;
            if let Some(peer) = subscriber.peer().filter(|_| has_come && subscriber.is_pulling()) {
                site.members().note_heard(peer, site.now().micros);
            }
        }
    }

    /// Confirms what is durable by now.
    fn confirm(&mut self, subscriber: &mut Subscriber) {
        while let Some(&(to, position)) = self.unsynced.front() {
            match self.site.journal.outcome(position) {
                Outcome::Pending => return,
                Outcome::Done => subscriber.durable(to),
                Outcome::Lost => return subscriber.stop(),
            }
            self.unsynced.pop_front();
            self.site.end_being_new_if_all_are_heard();
        }
    }

    fn perform(
        &mut self,
        action: SubscriberAction,
        subscriber: &mut Subscriber,
        stream: &mut PeerStream,
        (settings, began_micros): (&Arc<Settings>, u64),
    ) -> io::Result<()> {
        let (address, site) = (self.address, self.site);
        match action {
            SubscriberAction::Send(bytes) => {
                stream.write_all(&bytes, || self.at.is_over(site))?;
            }
            SubscriberAction::Connected { site: peer, incarnation, run } => {
                if !self.at.meet(site, subscriber, (peer, run), began_micros)? {
                    return Ok(());
                }
                if let Some(other) = site.other_address_of(peer, address) {
                    let error = format!("{other} and {address} lead to the same server, of site {peer}");
                    return Err(Refused(error).into());
                }
                (self.peer, self.incarnation, self.run) = (peer, incarnation, run);
                site.with_peer(address, |figures| {
                    (figures.site, figures.is_connected) = (peer, true);
                    figures.ahead_micros = 0;
                    figures.last_error.clear();
                });
                self.tell(SiteState::Connected);
                let added = site.members().add(peer, site.now().micros);
                if let Some(position) = added {
                    // It holds the horizon before it has anything of us.
                    self.site.keep_standing_durably(position)?;
                }
                // A restored site may be pulled from before it has pulled itself: no peer has heard of its new
                // incarnation yet.
                site.change_standing_durably(peer, |members| members.introduced(peer, incarnation))?;
                self.subscribed = site.live(peer).map(|position| position.cursor).unwrap_or_default();
                subscriber.subscribe(self.subscribed);
            }
            SubscriberAction::Started => {
                tracing::info!(address, site = self.peer, "the peer's log follows");
                site.forget_copy(self.peer);
                if site.members().position(self.peer).map(|position| position.standing) != Some(Standing::In)
                {
                    subscriber.stop();
                    return Ok(());
                }
                site.end_being_outdated(settings);
                let known = site.live(self.peer).map(|position| position.cursor);
                if known == Some(self.subscribed) {
                    let cursor = Cursor { run: self.run, ..self.subscribed };
                    let note = site.keep_cursor(self.peer, cursor, None);
                    self.unsynced.push_back((cursor.sequence, note));
                }
            }
            SubscriberAction::CopyNeeded(reason) => {
                tracing::info!(address, site = self.peer, "a copy of the peer is needed: {reason}");
                if reason == CopyReason::Silent {
                    site.members().count_anew(site.now().micros);
                }
                let trust = site.members().trust(self.peer, reason);
                match trust {
                    Trust::Full => self.ask_for_copy(subscriber),
                    Trust::Yielded(position) => {
                        self.site.keep_standing_durably(position)?;
                        self.ask_for_copy(subscriber);
                    }
                    // It takes a copy of this site first.
                    Trust::None => subscriber.stop(),
                }
            }
            SubscriberAction::Apply(batch) => {
                if self.apply(&batch)? {
                    subscriber.applied(batch.to, site.now());
                } else {
                    subscriber.stop();
                }
            }
            SubscriberAction::CopyBegun(begun) => {
                let whole_bytes = begun.whole_bytes;
                let copy = Copy::begin(self.shared, site, self.peer, begun)?;
                site.with_peer(address, |figures| {
                    figures.is_copying = true;
                    (figures.copy_bytes, figures.copy_whole_bytes) = (copy.bytes(), whole_bytes);
                });
                self.copy = Some(copy);
                self.tell(SiteState::CopyBegun);
            }
            SubscriberAction::ApplyPiece(piece) => {
                let applied =
                    self.applier.apply(&piece.body).map_err(|error| io::Error::other(error.to_string()))?;
                self.count(&applied, piece.body.len());
                let copy = self.copy.as_mut().ok_or_else(|| io::Error::other("a piece of no copy"))?;
                copy.note_applied(&piece)?;
                self.has_applied = true;
                let bytes = copy.bytes();
                site.with_peer(address, |figures| {
                    figures.copy_bytes = bytes;
                    figures.copied_pieces += 1;
                    figures.copied_bytes += piece.body.len() as u64;
                });
                subscriber.piece_applied(piece.number, site.now());
            }
            SubscriberAction::FinishCopy => self.is_copied = true,
            SubscriberAction::Ahead { micros } => {
                tracing::error!(
                    address,
                    site = self.peer,
                    "the peer's changes are {} s ahead of this clock, and wait: one of the two clocks is wrong",
                    micros / 1_000_000
                );
                site.with_peer(address, |figures| figures.ahead_micros = micros);
                self.tell(SiteState::Ahead);
            }
            SubscriberAction::NoLongerAhead => {
                site.with_peer(address, |figures| figures.ahead_micros = 0);
                self.tell(SiteState::InTime);
            }
            SubscriberAction::Compare(step) => self.comparer.perform(step, subscriber, self.applier)?,
            // Only an answer to what this connection does not say.
            SubscriberAction::Side(..) => return Err(ended("a message comes at the wrong time")),
            SubscriberAction::Close(closed) => {
                let peer = subscriber.peer();
                // A claim of a peer that has not proven that it knows the token is not believed. If this site ends the
                // connection with a known peer, the clash is about the peer's number, not this site's.
                if closed.refusal == Refusal::SameSite && closed.by_peer == peer.is_some() {
                    site.note_twin(&format!("{closed} (told by {address})"));
                }
                if closed.refusal == Refusal::OlderCopy && closed.by_peer && peer.is_some() {
                    site.become_outdated(settings, &closed.sentence);
                }
                return Err(Refused::of(&closed));
            }
        }
        Ok(())
    }

    /// A step between signs of life.
    fn go_on_finishing(&mut self, subscriber: &mut Subscriber) -> io::Result<()> {
        let Some(copy) = self.copy.as_mut().filter(|_| self.is_copied) else { return Ok(()) };
        let Some(cursor) = copy.finish(self.applier)? else { return Ok(()) };
        (self.copy, self.is_copied) = (None, false);
        self.site.with_peer(self.address, |figures| {
            figures.is_copying = false;
            figures.copies += 1;
        });
        self.tell(SiteState::CopyDone);
        subscriber.copy_taken(cursor);
        Ok(())
    }

    /// False: the connection is of no use any more.
    fn apply(&mut self, batch: &Batch) -> io::Result<bool> {
        let site = self.site;
        let position = site.live(self.peer).unwrap_or_default();
        match batch.fit(self.incarnation, self.run, position.cursor) {
            _ if position.standing != Standing::In => return Ok(false),
            Fit::Gap => {
                site.with_peer(self.address, |figures| figures.gaps += 1);
                return Ok(false);
            }
            Fit::Known => return Ok(true),
            Fit::Next => {}
        }
        let applied = self.applier.apply(&batch.body).map_err(|error| io::Error::other(error.to_string()))?;
        self.count(&applied, batch.body.len());
        self.has_applied = true;
        if let Some(beat) = applied.beat {
            // What is older may be forgotten at one site, and known at another.
            site.journal.raise_replicated_versions(beat.horizon);
        }
        let cursor = Cursor { incarnation: self.incarnation, run: self.run, sequence: batch.to };
        let note = site.keep_cursor(self.peer, cursor, applied.beat);
        self.unsynced.push_back((batch.to, note));
        Ok(true)
    }

    fn count(&self, applied: &Applied, bytes: usize) {
        let delay_micros = self.site.now().unix_micros.saturating_sub(unix_micros_of(applied.newest_version));
        self.site.with_peer(self.address, |figures| {
            figures.entries += applied.entries;
            figures.bytes += bytes as u64;
            figures.conflicts += applied.conflicts;
            if applied.newest_version != 0 {
                figures.delay_micros = delay_micros;
            }
            figures.newest_version = figures.newest_version.max(applied.newest_version);
        });
    }

    /// From its start, or behind the last piece of an earlier one that is applied.
    fn ask_for_copy(&self, subscriber: &mut Subscriber) {
        let taken = self.site.taken_copy(self.peer, self.incarnation);
        let taken = taken.as_ref().filter(|taken| !taken.position.is_empty());
        subscriber.copy(taken.map(|taken| (taken.start, &taken.position[..])));
    }
}
