//! A connection of the floor server.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::reply::{Taken, Values, take};

/// A stream, and what of it is still to be answered or sent.
#[derive(Debug)]
pub(super) struct Connection {
    stream: OwnedFd,
    /// Start of a request whose end has not arrived: of a line, or of a header.
    partial: Vec<u8>,
    /// Bytes of a data block, still to be skipped.
    skip: usize,
    output: Vec<u8>,
    /// How much of `output` is written.
    written: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alive {
    Yes,
    No,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    pub(super) fn new(stream: OwnedFd) -> Self {
        Self { stream, partial: Vec::new(), skip: 0, output: Vec::new(), written: 0 }
    }

    /// Output is waiting for a client that does not read: nothing more is read from it.
    pub(super) fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }

    /// Reads once and answers all of it.
    pub(super) fn turn(&mut self, input: &mut [u8], values: &Values) -> io::Result<Alive> {
        if !self.is_blocked() {
            // What was left over stands before what comes, so that every request lies in one piece.
            let left_over = self.partial.len();
            input[..left_over].copy_from_slice(&self.partial);
            let end = match rustix::io::read(&self.stream, &mut input[left_over..]) {
                Ok(0) => return Ok(Alive::No),
                Ok(n) => left_over + n,
                Err(rustix::io::Errno::AGAIN) => return Ok(Alive::Yes),
                Err(error) => return Err(error.into()),
            };
            let used = self.answer_all(&input[..end], values);
            self.partial.clear();
            self.partial.extend_from_slice(&input[used..end]);
            // Neither a line nor a header is that long.
            if self.partial.len() > input.len() / 2 {
                return Ok(Alive::No);
            }
        }
        self.write()
    }

    fn write(&mut self) -> io::Result<Alive> {
        while self.written < self.output.len() {
            match rustix::io::write(&self.stream, &self.output[self.written..]) {
                Ok(n) => self.written += n,
                Err(rustix::io::Errno::AGAIN) => return Ok(Alive::Yes),
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(Alive::Yes)
    }

    /// Answers every whole request; tells how many bytes are done with.
    fn answer_all(&mut self, input: &[u8], values: &Values) -> usize {
        let mut used = 0;
        loop {
            let skipped = self.skip.min(input.len() - used);
            self.skip -= skipped;
            used += skipped;
            let Some(Taken { bytes, block_bytes }) = take(&input[used..], values, &mut self.output) else {
                return used;
            };
            used += bytes;
            self.skip = block_bytes;
        }
    }
}
