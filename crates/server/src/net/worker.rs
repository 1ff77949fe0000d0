//! A worker: one thread, one epoll, and the connections that it serves from accept to close.
//!
//! All workers wait on all listeners; the kernel wakes one. Whoever accepts keeps the connection, unless another worker
//! has fewer: then it goes to that one's inbox, so that few connections spread over all workers.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use larder_protocol::admin::Streams;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::clock::Moment;
use crate::conn::connection::{Connection, Interest, Next, SCRATCH_BYTES, WorkerContext};
use crate::conn::session::{CloseReason, OUTPUT_BYTES_MAX, Session};
use crate::heap;
use crate::net::connection_table::{Client, Peer};
use crate::net::listeners::Listener;
use crate::net::round::{Ahead, MEMBERS_MAX, Member, Round};
use crate::net::socket::{self, PendingSend, Wire};
use crate::net::tls::{self, Channel, ClientCertificates};
use crate::net::udp;
use crate::net::worker_pool::{Accepted, WorkerPool};
use crate::observe::counters::Counters;
use crate::observe::trace;
use crate::observe::watch::Event;
use crate::shared::Shared;

/// A worker.
pub struct Worker {
    index: usize,
    shared: Arc<Shared>,
    pool: Arc<WorkerPool>,
    counters: Arc<Counters>,
    epoll: OwnedFd,
    /// By descriptor.
    connections: Vec<Option<Box<Connection>>>,
    /// Descriptors of connections that could go on but had their share.
    ready: VecDeque<usize>,
    /// Descriptors of connections that wait for a time rather than for their socket, which epoll does not watch meanwhile.
    parked: Vec<usize>,
    /// When the parked ones go on.
    unpark_at: Instant,
    /// Until it is opened on the worker's own thread.
    udp_sockets: Vec<udp::Socket>,
    /// Whether our epoll watches the listeners.
    is_listening: bool,
    /// When the idle were last looked for.
    swept_secs: u32,
}

impl Worker {
    /// The crew's worker number `index`, with UDP sockets of its own. Errors: no descriptor to be had.
    pub fn new(
        index: usize,
        shared: Arc<Shared>,
        pool: Arc<WorkerPool>,
        udp_sockets: Vec<udp::Socket>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, pool.wake(index), epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        for (socket, index) in udp_sockets.iter().zip(0..) {
            let data = epoll::EventData::new_u64(UDP_SOCKETS + index);
            epoll::add(&epoll, socket, data, epoll::EventFlags::IN)?;
        }
        let mut worker = Self {
            counters: Arc::clone(&shared.counters[index]),
            index,
            shared,
            pool,
            epoll,
            connections: Vec::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            unpark_at: Instant::now(),
            udp_sockets,
            is_listening: false,
            swept_secs: 0,
        };
        worker.listen()?;
        Ok(worker)
    }

