//! The peers that connect to this site.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use super::serve;
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

/// Four of each of seven peers, what is left of their connections before, and those that have proven nothing.
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
