//! A worker: a thread with a poller, and the connections that it serves from accept to close.
//!
//! All workers wait on all listeners; the kernel wakes one. The worker that accepts a connection keeps it, unless
//! another worker has fewer: then it goes to that worker's inbox, so that few connections spread over all workers.
//!
//! Ready connections are served in rounds of four steps ([`Round`]): receive from each connection; start fetching the
//! memory of each one's first key, so that the cache misses overlap; execute the requests of each, in order; send. Each
//! step finds its own code in the core's caches, not the kernel's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use larder_protocol::admin::Streams;

use crate::clock::Moment;
use crate::conn::output::OUTPUT_BYTES_MAX;
use crate::conn::parked::Parked;
use crate::conn::session::{CloseReason, Next, Prefetched};
use crate::conn::waiter::{TURNS_PER_ROUND, Turns, Waiting};
use crate::net::poller::{Events, Interest, Poller, Token};
use crate::net::socket::{ClientSocket, ROOM_BYTES_MIN, SCRATCH_BYTES, WorkerContext};
use crate::net::tls;
use crate::net::udp;
use crate::net::worker_pool::WorkerPool;
use crate::observe::counters::Counters;
use crate::observe::trace;
use crate::observe::watch::Event;
use crate::shared::Shared;

/// A worker.
pub struct Worker {
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Arc<WorkerPool>,
    pub(super) counters: Arc<Counters>,
    pub(super) poller: Poller,
    /// Indexed by descriptor.
    pub(super) connections: Vec<Option<Box<ClientSocket>>>,
    /// Descriptors of connections that continue without waiting for their socket.
    ready: VecDeque<usize>,
    /// Descriptors of connections that wait for a turn ([`Waiting::Turn`]), the longest first.
    turn_queue: VecDeque<usize>,
    /// The moments for which parked connections wait, with their descriptors.
    deadlines: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Descriptors of connections that wait for the committer.
    parked: Parked,
    /// Until they are opened on the worker's own thread.
    udp_sockets: Vec<udp::Socket>,
    /// True while our poller watches the listeners.
    pub(super) is_listening: bool,
    /// When idle connections were last looked for.
    swept_secs: u32,
}

/// Connections whose received bytes are not executed yet.
#[derive(Default)]
struct Round {
    members: ArrayVec<Member, MEMBERS_MAX>,
    /// How many bytes of the scratch buffer are filled.
    filled_bytes: usize,
}

struct Member {
    /// The connection's descriptor.
    fd: usize,
    /// The range of its received bytes in the scratch buffer.
    received: Range<usize>,
    /// The range of its replies in the worker's output.
    replies: Range<usize>,
}

impl Worker {
    /// The pool's worker number `index`, with UDP sockets and a poller of its own.
    pub fn new(
        index: usize,
        shared: Arc<Shared>,
        pool: Arc<WorkerPool>,
        udp_sockets: Vec<udp::Socket>,
        poller: Poller,
    ) -> Self {
        Self {
            counters: Arc::clone(&shared.counters[index]),
            index,
            shared,
            pool,
            poller,
            connections: Vec::new(),
            ready: VecDeque::new(),
            turn_queue: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            parked: Parked::default(),
            udp_sockets,
            is_listening: false,
            swept_secs: 0,
        }
    }

