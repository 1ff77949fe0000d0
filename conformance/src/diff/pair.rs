//! The two servers, and the connections to them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Result;
use crate::server::Server;

/// The reference and larderd, connected to alike.
pub(crate) struct Pair {
    servers: [Server; 2],
    connections: Vec<Option<[Wire; 2]>>,
}

/// What came back from one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: End,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// With the reply that was waited for.
    #[default]
    Whole,
    /// The server closed the connection.
    Closed,
    /// It never came.
    Silent,
}

struct Wire {
    stream: TcpStream,
}

impl Pair {
    /// Starts both, with the options that each is to have.
    pub(crate) fn start(reference: (&Path, &[&str]), larder: (&Path, &[&str])) -> Result<Self> {
        let servers = [Server::start(reference.0, reference.1)?, Server::start(larder.0, larder.1)?];
        Ok(Self { servers, connections: Vec::new() })
    }

    /// Sends the bytes meant for each server on its connection of this number, cut where `cuts` says, and collects what
    /// comes, up to and including `last`: the reply to what they end in.
    pub(crate) fn exchange(
        &mut self,
        connection: usize,
        bytes: [&[u8]; 2],
        cuts: &[u16],
        last: &[u8],
    ) -> Result<[Answer; 2]> {
        let wires = self.connect(connection)?;
        let mut talks = [Talk::new(bytes[0], cuts), Talk::new(bytes[1], cuts)];
        let deadline = Instant::now() + SILENCE_MAX;
        while talks.iter().any(|talk| !talk.is_over) {
            for (talk, wire) in talks.iter_mut().zip(wires.iter_mut()).filter(|(talk, _)| !talk.is_over) {
                talk.go_on(wire, last)?;
            }
            if Instant::now() > deadline {
                for talk in talks.iter_mut().filter(|talk| !talk.is_over) {
                    talk.stop(End::Silent);
                }
            }
            wait(&talks, wires)?;
        }
        let answers = talks.map(|talk| talk.answer);
        if answers.iter().any(|answer| answer.end != End::Whole) {
            self.connections[connection] = None;
        }
        Ok(answers)
    }

    /// Forgets all connections; new ones are made as they are needed.
    pub(crate) fn disconnect(&mut self) {
        self.connections.clear();
    }

    /// Fails if one of them has died.
    pub(crate) fn check(&mut self) -> Result<()> {
        for (server, name) in self.servers.iter_mut().zip(["the reference", "larderd"]) {
            if !server.is_running() {
                return Err(format!("{name} has died").into());
            }
        }
        Ok(())
    }

    fn connect(&mut self, connection: usize) -> Result<&mut [Wire; 2]> {
        if self.connections.len() <= connection {
            self.connections.resize_with(connection + 1, || None);
        }
        let wires = &mut self.connections[connection];
        if wires.is_none() {
            *wires = Some([Wire::connect(&self.servers[0])?, Wire::connect(&self.servers[1])?]);
        }
        wires.as_mut().ok_or_else(|| "just connected".into())
    }
}

/// One server's part of an exchange.
struct Talk<'b> {
    unsent: &'b [u8],
    /// Lengths of what is sent at once, the next one last.
    pieces: Vec<usize>,
    /// The next piece is not sent before.
    rests_until: Option<Instant>,
    answer: Answer,
    is_over: bool,
}

impl<'b> Talk<'b> {
    fn new(bytes: &'b [u8], cuts: &[u16]) -> Self {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| (bytes.len() * usize::from(*cut)) >> 16).collect();
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        ends.dedup();
        let pieces = ends.windows(2).rev().map(|ends| ends[1] - ends[0]).collect();
        Self { unsent: bytes, pieces, rests_until: None, answer: Answer::default(), is_over: false }
    }

    /// Sends and receives what can be sent and received now.
    fn go_on(&mut self, wire: &mut Wire, last: &[u8]) -> Result<()> {
        if self.rests_until.is_none_or(|until| Instant::now() >= until) {
            self.rests_until = None;
            self.send(wire)?;
        }
        self.receive(wire, last)
    }

    fn send(&mut self, wire: &mut Wire) -> Result<()> {
        while let Some(piece) = self.pieces.last_mut() {
            match wire.stream.write(&self.unsent[..*piece]) {
                Ok(bytes) => {
                    self.unsent = &self.unsent[bytes..];
                    *piece -= bytes;
                    if *piece == 0 {
                        self.pieces.pop();
                        self.rests_until = (!self.pieces.is_empty()).then(|| Instant::now() + PAUSE);
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The reading side finds out what the server said before it closed.
                Err(error) if is_closed(&error) => self.pieces.clear(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, wire: &mut Wire, last: &[u8]) -> Result<()> {
        let mut buffer = [0; 64 << 10];
        loop {
            match wire.stream.read(&mut buffer) {
                Ok(0) => break self.stop(End::Closed),
                Ok(bytes) => self.answer.bytes.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_closed(&error) => break self.stop(End::Closed),
                Err(error) => return Err(error.into()),
            }
        }
        if self.pieces.is_empty() && self.answer.bytes.ends_with(last) {
            self.stop(self.answer.end);
        }
        Ok(())
    }

    fn stop(&mut self, end: End) {
        self.answer.end = end;
        self.is_over = true;
    }

    fn waits_to_send(&self) -> bool {
        !self.pieces.is_empty() && self.rests_until.is_none()
    }
}

impl Wire {
    fn connect(server: &Server) -> Result<Self> {
        let stream = server.connect()?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream })
    }
}

/// Sleeps until there is something to do.
fn wait(talks: &[Talk<'_>; 2], wires: &[Wire; 2]) -> Result<()> {
    let mut fds: Vec<PollFd<'_>> = talks
        .iter()
        .zip(wires)
        .filter(|(talk, _)| !talk.is_over)
        .map(|(talk, wire)| {
            let sends = if talk.waits_to_send() { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::new(&wire.stream, PollFlags::IN | sends)
        })
        .collect();
    if fds.is_empty() {
        return Ok(());
    }
    let rests = talks.iter().any(|talk| !talk.is_over && talk.rests_until.is_some());
    let timeout = if rests { PAUSE } else { Duration::from_millis(100) };
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted
    )
}

/// Between two pieces, so that they arrive as two.
const PAUSE: Duration = Duration::from_micros(150);

/// How long a reply may take, with room for a machine that is busy with other tests.
const SILENCE_MAX: Duration = Duration::from_secs(20);
