//! A client's socket as the connection sees it: plain bytes come out and go in, whether TLS is spoken or not.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::conn::session::CloseReason;
use crate::net::round::MEMBERS_MAX;
use crate::net::tls::{Buffers, Channel};
use crate::observe::counters::Counters;

/// A socket, and the TLS that is spoken on it.
pub(crate) struct Wire {
    fd: OwnedFd,
    channel: Option<Box<Channel>>,
}

/// Bytes for a socket.
pub(crate) struct PendingSend<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) bytes: &'a [u8],
}

/// What reading brought.
pub(crate) enum Received {
    /// This many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The engine is busy reclaiming memory for the value that arrives.
    Busy,
    End(CloseReason),
}

impl Wire {
    pub(crate) fn new(fd: OwnedFd, channel: Option<Channel>) -> Self {
        Self { fd, channel: channel.map(Box::new) }
    }

    /// Can be read straight into the place where bytes belong?
    pub(crate) fn is_plain(&self) -> bool {
        self.channel.is_none()
    }

    /// Reads once.
    pub(crate) fn receive(
        &mut self,
        plain: &mut [u8],
        buffers: &mut Buffers,
        counters: &Counters,
    ) -> Received {
        match &mut self.channel {
            None => read(self.fd.as_fd(), plain),
            Some(channel) => channel.receive(self.fd.as_fd(), buffers, plain, counters),
        }
    }

    /// Sends from the head of `slices`, and says how many bytes are taken; 0 when the socket takes nothing more at the
    /// moment. What is taken may still be held: [`Wire::flush`].
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>], buffers: &mut Buffers) -> io::Result<usize> {
        match &mut self.channel {
            None => write(self.fd.as_fd(), slices),
            Some(channel) => channel.write(self.fd.as_fd(), buffers, slices),
        }
    }

    /// Sends what was taken and is still held; true when nothing is.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        self.channel.as_mut().map_or(Ok(true), |channel| channel.flush(self.fd.as_fd()))
    }

    /// Is something held that was taken?
    pub(crate) fn is_holding(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_holding())
    }

    /// The client will send no more, although its socket may stay open: do not wait for it.
    pub(crate) fn is_ended(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_ended())
    }

    /// To be called before the socket is closed.
    pub(crate) fn say_goodbye(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.say_goodbye(self.fd.as_fd());
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    loop {
        return match rustix::net::recv(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Received::End(CloseReason::Normal),
            Ok((n, _)) => Received::Bytes(n),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Received::Nothing,
            Err(_) => Received::End(CloseReason::Error),
        };
    }
}

/// One gathered write; 0 when the socket takes nothing more at the moment.
pub(crate) fn write(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        let written = match slices {
            [slice] => rustix::net::send(fd, slice, SendFlags::NOSIGNAL),
            _ => rustix::io::writev(fd, slices),
        };
        return match written {
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(0),
            written => Ok(written?),
        };
    }
}

/// Sends each of these once; what of each the socket took, 0 when it takes nothing at the moment.
///
/// Never inlined into what answers requests: with nothing but this loop between two system calls, a send costs an
/// eighth less than with a request answered in between (docs/history/scaling.md).
#[inline(never)]
pub(crate) fn send_all(sends: &[PendingSend<'_>]) -> ArrayVec<io::Result<usize>, MEMBERS_MAX> {
    sends.iter().map(|send| write(send.fd, &[IoSlice::new(send.bytes)])).collect()
}
