//! Requests on their way out.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::PollFlags;

use super::deadline::Deadline;
use super::socket::{Socket, duration, wait};
use super::{Failure, Link, OUTPUT_BYTES_MAX, Options};

impl Link {
    /// Sends all requests.
    pub(in crate::core) fn flush(&mut self, options: &Options) -> Result<(), Failure> {
        if self.output.is_empty() || matches!(self.socket, Socket::Datagram(_)) {
            return Ok(());
        }
        self.unanswered_bytes = self.unanswered_bytes.saturating_add(self.output.len());
        // What fits into the buffers of the system cannot block for a server that waits to be read.
        let is_short = self.pipeline.len() <= 1 || self.unanswered_bytes <= SAFE_BYTES;
        if is_short && self.output.len() <= SAFE_BYTES && options.poll_timeout != 0 {
            let sent = self.send_briefly(options);
            self.output.clear();
            return sent;
        }
        let Socket::Stream(stream) = &self.socket else { return Ok(()) };
        stream.set_nonblocking(true).map_err(|error| Failure::of_io(&error))?;
        let sent = self.send_while_reading(options);
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES_MAX);
        let Socket::Stream(stream) = &self.socket else { return sent };
        stream.set_nonblocking(false).map_err(|error| Failure::of_io(&error))?;
        sent
    }

    /// Sends in the time that one wait may take: a server that does not read fills those buffers.
    fn send_briefly(&mut self, options: &Options) -> Result<(), Failure> {
        self.limit_waits(options)?;
        let Socket::Stream(stream) = &mut self.socket else { return Ok(()) };
        let deadline = Deadline::after(options.poll_timeout);
        let mut rest = self.output.as_slice();
        loop {
            let written = match rest {
                [] if !stream.has_unsent() => return Ok(()),
                [] => stream.flush_step().map(|()| 0),
                rest => stream.write_step(rest),
            };
            match written {
                Ok(bytes) => rest = rest.get(bytes..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::of_io(&error)),
            }
            if deadline.has_passed() {
                return Err(Failure::timeout());
            }
        }
    }

    /// Makes reads and writes of the socket wait as long as they may. Not for a time of 0.
    pub(super) fn limit_waits(&mut self, options: &Options) -> Result<(), Failure> {
        if let Socket::Stream(stream) = &self.socket
            && self.socket_timeout != options.poll_timeout
        {
            stream.set_timeout(duration(options.poll_timeout)).map_err(|error| Failure::of_io(&error))?;
            self.socket_timeout = options.poll_timeout;
        }
        Ok(())
    }

    /// Sends without blocking. While the server does not read, it waits to be read itself: so replies are taken in.
    fn send_while_reading(&mut self, options: &Options) -> Result<(), Failure> {
        let Socket::Stream(stream) = &mut self.socket else { return Ok(()) };
        let mut sent = 0;
        // A server that says a little now and then, and reads nothing, makes no progress.
        let mut deadline = Deadline::after_progress(options.poll_timeout);
        loop {
            let written = match self.output.get(sent..) {
                Some(rest) if !rest.is_empty() => stream.write(rest),
                _ if stream.has_unsent() => stream.flush().map(|()| 0),
                _ => return Ok(()),
            };
            match written {
                Ok(bytes) => {
                    sent += bytes;
                    deadline.renew();
                }
                Err(error) if is_retryable(&error) => {
                    let has_room = self.input.len() < INPUT_BYTES_MAX;
                    let read = if has_room { self.input.read(stream, 0) } else { Ok(0) };
                    match read {
                        Ok(0) if has_room => return Err(Failure::disconnected()),
                        Err(error) if !is_retryable(&error) => return Err(Failure::of_io(&error)),
                        Ok(bytes) if bytes > 0 => deadline.received(bytes),
                        _ => {
                            let readable = if has_room { PollFlags::IN } else { PollFlags::empty() };
                            wait(stream.as_fd(), PollFlags::OUT | readable, deadline.left())?;
                        }
                    }
                    if deadline.has_passed() && options.poll_timeout != 0 {
                        return Err(Failure::timeout());
                    }
                }
                Err(error) => return Err(Failure::of_io(&error)),
            }
        }
    }
}

/// May a write or a read that has failed succeed later?
fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Any system takes so much of a connection without an answer.
const SAFE_BYTES: usize = 16 << 10;
/// So much is read before requests are sent that the server does not take.
const INPUT_BYTES_MAX: usize = 256 << 20;
