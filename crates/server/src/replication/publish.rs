//! The log, for sites that pull it.

mod accept;
mod behind;
mod read;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use larder_replication::link::{
    Closed, CopyStart, Publisher, PublisherAction, Settings, Subscription, admit,
};
use larder_replication::members::{Cursor, Standing};
use larder_replication::wire::Refusal;

pub(super) use self::accept::{CONNECTIONS_MAX, accept};
pub(super) use self::behind::Behind;
pub(super) use self::state::{expiry_of, is_told, state_of};
use super::stream::{INPUT_BYTES, PeerStream};
use super::waiters::Until;
use super::{Site, aside, compare};
use crate::observe::watch::{Event, SiteState};
use crate::shared::Shared;
use crate::startup::random;

/// `proven`: called once the peer has proven that it knows the token.
fn serve(
    stream: TcpStream,
    began_micros: u64,
    shared: &Shared,
    site: &Site,
    proven: impl FnOnce(),
) -> io::Result<()> {
    let mut proven = Some(proven);
    let address = stream.peer_addr().map_or_else(|_| String::new(), |address| address.to_string());
    let (settings, confirmed) = (site.settings(), site.confirmed());
    let mut stream = PeerStream::accepted(stream, shared, site)?;
    let mut publisher =
        Publisher::new(Arc::clone(&settings), random::bytes()?, site.store.durable_sequence(), site.now());
    let (waiter, mut share) = (site.waiter()?, aside::Share::of(site));
    let mut served = Served { shared, site, settings, address, confirmed, registered: None, body_bytes: 0 };
    let mut input = vec![0; INPUT_BYTES];
    loop {
        // Read before what it is about: then what becomes durable meanwhile ends the wait at once.
        let durable = site.journal.durable();
        publisher.durable(site.store.durable_sequence());
        publisher.tick(site.now());
        if publisher.peer().is_some()
            && let Some(proven) = proven.take()
        {
            proven();
            served.meet(&mut publisher, began_micros);
        }
        if is_over(&publisher, &served.settings, site) {
            publisher.stop();
        }
        while let Some(action) = publisher.next_action() {
            if let PublisherAction::Side(side, body) = action {
                return aside::serve(stream, publisher, (side, body), share, &served);
            }
            served.perform(action, &mut publisher, &mut stream)?;
        }
        if publisher.is_closed() {
            return Ok(());
        }
        share.set(publisher.assembled_bytes())?;
        if let Some(puller) = publisher.puller() {
            served.register(puller);
            site.with_puller(puller, |figures| figures.in_flight_bytes = publisher.in_flight_bytes() as u64);
        }
        let until = Until { position: durable + 1, timeout: site.time_until(publisher.deadline_micros()) };
        match stream.read(&mut input, &waiter, until)? {
            Some(0) => return Ok(()),
            Some(count) => publisher.receive(&input[..count], site.now()),
            None => {}
        }
    }
}

/// True if the connection is no longer of use.
pub(super) fn is_over(publisher: &Publisher, settings: &Arc<Settings>, site: &Site) -> bool {
    site.is_over_for(publisher.peer())
        || !site.is_current(settings)
        || !publisher.peer_run().is_none_or(|(number, run)| site.was_met_last(number, run))
}

/// A connection that is served.
pub(super) struct Served<'s> {
    pub(super) shared: &'s Shared,
    pub(super) site: &'s Site,
    pub(super) settings: Arc<Settings>,
    /// Address of the other site.
    address: String,
    /// Confirmed cursors of the other sites when the connection was made.
    confirmed: BTreeMap<u8, Cursor>,
    /// The puller in whose figures it counts.
    registered: Option<u8>,
    /// Of the last batch: the next one is about as long.
    body_bytes: usize,
}

