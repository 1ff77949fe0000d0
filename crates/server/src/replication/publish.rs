//! The log, for sites that pull it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use larder_policy::Table;
use larder_replication::entry::Entry;
use larder_replication::link::{CopyRead, CopyStart, LogRead, Publisher, PublisherAction, admit};
use larder_replication::members::Standing;
use larder_replication::state::{Expiry, Item, Register, State};
use larder_replication::version::{site_of, unix_secs_of};
use larder_store::{Cursor as ScanCursor, FlushBy, KeyState, LogEntry, Put};

use super::site::lock;
use super::stream::{INPUT_BYTES, PeerStream};
use super::waiters::Until;
use super::{Site, aside, compare, note};
use crate::namespaces::is_replicated;
use crate::observe::watch::{Event, SiteState};
use crate::shared::Shared;
use crate::startup::random;

/// Accepts peers until the site stops.
pub(super) fn accept(listener: &TcpListener, shared: &Arc<Shared>, site: &Arc<Site>) {
    let waiter = match site.waiter() {
        Ok(waiter) => waiter,
        Err(error) => return tracing::error!("no peer is accepted: {error}"),
    };
    let (connections, unproven) = (Arc::new(AtomicUsize::new(0)), Arc::new(Unproven::default()));
    let mut threads = Vec::new();
    while !site.is_stopping() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                let is_idle = error.kind() == ErrorKind::WouldBlock;
                if !is_idle {
                    tracing::warn!("a peer cannot be accepted: {error}");
                }
                if !is_idle
                    || waiter.wait(listener, false, Until { position: 0, timeout: ACCEPT_MAX }).is_err()
                {
                    std::thread::sleep(ACCEPT_PAUSE);
                }
                continue;
            }
        };
        if connections.load(SeqCst) >= CONNECTIONS_MAX {
            continue;
        }
        let number = match unproven.add(&stream) {
            Ok(number) => number,
            Err(error) => {
                tracing::warn!("a peer cannot be accepted: {error}");
                continue;
            }
        };
        connections.fetch_add(1, SeqCst);
        let held = Arc::clone(&connections);
        let unproven = Arc::clone(&unproven);
        let (shared, site, connections) = (Arc::clone(shared), Arc::clone(site), Arc::clone(&connections));
        let serve = move || {
            if let Err(error) = serve(stream, &shared, &site, || unproven.remove(number)) {
                tracing::info!("a peer's connection ends: {error}");
            }
            unproven.remove(number);
            connections.fetch_sub(1, SeqCst);
        };
        threads.retain(|thread: &std::thread::JoinHandle<()>| !thread.is_finished());
        match Builder::new().name("larder-publish".into()).spawn(serve) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                held.fetch_sub(1, SeqCst);
                tracing::error!("a peer has no thread: {error}");
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Connections of which it is not known yet whether they know the token. Who holds many of them shuts nobody out.
#[derive(Default)]
struct Unproven(Mutex<(u64, VecDeque<(u64, TcpStream)>)>);

impl Unproven {
    /// Ends the oldest one if there are too many. Returns a number for the new one. Errors: no descriptor to be had.
    fn add(&self, stream: &TcpStream) -> io::Result<u64> {
        let stream = stream.try_clone()?;
        let mut connections = lock(&self.0);
        let (last, all) = &mut *connections;
        if all.len() >= UNPROVEN_MAX
            && let Some((_, oldest)) = all.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        *last += 1;
        all.push_back((*last, stream));
        Ok(*last)
    }

