//! The peers that connect to this site.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use super::serve;
use crate::observe::journal::Rarely;
use crate::replication::Site;
use crate::replication::site::lock;
use crate::replication::waiters::Until;
use crate::shared::Shared;

/// Accepts peers until the site stops.
pub(in crate::replication) fn accept(listener: &TcpListener, shared: &Arc<Shared>, site: &Arc<Site>) {
    let waiter = match site.waiter() {
        Ok(waiter) => waiter,
        Err(error) => return tracing::error!("no peer is accepted: {error}"),
    };
    let (connections, unproven) = (Arc::new(AtomicUsize::new(0)), Arc::new(Unproven::default()));
    let (mut threads, unaccepted) = (Vec::new(), Rarely::default());
    let happened = || unaccepted.happened(shared.clock.now().secs);
    while !site.is_stopping() {
        let (stream, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                let is_idle = error.kind() == ErrorKind::WouldBlock;
                if !is_idle && let Some(times) = happened() {
                    tracing::warn!(times, "a peer cannot be accepted: {error}");
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
            if let Some(times) = happened() {
                tracing::warn!(times, "a peer is refused: there are {CONNECTIONS_MAX} connections already");
            }
            continue;
        }
        let began_micros = site.now().micros;
        let place = match unproven.add(&stream, address.ip()) {
            Ok(number) => Place::take(&connections, &unproven, number),
            Err(error) => {
                if let Some(times) = happened() {
                    tracing::warn!(times, "a peer cannot be accepted: {error}");
                }
                continue;
            }
        };
        let (shared, site) = (Arc::clone(shared), Arc::clone(site));
        let serve = move || {
            if let Err(error) = serve(stream, began_micros, &shared, &site, || place.prove()) {
                tracing::info!("a peer's connection ends: {error}");
            }
        };
        threads.retain(|thread: &std::thread::JoinHandle<()>| !thread.is_finished());
        match Builder::new().name("larder-publish".into()).spawn(serve) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                if let Some(times) = happened() {
                    tracing::warn!(times, "a peer has no thread: {error}");
                }
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// A connection's place among all of them, until this is dropped.
struct Place {
    connections: Arc<AtomicUsize>,
    unproven: Arc<Unproven>,
    number: u64,
}

impl Place {
    fn take(connections: &Arc<AtomicUsize>, unproven: &Arc<Unproven>, number: u64) -> Self {
        connections.fetch_add(1, SeqCst);
        Self { connections: Arc::clone(connections), unproven: Arc::clone(unproven), number }
    }

    /// The peer knows the token.
    fn prove(&self) {
        self.unproven.remove(self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.prove();
        self.connections.fetch_sub(1, SeqCst);
    }
}

/// Connections of which it is not known yet whether they know the token. Who holds many of them from one address shuts
/// out nobody at another one.
#[derive(Default)]
struct Unproven(Mutex<Strangers>);

#[derive(Default)]
struct Strangers {
    /// Of the last one.
    number: u64,
    /// The oldest first.
    all: VecDeque<Stranger>,
}

struct Stranger {
    number: u64,
    address: IpAddr,
    stream: TcpStream,
}

impl Strangers {
    /// The oldest one of the address that has most.
    fn first_to_go(&self) -> Option<usize> {
        let of_address =
            |index: &usize| self.all.iter().filter(|other| other.address == self.all[*index].address).count();
        // Of equals the last one counts.
        (0..self.all.len()).rev().max_by_key(of_address)
    }
}

impl Unproven {
    /// Ends one of them if there are too many. Returns a number for the new one. Errors: no descriptor to be had.
    fn add(&self, stream: &TcpStream, address: IpAddr) -> io::Result<u64> {
        let stream = stream.try_clone()?;
        let mut strangers = lock(&self.0);
        if strangers.all.len() >= UNPROVEN_MAX
            && let Some(first) = strangers.first_to_go().and_then(|index| strangers.all.remove(index))
        {
            let _ = first.stream.shutdown(Shutdown::Both);
        }
        strangers.number += 1;
        let number = strangers.number;
        strangers.all.push_back(Stranger { number, address, stream });
        Ok(number)
    }

    fn remove(&self, number: u64) {
        lock(&self.0).all.retain(|stranger| stranger.number != number);
    }
}

/// Four of each of seven peers, what is left of their connections before, and those that have proven nothing.
pub(in crate::replication) const CONNECTIONS_MAX: usize = 96;
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
    fn the_oldest_of_the_address_with_most_goes_when_there_are_too_many() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let unproven = Unproven::default();
        let pair = |host: u8| {
            let client = TcpStream::connect(address).expect("it listens");
            let (accepted, _) = listener.accept().expect("somebody connects");
            let number = unproven.add(&accepted, [10, 0, 0, host].into()).expect("there are descriptors");
            (client, accepted, number)
        };
        let proven = pair(1);
        unproven.remove(proven.2);
        let peer = pair(2);
        let mut strangers: Vec<_> = (0..UNPROVEN_MAX).map(|_| pair(1)).collect();
        let (oldest, others) = strangers.split_first_mut().expect("there are some");
        for (client, ..) in others.iter_mut().chain([&mut { proven }, &mut { peer }]) {
            client.set_nonblocking(true).expect("it is open");
            let error = client.read(&mut [0]).expect_err("nobody says anything");
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        assert_eq!(oldest.0.read(&mut [0]).expect("it is closed"), 0);
    }

    /// A thread may end in any way.
    #[test]
    fn a_place_is_given_back_whatever_comes_of_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let stream = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (connections, unproven) = (Arc::default(), Arc::new(Unproven::default()));
        let number = unproven.add(&stream, [10, 0, 0, 1].into()).expect("there are descriptors");
        let place = Place::take(&connections, &unproven, number);
        assert_eq!((connections.load(SeqCst), lock(&unproven.0).all.len()), (1, 1));
        let thread = std::thread::spawn(move || {
            let _place = place;
            std::panic::resume_unwind(Box::new("a panic"))
        });
        let ended: Result<(), _> = thread.join();
        assert!(ended.is_err());
        assert_eq!((connections.load(SeqCst), lock(&unproven.0).all.len()), (0, 0));
    }
}
