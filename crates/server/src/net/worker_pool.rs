//! What workers share: the number of connections of each, and an inbox for those that others pass on.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::conn::client::Peer;
use crate::conn::waiter::Waiter;
use crate::net::listeners::Listener;
use crate::net::wake::Wake;

/// The workers of a server.
pub struct WorkerPool {
    inboxes: Vec<Inbox>,
    listeners: Vec<Listener>,
    is_stopping: AtomicBool,
}

/// What other threads left for a worker.
struct Inbox {
    wake: Wake,
    accepted: Mutex<Vec<Accepted>>,
    /// Connections of this worker that were waiting for a signal.
    signalled: Mutex<Vec<Waiter>>,
    /// Connections that the worker has, or is about to have.
    connections: AtomicUsize,
}

/// A connection that was accepted and is not served yet.
pub(crate) struct Accepted {
    pub(crate) fd: OwnedFd,
    /// The index of the listener that accepted it.
    pub(crate) listener: usize,
    pub(crate) peer: Peer,
}

impl WorkerPool {
    /// A pool of `workers` that serves these listeners. Errors: no descriptors to be had.
    pub fn new(workers: usize, listeners: Vec<Listener>) -> io::Result<Self> {
        let inbox = || {
            Ok(Inbox {
                wake: Wake::new()?,
                accepted: Mutex::default(),
                signalled: Mutex::default(),
                connections: AtomicUsize::new(0),
            })
        };
        let inboxes = (0..workers).map(|_| inbox()).collect::<io::Result<_>>()?;
        Ok(Self { inboxes, listeners, is_stopping: AtomicBool::new(false) })
    }

    /// Lets every worker finish its round and end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
        self.wake_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Signalled when something is in the inbox of worker `index`, or something has changed for all workers.
    pub(crate) fn wake(&self, index: usize) -> &Wake {
        &self.inboxes[index].wake
    }

    pub(crate) fn wake_all(&self) {
        for inbox in &self.inboxes {
            inbox.wake.notify();
        }
    }

    /// Passes a connection that worker `here` accepted to another worker if that has fewer. Returns it if it stays
    /// here.
    pub(crate) fn assign(&self, here: usize, accepted: Accepted) -> Option<Accepted> {
        let load = |index: usize| self.inboxes[index].connections.load(Relaxed);
        let least = (0..self.inboxes.len()).min_by_key(|&index| load(index)).unwrap_or(here);
        let chosen = if load(least) < load(here) { least } else { here };
        let inbox = &self.inboxes[chosen];
        inbox.connections.fetch_add(1, Relaxed);
        if chosen == here {
            return Some(accepted);
        }
        inbox.accepted().push(accepted);
        inbox.wake.notify();
        None
    }

    /// Takes the accepted connections from the inbox of worker `index`.
    pub(crate) fn take_accepted(&self, index: usize) -> Vec<Accepted> {
        std::mem::take(&mut *self.inboxes[index].accepted())
    }

    /// Wakes a connection that waits for a signal: see [`crate::conn::waiter`]. For any thread.
    pub fn signal(&self, waiter: Waiter) {
        let inbox = &self.inboxes[waiter.worker];
        inbox.signalled.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
        inbox.wake.notify();
    }

    /// Takes the signalled connections from the inbox of worker `index`.
    pub(crate) fn take_signalled(&self, index: usize) -> Vec<Waiter> {
        std::mem::take(&mut *self.inboxes[index].signalled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of connections of each worker.
    pub(crate) fn loads(&self) -> impl Iterator<Item = usize> {
        self.inboxes.iter().map(|inbox| inbox.connections.load(Relaxed))
    }

    /// Counts one connection of worker `index` less.
    pub(crate) fn release(&self, index: usize) {
        self.inboxes[index].connections.fetch_sub(1, Relaxed);
    }
}

impl Inbox {
    fn accepted(&self) -> MutexGuard<'_, Vec<Accepted>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::poller::{Events, Poller, Token};

    #[test]
    fn a_signal_wakes_the_worker_that_serves_the_waiter() {
        let pool = WorkerPool::new(2, Vec::new()).expect("descriptors");
        let pollers = [0, 1].map(|worker| {
            let poller = Poller::new().expect("a descriptor");
            poller.add_wake(pool.wake(worker)).expect("it is an eventfd");
            poller
        });
        let mut events = Events::new();
        let mut woken = |worker: usize| {
            pollers[worker].wait(&mut events, Some(Duration::ZERO)).expect("it waits");
            std::iter::from_fn(|| events.take()).collect::<Vec<_>>()
        };
        assert_eq!((woken(0), woken(1)), (vec![], vec![]));
        let waiter = |connection| Waiter { worker: 1, connection };
        pool.signal(waiter(7));
        pool.signal(waiter(9));
        assert_eq!((woken(0), woken(1)), (vec![], vec![Token::Wake]));
        assert_eq!(pool.take_signalled(0), []);
        assert_eq!(pool.take_signalled(1), [waiter(7), waiter(9)]);
        assert_eq!((woken(1), pool.take_signalled(1)), (vec![], vec![]));
        pool.signal(waiter(7));
        assert_eq!(woken(1), [Token::Wake], "a signal behind one that nobody cleared");
    }
}
