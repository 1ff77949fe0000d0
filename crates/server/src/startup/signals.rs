//! Signals, read like other input. They are blocked in all threads, so none interrupts a system call of a worker.
//!
//! SIGPIPE needs no handling: Rust's runtime ignores it from the start.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGINT, SIGTERM, by name.
    Stop(&'static str),
    /// SIGUSR1.
    StopGracefully(&'static str),
    /// SIGHUP: read files with secrets again.
    Reload,
}

/// The signals that larderd handles.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Holds back those of which nobody expects that they end a server that starts: they are seen by
    /// [`Signals::next`]. Call it first, since a client that can connect may send one.
    pub fn hold_back() -> io::Result<()> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGUSR1);
        set.add(Signal::SIGHUP);
        Ok(set.thread_block()?)
    }

    /// Replaces the default actions of the signals. Call it before any other thread starts, because threads inherit it.
    pub fn take_over() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// The next signal that has arrived.
    pub fn next(&self) -> Option<Request> {
        let signal = self.0.read_signal().ok()??;
        match Signal::try_from(signal.ssi_signo as i32).ok()? {
            signal @ Signal::SIGUSR1 => Some(Request::StopGracefully(signal.as_str())),
            Signal::SIGHUP => Some(Request::Reload),
            signal => Some(Request::Stop(signal.as_str())),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
