//! The ring: operations in, completions out.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::squeue::Entry;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode};
use libc::{EAGAIN, EBUSY, EINTR, EINVAL, ETIME, MSG_DONTWAIT, MSG_NOSIGNAL};

use crate::slots::{Kind, Operation, Slots, State};

/// A ring of io_uring. Made on any thread, used by the one that calls [`Ring::enable`].
pub struct Ring {
    uring: IoUring,
    slots: Slots,
    /// Completed operations that [`Ring::take_ready`] has not returned yet. Has room for all in flight.
    completed: VecDeque<Operation>,
    /// How many of them [`Ring::take_ready`] returns before the next wait.
    due: usize,
    /// Descriptors whose watches have completed, to be armed again. Few: a thread watches some listeners and the like.
    resting: Vec<u32>,
    /// Operations on descriptors that have not completed, cancelled ones as well.
    in_flight: usize,
    is_enabled: bool,
}

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can be read, or accepted from.
    Readable,
    /// It can be written.
    Writable,
}

/// Whether other rings that watch the same socket are woken as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusive {
    /// All of them.
    No,
    /// One is enough.
    Yes,
}

/// One member of [`Ring::send_all`].
#[derive(Debug)]
pub struct SocketSend<'s> {
    fd: BorrowedFd<'s>,
    bytes: &'s [u8],
    result: Option<i32>,
}

impl Ring {
    /// A ring whose thread may do nothing by it but poll and send. Errors: the kernel has no io_uring, or
    /// not all that this needs, or does not allow it.
    pub fn new() -> io::Result<Self> {
        let uring = build()?;
        let operations = [opcode::PollAdd::CODE, opcode::Send::CODE, opcode::AsyncCancel::CODE];
        uring.submitter().register_restrictions(&mut operations.map(Restriction::sqe_op))?;
        Ok(Self {
            uring,
            slots: Slots::default(),
            completed: VecDeque::new(),
            due: 0,
            resting: Vec::new(),
            in_flight: 0,
            is_enabled: false,
        })
    }

    /// Makes the ring the calling thread's. Call it before anything else.
    pub fn enable(&mut self) -> io::Result<()> {
        self.uring.submitter().register_enable_rings()?;
        self.is_enabled = true;
        Ok(())
    }

    /// Watches a descriptor until it is ready once. An operation that is armed on it already is cancelled.
    pub fn poll(&mut self, fd: impl AsFd, tag: u64, readiness: Readiness) -> io::Result<()> {
        let events = match readiness {
            Readiness::Readable => POLL_IN,
            Readiness::Writable => POLL_OUT,
        };
        self.cancel(&fd)?;
        self.arm(number(fd.as_fd()), Kind::Poll, tag, events)
    }

    /// Watches a descriptor until [`Ring::cancel`], and reports at every wait while it can be read or accepted from.
    pub fn watch(&mut self, fd: impl AsFd, tag: u64, exclusive: Exclusive) -> io::Result<()> {
        self.cancel(&fd)?;
        self.arm_watch(number(fd.as_fd()), tag, exclusive)
    }

    /// True while an operation is armed on a descriptor, or has completed and was not reported yet.
    pub fn is_armed(&self, fd: impl AsFd) -> bool {
        self.slots.state(number(fd.as_fd())) != State::Idle
    }

    /// Cancels the operation of a descriptor, if there is one. Once this returns, none is submitted with its number,
    /// and [`Ring::take_ready`] reports none. The kernel lets go of the socket with the next wait.
    pub fn cancel(&mut self, fd: impl AsFd) -> io::Result<()> {
        let Some(operation) = self.slots.cancel(number(fd.as_fd())) else { return Ok(()) };
        self.make_room(1)?;
        self.push(&opcode::AsyncCancel::new(operation.word()).build().user_data(IGNORED));
        // Whatever is queued for this descriptor has to be submitted while its number means this socket.
        self.make_room(SUBMISSIONS)
    }

