//! A connection that sends requests and waits for replies.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::builder::Settings;
use crate::codec::{Event, Pipeline};
use crate::{Address, Error, Stream};

/// A connection. After an error it cannot be used any more: drop it.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    pipeline: Pipeline<()>,
    output: Vec<u8>,
    /// Incomplete replies, up to `filled`.
    input: Vec<u8>,
    filled: usize,
    /// For a request and its reply.
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    /// Something has arrived since the last request was sent.
    has_read: bool,
    /// The socket's current timeout.
    patience: Option<Duration>,
}

impl Connection {
    /// Connects and logs in.
    pub(super) fn open(address: &Address, settings: &Settings) -> Result<Self, Error> {
        let mut stream = Stream::connect(address, settings.tls.as_ref(), settings.connect_timeout)
            .map_err(Error::Connect)?;
        // The system accepts no 0.
        let timeout = settings.timeout.map(|timeout| timeout.max(TIMEOUT_MIN));
        stream.set_timeout(timeout).map_err(Error::Connect)?;
        if let Some(login) = &settings.login {
            login.on(&mut stream, settings.protocol)?;
        }
        Ok(Self {
            stream,
            pipeline: Pipeline::new(settings.protocol),
            output: Vec::new(),
            input: Vec::new(),
            filled: 0,
            timeout,
            deadline: None,
            has_read: false,
            patience: timeout,
        })
    }

    /// True if it can be used again: the server has neither closed it nor sent anything that was not asked for, which
    /// would pass for the next reply.
    pub(super) fn is_silent(&mut self) -> bool {
        self.filled == 0 && self.stream.is_silent()
    }

    /// Sends requests. The time for their replies begins.
    pub(super) fn send(
        &mut self,
        request: impl FnOnce(&mut Pipeline<()>, &mut Vec<u8>),
    ) -> Result<(), Error> {
        self.deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        self.wait_at_most(self.timeout)?;
        self.has_read = false;
        self.output.clear();
        request(&mut self.pipeline, &mut self.output);
        let mut unsent = &self.output[..];
        while !unsent.is_empty() {
            let sent = self.stream.write(unsent).map_err(Error::of_io)?;
            unsent = &unsent[sent..];
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::Timeout);
            }
        }
        self.stream.flush().map_err(Error::of_io)?;
        self.output.shrink_to(KEPT_BYTES_MAX);
        Ok(())
    }

    /// Receives until all requests are answered.
    pub(super) fn receive(&mut self, mut take: impl FnMut(Event<'_, ()>)) -> Result<(), Error> {
        while !self.pipeline.is_empty() {
            self.read()?;
            let mut rest = &self.input[..self.filled];
            loop {
                if let Some(value) = self.pipeline.receive_usual_value(&mut rest) {
                    take(Event::Value(value));
                } else if let Some(event) = self.pipeline.receive(&mut rest)? {
                    take(event);
                } else {
                    break;
                }
            }
            let left = rest.len();
            self.input.copy_within(self.filled - left..self.filled, 0);
            self.filled = left;
        }
        if self.input.len() > KEPT_BYTES_MAX {
            self.input.truncate(self.filled.max(READ_BYTES));
            self.input.shrink_to(KEPT_BYTES_MAX);
        }
        Ok(())
    }

    /// Reads until there are enough bytes to continue.
    fn read(&mut self) -> Result<(), Error> {
        let needed = self.pipeline.needed_bytes().max(self.filled + 1);
        while self.filled < needed {
            self.hurry()?;
            // The rest of a large value, but not all at once: the server has only announced it.
            let room = (needed - self.filled).clamp(READ_BYTES, READ_BYTES_MAX);
            // What is there already need not be set to 0 again.
            if self.input.len() < self.filled + room {
                self.input.resize(self.filled + room, 0);
            }
            let read = self.stream.read(&mut self.input[self.filled..]).map_err(Error::of_io)?;
            if read == 0 {
                return Err(Error::Closed);
            }
            self.filled += read;
            self.has_read = true;
            if self.filled == self.input.len() && self.filled < KEPT_BYTES_MAX {
                // There may be more: fewer reads take it.
                self.input.resize((self.filled * 2).min(KEPT_BYTES_MAX), 0);
            }
        }
        Ok(())
    }

    /// Shortens the socket's timeout to the time that is left. This costs system calls, so it is skipped before the
    /// first read and for a small difference.
    fn hurry(&mut self) -> Result<(), Error> {
        let Some(deadline) = self.deadline.filter(|_| self.has_read) else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Timeout);
        }
        if self.patience.is_none_or(|patience| patience > left + left / 8 + TIMEOUT_MIN) {
            self.wait_at_most(Some(left.max(TIMEOUT_MIN)))?;
        }
        Ok(())
    }

    fn wait_at_most(&mut self, patience: Option<Duration>) -> Result<(), Error> {
        if self.patience != patience {
            self.stream.set_timeout(patience).map_err(Error::Io)?;
            self.patience = patience;
        }
        Ok(())
    }
}

/// The shortest timeout of the socket.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Buffer space for a read.
const READ_BYTES: usize = 16 << 10;
/// Buffer space for a read of a large value.
const READ_BYTES_MAX: usize = 1 << 20;
/// A buffer that a reply has made larger than this is freed.
const KEPT_BYTES_MAX: usize = 64 << 10;
