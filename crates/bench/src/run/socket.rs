//! One socket: bytes out, bytes in, and what is due on it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use larder_client::codec::{DatagramPipeline, Event, Protocol as Dialect};
use larder_client::{Pipeline, Stream};
use rustix::event::epoll;

use super::asked::Asked;
use super::control::Control;
use super::memory::Memory;
use crate::outcome::Failure;
use crate::scenario::Protocol;

/// A socket of a lane.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Index of its lane among those of the thread.
    pub(crate) lane: usize,
    /// Index of its server.
    pub(crate) server: usize,
    /// `None`: closed; it will be opened again.
    pub(crate) road: Option<Transport>,
    /// UDP. It carries one request at a time.
    pub(crate) is_udp: bool,
    datagrams: DatagramPipeline<Asked>,
    /// Of [`DatagramPipeline::counts`], told so far.
    disordered: u64,
    /// What waits for an answer.
    pub(crate) pipeline: Pipeline<Asked>,
    /// Requests that are not sent.
    pub(crate) output: Vec<u8>,
    /// How much of `output` is sent.
    written: usize,
    /// The rest of `output` waits until the socket can take more.
    pub(crate) is_blocked: bool,
    /// Start of an answer whose end has not arrived.
    input: Vec<u8>,
    pub(crate) memory: Memory,
    /// Bytes read and not yet counted.
    pub(crate) received_bytes: u64,
    /// Requests since it was opened.
    pub(crate) requests: u64,
    /// Is in the list of sockets to be flushed.
    pub(crate) is_dirty: bool,
    /// When to try and open it again, on the clock of the run, and how long to wait after that.
    pub(crate) reopen_nanos: u64,
    pub(crate) patience_nanos: u64,
}

/// An open connection, or what stands for one.
#[derive(Debug)]
pub(crate) enum Transport {
    /// TCP, TLS, unix socket.
    Stream(Stream),
    /// Sends to one server, and hears of no other.
    Udp(UdpSocket),
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(stream) => stream.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

/// What came of reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// When the last request was answered, on the clock of the run.
    pub(crate) answered_nanos: Option<u64>,
    /// There may be more inside of TLS, which no poll will tell of.
    pub(crate) may_hold_more: bool,
}

/// Why a socket is of no more use.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) failure: Failure,
    pub(crate) why: String,
    /// Requests that wait no more, besides those that are still due.
    pub(crate) given_up: usize,
}

impl Socket {
    pub(crate) fn new(lane: usize, server: usize, protocol: Protocol, is_udp: bool) -> Self {
        Self {
            lane,
            server,
            road: None,
            is_udp,
            datagrams: DatagramPipeline::new(dialect(protocol)),
            disordered: 0,
            pipeline: Pipeline::new(dialect(protocol)),
            output: Vec::new(),
            written: 0,
            is_blocked: false,
            input: Vec::new(),
            memory: Memory::default(),
            received_bytes: 0,
            requests: 0,
            is_dirty: false,
            reopen_nanos: 0,
            patience_nanos: 0,
        }
    }

    /// Takes a fresh connection into use.
    pub(crate) fn open(&mut self, poll: &OwnedFd, id: usize, road: Transport) -> io::Result<()> {
        epoll::add(poll, &road, epoll::EventData::new_u64(id as u64), epoll::EventFlags::IN)?;
        self.road = Some(road);
        Ok(())
    }

    /// Closes it. What was due is handed back, oldest first.
    pub(crate) fn close(&mut self) -> Vec<Asked> {
        // Closing takes it out of the poll.
        self.road = None;
        self.output.clear();
        self.written = 0;
        self.is_blocked = false;
        self.input.clear();
        self.memory = Memory::default();
        self.requests = 0;
        let mut due: Vec<Asked> = self.pipeline.reset().collect();
        self.datagrams.give_up(|_| true, |asked| due.push(asked));
        due
    }