impl Served<'_> {
    /// Notes a site once both sides know the token. The connection ends if there are two servers with its number.
    fn meet(&self, publisher: &mut Publisher, began_micros: u64) {
        let Some((number, run)) = publisher.peer_run() else { return };
        if let Err(two) = self.site.meet(number, run, (&self.address, false), began_micros) {
            publisher.refuse(Refusal::SameSite, &two);
        }
    }

    /// Notes that the connection has ended.
    pub(super) fn note_end(&self, publisher: &Publisher, closed: &Closed) {
        self.site.note_end(self.shared, &self.address, publisher.peer(), closed);
    }

    fn register(&mut self, puller: u8) {
        if self.registered.is_none() {
            self.registered = Some(puller);
            // Only what is durable is sent.
            self.site.journal.follow();
            self.site.with_puller(puller, |figures| figures.connections += 1);
        }
    }

    fn perform(
        &mut self,
        action: PublisherAction,
        publisher: &mut Publisher,
        stream: &mut PeerStream,
    ) -> io::Result<()> {
        let site = self.site;
        match action {
            PublisherAction::Send(bytes) => {
                let waited_micros = stream.write_all(&bytes, || site.is_over_for(publisher.peer()))?;
                publisher.note_written(bytes.len(), waited_micros);
            }
            PublisherAction::Admit { site: puller, incarnation, cursor, .. } => {
                let introduced =
                    site.change_standing_durably(puller, |members| members.introduced(puller, incarnation))?;
                if introduced.is_some_and(|position| position.standing == Standing::Restored) {
                    let state = SiteState::Restored;
                    self.shared.tell_of_sites(&Event::Site { site: puller, state, peer: "" });
                }
                let (extent, lineage) = (site.extent_from(cursor.sequence), site.lineage()?);
                let confirmed = self.confirmed.get(&puller).copied().unwrap_or_default();
                let asked = Subscription { site: puller, cursor, confirmed };
                let admission = admit(&site.members(), asked, extent, &lineage);
                tracing::info!(site = puller, sequence = cursor.sequence, "a site pulls: {admission}");
                publisher.admit(admission);
            }
            PublisherAction::ReadLog { after, bytes_max } => match self.read_log(after, bytes_max) {
                Ok(read) => publisher.log_read(read, site.now()),
                Err(error) => {
                    // Who needs what cannot be read takes a copy next, and is given nothing only if that fails, too.
                    let takes_copy = site.extent().start > after;
                    self.fail(&error, (!takes_copy).then_some(after), publisher);
                }
            },
            PublisherAction::BeginCopy { site: puller, interrupted } => {
                site.change_standing_durably(puller, |members| members.joining(puller))?;
                let (start, position) = interrupted.unzip();
                let (extent, is_continued) = site.members().begin_copy(puller, start, site.extent());
                let position = position.filter(|_| is_continued).unwrap_or_default();
                if !is_continued {
                    site.keep_copy_for(puller, &extent);
                }
                tracing::info!(site = puller, sequence = extent.start, is_continued, "a copy begins");
                let whole_bytes = site.store.stats().live_bytes;
                publisher.copy_begun(CopyStart { extent, whole_bytes, position });
            }
            PublisherAction::ReadCopy { position, bytes_max, horizon } => {
                let read = match self.read_copy(&position, bytes_max, horizon) {
                    Ok(read) => read,
                    Err(error) => {
                        self.fail(&error, Some(0), publisher);
                        return Ok(());
                    }
                };
                if read.appended > site.store.durable_sequence() {
                    site.ask_for_sync();
                }
                publisher.copy_read(read);
            }
            PublisherAction::Compare(step) => compare::answer(step, publisher, self.shared, site)?,
            PublisherAction::Confirmed { site: puller, incarnation, sequence } => {
                let Settings { incarnation: own, run, .. } = *self.settings;
                site.members().note_confirmed(
                    puller,
                    incarnation,
                    Cursor { incarnation: own, run, sequence },
                );
                site.with_puller(puller, |figures| {
                    if sequence > figures.confirmed {
                        figures.confirmed = sequence;
                        if sequence > figures.failed_after {
                            figures.failure.clear();
                        }
                    }
                });
            }
            PublisherAction::CopyTaken { site: puller } => {
                site.change_standing_durably(puller, |members| members.joined(puller))?;
                site.with_puller(puller, |figures| figures.failure.clear());
            }
            // Taken by the caller.
            PublisherAction::Side(..) => {}
            PublisherAction::Close(closed) => {
                self.note_end(publisher, &closed);
                if closed.by_peer {
                    return Ok(());
                }
                if let Some(peer) = publisher.peer().filter(|_| closed.refusal.stays()) {
                    site.with_puller(peer, |figures| {
                        figures.failure.clone_from(&closed.sentence);
                        figures.failed_after = figures.confirmed;
                    });
                }
                if closed.refusal == Refusal::AheadOfLog {
                    site.become_outdated(&self.settings, &closed.sentence);
                }
            }
        }
        Ok(())
    }

    /// What the peer pulls cannot be read. The log says so once, however often the peer comes back, until that has
    /// confirmed more than what is before it: `after`. `None`: the log says nothing.
    fn fail(&self, error: &io::Error, after: Option<u64>, publisher: &mut Publisher) {
        let sentence = error.to_string();
        if let Some((puller, after)) = publisher.puller().zip(after) {
            let is_known = self.site.with_puller(puller, |figures| {
                figures.failed_after = after;
                std::mem::replace(&mut figures.failure, sentence.clone()) == sentence
            });
            if !is_known {
                tracing::error!(site = puller, "a site cannot be given what it pulls: {sentence}");
            }
        }
        publisher.fail(&sentence, self.site.now());
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(puller) = self.registered {
            self.site.journal.unfollow();
            self.site.with_puller(puller, |figures| {
                figures.connections = figures.connections.saturating_sub(1);
                figures.in_flight_bytes = 0;
            });
        }
    }
}