    /// Serves until the crew is stopped. Errors: the kernel refuses to wait.
    pub fn run(mut self) -> io::Result<()> {
        let mut handle =
            self.shared.engine.handle().ok_or_else(|| io::Error::other("no engine handle left"))?;
        let recorder = self.shared.recorder(self.index);
        let mut scratch = vec![0; SCRATCH_BYTES];
        // Where a round's answers find room; pages that nobody writes to are not taken.
        let mut output = Vec::with_capacity(2 * OUTPUT_BYTES_MAX);
        let mut tls = tls::Buffers::new(self.shared.tls.is_some());
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut udp = udp::UdpEndpoint::open(mem::take(&mut self.udp_sockets), &self.shared.settings)?;
        let (shared, counters) = (Arc::clone(&self.shared), Arc::clone(&self.counters));
        while !self.pool.is_stopping() {
            if handle.is_holding() {
                handle.release();
            }
            self.wait(&mut events)?;
            let woken = Moment::now();
            recorder.tap.keep_up();
            self.unpark();
            let worker = &mut WorkerContext {
                shared: &shared,
                counters: &counters,
                recorder: &recorder,
                woken,
                heard: woken,
                worker: self.index,
                handle: &mut handle,
                scratch: &mut scratch,
                output: &mut output,
                tls: &mut tls,
            };
            let mut round = Round::default();
            // Those that queued before this round; the ones this round adds wait for the next.
            let queued = self.ready.len();
            for event in &events {
                match event.data.u64() {
                    WAKE => self.drain_inbox(),
                    token if token >= UDP_SOCKETS => udp.serve((token - UDP_SOCKETS) as usize, worker),
                    token if token >= LISTENERS => self.accept((token - LISTENERS) as usize),
                    token => self.hear(token as usize, worker, &mut round, false),
                }
                if round.is_full() {
                    self.answer(&mut round, worker);
                }
            }
            for _ in 0..queued {
                if let Some(fd) = self.ready.pop_front() {
                    self.hear(fd, worker, &mut round, true);
                }
                if round.is_full() {
                    self.answer(&mut round, worker);
                }
            }
            self.answer(&mut round, worker);
            events.clear();
            self.shared.tell_evictions(self.index, &mut handle);
            self.tick();
        }
        Ok(())
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        const PARKED: Timespec = Timespec { tv_sec: 0, tv_nsec: PARKED_MILLIS as i64 * 1_000_000 };
        const NEXT_SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
        let timeout = if !self.ready.is_empty() {
            Some(&AT_ONCE)
        } else if !self.parked.is_empty() {
            Some(&PARKED)
        } else if self.shared.settings.idle_timeout_secs > 0 || !self.is_listening {
            Some(&NEXT_SECOND)
        } else {
            None
        };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Hears a connection because its socket is ready, or because its turn in the queue has come. It joins the round if it has
    /// something to answer.
    fn hear(&mut self, fd: usize, worker: &mut WorkerContext<'_>, round: &mut Round, is_its_turn: bool) {
        let Some(connection) = self.connections.get_mut(fd).and_then(Option::as_deref_mut) else { return };
        if connection.is_queued && !is_its_turn {
            return;
        }
        connection.is_queued = false;
        match connection.hear(worker, round.room_from()) {
            Ok(heard) => round.join(fd, heard),
            Err(next) => self.go_on(fd, next),
        }
    }

    /// Answers those who were heard: starts fetching what they ask for, serves them one after the other, and then sends what is
    /// not sent yet.
    fn answer(&mut self, round: &mut Round, worker: &mut WorkerContext<'_>) {
        let members = round.members();
        if members.is_empty() {
            return;
        }
        worker.heard = Moment::now();
        if members.len() > 1 {
            let guard = worker.handle.pin(worker.shared.clock.at(worker.heard));
            let mut hashes = ArrayVec::<_, MEMBERS_MAX>::new();
            for member in &mut *members {
                let connection = self.connections[member.fd].as_deref();
                let heard = &worker.scratch[member.heard.clone()];
                let Some(key) = connection.and_then(|connection| connection.first_key(heard)) else {
                    continue;
                };
                let hash = guard.prepare(&heard[key.clone()]);
                hashes.push(hash);
                member.ahead = Some(Ahead { key, hash });
            }
            guard.prefetch_gets(&hashes);
        }
        for Member { fd, heard, ahead, answer } in &mut *members {
            let Some(connection) = self.connections[*fd].as_deref_mut() else { continue };
            match connection.answer(worker, heard.clone(), ahead.as_ref()) {
                Ok(unsent) => *answer = unsent,
                Err(next) => self.go_on(*fd, next),
            }
        }
        self.send(members, worker);
        round.clear();
    }

    /// Sends the answers that members of a round still have in the bench's output.
    fn send(&mut self, members: &[Member], worker: &mut WorkerContext<'_>) {
        let waiting = || members.iter().filter(|member| !member.answer.is_empty());
        // All of them are there: nobody is closed who has an answer to be sent.
        let sends: ArrayVec<_, MEMBERS_MAX> = waiting()
            .filter_map(|Member { fd, answer, .. }| {
                let fd = self.connections[*fd].as_deref()?.as_fd();
                Some(PendingSend { fd, bytes: &worker.output[answer.clone()] })
            })
            .collect();
        let outcomes = socket::send_all(&sends);
        drop(sends);
        debug_assert_eq!(outcomes.len(), waiting().count(), "each answer has an outcome");
        for (Member { fd, answer, .. }, sent) in waiting().zip(outcomes) {
            let Some(connection) = self.connections[*fd].as_deref_mut() else { continue };
            let next = connection.settle(worker, answer.clone(), sent);
            self.go_on(*fd, next);
        }
        worker.output.clear();
    }

    /// Does with a connection what is to become of it.
    fn go_on(&mut self, fd: usize, next: Next) {
        let Some(connection) = self.connections.get_mut(fd).and_then(Option::as_deref_mut) else { return };
        match next {
            Next::Wait(interest) => {
                if connection.interest != interest {
                    connection.interest = interest;
                    let data = epoll::EventData::new_u64(fd as u64);
                    if epoll::modify(&self.epoll, &*connection, data, flags(interest)).is_err() {
                        self.close(fd, CloseReason::Error);
                    }
                }
            }
            Next::Queue => {
                connection.is_queued = true;
                self.ready.push_back(fd);
            }
            Next::Park => {
                // Its socket may have more to tell, which must not wake us in the meantime.
                if epoll::delete(&self.epoll, &*connection).is_err() {
                    return self.close(fd, CloseReason::Error);
                }
                if self.parked.is_empty() {
                    self.unpark_at = Instant::now() + Duration::from_millis(PARKED_MILLIS);
                }
                connection.is_queued = true;
                self.parked.push(fd);
            }
            Next::Watch(streams) => self.hand_over(fd, streams),
            Next::Close(reason) => self.close(fd, reason),
        }
    }

    /// Queues those whose time has come.
    fn unpark(&mut self) {
        if self.parked.is_empty() || Instant::now() < self.unpark_at {
            return;
        }
        for fd in mem::take(&mut self.parked) {
            let Some(connection) = self.connections[fd].as_deref() else { continue };
            let data = epoll::EventData::new_u64(fd as u64);
            if epoll::add(&self.epoll, connection, data, flags(connection.interest)).is_ok() {
                self.ready.push_back(fd);
            } else {
                self.close(fd, CloseReason::Error);
            }
        }
    }

    /// Accepts what waits at a listener, a bounded number at a time.
    fn accept(&mut self, listener: usize) {
        let shared = Arc::clone(&self.shared);
        let (connection_limiter, limit) =
            (&shared.connection_limiter, shared.settings.connections_max as usize);
        let refuses = shared.settings.maxconns_fast;
        for _ in 0..ACCEPTS_PER_EVENT {
            if !connection_limiter.is_accepting() {
                return self.stop_listening();
            }
            // Whoever is not to be refused is accepted only when there is a place.
            if !refuses && !connection_limiter.admit(limit) {
                connection_limiter.shut();
                self.refuse_connection("-c is reached");
                // One may have left before we shut, and found nothing to reopen.
                if connection_limiter.open_connections() < limit {
                    connection_limiter.reopen();
                    continue;
                }
                return self.stop_listening();
            }
            let Listener { fd, .. } = &self.pool.listeners()[listener];
            match rustix::net::acceptfrom_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((fd, _)) if refuses && !connection_limiter.admit(limit) => {
                    self.counters.rejected_connections.add(1);
                    self.refuse_connection("-c is reached");
                    // The socket is new: if it does not take one line at once, its client has gone.
                    let _ = rustix::io::write(&fd, REFUSAL);
                }
                Ok((fd, address)) => {
                    self.counters.total_connections.add(1);
                    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
                    let accepted = Accepted { fd, listener, peer: address.map_or(Peer::Unix, Peer::Tcp) };
                    if let Some(accepted) = self.pool.assign(self.index, accepted) {
                        self.register(accepted);
                    }
                }
                Err(error) => {
                    if !refuses {
                        connection_limiter.leave();
                    }
                    match error {
                        Errno::AGAIN => return,
                        // Without a pause epoll would report the listener again and again.
                        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
                            self.refuse_connection("no descriptors left");
                            connection_limiter.shut();
                            return self.stop_listening();
                        }
                        // The client has gone already, or it was a signal.
                        _ => {}
                    }
                }
            }
        }
    }

    /// Notes that a client could not be let in. memcached's words.
    fn refuse_connection(&self, reason: &str) {
        if let Some(times) = self.shared.turned_away.happened(self.shared.clock.now().secs) {
            let connections = self.shared.connection_limiter.open_connections();
            tracing::warn!(reason, connections, times, "Too many open connections");
        }
    }

    fn drain_inbox(&mut self) {
        for accepted in self.pool.take_accepted(self.index) {
            self.register(accepted);
        }
        if !self.is_listening && self.shared.connection_limiter.is_accepting() {
            // If the kernel refuses, the next tick tries again.
            let _ = self.listen();
        }
    }

    fn register(&mut self, Accepted { fd, listener, peer }: Accepted) {
        if !heap::has_headroom() || self.has_no_place_for(&fd) {
            self.refuse_connection("no memory left");
            return self.forget();
        }
        let Listener { dialect, tls, .. } = &self.pool.listeners()[listener];
        if self.shared.observers.is_verbose() {
            trace::arrival(fd.as_raw_fd(), *dialect);
        }
        let Ok(channel) = tls.map(|certificates| self.channel(certificates)).transpose() else {
            return self.forget();
        };
        let now_secs = self.shared.clock.now().secs;
        let client = Arc::new(Client::new(fd.as_raw_fd(), peer, listener, now_secs));
        self.shared.connection_table.enter(Arc::clone(&client));
        self.shared.tell(self.index, &Event::Arrival { client: &client });
        let wire = Wire::new(fd, channel);
        let connection = Box::new(Connection::new(wire, client, Session::new(*dialect)));
        let Ok(index) = usize::try_from(connection.raw_fd()) else { return };
        let data = epoll::EventData::new_u64(index as u64);
        let is_watched = epoll::add(&self.epoll, &*connection, data, flags(connection.interest)).is_ok();
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(connection);
        if !is_watched {
            self.close(index, CloseReason::Error);
        }
    }

    /// Is there no memory for a list of connections that goes up to this one?
    fn has_no_place_for(&mut self, fd: &OwnedFd) -> bool {
        let length = usize::try_from(fd.as_raw_fd()).unwrap_or(0) + 1;
        let more = length.saturating_sub(self.connections.len());
        !heap::reserve(&mut self.connections, more)
    }

    /// The TLS of a new connection. Errors: TLS is off, and then no listener asks for it.
    fn channel(&self, certificates: ClientCertificates) -> io::Result<Channel> {
        let context = self.shared.tls.as_ref().map(|tls| tls.context(certificates));
        let context = context.ok_or_else(|| io::Error::other("no certificates"))?;
        Channel::new(context).map_err(io::Error::other)
    }

    /// Lets the control thread have a connection that watches.
    fn hand_over(&mut self, fd: usize, streams: Streams) {
        let Some(connection) = self.connections.get_mut(fd).and_then(Option::take) else { return };
        let _ = epoll::delete(&self.epoll, &*connection);
        self.shared.log.join(connection.into_watcher(streams), &self.shared.observers);
        self.shared.wake_control();
        self.pool.release(self.index);
    }

    fn close(&mut self, fd: usize, reason: CloseReason) {
        let Some(mut connection) = self.connections.get_mut(fd).and_then(Option::take) else { return };
        connection.say_goodbye();
        self.shared.connection_table.leave(connection.client());
        self.shared.tell(self.index, &Event::Departure { client: connection.client(), reason });
        // Dropping the descriptor also takes it out of epoll: nobody else holds the socket.
        drop(connection);
        if self.shared.observers.is_verbose() {
            trace::departure(fd as RawFd);
        }
        self.forget();
    }

    /// One connection less.
    fn forget(&self) {
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

    fn listen(&mut self) -> io::Result<()> {
        for (index, listener) in self.pool.listeners().iter().enumerate() {
            let data = epoll::EventData::new_u64(LISTENERS + index as u64);
            let wanted = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            match epoll::add(&self.epoll, &listener.fd, data, wanted) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.is_listening = true;
        Ok(())
    }

    fn stop_listening(&mut self) {
        for listener in self.pool.listeners() {
            let _ = epoll::delete(&self.epoll, &listener.fd);
        }
        self.is_listening = false;
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Readable => epoll::EventFlags::IN,
        Interest::Writable => epoll::EventFlags::OUT,
    }
}

/// memcached's words to a client beyond `-c`.
const REFUSAL: &[u8] = b"ERROR Too many open connections\r\n";
/// How long a parked connection waits: about as long as a dear check of a password takes.
const PARKED_MILLIS: u64 = 5;
const EVENTS_MAX: usize = 256;
const ACCEPTS_PER_EVENT: u32 = 64;
/// Tokens of epoll below this are descriptors of connections.
const LISTENERS: u64 = 1 << 32;
const UDP_SOCKETS: u64 = 1 << 33;
const WAKE: u64 = u64::MAX;