    /// Serves until the pool is stopped. Errors: of the poller.
    pub fn run(mut self) -> io::Result<()> {
        let handles = self.shared.namespaces.handles_of(self.index);
        let mut handles = handles.ok_or_else(|| io::Error::other("no engine handle left"))?;
        let recorder = self.shared.recorder(self.index);
        let scratch = &mut vec![0; SCRATCH_BYTES][..];
        // The replies of a round. Pages that are never written to take no memory.
        let mut output = Vec::with_capacity(2 * OUTPUT_BYTES_MAX);
        let mut tls = tls::Buffers::new(self.shared.tls.is_some());
        let mut events = Events::new();
        self.poller.add_wake(self.pool.wake(self.index))?;
        for (number, socket) in self.udp_sockets.iter().enumerate() {
            self.poller.add(socket, Token::UdpSocket(number))?;
        }
        self.listen()?;
        let mut udp = udp::UdpEndpoint::open(mem::take(&mut self.udp_sockets), &self.shared.settings)?;
        let (shared, counters) = (Arc::clone(&self.shared), Arc::clone(&self.counters));
        while !self.pool.is_stopping() {
            handles.release();
            let timeout = if udp.is_waiting() { Some(Duration::ZERO) } else { self.timeout() };
            self.poller.wait(&mut events, timeout)?;
            let woken = Moment::now();
            handles.refresh(&shared.namespaces);
            recorder.tap.keep_up();
            self.unpark_due();
            let cx = &mut WorkerContext {
                shared: &shared,
                counters: &counters,
                recorder: &recorder,
                woken,
                received: woken,
                worker: self.index,
                handles: &mut handles,
                output: &mut output,
                tls: &mut tls,
                turns: &Turns::new(TURNS_PER_ROUND),
            };
            let mut round = Round::default();
            // Connections that queued before this round; those that this round adds wait for the next.
            let mut queued = self.ready.len();
            // Before new arrivals, or those would take all turns. The others stay queued.
            for _ in 0..self.turn_queue.len().min(TURNS_PER_ROUND as usize) {
                if let Some(fd) = self.turn_queue.pop_front() {
                    self.on_readable(fd, cx, scratch, &mut round, true);
                }
            }
            self.execute(&mut round, cx, scratch);
            udp.go_on(cx);
            while let Some(token) = events.take() {
                match token {
                    Token::Client(fd) => self.on_readable(fd, cx, scratch, &mut round, false),
                    Token::Listener(number) => self.accept(number),
                    Token::UdpSocket(number) => udp.serve(number, cx),
                    Token::Wake => {
                        let others = self.ready.len();
                        self.drain_inbox();
                        self.unpark_committed();
                        // The connections that were just unparked have waited long enough.
                        queued += self.ready.len() - others;
                    }
                }
                if round.is_full() {
                    self.execute(&mut round, cx, scratch);
                }
            }
            for _ in 0..queued {
                if let Some(fd) = self.ready.pop_front() {
                    self.on_readable(fd, cx, scratch, &mut round, true);
                }
                if round.is_full() {
                    self.execute(&mut round, cx, scratch);
                }
            }
            self.execute(&mut round, cx, scratch);
            self.await_commit();
            self.shared.tell_evictions(self.index, &mut handles);
            self.tick();
        }
        Ok(())
    }

