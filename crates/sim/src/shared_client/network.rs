//! The network between client and servers: when bytes arrive, whether they do, and in which order replies come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Arguments;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use larder_client::Address;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::plan::Plan;
use super::reply;
use super::scenario::{Bug, ClientScenario};
use super::server::Server;
use super::wire::{Ask, Board, End, SimSocket, Wire};
use crate::backing::lock;
use crate::rng::Choose as _;
use crate::socket::Socket;

/// The network, and the servers behind it.
pub(super) struct Network<'s> {
    scenario: &'s ClientScenario,
    board: Arc<Board>,
    log: Log,
    rng: Rng,
    servers: Vec<Server>,
    links: Vec<Link>,
    /// What happens when; of two at once the one that was planned first.
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    planned: u64,
    started: Instant,
    pub(super) counts: Arc<Mutex<Counts>>,
}

/// What a run did.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// False: nothing is wrong any more.
    pub(super) is_faulty: bool,
    pub(super) events: u64,
    pub(super) links: u64,
    pub(super) evictions: u64,
    pub(super) digest: u64,
}

/// Lines of a trace, if there is one.
#[derive(Clone)]
pub(super) struct Log(pub(super) Option<Arc<Mutex<Vec<String>>>>);

impl Log {
    pub(super) fn line(&self, started: Instant, line: Arguments<'_>) {
        if let Some(lines) = &self.0 {
            lock(lines).push(format!("{:>6} ms  {line}", started.elapsed().as_millis()));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Open(usize),
    /// Bytes arrive at the server.
    Requests(usize),
    /// Bytes arrive at the client.
    Replies(usize),
    /// The server learns that the client has closed.
    Gone(usize),
}

/// A connection.
struct Link {
    server: usize,
    answer: Option<oneshot::Sender<io::Result<SimSocket>>>,
    wire: Arc<Mutex<Wire>>,
    /// `None`: the server's end is closed.
    socket: Option<Socket>,
    plan: Plan,
    /// Bytes on the way to the client.
    replies: Vec<u8>,
    /// The beginning of a reply.
    reply_head: Vec<u8>,
    /// A reply that waits for the next.
    held: Vec<u8>,
    /// What the server received last, for a planted bug.
    received: Vec<u8>,
    is_ending: bool,
    has_requests_event: bool,
    has_replies_event: bool,
}

impl<'s> Network<'s> {
    pub(super) fn new(scenario: &'s ClientScenario, log: Log) -> io::Result<Self> {
        Ok(Self {
            scenario,
            board: Arc::default(),
            log,
            rng: Rng::with_seed(scenario.seed ^ 0x5DEE_CE66_D1CE_4E5B),
            servers: (0..scenario.servers)
                .map(|_| Server::start(scenario.seed))
                .collect::<io::Result<_>>()?,
            links: Vec::new(),
            events: BinaryHeap::new(),
            planned: 0,
            started: Instant::now(),
            counts: Arc::new(Mutex::new(Counts { digest: 0xCBF2_9CE4_8422_2325, ..Counts::default() })),
        })
    }

    pub(super) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Moves bytes for ever.
    pub(super) async fn run(mut self) {
        loop {
            let news = self.board.take();
            for ask in news.asked {
                self.open(ask);
            }
            for link in news.touched {
                self.look_at(link);
            }
            match self.events.peek() {
                Some(Reverse((at, ..))) if *at <= Instant::now() => {
                    if let Some(Reverse((_, _, event))) = self.events.pop() {
                        self.happen(event);
                    }
                    if self.rng.percent(70) {
                        tokio::task::yield_now().await;
                    }
                }
                Some(Reverse((at, ..))) => {
                    let _ = timeout_at(*at, self.board.notify.notified()).await;
                }
                None => self.board.notify.notified().await,
            }
        }
    }

    fn plan(&mut self, delay_ms: u64, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((Instant::now() + Duration::from_millis(delay_ms), self.planned, event)));
    }

    fn latency_ms(&mut self) -> u64 {
        self.rng.u64(0..=self.scenario.latency_ms)
    }

    /// Somebody connects.
    fn open(&mut self, ask: Ask) {
        let server = server_of(&ask.address);
        let plan = if lock(&self.counts).is_faulty && self.rng.percent(self.scenario.faults_percent) {
            Plan::random(&mut self.rng, self.scenario.protocol)
        } else {
            Plan::default()
        };
        let id = self.links.len();
        self.log.line(self.started, format_args!("connection {id} to server {server}: {plan:?}"));
        let reused = self.scenario.has(Bug::ReusedConnection).then(|| self.reusable(server)).flatten();
        if let Some(id) = reused {
            self.log.line(self.started, format_args!("it is connection {id}, used again"));
            let wire = Arc::clone(&self.links[id].wire);
            lock(&wire).is_closed = false;
            let _ = ask.answer.send(Ok(SimSocket { link: id, wire, board: self.board() }));
            return;
        }
        let window = if self.rng.percent(20) { self.rng.usize(1..100) } else { 64 << 10 };
        self.links.push(Link {
            server,
            answer: Some(ask.answer),
            wire: Arc::new(Mutex::new(Wire::new(window))),
            socket: None,
            plan,
            replies: Vec::new(),
            reply_head: Vec::new(),
            held: Vec::new(),
            received: Vec::new(),
            is_ending: false,
            has_requests_event: false,
            has_replies_event: false,
        });
        let delay_ms = self.latency_ms();
        self.plan(delay_ms, Event::Open(id));
    }

    /// A connection to this server that the client has closed, and the server has not.
    fn reusable(&self, server: usize) -> Option<usize> {
        let is_it = |link: &Link| {
            let wire = lock(&link.wire);
            let is_alive = link.socket.is_some() && wire.end.is_none() && link.plan.stall.is_none();
            link.server == server && is_alive && wire.is_closed
        };
        self.links.iter().position(is_it)
    }

    /// A client has sent something, or closed.
    fn look_at(&mut self, id: usize) {
        let latency_ms = self.latency_ms();
        let link = &mut self.links[id];
        let wire = lock(&link.wire);
        if wire.is_closed {
            drop(wire);
            if !self.scenario.has(Bug::ReusedConnection) {
                // Long enough for a change to come after others.
                let delay_ms = if self.rng.percent(30) { self.rng.u64(..200) } else { latency_ms };
                self.plan(delay_ms, Event::Gone(id));
            }
        } else if !wire.sent.is_empty() && !link.has_requests_event {
            drop(wire);
            link.has_requests_event = true;
            self.plan(latency_ms, Event::Requests(id));
        }
    }

    fn happen(&mut self, event: Event) {
        lock(&self.counts).events += 1;
        match event {
            Event::Open(id) => self.opened(id),
            Event::Requests(id) => self.requests_arrive(id),
            Event::Replies(id) => self.replies_arrive(id),
            Event::Gone(id) => {
                let is_delivered = self.rng.percent(50);
                if is_delivered && self.links[id].plan.request_cut.is_none() {
                    let sent: Vec<u8> = lock(&self.links[id].wire).sent.drain(..).collect();
                    self.receive(id, &sent);
                }
                self.log.line(self.started, format_args!("connection {id} is closed by the client"));
                self.links[id].socket = None;
            }
        }
    }

    fn opened(&mut self, id: usize) {
        let link = &mut self.links[id];
        if link.plan.is_never_open {
            return;
        }
        let Some(answer) = link.answer.take() else { return };
        let opened = if link.plan.is_refused {
            Err(io::ErrorKind::ConnectionRefused.into())
        } else {
            lock(&self.counts).links += 1;
            link.socket = Some(self.servers[link.server].accept(id));
            Ok(SimSocket { link: id, wire: Arc::clone(&link.wire), board: Arc::clone(&self.board) })
        };
        let _ = answer.send(opened);
    }

    fn requests_arrive(&mut self, id: usize) {
        let latency_ms = self.latency_ms();
        let link = &mut self.links[id];
        link.has_requests_event = false;
        let mut wire = lock(&link.wire);
        let mut bytes = wire.sent.len();
        if link.plan.trickles && bytes > 1 {
            bytes = self.rng.usize(1..=bytes.min(100));
        }
        let cut = link.plan.request_cut;
        bytes = bytes.min(cut.unwrap_or(usize::MAX));
        let sent: Vec<u8> = wire.sent.drain(..bytes).collect();
        let has_more = !wire.sent.is_empty();
        wire.wake();
        drop(wire);
        link.plan.request_cut = cut.map(|cut| cut - bytes);
        let is_cut = link.plan.request_cut == Some(0);
        link.has_requests_event = has_more && !is_cut;
        if has_more && !is_cut {
            self.plan(latency_ms, Event::Requests(id));
        }
        self.receive(id, &sent);
        if is_cut {
            self.end(id);
        }
    }

    /// A server receives bytes, executes what is whole, and answers.
    fn receive(&mut self, id: usize, bytes: &[u8]) {
        let link = &mut self.links[id];
        let Some(socket) = &mut link.socket else { return };
        if bytes.is_empty() {
            return;
        }
        let shown = bytes[..bytes.len().min(160)].escape_ascii();
        self.log.line(self.started, format_args!("server {} receives on {id}: {shown}", link.server));
        note(&self.counts, id, bytes);
        link.received = bytes.to_vec();
        socket.inbox.extend_from_slice(bytes);
        let server = &mut self.servers[link.server];
        let (replies, is_open) = server.execute(socket, &mut self.rng, self.started.elapsed());
        lock(&self.counts).evictions = self.servers.iter().map(Server::evictions).sum();
        self.links[id].is_ending |= !is_open;
        self.send(id, replies);
    }

    /// Replies go on their way.
    fn send(&mut self, id: usize, bytes: Vec<u8>) {
        let is_unchecked = self.scenario.has(Bug::UncheckedOpaque);
        let mut delay_ms = self.latency_ms();
        let link = &mut self.links[id];
        if link.plan.late > 0 && self.rng.percent(link.plan.late) {
            delay_ms += self.rng.u64(..150);
        }
        if link.plan.repeats == 0 && link.plan.swaps == 0 {
            link.replies.extend(bytes);
        } else {
            link.reply_head.extend(bytes);
            while let Some(length) = reply::length(&link.reply_head, self.scenario.protocol) {
                let mut reply: Vec<u8> = link.reply_head.drain(..length).collect();
                if link.held.is_empty() && self.rng.percent(link.plan.swaps) {
                    link.held = reply;
                    continue;
                }
                if is_unchecked && !link.held.is_empty() {
                    reply::exchange_opaques(&mut reply, &mut link.held, self.scenario.protocol);
                }
                link.replies.extend_from_slice(&reply);
                link.replies.append(&mut link.held);
                if self.rng.percent(link.plan.repeats) {
                    link.replies.extend_from_slice(&reply);
                }
            }
        }
        if !link.has_replies_event && (link.is_ending || !link.replies.is_empty()) {
            link.has_replies_event = true;
            self.plan(delay_ms, Event::Replies(id));
        }
    }

    fn replies_arrive(&mut self, id: usize) {
        let latency_ms = self.latency_ms();
        let link = &mut self.links[id];
        link.has_replies_event = false;
        let mut bytes = link.replies.len();
        if link.plan.trickles && bytes > 1 {
            bytes = self.rng.usize(1..=bytes.min(200));
        }
        let (cut, stall) = (link.plan.reply_cut, link.plan.stall);
        bytes = bytes.min(cut.unwrap_or(usize::MAX)).min(stall.unwrap_or(usize::MAX));
        let arrived: Vec<u8> = link.replies.drain(..bytes).collect();
        link.plan.reply_cut = cut.map(|cut| cut - bytes);
        link.plan.stall = stall.map(|stall| stall - bytes);
        if !arrived.is_empty() {
            let shown = arrived[..arrived.len().min(160)].escape_ascii();
            self.log.line(self.started, format_args!("connection {id} receives {shown}"));
            note(&self.counts, id, &arrived);
        }
        let mut wire = lock(&link.wire);
        wire.arrived.extend(arrived);
        wire.wake();
        drop(wire);
        if link.plan.reply_cut == Some(0) || link.is_ending && link.replies.is_empty() {
            self.end(id);
        } else if link.plan.stall != Some(0) && !link.replies.is_empty() {
            link.has_replies_event = true;
            self.plan(latency_ms, Event::Replies(id));
        }
    }

    /// The network, or the server, ends a connection.
    fn end(&mut self, id: usize) {
        let end = if self.rng.percent(70) { End::Closed } else { End::Reset };
        self.log.line(self.started, format_args!("connection {id} ends: {end:?}"));
        if self.scenario.has(Bug::RepeatedChange) {
            let link = &mut self.links[id];
            let mut again = self.servers[link.server].accept(id);
            again.inbox.extend_from_slice(&link.received);
            self.servers[link.server].execute(&mut again, &mut self.rng, self.started.elapsed());
        }
        let link = &mut self.links[id];
        link.socket = None;
        let mut wire = lock(&link.wire);
        wire.end = wire.end.or(Some(end));
        wire.wake();
    }
}

pub(super) fn address(server: usize) -> Address {
    Address::Inet { host: "server".to_owned(), port: server as u16 + 1 }
}

fn server_of(address: &Address) -> usize {
    match address {
        Address::Inet { port, .. } => usize::from(*port) - 1,
        Address::Unix(_) => 0,
    }
}

/// Adds bytes to the digest.
fn note(counts: &Mutex<Counts>, id: usize, bytes: &[u8]) {
    let mut counts = lock(counts);
    for byte in (id as u64).to_le_bytes().iter().chain(bytes) {
        counts.digest = (counts.digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
}