    /// Another request can be sent now.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.road.is_some() && !self.is_blocked && (!self.is_udp || self.is_idle())
    }

    /// Appends what `ask` asks to what will be sent. `true`: an answer will come.
    #[inline]
    pub(crate) fn ask(
        &mut self,
        ask: impl FnOnce(&mut Pipeline<Asked>, &mut Vec<u8>, &mut Memory) -> bool,
    ) -> bool {
        self.requests += 1;
        if !self.is_udp {
            return ask(&mut self.pipeline, &mut self.output, &mut self.memory);
        }
        let mut is_answered = false;
        let memory = &mut self.memory;
        self.datagrams.request(&mut self.output, |pipeline, output| {
            is_answered = ask(pipeline, output, memory);
        });
        is_answered
    }

    /// What has waited longest for its answer.
    pub(crate) fn front(&self) -> Option<&Asked> {
        if self.is_udp { self.datagrams.front() } else { self.pipeline.front() }
    }

    /// UDP: gives up what waits for an answer. How many that were.
    pub(crate) fn give_up(&mut self) -> usize {
        let mut lost = 0;
        self.datagrams.give_up(|_| true, |_| lost += 1);
        self.memory = Memory::default();
        lost
    }

    /// UDP: datagrams that came out of order since this was last asked.
    #[inline]
    pub(crate) fn take_disordered(&mut self) -> u64 {
        let disordered = self.datagrams.counts().disordered;
        disordered - std::mem::replace(&mut self.disordered, disordered)
    }

    /// All is sent and answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.pipeline.is_empty() && self.datagrams.is_empty() && self.output.is_empty()
    }

    /// Sends what the socket takes. The number of bytes; what remains goes when it can be written again.
    #[inline]
    pub(crate) fn flush(&mut self, poll: &OwnedFd, id: usize) -> io::Result<usize> {
        let stream = match &mut self.road {
            Some(Transport::Stream(stream)) => stream,
            Some(Transport::Udp(socket)) => return send_datagram(socket, &mut self.output),
            None => return Ok(0),
        };
        let before = self.written;
        while self.written < self.output.len() || stream.has_unsent() {
            let sent = match &self.output[self.written..] {
                // All is handed over, but some of it waits inside of TLS.
                [] => stream.flush().map(|()| None),
                rest => stream.write(rest).map(Some),
            };
            match sent {
                Ok(None) => {}
                Ok(Some(0)) => return Err(ErrorKind::WriteZero.into()),
                Ok(Some(n)) => self.written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !std::mem::replace(&mut self.is_blocked, true) {
                        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT;
                        epoll::modify(poll, stream, epoll::EventData::new_u64(id as u64), both)?;
                    }
                    return Ok(self.written - before);
                }
                Err(error) => return Err(error),
            }
        }
        let sent = self.written - before;
        self.output.clear();
        self.written = 0;
        if std::mem::take(&mut self.is_blocked) {
            epoll::modify(poll, stream, epoll::EventData::new_u64(id as u64), epoll::EventFlags::IN)?;
        }
        Ok(sent)
    }

    /// Reads once, and hands all that has arrived to `take`: with it the time, and for [`Event::Value`] what asked for
    /// it.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        control: &Control,
        mut take: impl FnMut(&mut Memory, u64, Option<&Asked>, Event<'_, Asked>),
    ) -> Result<Received, Lost> {
        let stream = match &mut self.road {
            Some(Transport::Stream(stream)) => stream,
            Some(Transport::Udp(_)) => return self.receive_datagram(scratch, control, take),
            None => return Ok(Received::default()),
        };
        let may_hold_more = matches!(stream, Stream::Tls(_));
        let kept = self.input.len();
        // A small piece of an answer moves to where its rest is read to; to a large one the rest is added.
        let is_large = kept > KEPT_BYTES_SMALL || self.pipeline.needed_bytes() > scratch.len();
        let read = if is_large {
            self.input.resize(self.pipeline.needed_bytes().max(kept + READ_BYTES_MIN), 0);
            stream.read(&mut self.input[kept..])
        } else {
            scratch[..kept].copy_from_slice(&self.input);
            stream.read(&mut scratch[kept..])
        };
        let arrived = match read {
            Ok(0) => return Err(Lost::closed("the server closed the connection")),
            Ok(n) => kept + n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.input.truncate(kept);
                return Ok(Received::default());
            }
            Err(error) => return Err(Lost::closed(error)),
        };
        let now = control.now_nanos();
        let mut answered = None;
        let input = if is_large { &self.input[..arrived] } else { &scratch[..arrived] };
        let mut rest = input;
        loop {
            match self.pipeline.receive(&mut rest) {
                Ok(Some(event)) => {
                    if let Event::Done(..) = event {
                        answered = Some(now);
                    }
                    take(&mut self.memory, now, self.pipeline.front(), event);
                }
                Ok(None) => break,
                Err(violation) => {
                    let why = violation.to_string();
                    return Err(Lost { failure: Failure::Protocol, why, given_up: 0 });
                }
            }
        }
        let taken = arrived - rest.len();
        if is_large {
            self.input.truncate(arrived);
            self.input.drain(..taken);
        } else {
            self.input.clear();
            self.input.extend_from_slice(&scratch[taken..arrived]);
        }
        self.received_bytes += (arrived - kept) as u64;
        Ok(Received { answered_nanos: answered, may_hold_more })
    }

    fn receive_datagram(
        &mut self,
        scratch: &mut [u8],
        control: &Control,
        mut take: impl FnMut(&mut Memory, u64, Option<&Asked>, Event<'_, Asked>),
    ) -> Result<Received, Lost> {
        let Some(Transport::Udp(socket)) = &self.road else { return Ok(Received::default()) };
        let bytes = match socket.recv(scratch) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(Received::default());
            }
            Err(error) => return Err(Lost::closed(error)),
        };
        let now = control.now_nanos();
        let mut answered_nanos = None;
        let memory = &mut self.memory;
        let received = self.datagrams.receive(&scratch[..bytes], |pipeline, event| {
            if let Event::Done(..) = event {
                answered_nanos = Some(now);
            }
            take(memory, now, pipeline.front(), event);
        });
        self.received_bytes += bytes as u64;
        received.map_err(|failure| Lost {
            failure: Failure::Protocol,
            why: failure.violation.to_string(),
            given_up: usize::from(failure.tag.is_some()),
        })?;
        Ok(Received { answered_nanos, may_hold_more: true })
    }
}

/// Sends the one request in `output`. A datagram that the system does not take is lost like any other.
fn send_datagram(socket: &UdpSocket, output: &mut Vec<u8>) -> io::Result<usize> {
    if output.is_empty() {
        return Ok(0);
    }
    let sent = match socket.send(output) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        sent => sent,
    };
    output.clear();
    sent
}

impl Lost {
    pub(crate) fn closed(why: impl ToString) -> Self {
        Self { failure: Failure::Closed, why: why.to_string(), given_up: 0 }
    }
}

pub(super) fn dialect(protocol: Protocol) -> Dialect {
    match protocol {
        Protocol::Text => Dialect::Text,
        Protocol::Meta => Dialect::Meta,
        Protocol::Binary => Dialect::Binary,
    }
}

/// So much of an answer is copied to where the rest of it is read to.
const KEPT_BYTES_SMALL: usize = 16 << 10;
const READ_BYTES_MIN: usize = 64 << 10;
