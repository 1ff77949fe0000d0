//! The log, for sites that pull it.

mod accept;
mod read;
mod state;

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use larder_replication::link::{CopyStart, Publisher, PublisherAction, admit};
use larder_replication::members::Standing;

pub(super) use self::accept::accept;
pub(super) use self::state::{expiry_of, is_told, state_of};
use super::stream::{INPUT_BYTES, PeerStream};
use super::waiters::Until;
use super::{Site, aside, compare};
use crate::observe::watch::{Event, SiteState};
use crate::shared::Shared;
use crate::startup::random;

/// `proven`: called once the peer has proven that it knows the token.
fn serve(stream: TcpStream, shared: &Shared, site: &Site, proven: impl FnOnce()) -> io::Result<()> {
    let mut proven = Some(proven);
    let mut stream = PeerStream::accepted(stream, shared, site)?;
    let mut publisher = Publisher::new(
        Arc::clone(&site.settings),
        random::bytes()?,
        site.store.durable_sequence(),
        site.now(),
    );
    let (waiter, mut share) = (site.waiter()?, aside::Share::of(site));
    let mut served = Served { shared, site, registered: None, body_bytes: 0 };
    let mut input = vec![0; INPUT_BYTES];
    loop {
        if site.is_over_for(publisher.peer()) {
            publisher.stop();
        }
        // Read before what it is about: then what becomes durable meanwhile ends the wait at once.
        let durable = site.journal.durable();
        publisher.durable(site.store.durable_sequence());
        publisher.tick(site.now());
        if publisher.peer().is_some()
            && let Some(proven) = proven.take()
        {
            proven();
        }
        while let Some(action) = publisher.next_action() {
            if let PublisherAction::Side(side, body) = action {
                drop(served);
                return aside::serve(stream, publisher, (side, body), share, shared, site);
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

/// A connection that is served.
struct Served<'s> {
    shared: &'s Shared,
    site: &'s Site,
    /// The puller in whose figures it counts.
    registered: Option<u8>,
    /// Of the last batch: the next one is about as long.
    body_bytes: usize,
}

impl Served<'_> {
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
                let extent = site.extent_from(cursor.sequence);
                let admission = admit(&site.members(), puller, cursor, extent);
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
            PublisherAction::Confirmed { site: puller, sequence } => {
                site.members().note_confirmed(puller, sequence);
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
                tracing::info!(site = publisher.peer(), "a peer's connection ends: {closed}");
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