    /// How long the poller may wait. `None`: until a socket is ready.
    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() || !self.turn_queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let ticks = self.shared.settings.idle_timeout_secs > 0 || !self.is_listening;
        let tick = ticks.then_some(Duration::from_secs(1));
        let Some(Reverse((deadline, _))) = self.deadlines.peek() else { return tick };
        let rest = deadline.saturating_duration_since(Instant::now());
        Some(tick.map_or(rest, |tick| tick.min(rest)))
    }

    /// Receives from a connection whose socket is ready, or whose turn in the queue has come. It joins the round if it
    /// has something to execute.
    fn on_readable(
        &mut self,
        fd: usize,
        cx: &mut WorkerContext<'_>,
        scratch: &mut [u8],
        round: &mut Round,
        is_its_turn: bool,
    ) {
        let Some(socket) = self.connections.get_mut(fd).and_then(Option::as_deref_mut) else { return };
        if socket.is_queued && !is_its_turn {
            if socket.is_parked && mem::take(&mut socket.is_watched) {
                // The client sends before it has its reply, and would wake this worker again and again.
                let _ = self.poller.delete(&*socket);
            }
            return;
        }
        socket.is_queued = false;
        match socket.on_readable(cx, &mut scratch[round.filled_bytes..]) {
            Ok(received_bytes) => round.join(fd, received_bytes),
            Err(next) => self.apply(fd, next),
        }
    }

    /// Executes the requests of a round, one connection after the other, once the memory of each one's first key is
    /// being fetched; then sends the replies.
    fn execute(&mut self, round: &mut Round, cx: &mut WorkerContext<'_>, scratch: &[u8]) {
        let members = &mut round.members;
        if members.is_empty() {
            return;
        }
        cx.received = Moment::now();
        let mut prefetched = self.prefetch(members, cx, scratch).into_iter();
        for Member { fd, received, replies } in &mut *members {
            let prefetched = prefetched.next().flatten();
            let Some(socket) = self.connections[*fd].as_deref_mut() else { continue };
            match socket.execute(cx, &scratch[received.clone()], prefetched) {
                Ok(small) => *replies = small,
                Err(next) => self.apply(*fd, next),
            }
        }
        self.send(members, cx);
        round.members.clear();
        round.filled_bytes = 0;
    }

    /// The first key of each member, where finding it is cheap, with its memory being fetched. Empty for a single
    /// member: it would wait for this as long as for the memory.
    fn prefetch<'s>(
        &self,
        members: &[Member],
        cx: &mut WorkerContext<'_>,
        scratch: &'s [u8],
    ) -> ArrayVec<Option<Prefetched<'s>>, MEMBERS_MAX> {
        let mut prefetched = ArrayVec::new();
        if members.len() < 2 {
            return prefetched;
        }
        let guards = cx.handles.pin(cx.shared.clock.at(cx.received));
        let mut hashes = ArrayVec::<_, MEMBERS_MAX>::new();
        let mut numbers = ArrayVec::<_, MEMBERS_MAX>::new();
        for Member { fd, received, .. } in members {
            let received = &scratch[received.clone()];
            let socket = self.connections[*fd].as_deref();
            let key = socket.and_then(|socket| socket.first_key(received)).map(|key| &received[key]);
            prefetched.push(key.map(|key| {
                let (hash, number) = guards.prepare(key);
                hashes.push(hash);
                numbers.push(number);
                Prefetched { key, hash }
            }));
        }
        guards.hints(&hashes, &numbers, |guard, hashes| guard.hint_gets(hashes));
        prefetched
    }

    /// Sends the replies that members of a round have left in the worker's output.
    ///
    /// Never inlined into what executes requests: with nothing but this loop between two system calls, a send costs an
    /// eighth less than with a request executed in between (docs/scaling.md).
    #[inline(never)]
    fn send(&mut self, members: &[Member], cx: &mut WorkerContext<'_>) {
        for Member { fd, replies, .. } in members {
            if replies.is_empty() {
                continue;
            }
            let Some(socket) = self.connections[*fd].as_deref_mut() else { continue };
            let next = socket.send(&cx.output[replies.clone()], cx.shared, cx.tls, cx.counters);
            self.apply(*fd, next);
        }
        cx.output.clear();
    }

    /// Does what a connection wants next.
    fn apply(&mut self, fd: usize, next: Next) {
        match next {
            Next::Read => self.watch(fd, Interest::Readable),
            Next::Send => self.watch(fd, Interest::Writable),
            Next::Wait(Waiting::Yield) => self.queue(fd),
            Next::Wait(Waiting::Turn) => self.queue_for_turn(fd),
            Next::Wait(Waiting::Memory) => {
                yield_core();
                self.queue(fd);
            }
            Next::Wait(Waiting::Until(deadline)) => {
                if self.park(fd) {
                    self.deadlines.push(Reverse((deadline, fd)));
                }
            }
            Next::Wait(Waiting::Signal) => {
                self.park(fd);
            }
            Next::Wait(waiting @ (Waiting::Commit(_) | Waiting::Durable(_))) => {
                if self.park(fd) {
                    self.parked.push(fd, waiting);
                }
            }
            Next::Watch(streams) => self.hand_over(fd, streams),
            Next::Close(CloseReason::Refused) if self.linger(fd) => {}
            Next::Close(reason) => self.close(fd, reason),
        }
    }

    /// Gives a client time to read why its connection ends (RFC 9112, section 9.6): closed while it sends, the
    /// connection would be reset, and its next write would fail. False: it has had that time.
    fn linger(&mut self, fd: usize) -> bool {
        let socket = self.connections.get_mut(fd).and_then(Option::as_deref_mut);
        let begins = socket.is_some_and(ClientSocket::end_output);
        if begins && self.park(fd) {
            self.deadlines.push(Reverse((Instant::now() + LINGER, fd)));
        }
        begins
    }

    /// Makes the poller watch a connection's socket.
    fn watch(&mut self, fd: usize, interest: Interest) {
        let Some(socket) = self.connections.get_mut(fd).and_then(Option::as_deref_mut) else { return };
        let was = mem::replace(&mut socket.interest, interest);
        if self.poller.watch(&*socket, fd, interest, was).is_err() {
            self.close(fd, CloseReason::Error);
        }
    }

    /// Queues a connection for the next round.
    fn queue(&mut self, fd: usize) {
        if self.mark_queued(fd) {
            self.ready.push_back(fd);
        }
    }

    /// Queues a connection until a round has a turn for it.
    fn queue_for_turn(&mut self, fd: usize) {
        if self.mark_queued(fd) {
            self.turn_queue.push_back(fd);
        }
    }

    /// Notes that a connection is in one of the queues. False if there is none.
    fn mark_queued(&mut self, fd: usize) -> bool {
        let Some(socket) = self.connections.get_mut(fd).and_then(Option::as_deref_mut) else { return false };
        socket.is_queued = true;
        true
    }

    /// Parks a connection that waits for something other than its socket. False if there is none.
    fn park(&mut self, fd: usize) -> bool {
        let Some(socket) = self.connections.get_mut(fd).and_then(Option::as_deref_mut) else { return false };
        socket.is_queued = true;
        socket.is_parked = true;
        true
    }

    /// Queues a connection that was parked. Does nothing with another.
    pub(super) fn unpark(&mut self, fd: usize) {
        let Some(socket) = self.connections.get_mut(fd).and_then(Option::as_deref_mut) else { return };
        if !mem::take(&mut socket.is_parked) {
            return;
        }
        if socket.is_watched || self.poller.admit(&*socket, fd, socket.interest).is_ok() {
            socket.is_watched = true;
            self.ready.push_back(fd);
        } else {
            self.close(fd, CloseReason::Error);
        }
    }

    /// Queues the parked connections whose deadline has passed.
    fn unpark_due(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(Reverse((deadline, fd))) = self.deadlines.peek()
            && *deadline <= now
        {
            let fd = *fd;
            self.deadlines.pop();
            self.unpark(fd);
        }
    }

    /// If connections wait for the committer, asks it to wake this worker, which then looks again. Once for all
    /// requests of a round, so that their changes are one batch. What it did before is seen in the next round.
    fn await_commit(&self) {
        let Some(persistence) = &self.shared.persistence else { return };
        if !self.parked.is_empty() && self.parked.ask(persistence, self.index) {
            self.pool.wake(self.index).notify();
        }
        persistence.journal().wake_if_idle();
    }

    /// Queues the connections whose changes are durable or lost, and those that wait for any progress.
    fn unpark_committed(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(persistence) = &shared.persistence else { return };
        for fd in self.parked.take_ready(persistence) {
            self.unpark(fd);
        }
    }

    /// Hands a connection that watches over to the control thread.
    fn hand_over(&mut self, fd: usize, streams: Streams) {
        let Some(connection) = self.connections.get_mut(fd).and_then(Option::take) else { return };
        // What the kernel does not watch needs no forgetting.
        let _ = self.poller.delete(&*connection);
        self.shared.log.join(connection.into_watcher(streams), &self.shared.observers);
        self.shared.wake_control();
        self.pool.release(self.index);
    }

    pub(super) fn close(&mut self, fd: usize, reason: CloseReason) {
        let Some(mut connection) = self.connections.get_mut(fd).and_then(Option::take) else { return };
        connection.close_notify();
        self.shared.connection_table.leave(connection.client());
        self.shared.tell(self.index, &Event::Departure { client: connection.client(), reason });
        drop(connection);
        if self.shared.observers.is_verbose() {
            trace::departure(fd as RawFd);
        }
        self.forget();
    }

    /// Counts one connection less.
    pub(super) fn forget(&self) {
        self.pool.release(self.index);
        self.shared.connection_limiter.leave();
        if self.shared.connection_limiter.reopen() {
            self.pool.wake_all();
        }
    }

    /// What is to be done about once a second, and only after a wake-up.
    fn tick(&mut self) {
        let timeout_secs = self.shared.settings.idle_timeout_secs;
        if self.is_listening && timeout_secs == 0 {
            return;
        }
        let now_secs = self.shared.clock.now().secs;
        if now_secs == self.swept_secs {
            return;
        }
        self.swept_secs = now_secs;
        if !self.is_listening {
            let connection_limiter = &self.shared.connection_limiter;
            if connection_limiter.open_connections() < self.shared.settings.connections_max as usize {
                connection_limiter.reopen();
            }
            if connection_limiter.is_accepting() {
                let _ = self.listen();
            }
        }
        if timeout_secs > 0 {
            for fd in 0..self.connections.len() {
                if self.connections[fd]
                    .as_ref()
                    .is_some_and(|connection| connection.is_idle(now_secs, timeout_secs))
                {
                    self.counters.idle_kicks.add(1);
                    self.close(fd, CloseReason::Idle);
                }
            }
        }
    }
}

impl Round {
    fn join(&mut self, fd: usize, received_bytes: usize) {
        let start = self.filled_bytes;
        self.filled_bytes += received_bytes;
        self.members.push(Member { fd, received: start..self.filled_bytes, replies: 0..0 });
    }

    /// True if there is no room for another member that sends much.
    fn is_full(&self) -> bool {
        self.members.is_full() || SCRATCH_BYTES - self.filled_bytes < ROOM_BYTES_MIN
    }
}

/// A guard of another worker delays memory. Its thread may have lost its core: yield ours.
pub(crate) fn yield_core() {
    std::thread::yield_now();
}

/// How long a client over HTTP may read why it is refused. What it sends meanwhile stays in the kernel's buffer.
const LINGER: Duration = Duration::from_secs(1);
/// A core cannot fetch more lines at once, and the first member waits until the last is received.
const MEMBERS_MAX: usize = 16;
