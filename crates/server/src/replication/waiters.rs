//! Threads that wait for a socket and for the committer at once.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_store::commit::{Journal, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::site::lock;
use crate::net::wake::Wake;

/// All such threads of a site. Who waits for its socket alone costs the committer nothing.
#[derive(Default)]
pub(super) struct Waiters {
    all: Mutex<Vec<Arc<Waiting>>>,
    /// One of them waits for a position.
    is_any_waiting: AtomicBool,
}

struct Waiting {
    wake: Wake,
    /// What it waits for; 0: for its socket alone.
    position: AtomicU64,
}

/// A thread that waits.
pub(super) struct Waiter<'w> {
    waiters: &'w Waiters,
    journal: &'w Journal,
    waiting: Arc<Waiting>,
}

/// Wakes a thread that waits, or will.
#[derive(Clone)]
pub(super) struct Waker(Arc<Waiting>);

impl Waker {
    #[cfg(test)]
    pub(super) fn of_nobody() -> Self {
        let wake = Wake::new().expect("there are descriptors");
        Self(Arc::new(Waiting { wake, position: AtomicU64::new(0) }))
    }

    pub(super) fn wake(&self) {
        self.0.wake.notify();
    }
}

/// Threads that wait for something that happens often. While none of them does, that costs one load.
#[derive(Default)]
pub(super) struct Idle {
    is_any: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Idle {
    /// This thread is woken by the next [`wake`](Self::wake). It looks once more, and then waits.
    pub(super) fn add(&self, waker: &Waker) {
        let mut wakers = lock(&self.wakers);
        if wakers.iter().all(|other| !Arc::ptr_eq(&other.0, &waker.0)) {
            wakers.push(waker.clone());
        }
        self.is_any.store(true, SeqCst);
    }

    /// It has happened, and whoever looks now sees it.
    pub(super) fn wake(&self) {
        if self.is_any.load(SeqCst) && self.is_any.swap(false, SeqCst) {
            lock(&self.wakers).drain(..).for_each(|waker| waker.wake());
        }
    }
}

/// What ends a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    /// This position is durable, or lost; 0: no position does.
    pub(super) position: u64,
    /// So much time has passed.
    pub(super) timeout: Duration,
}

impl Waiters {
    /// Errors: no descriptor to be had.
    pub(super) fn register<'w>(&'w self, journal: &'w Journal) -> io::Result<Waiter<'w>> {
        let waiting = Arc::new(Waiting { wake: Wake::new()?, position: AtomicU64::new(0) });
        lock(&self.all).push(Arc::clone(&waiting));
        Ok(Waiter { waiters: self, journal, waiting })
    }

    /// The committer has done something: wakes whom it concerns.
    pub(super) fn on_progress(&self, journal: &Journal) {
        if !self.is_any_waiting.load(SeqCst) {
            return;
        }
        self.is_any_waiting.store(false, SeqCst);
        for waiting in &*lock(&self.all) {
            match waiting.position.load(SeqCst) {
                0 => {}
                position if journal.outcome(position) == Outcome::Pending => {
                    self.is_any_waiting.store(true, SeqCst);
                }
                _ => {
                    waiting.position.store(0, SeqCst);
                    waiting.wake.notify();
                }
            }
        }
    }

    /// Wakes all of them.
    pub(super) fn wake_all(&self) {
        lock(&self.all).iter().for_each(|waiting| waiting.wake.notify());
    }
}