    /// Submits what was armed, and waits until an operation completes, the time is up (`None`: never), or a signal
    /// arrives. Call [`Ring::take_ready`] until it reports nothing.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        while let Some(fd) = self.resting.last().copied() {
            if let Some((tag, exclusive)) = self.slots.resting(fd) {
                self.arm_watch(fd, tag, exclusive)?;
            }
            self.resting.pop();
        }
        let waits = self.completed.is_empty() && timeout != Some(Duration::ZERO);
        self.enter(u32::from(waits), timeout)?;
        self.reap();
        self.due = self.completed.len();
        Ok(())
    }

    /// The tag of the next descriptor that was ready at the last wait. Spurious reports are possible: read or write to
    /// find out.
    pub fn take_ready(&mut self) -> Option<u64> {
        while self.due > 0 {
            self.due -= 1;
            let operation = self.completed.pop_front()?;
            let Some(tag) = self.slots.deliver(operation) else { continue };
            if self.slots.state(operation.fd) == State::Resting {
                self.resting.push(operation.fd);
            }
            return Some(tag);
        }
        None
    }

    /// Sends to each of at most 128 sockets what it takes at once, and never waits for one. [`SocketSend::sent_bytes`]
    /// says how much that was. Errors: nothing was sent.
    pub fn send_all(&mut self, sends: &mut [SocketSend<'_>]) -> io::Result<()> {
        if !self.is_enabled || sends.len() > SUBMISSIONS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.make_room(sends.len())?;
        self.send(sends);
        Ok(())
    }

    /// Sends where there is room for all. It does not return before the last has completed, for so long the kernel may
    /// read their bytes.
    fn send(&mut self, sends: &mut [SocketSend<'_>]) {
        for (index, send) in sends.iter_mut().enumerate() {
            send.result = None;
            let bytes = u32::try_from(send.bytes.len()).unwrap_or(u32::MAX);
            let entry = opcode::Send::new(Fd(send.fd.as_raw_fd()), send.bytes.as_ptr(), bytes);
            self.push(&entry.flags(MSG_DONTWAIT | MSG_NOSIGNAL).build().user_data(SEND | index as u64));
        }
        let mut pending = sends.len();
        let mut tries = 0;
        while pending > 0 {
            // All complete while they are submitted, since none waits for its socket.
            let entered = self.enter(u32::from(tries > 0), None);
            let reaped = self.reap_sends(sends);
            pending -= reaped;
            tries = if reaped > 0 { 0 } else { tries + 1 };
            if pending > 0 && (entered.is_err() || tries > TRIES_MAX) {
                // The kernel neither completes the sends nor gives them up: their memory can never be reused.
                std::process::abort();
            }
        }
    }

    fn arm_watch(&mut self, fd: u32, tag: u64, exclusive: Exclusive) -> io::Result<()> {
        let events = if exclusive == Exclusive::Yes { POLL_IN | EPOLL_EXCLUSIVE } else { POLL_IN };
        self.arm(fd, Kind::Watch(exclusive), tag, events)
    }

    /// Arms an operation on a descriptor that has none.
    fn arm(&mut self, fd: u32, kind: Kind, tag: u64, events: u32) -> io::Result<()> {
        self.completed.try_reserve(self.in_flight + 1)?;
        self.make_room(1)?;
        let operation = self.slots.arm(fd, kind, tag)?;
        self.push(&opcode::PollAdd::new(Fd(fd as RawFd), events).build().user_data(operation.word()));
        self.in_flight += 1;
        Ok(())
    }

    /// Submits what is queued, unless there is room for another `entries`.
    fn make_room(&mut self, entries: usize) -> io::Result<()> {
        for _ in 0..TRIES_MAX {
            let queue = self.uring.submission();
            if queue.capacity() - queue.len() >= entries {
                return Ok(());
            }
            drop(queue);
            if !self.is_enabled {
                break;
            }
            self.enter(0, None)?;
            self.reap();
        }
        Err(io::ErrorKind::OutOfMemory.into())
    }

    /// Queues an entry, for which there is room. It names no memory, or its caller keeps that until it has completed.
    fn push(&mut self, entry: &Entry) {
        // SAFETY: an entry of ours is a poll or a cancellation, which name no memory; or a send, whose bytes
        // `send` borrows until it has completed.
        let pushed = unsafe { self.uring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "its caller has made room");
    }

    /// Submits, lets the kernel complete what it can, and waits for `wanted` completions at most until the time is up.
    fn enter(&mut self, wanted: u32, timeout: Option<Duration>) -> io::Result<()> {
        let submitted = self.uring.submission().len() as u32;
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        let timeout = timeout.map(|timeout| {
            Timespec::new().sec(timeout.as_secs().min(WAIT_SECS_MAX)).nsec(timeout.subsec_nanos())
        });
        let args = SubmitArgs::new();
        let args = timeout.as_ref().map_or(args, |timeout| args.timespec(timeout));
        // SAFETY: with `EXT_ARG` the argument is a `SubmitArgs`; it and its time live until the call returns.
        let entered = unsafe { self.uring.submitter().enter(submitted, wanted, flags.bits(), Some(&args)) };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            // Time is up, or a signal has arrived, or the kernel has no memory or no room for completions: the caller
            // reaps, and calls again.
            Ok(_) | Err((Some(ETIME | EINTR | EAGAIN | EBUSY), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Takes completions of operations out of the ring, into the queue of [`Ring::take_ready`]. No send is in flight.
    fn reap(&mut self) {
        self.reap_sends(&mut []);
    }

    /// The same while these sends are in flight. Returns how many of them have completed.
    fn reap_sends(&mut self, sends: &mut [SocketSend<'_>]) -> usize {
        let mut sent = 0;
        for entry in self.uring.completion() {
            let (word, result) = (entry.user_data(), entry.result());
            if word == IGNORED {
                continue;
            }
            if word & SEND != 0 {
                if let Some(send) = sends.get_mut((word & !SEND) as usize) {
                    send.result = Some(result);
                    sent += 1;
                }
                continue;
            }
            self.in_flight -= 1;
            let operation = Operation::of_word(word);
            if self.slots.complete(operation) {
                // There is room: `arm` has reserved it.
                self.completed.push_back(operation);
            }
        }
        sent
    }
}

impl<'s> SocketSend<'s> {
    /// `bytes` for the socket `fd`.
    pub fn new(fd: BorrowedFd<'s>, bytes: &'s [u8]) -> Self {
        Self { fd, bytes, result: None }
    }

    /// How many bytes the socket took; 0 if it takes nothing at the moment.
    pub fn sent_bytes(&self) -> io::Result<usize> {
        match self.result {
            Some(EAGAIN_RESULT | EINTR_RESULT) => Ok(0),
            Some(result) => usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

/// A ring with the best flags that the kernel takes. It is disabled until its thread enables it.
fn build() -> io::Result<IoUring> {
    let builder = || {
        let mut builder = IoUring::builder();
        builder.setup_r_disabled().setup_submit_all().setup_cqsize(COMPLETIONS).dontfork();
        builder
    };
    let mut deferred = builder();
    deferred.setup_single_issuer().setup_defer_taskrun();
    let mut cooperative = builder();
    cooperative.setup_coop_taskrun();
    match deferred.build(SUBMISSIONS as u32) {
        // Before 6.1.
        Err(error) if error.raw_os_error() == Some(EINVAL) => cooperative.build(SUBMISSIONS as u32),
        built => built,
    }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

/// Entries that are submitted at once. Few, so that the queue stays in the core's first cache.
const SUBMISSIONS: usize = 128;
/// Completions for which there is room; the kernel keeps more until those are reaped.
const COMPLETIONS: u32 = 512;
/// How often the kernel is asked again when it has no room or memory.
const TRIES_MAX: u32 = 1 << 16;
/// A longer wait ends here, and its caller checks and waits again.
const WAIT_SECS_MAX: u64 = 3600;

/// The word of an entry whose completion says nothing.
const IGNORED: u64 = u64::MAX;
/// Of the word of a send; its number is in the other bits.
const SEND: u64 = 1 << 63;

const POLL_IN: u32 = libc::POLLIN as u32;
const POLL_OUT: u32 = libc::POLLOUT as u32;
const EPOLL_EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

// The results of operations are negated errors.
const EAGAIN_RESULT: i32 = -libc::EAGAIN;
const EINTR_RESULT: i32 = -libc::EINTR;

#[cfg(test)]
mod tests;