    fn remove(&self, number: u64) {
        lock(&self.0).1.retain(|(other, _)| *other != number);
    }
}

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
    let waiter = site.waiter()?;
    let mut served = Served { shared, site, registered: None, body_bytes: 0 };
    let mut input = vec![0; INPUT_BYTES];
    loop {
        let is_removed =
            |puller| site.live(puller).is_some_and(|puller| puller.standing == Standing::Removed);
        if site.is_stopping() || publisher.peer().is_some_and(is_removed) {
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
                return aside::serve(stream, publisher, (side, body), shared, site);
            }
            served.perform(action, &mut publisher, &mut stream)?;
        }
        if publisher.is_closed() {
            return Ok(());
        }
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
            PublisherAction::Send(bytes) => publisher.note_written(bytes.len(), stream.write_all(&bytes)?),
            PublisherAction::Admit { site: puller, incarnation, cursor, .. } => {
                let introduced = site.members().introduced(puller, incarnation);
                if let Some(position) = introduced {
                    self.site.keep_standing_durably(position)?;
                    if position.standing == Standing::Restored {
                        let state = SiteState::Restored;
                        self.shared.tell_of_sites(&Event::Site { site: puller, state, peer: "" });
                    }
                }
                let admission = admit(&site.members(), puller, cursor, site.extent());
                tracing::info!(site = puller, sequence = cursor.sequence, "a site pulls: {admission:?}");
                publisher.admit(admission);
            }
            PublisherAction::ReadLog { after, bytes_max } => match self.read_log(after, bytes_max) {
                Ok(read) => publisher.log_read(read, site.now()),
                Err(error) => self.fail(&error, publisher),
            },
            PublisherAction::BeginCopy { site: puller, interrupted } => {
                let joining = site.members().joining(puller);
                if let Some(position) = joining {
                    self.site.keep_standing_durably(position)?;
                }
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
                        self.fail(&error, publisher);
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
                        figures.failure.clear();
                    }
                });
            }
            PublisherAction::CopyTaken { site: puller } => {
                let joined = site.members().joined(puller);
                if let Some(position) = joined {
                    self.site.keep_standing_durably(position)?;
                }
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

    /// What the peer pulls cannot be read. The log says so once, however often the peer comes back for it.
    fn fail(&self, error: &io::Error, publisher: &mut Publisher) {
        let sentence = error.to_string();
        if let Some(puller) = publisher.puller() {
            let is_known = self.site.with_puller(puller, |figures| {
                std::mem::replace(&mut figures.failure, sentence.clone()) == sentence
            });
            if !is_known {
                tracing::error!(site = puller, "a site cannot be given what it pulls: {sentence}");
            }
        }
        publisher.fail(&sentence);
    }

    /// The registers, flushes and beats that this site wrote itself.
    fn read_log(&mut self, after: u64, bytes_max: usize) -> io::Result<LogRead> {
        let (site, number) = (self.site, self.site.settings.site);
        let table = self.shared.namespaces.table();
        let mut body = Vec::with_capacity(self.body_bytes + self.body_bytes / 8);
        let (mut failed, mut trusts_undurable) = (None, false);
        // Of those that are read now the last, unless a later one is durable.
        let (mut beat, newest_clock) = (None, site.members().clock());
        let read = site.store.read_log(after, bytes_max, &mut |entry| match entry.entry {
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
                {
                    let newest = match self.newest(key, &entry, &state, &mut trusts_undurable) {
                        Ok(newest) => newest,
                        Err(error) => {
                            failed.get_or_insert(error);
                            return;
                        }
                    };
                    Entry::own_of_record(key, &state, &newest, number)
                        .for_each(|entry| entry.encode(&mut body));
                }
            }
        });
        if let Some(error) = failed {
            return Err(io::Error::other(error));
        }
        if let Some(beat) = beat {
            Entry::Beat(beat).encode(&mut body);
        }
        if trusts_undurable && !site.wait_durable(site.ask_for_sync()) {
            return Err(io::Error::other("the store failed"));
        }
        match read {
            Ok(read) => {
                self.body_bytes = body.len().min(2 * bytes_max);
                Ok(LogRead::Entries { to: read.through_sequence, body })
            }
            Err(larder_store::Error::TooFarBehind { .. }) => Ok(LogRead::Gone),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// The state of a record's key by all records and flushes that are durable; if that is not known, the record's.
    /// `trusts_undurable`: it goes by a flush which may not be durable. Then nothing of it is sent before that is.
    fn newest(
        &self,
        key: &[u8],
        entry: &LogEntry<'_>,
        record: &State<&[u8]>,
        trusts_undurable: &mut bool,
    ) -> larder_store::Result<State<()>> {
        let store = &self.site.store;
        let flushed_below = store.newest_flush_version(key);
        let newest = if entry.is_newest { None } else { Some(store.state(key)?) };
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
    fn read_copy(&self, position: &[u8], bytes_max: usize, horizon: u64) -> io::Result<CopyRead> {
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
                    let state = state_of(state, value);
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

/// True if other sites are told of this key.
pub(super) fn is_told(table: Option<&Table>, key: &[u8]) -> bool {
    table.is_some_and(|table| is_replicated(table, table.find(key)))
}

/// When the value of a key of the store expires.
pub(super) fn expiry_of(state: &KeyState) -> Expiry {
    Expiry {
        value_version: state.expiry_value_version,
        version: state.expiry_version,
        exptime_secs: state.exptime_secs,
    }
}

/// A state of the store with its value.
pub(super) fn state_of<'a>(state: &KeyState, value: &'a [u8]) -> State<&'a [u8]> {
    let KeyState { version, base_version, item, .. } = *state;
    let item = item.map(|item| Item { client_flags: item.client_flags, marks: item.marks.bits(), value });
    State {
        value: (version != 0).then_some(Register { version, base_version, item }),
        expiry: expiry_of(state),
    }
}

/// The key and the state of an entry of the log.
fn state_of_entry<'a>(entry: &larder_store::Entry<'a>) -> Option<(&'a [u8], State<&'a [u8]>)> {
    Some(match *entry {
        larder_store::Entry::Put(Put {
            key,
            value,
            client_flags,
            exptime_secs,
            version,
            marks,
            base_version,
            expiry_value_version,
            expiry_version,
            ..
        }) => {
            let value = value.first().copied().unwrap_or_default();
            let mut state = State::set(
                version,
                base_version,
                exptime_secs,
                Item { client_flags, marks: marks.bits(), value },
            );
            state.expiry.value_version = expiry_value_version.max(version);
            state.expiry.version = expiry_version.max(version);
            (key, state)
        }
        larder_store::Entry::Delete { key, version, base_version } => {
            (key, State::deleted(version, base_version))
        }
        larder_store::Entry::Touch {
            key,
            expiry_value_version,
            expiry_version,
            exptime_secs,
            version,
            base_version,
        } => {
            let mut state = State::touched(Expiry {
                value_version: expiry_value_version,
                version: expiry_version,
                exptime_secs,
            });
            state.value = (version != 0).then_some(Register { version, base_version, item: None });
            (key, state)
        }
        _ => return None,
    })
}

/// Three of each of seven peers, what is left of their connections before, and those that have proven nothing.
const CONNECTIONS_MAX: usize = 96;
/// Of these, without a proof.
const UNPROVEN_MAX: usize = 32;
const ACCEPT_MAX: Duration = Duration::from_secs(60);
/// After a failure.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_oldest_stranger_goes_when_there_are_too_many() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let unproven = Unproven::default();
        let pair = || {
            let client = TcpStream::connect(address).expect("it listens");
            let (accepted, _) = listener.accept().expect("somebody connects");
            let number = unproven.add(&accepted).expect("there are descriptors");
            (client, accepted, number)
        };
        let proven = pair();
        unproven.remove(proven.2);
        let mut strangers: Vec<_> = (0..=UNPROVEN_MAX).map(|_| pair()).collect();
        let (oldest, others) = strangers.split_first_mut().expect("there are some");
        assert_eq!(oldest.0.read(&mut [0]).expect("it is closed"), 0);
        for (client, ..) in others.iter_mut().chain([&mut { proven }]) {
            client.set_nonblocking(true).expect("it is open");
            let error = client.read(&mut [0]).expect_err("nobody says anything");
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
    }
}
