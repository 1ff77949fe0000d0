//! Replies, one by one.

use std::io;
use std::os::fd::AsFd;

use larder_client::codec::{Event, Outcome};
use rustix::event::PollFlags;

use super::deadline::Deadline;
use super::socket::{Socket, wait};
use super::{Failure, Link, Options, Tag};
use crate::abi::Return;
use crate::core::change::refusal;

impl Link {
    /// Takes the next event, waiting for it as [`Link::await_reply`] does.
    pub(in crate::core) fn next<R>(
        &mut self,
        options: &Options,
        take: impl FnOnce(Event<'_, Tag>) -> R,
    ) -> Result<R, Failure> {
        self.next_within(options, &mut Deadline::after_progress(options.poll_timeout), take)
    }

    fn next_within<R>(
        &mut self,
        options: &Options,
        deadline: &mut Deadline,
        take: impl FnOnce(Event<'_, Tag>) -> R,
    ) -> Result<R, Failure> {
        loop {
            let unread = self.input.unread();
            let mut rest = unread;
            match self.pipeline.receive(&mut rest) {
                // The replies after it may be to what the server took for requests.
                Ok(Some(Event::Done(Tag::Ignored, Outcome::Error(reply)))) if reply.kind.is_doubtful() => {
                    return Err(refusal(options, &reply));
                }
                Ok(Some(event)) => {
                    let result = take(event);
                    let taken = unread.len() - rest.len();
                    self.input.take(taken);
                    return Ok(result);
                }
                Ok(None) => {
                    // A reply of which all is known may have been passed over.
                    let taken = unread.len() - rest.len();
                    self.input.take(taken);
                }
                Err(violation) => return Err(Failure::violation(&violation)),
            }
            let has_value = deadline.renews() && self.pipeline.front() != Some(&Tag::Ignored);
            if !has_value && self.pipeline.needed_bytes() > REPLY_BYTES_MAX {
                return Err(Failure::new(Return::UNKNOWN_READ_FAILURE, "the reply is too long"));
            }
            self.fill(options, deadline)?;
        }
    }

    /// Takes events until the reply to the awaited request is complete; its events go to `take`. For values, which may
    /// be large: it ends when the server makes no progress for the time that one wait may take.
    pub(in crate::core) fn await_reply<R>(
        &mut self,
        options: &Options,
        mut take: impl FnMut(Event<'_, Tag>) -> R,
    ) -> Result<R, Failure> {
        let deadline = || Deadline::after_progress(options.poll_timeout);
        self.await_reply_within(options, deadline, |event| Ok(take(event)))
    }

    /// The same, for a reply without a value, of which the server says how long it is: all of it has to come in the
    /// time that one wait may take, from when it is its turn. An error of `take` ends it.
    pub(in crate::core) fn await_reply_in_time<R>(
        &mut self,
        options: &Options,
        take: impl FnMut(Event<'_, Tag>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.await_reply_within(options, || Deadline::after(options.poll_timeout), take)
    }

    fn await_reply_within<R>(
        &mut self,
        options: &Options,
        deadline: impl FnOnce() -> Deadline + Copy,
        mut take: impl FnMut(Event<'_, Tag>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        // All replies before it have the time of one wait together.
        let mut before = Deadline::after_progress(options.poll_timeout);
        let mut own = None;
        loop {
            let is_awaited = self.pipeline.front() == Some(&Tag::Awaited);
            let deadline = if is_awaited { own.get_or_insert_with(deadline) } else { &mut before };
            let step = self.next_within(options, deadline, |event| {
                let is_done = matches!(event, Event::Done(Tag::Awaited, _));
                let result = if is_awaited || is_done { Some(take(event)?) } else { None };
                Ok(result.filter(|_| is_done))
            })??;
            if let Some(result) = step {
                return Ok(result);
            }
        }
    }

    /// Takes and drops the replies to all requests. It ends when the server makes no progress for the time that one
    /// wait may take: all small replies have that time together.
    pub(in crate::core) fn drain(&mut self, options: &Options) -> Result<(), Failure> {
        let mut deadline = Deadline::after_progress(options.poll_timeout);
        while self.due() > 0 {
            self.next_within(options, &mut deadline, |_| ())?;
        }
        Ok(())
    }

    /// Reads until there is more, as much as the next event needs if the rest of it is on its way.
    pub(super) fn fill(&mut self, options: &Options, deadline: &mut Deadline) -> Result<(), Failure> {
        if let Socket::Datagram(_) = self.socket {
            return Err(Failure::new(Return::NOT_SUPPORTED, ""));
        }
        if options.poll_timeout == 0 {
            return Err(Failure::new(Return::TIMEOUT, "timeout was set to zero"));
        }
        self.limit_waits(options)?;
        let Socket::Stream(stream) = &mut self.socket else { return Ok(()) };
        loop {
            // The socket itself waits all of the time. Only a part of it is left after the first read.
            if !deadline.begin() {
                // Something may be there at any time.
                if deadline.has_passed() {
                    return Err(Failure::timeout());
                }
                if !wait(stream.as_fd(), PollFlags::IN, deadline.left())? {
                    continue;
                }
            }
            match self.input.read(stream, self.pipeline.needed_bytes()) {
                Ok(0) => return Err(Failure::disconnected()),
                Ok(bytes) => {
                    self.unanswered_bytes = 0;
                    deadline.received(bytes);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::of_io(&error)),
            }
        }
    }
}

/// What a reply without a value may announce: `stats detail dump` is one text.
const REPLY_BYTES_MAX: usize = 64 << 20;
