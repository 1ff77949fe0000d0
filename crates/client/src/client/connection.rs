//! A connection that sends requests and waits for replies.

use std::io::{Read, Write};
use std::time::Instant;

use super::builder::Settings;
use super::timed_stream::TimedStream;
use crate::check::{check_announced, check_value};
use crate::codec::{Event, Pipeline};
use crate::{Address, Error, Stream};

/// A connection. After an error it cannot be used any more: drop it.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TimedStream,
    pipeline: Pipeline<()>,
    output: Vec<u8>,
    /// Incomplete replies, up to `filled`.
    input: Vec<u8>,
    filled: usize,
    value_bytes_max: usize,
}

/// Connects and logs in. The login has the time of a request.
pub(super) fn connect(address: &Address, settings: &Settings) -> Result<TimedStream, Error> {
    let stream = Stream::connect(address, settings.tls.as_ref(), settings.connect_timeout)
        .and_then(|stream| TimedStream::new(stream, settings.timeout));
    let mut stream = stream.map_err(Error::Connect)?;
    if let Some(login) = &settings.login {
        login.on(&mut stream, settings.protocol)?;
    }
    Ok(stream)
}

impl Connection {
    /// Connects and logs in.
    pub(super) fn open(address: &Address, settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            stream: connect(address, settings)?,
            pipeline: Pipeline::new(settings.protocol),
            output: Vec::new(),
            input: Vec::new(),
            filled: 0,
            value_bytes_max: settings.value_bytes_max,
        })
    }

    /// True if it can be used again: the server has neither closed it nor sent anything that was not asked for, which
    /// would pass for the next reply.
    pub(super) fn is_silent(&mut self) -> bool {
        self.filled == 0 && self.stream.is_silent()
    }

    /// Sends requests. The time for them and their replies begins.
    pub(super) fn send(
        &mut self,
        request: impl FnOnce(&mut Pipeline<()>, &mut Vec<u8>),
    ) -> Result<(), Error> {
        self.stream.begin().map_err(Error::Io)?;
        self.output.clear();
        request(&mut self.pipeline, &mut self.output);
        self.stream.write_all(&self.output).and_then(|()| self.stream.flush()).map_err(Error::of_io)?;
        self.output.shrink_to(KEPT_BYTES_MAX);
        Ok(())
    }

    /// Receives until all requests are answered.
    pub(super) fn receive(&mut self, mut take: impl FnMut(Event<'_, ()>)) -> Result<(), Error> {
        while !self.pipeline.is_empty() {
            self.read()?;
            let mut rest = &self.input[..self.filled];
            loop {
                let event = match self.pipeline.receive_usual_value(&mut rest) {
                    Some(value) => Event::Value(value),
                    None => match self.pipeline.receive(&mut rest)? {
                        Some(event) => event,
                        None => break,
                    },
                };
                if let Event::Value(value) = &event {
                    check_value(value.bytes.len(), self.value_bytes_max)?;
                }
                take(event);
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

    /// [`Connection::receive`], after a wait for other servers: see [`TimedStream::take_arrived`].
    pub(super) fn receive_arrived(
        &mut self,
        end: &mut Option<Instant>,
        take: impl FnMut(Event<'_, ()>),
    ) -> Result<(), Error> {
        self.stream.take_arrived(end).map_err(Error::of_io)?;
        self.receive(take)
    }

    /// Reads until there are enough bytes to continue.
    fn read(&mut self) -> Result<(), Error> {
        let needed = self.pipeline.needed_bytes().max(self.filled + 1);
        check_announced(needed, self.value_bytes_max)?;
        while self.filled < needed {
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
            if self.filled == self.input.len() && self.filled < KEPT_BYTES_MAX {
                // There may be more: fewer reads take it.
                self.input.resize((self.filled * 2).min(KEPT_BYTES_MAX), 0);
            }
        }
        Ok(())
    }
}

/// Buffer space for a read.
const READ_BYTES: usize = 16 << 10;
/// Buffer space for a read of a large value.
const READ_BYTES_MAX: usize = 1 << 20;
/// A buffer that a reply has made larger than this is freed.
const KEPT_BYTES_MAX: usize = 64 << 10;