impl Waiter<'_> {
    /// What wakes this thread.
    pub(super) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.waiting))
    }

    /// Waits until there is something to read (or, if that `has_output`, room to write), or one of the others. True:
    /// there is something to read.
    pub(super) fn wait(&self, socket: impl AsFd, has_output: bool, until: Until) -> io::Result<bool> {
        let mut timeout = until.timeout;
        if until.position != 0 {
            self.waiting.position.store(until.position, SeqCst);
            self.waiters.is_any_waiting.store(true, SeqCst);
            // The committer says what it did, and looks who waits; this does it the other way round.
            let _ = self.journal.progress();
            if self.journal.outcome(until.position) != Outcome::Pending {
                timeout = Duration::ZERO;
            }
        }
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let flags = if has_output { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(&socket, flags), PollFd::new(&self.waiting.wake, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [is_readable, is_woken] = fds.each_ref().map(|fd| fd.revents().intersects(!PollFlags::OUT));
        self.waiting.position.store(0, SeqCst);
        if is_woken {
            self.waiting.wake.drain();
        }
        Ok(is_readable)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        lock(&self.waiters.all).retain(|waiting| !Arc::ptr_eq(waiting, &self.waiting));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use larder_store::commit::{Change, Clock, Committer, JournalConfig, Observer};
    use larder_store::{Error, MemoryStore};

    use super::*;

    struct Still;

    impl Clock for Still {
        fn unix_micros(&self) -> u64 {
            1_800_000_000_000_000
        }
    }

    struct Telling(Arc<Journal>, Arc<Waiters>);

    impl Observer for Telling {
        fn on_progress(&self) {
            self.1.on_progress(&self.0);
        }

        fn on_lost(&self, _change: &Change) {}

        fn on_commit(&self, _changes: usize, _bytes: u64, _durable_micros: Option<u64>) {}

        fn on_error(&self, _error: &Error) {}
    }

    /// Without the wake-up each wait would take a minute.
    #[test]
    fn a_wait_ends_with_the_position_or_the_socket() {
        let journal = Arc::new(Journal::new(JournalConfig {
            bytes_max: 1 << 20,
            changes_max: 64,
            site: 1,
            highest_version: 0,
            clock: Box::new(Still),
        }));
        let waiters = Arc::<Waiters>::default();
        let telling = Arc::new(Telling(Arc::clone(&journal), Arc::clone(&waiters)));
        let store = Arc::new(MemoryStore::new());
        let mut committer = Committer::new(Arc::clone(&journal), store, telling, None);
        let (socket, mut other) = UnixStream::pair().expect("there are descriptors");
        let waiter = waiters.register(&journal).expect("there are descriptors");
        let minute = Duration::from_secs(60);
        let since = std::time::Instant::now();
        for _ in 0..100 {
            let position = journal.next_position_of_none();
            std::thread::scope(|scope| {
                let waiting =
                    scope.spawn(|| waiter.wait(&socket, false, Until { position, timeout: minute }));
                journal.submit(position, Change::new(larder_store::commit::Kind::Nothing, b"", b"", true));
                while journal.outcome(position) == Outcome::Pending {
                    committer.step_through(0);
                }
                assert!(!waiting.join().expect("no panic").expect("it waits"), "nothing is to be read");
            });
        }
        // A position that never comes.
        let position = journal.next_position_of_none();
        std::io::Write::write_all(&mut other, b"x").expect("it is open");
        assert!(waiter.wait(&socket, false, Until { position, timeout: minute }).expect("it waits"));
        assert!(since.elapsed() < minute);
        // Nobody waits: nothing is signalled.
        waiters.on_progress(&journal);
        let ready = Until { position: 0, timeout: Duration::ZERO };
        assert!(waiter.wait(&socket, false, ready).expect("it waits"), "the byte is still there");
        // Who is idle is woken once, and a wake-up before the wait ends it.
        let idle = Idle::default();
        idle.wake();
        (0..2).for_each(|_| idle.add(&waiter.waker()));
        assert_eq!(lock(&idle.wakers).len(), 1);
        idle.wake();
        let (quiet, _other) = UnixStream::pair().expect("there are descriptors");
        assert!(!waiter.wait(&quiet, false, Until { position: 0, timeout: minute }).expect("it waits"));
        assert!(since.elapsed() < minute && lock(&idle.wakers).is_empty());
        drop(waiter);
        assert!(lock(&waiters.all).is_empty());
    }
}
