//! A stream whose reads and writes share a deadline.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::Stream;

/// A stream whose reads and writes fail with `TimedOut` or `WouldBlock` once the time of an operation is over. A signal
/// interrupts none of them.
#[derive(Debug)]
pub(super) struct TimedStream {
    stream: Stream,
    /// What an operation has from [`TimedStream::begin`] on.
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    /// Until then, and not only to the deadline, what has arrived is read.
    end: Option<Instant>,
    /// The socket's current timeout.
    patience: Option<Duration>,
}

impl TimedStream {
    /// The first operation begins. `timeout`: see [`Builder::timeout`](super::Builder::timeout).
    pub(super) fn new(stream: Stream, timeout: Option<Duration>) -> io::Result<Self> {
        // The system accepts no 0.
        let timeout = timeout.map(|timeout| timeout.max(PATIENCE_MIN));
        stream.set_timeout(timeout)?;
        let mut this = Self { stream, timeout, deadline: None, end: None, patience: timeout };
        this.begin()?;
        Ok(this)
    }

    /// An operation begins: it has the whole time.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.end = self.deadline;
        self.wait_at_most(self.timeout)
    }

    /// Who calls may have waited for other servers until the deadline: what has arrived meanwhile is in time. All that
    /// are late have until `end`, which the first of them sets.
    pub(super) fn take_arrived(&mut self, end: &mut Option<Instant>) -> io::Result<()> {
        let now = Instant::now();
        let is_late = self.deadline.is_some_and(|deadline| deadline <= now);
        if is_late && self.is_silent() {
            // Even the shortest wait would be at the cost of the others.
            return Err(io::ErrorKind::TimedOut.into());
        }
        let arrived_end = now + ARRIVED_TIME;
        let arrived_end = if is_late { *end.get_or_insert(arrived_end) } else { arrived_end };
        self.end = self.end.map(|end| end.max(arrived_end));
        Ok(())
    }

    /// See [`Stream::is_silent`].
    pub(super) fn is_silent(&mut self) -> bool {
        self.stream.is_silent()
    }

    /// Does something with the socket, as often as it is interrupted.
    #[inline]
    fn in_time<T>(&mut self, mut step: impl FnMut(&mut Stream) -> io::Result<T>) -> io::Result<T> {
        loop {
            self.hurry()?;
            match step(&mut self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Shortens the socket's timeout to the time that is left. This costs system calls, so it is skipped for a small
    /// difference.
    #[inline]
    fn hurry(&mut self) -> io::Result<()> {
        let (Some(deadline), Some(end)) = (self.deadline, self.end) else { return Ok(()) };
        let now = Instant::now();
        if now >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = deadline.saturating_duration_since(now).max(PATIENCE_MIN);
        if self.patience.is_none_or(|patience| patience > left + left / 8 + PATIENCE_MIN) {
            self.wait_at_most(Some(left))?;
        }
        Ok(())
    }

    fn wait_at_most(&mut self, patience: Option<Duration>) -> io::Result<()> {
        if self.patience != patience {
            self.stream.set_timeout(patience)?;
            self.patience = patience;
        }
        Ok(())
    }
}

impl Read for TimedStream {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.in_time(|stream| stream.read_step(buffer))
    }
}

impl Write for TimedStream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.in_time(|stream| stream.write_step(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.stream.has_unsent() {
            self.in_time(Stream::flush_step)?;
        }
        Ok(())
    }
}

/// The shortest timeout of the socket.
const PATIENCE_MIN: Duration = Duration::from_millis(1);
/// For reading what has arrived. It waits for nothing.
const ARRIVED_TIME: Duration = Duration::from_millis(100);
