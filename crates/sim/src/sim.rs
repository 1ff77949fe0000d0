//! The scheduler: what happens next, step by step.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use larder_client::codec::Protocol;
use larder_seeds::{Failure, Trace};
use larder_server::conn::session::Next;
use larder_server::conn::waiter::Waiting;
use larder_store::MemoryStore;
use larder_store::Store as _;
use larder_store::commit::{Clock as _, Step};

use crate::backing::lock;
use crate::client::Client;
use crate::clock::SimClock;
use crate::request::Op;
use crate::rng::Choose as _;
use crate::scenario::{Bug, Scenario};
use crate::site::Site;
use crate::socket::Socket;
use crate::witness::{Place, Witness, describe};

/// What a run did, if nothing was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Steps of the scheduler.
    pub steps: u64,
    /// Replies that were checked.
    pub replies: u64,
    /// Restarts of the server.
    pub restarts: u32,
    /// Items that left memory to make room.
    pub evictions: u64,
    /// Look-ups in the store.
    pub fetches: u64,
    /// Replies that were held until something was durable.
    pub held: u64,
    /// Stands for all that happened: equal runs have equal ones.
    pub digest: u64,
}

impl AddAssign for Run {
    fn add_assign(&mut self, other: Self) {
        let Self { steps, replies, restarts, evictions, fetches, held, digest } = other;
        self.steps += steps;
        self.replies += replies;
        self.restarts += restarts;
        self.evictions += evictions;
        self.fetches += fetches;
        self.held += held;
        self.digest ^= digest;
    }
}

/// Runs a scenario to its end. Errors: the first thing that is wrong.
pub(crate) fn run(scenario: &Scenario, trace: Option<Trace<'_>>) -> Result<Run, Failure> {
    let mut sim = Sim::new(scenario, trace).map_err(|error| Failure {
        seed: scenario.seed,
        step: 0,
        what: format!("it does not start: {error}"),
    })?;
    let result = sim.run();
    result.map_err(|what| Failure { seed: scenario.seed, step: sim.run.steps, what })?;
    Ok(sim.run)
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// A client sends a request.
    Send(usize),
    /// A client goes away, and comes back.
    Reconnect(usize),
    /// A worker serves a connection.
    Serve(usize),
    /// A worker looks at the connections that wait for the committer.
    Wake(usize),
    /// A connection that was signalled continues.
    Signal(usize),
    Commit,
    /// The committer's running sync ends.
    EndSync,
    /// A reader takes what waits, or does what it has taken.
    Read(usize),
    Maintain,
    Pass {
        micros: u64,
    },
    /// The disk is full, or no more.
    Fill(bool),
    FailSync,
    /// The committer and its syncs are slow for this many steps.
    Slow(u64),
    /// The end of the process, and its restart.
    Crash {
        is_power_loss: bool,
    },
}

struct Sim<'s, 't> {
    scenario: &'s Scenario,
    rng: Rng,
    clock: SimClock,
    witness: Arc<Mutex<Witness>>,
    /// `None` only between two runs of the server.
    site: Option<Site>,
    clients: Vec<Client>,
    /// By client.
    sockets: Vec<Option<Socket>>,
    connections: u32,
    requests: u32,
    /// Requests after which these happen.
    crashes: Vec<u32>,
    fills: Vec<u32>,
    sync_failure: Option<u32>,
    /// The committer is slow until this step.
    slow_until: u64,
    /// When the store had which changes, and what is durable by now even if nobody asked for it.
    applied: Vec<(u64, Place)>,
    guaranteed: Place,
    /// The engine was used in this step.
    is_pinned: bool,
    run: Run,
    trace: Option<Trace<'t>>,
}

macro_rules! trace {
    ($sim:expr, $($arg:tt)*) => {
        if let Some(trace) = &mut $sim.trace {
            let micros = $sim.clock.micros();
            trace(format_args!("{:>6} {:>10} us  {}", $sim.run.steps, micros, format_args!($($arg)*)));
        }
    };
}

impl<'s, 't> Sim<'s, 't> {
    fn new(scenario: &'s Scenario, trace: Option<Trace<'t>>) -> std::io::Result<Self> {
        // Another stream of choices than the one that made the scenario.
        let mut rng = Rng::with_seed(scenario.seed ^ 0x5DEE_CE66_D1CE_4E5B);
        let clock = SimClock::new();
        let witness = Arc::new(Mutex::new(Witness::new()));
        let moments = |count: u32, rng: &mut Rng| {
            let mut moments: Vec<u32> = (0..count).map(|_| rng.u32(1..=scenario.requests)).collect();
            moments.sort_unstable_by(|a, b| b.cmp(a));
            moments
        };
        let crashes = moments(scenario.crashes, &mut rng);
        let fills = moments(if scenario.fills_up { 2 } else { 0 }, &mut rng);
        let sync_failure = scenario.fails_sync.then(|| rng.u32(1..=scenario.requests));
        let site = Site::start(scenario, MemoryStore::new(), &clock, &witness, rng.u32(1..=20))?;
        let mut sim = Self {
            scenario,
            rng,
            clock,
            witness,
            site: Some(site),
            clients: Vec::new(),
            sockets: Vec::new(),
            connections: 0,
            requests: 0,
            crashes,
            fills,
            sync_failure,
            slow_until: 0,
            applied: Vec::new(),
            guaranteed: 0,
            is_pinned: false,
            run: Run { digest: 0xCBF2_9CE4_8422_2325, ..Run::default() },
            trace,
        };
        lock(&sim.witness).notes = sim.trace.as_ref().map(|_| Vec::new());
        for client in 0..scenario.clients {
            sim.connect(client);
        }
        Ok(sim)
    }

    fn run(&mut self) -> Result<(), String> {
        while self.requests < self.scenario.requests {
            let action = self.choose();
            self.act(action)?;
        }
        self.heal();
        self.settle()?;
        self.check_memory()?;
        self.probe()?;
        self.settle()?;
        // All is durable after the interval: what is there now is there after power loss.
        self.pass(self.scenario.interval_micros + 1);
        self.settle()?;
        let last_place = lock(&self.witness).last_place;
        self.guaranteed = self.guaranteed.max(last_place);
        self.crash(true)?;
        self.read_all()?;
        self.settle()?;
        self.check_memory()
    }

    /// Lets go of all faults.
    fn heal(&mut self) {
        self.slow_until = 0;
        self.crashes.clear();
        self.fills.clear();
        self.sync_failure = None;
        if let Some(site) = &self.site {
            site.disk.heal();
        }
    }

    /// Runs until all requests are answered and nothing is left to do. Errors: that takes too long.
    fn settle(&mut self) -> Result<(), String> {
        for client in 0..self.clients.len() {
            if self.clients[client].ends_quietly() {
                self.send(client, Op::Noop, false);
            }
        }
        let end = self.run.steps + SETTLE_STEPS_MAX;
        while self.run.steps < end {
            let actions = self.enabled();
            if actions.is_empty() {
                let is_reading = (0..self.scenario.readers).any(|reader| self.read(reader));
                let is_answered = self.clients.iter().all(|client| client.outstanding() == 0);
                if !is_reading && is_answered && self.site().journal_load() == (0, 0) {
                    return Ok(());
                }
                self.act(Action::Pass { micros: 50_000 })?;
                continue;
            }
            let action = self.pick(&actions);
            self.act(action)?;
        }
        let oldest = self.clients.iter().find_map(|client| Some((client.connection, client.oldest()?)));
        let load = self.site().journal_load();
        Err(match oldest {
            Some((connection, request)) => format!("connection {connection} waits for ever for: {request}"),
            None => format!("the journal keeps (changes, bytes) = {load:?}"),
        })
    }

    fn choose(&mut self) -> Action {
        let mut actions = self.enabled();
        let site = self.site.as_ref();
        let is_full = site.is_some_and(|site| site.disk.is_full());
        for (client, state) in self.clients.iter().enumerate() {
            if state.outstanding() < self.scenario.pipelined_max && !state.is_blocked() {
                actions.push((8, Action::Send(client)));
            }
        }
        for reader in 0..self.scenario.readers {
            actions.push((5, Action::Read(reader)));
        }
        let micros = if self.rng.percent(10) { self.rng.u64(..3_000_000) } else { self.rng.u64(..3_000) };
        actions.push((2, Action::Pass { micros }));
        actions.push((1, Action::Maintain));
        if self.rng.percent(2) {
            actions.push((3, Action::Slow(self.rng.u64(10..200))));
            actions.push((3, Action::Reconnect(self.rng.usize(..self.clients.len()))));
        }
        let is_due = |at: Option<&u32>| at.is_some_and(|at| *at <= self.requests);
        if is_due(self.crashes.last()) {
            actions.push((4, Action::Crash { is_power_loss: self.rng.percent(70) }));
        }
        if is_full {
            actions.push((2, Action::Fill(false)));
        } else if is_due(self.fills.last()) {
            actions.push((4, Action::Fill(true)));
        }
        if is_due(self.sync_failure.as_ref()) {
            actions.push((4, Action::FailSync));
        }
        self.pick(&actions)
    }

    /// What the server has to do.
    fn enabled(&self) -> Vec<(u32, Action)> {
        let mut actions = Vec::with_capacity(32);
        let Some(site) = &self.site else { return actions };
        for (client, socket) in self.sockets.iter().enumerate() {
            if socket.as_ref().is_some_and(Socket::is_ready) {
                actions.push((10, Action::Serve(client)));
            }
        }
        for worker in 0..site.workers.len() {
            if site.is_woken(worker) {
                actions.push((8, Action::Wake(worker)));
            }
        }
        for signal in 0..site.signals.len() {
            actions.push((6, Action::Signal(signal)));
        }
        for (reader, state) in site.readers.iter().enumerate() {
            if state.is_busy {
                actions.push((5, Action::Read(reader)));
            }
        }
        if self.run.steps >= self.slow_until && site.wants_commit(self.clock.micros()) {
            actions.push((6, Action::Commit));
        }
        if self.run.steps >= self.slow_until && site.committer.is_syncing() {
            actions.push((3, Action::EndSync));
        }
        actions
    }

    fn pick(&mut self, actions: &[(u32, Action)]) -> Action {
        let sum: u32 = actions.iter().map(|(weight, _)| weight).sum();
        let mut at = self.rng.u32(..sum);
        for (weight, action) in actions {
            if at < *weight {
                return *action;
            }
            at -= weight;
        }
        Action::Maintain
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        self.run.steps += 1;
        self.is_pinned = false;
        match action {
            Action::Send(client) => {
                let op = self.random_op(client);
                let is_quiet = op.may_be_quiet() && self.rng.percent(12);
                self.requests += 1;
                let needs_proof = is_quiet && !matches!(op, Op::Store { .. });
                self.send(client, op, is_quiet);
                if needs_proof {
                    self.send(client, Op::Noop, false);
                    self.clients[client].block();
                }
            }
            Action::Reconnect(client) => {
                trace!(self, "client {client} goes away");
                self.disconnect(client);
                self.connect(client);
            }
            Action::Serve(client) => self.serve(client)?,
            Action::Wake(worker) => self.wake(worker),
            Action::Signal(signal) => {
                let waiter = self.site_mut().signals.swap_remove(signal);
                trace!(self, "client {} is signalled", waiter.connection);
                self.unpark(waiter.connection);
            }
            Action::Commit => self.commit(),
            Action::EndSync => self.end_sync(),
            Action::Read(reader) => drop(self.read(reader)),
            Action::Maintain => {
                let site = self.site_mut();
                let now = site.shared.clock.now();
                site.handle.maintain(now, 64);
                site.handle.release();
                self.is_pinned = true;
            }
            Action::Pass { micros } => self.pass(micros),
            Action::Fill(is_full) => {
                trace!(self, "the disk is {}", if is_full { "full" } else { "not full any more" });
                let site = self.site_mut();
                site.disk.set_full(is_full);
                site.is_disk_faulty = true;
                if is_full {
                    self.fills.pop();
                }
            }
            Action::FailSync => {
                trace!(self, "the next fsync fails");
                self.sync_failure = None;
                let site = self.site_mut();
                site.disk.fail_next_sync();
                site.is_disk_faulty = true;
            }
            Action::Slow(steps) => {
                trace!(self, "the committer is slow for {steps} steps");
                self.slow_until = self.run.steps + steps;
            }
            Action::Crash { is_power_loss } => {
                self.crashes.pop();
                self.crash(is_power_loss)?;
            }
        }
        self.check_step()
    }

    /// What is wrong whatever anybody asked for.
    fn check_step(&mut self) -> Result<(), String> {
        let mut witness = lock(&self.witness);
        for note in witness.notes.as_mut().map(std::mem::take).unwrap_or_default() {
            trace!(self, "    {note}");
        }
        if let Some(wrong) = &witness.wrong {
            return Err(wrong.clone());
        }
        let second = witness.second();
        if let Some(due) = witness.flush_due.filter(|due| self.is_pinned && *due <= second) {
            return Err(format!("the flush that was due at {due} was not made by {second}"));
        }
        Ok(())
    }

    fn random_op(&mut self, client: usize) -> Op {
        let unix_secs = lock(&self.witness).second();
        let Client { known, .. } = &self.clients[client];
        let protocol = self.clients[client].protocol();
        Op::random(&mut self.rng, self.scenario, protocol, self.requests.into(), unix_secs, known)
    }

    fn send(&mut self, client: usize, op: Op, is_quiet: bool) {
        let tick = lock(&self.witness).next_tick();
        trace!(
            self,
            "client {client} sends {}{}",
            crate::check::op_in_words(&op),
            if is_quiet { ", quietly" } else { "" }
        );
        let number = self.run.steps << 8 | client as u64;
        let bytes = self.clients[client].send(number, op, is_quiet, tick);
        if let Some(socket) = &mut self.sockets[client] {
            socket.inbox.extend_from_slice(&bytes);
        }
    }

    fn connect(&mut self, client: usize) {
        self.connections += 1;
        let protocol = [Protocol::Text, Protocol::Meta, Protocol::Binary][self.rng.usize(..3)];
        let worker = self.rng.usize(..self.scenario.workers);
        let now_secs = self.site().shared.clock.now().secs;
        let (state, socket) =
            (Client::new(self.connections, protocol), Socket::new(worker, client, now_secs));
        trace!(self, "client {client} has connection {} to worker {worker}, {protocol:?}", self.connections);
        if client < self.clients.len() {
            (self.clients[client], self.sockets[client]) = (state, Some(socket));
        } else {
            self.clients.push(state);
            self.sockets.push(Some(socket));
        }
    }

    fn disconnect(&mut self, client: usize) {
        self.sockets[client] = None;
        lock(&self.witness).forget(self.clients[client].connection);
    }

    fn unpark(&mut self, client: usize) {
        if let Some(socket) = self.sockets.get_mut(client).and_then(Option::as_mut)
            && std::mem::take(&mut socket.is_parked)
        {
            socket.is_queued = true;
        }
    }

    /// A worker was woken by the committer.
    fn wake(&mut self, worker: usize) {
        let site = self.site_mut();
        site.take_wake(worker);
        let Some(persistence) = &site.shared.persistence else { return };
        let ready = site.workers[worker].parked.take_ready(persistence);
        trace!(self, "worker {worker} wakes {ready:?}");
        for client in ready {
            // Its number may be another connection's by now, as a descriptor may.
            self.unpark(client);
        }
        self.await_commit(worker);
    }

    fn await_commit(&mut self, worker: usize) {
        let site = self.site_mut();
        let parked = &site.workers[worker].parked;
        if let Some(persistence) = site.persistence()
            && !parked.is_empty()
            && parked.ask(persistence, worker)
        {
            site.wake(worker);
        }
    }

    fn commit(&mut self) {
        let micros = self.clock.micros();
        let site = self.site_mut();
        let next = site.committer.step(micros);
        site.committer_next = next;
        let is_refusing = site.is_refusing();
        if next == Step::Sync {
            self.begin_sync();
        }
        let is_idle = matches!(next, Step::Idle | Step::IdleUntil { .. });
        if is_idle && !is_refusing && !self.site().committer.is_syncing() {
            let durable = micros.saturating_sub(self.scenario.interval_micros);
            let before = self.applied.partition_point(|(micros, _)| *micros <= durable);
            if let Some((_, place)) = before.checked_sub(1).map(|at| self.applied[at]) {
                self.guaranteed = self.guaranteed.max(place);
            }
        }
        let applied = self.applied_place();
        self.applied.push((micros, applied));
        trace!(self, "the committer steps: {next:?}{}", if is_refusing { ", refusing" } else { "" });
    }

    /// The disk syncs at once and reports it later, or does both later. Entries appended meanwhile may become durable,
    /// too.
    fn begin_sync(&mut self) {
        let is_at_once = self.rng.percent(50);
        let is_stale = self.scenario.has(Bug::StaleSync) && self.rng.percent(50);
        let site = self.site_mut();
        site.sync_result = match (is_stale, is_at_once) {
            (true, _) => Some(Ok(site.disk.durable_sequence())),
            (false, true) => Some(site.disk.sync()),
            (false, false) => None,
        };
    }

    fn end_sync(&mut self) {
        let micros = self.clock.micros();
        let site = self.site_mut();
        let result = site.sync_result.take().unwrap_or_else(|| site.disk.sync());
        let is_made = result.is_ok();
        site.committer.synced(result, micros);
        site.committer_next = Step::Again;
        trace!(self, "the sync ends{}", if is_made { "" } else { ": it has failed" });
    }

    /// Up to here the store has all changes, or they are lost.
    fn applied_place(&self) -> Place {
        let site = self.site();
        let (changes, _) = site.journal_load();
        let given = site.persistence().map_or(0, |persistence| persistence.journal().last_given());
        let witness = lock(&self.witness);
        // The last positions may be of nothing.
        witness.place_of(given - changes).min(witness.last_place)
    }

    /// False: nothing waits.
    fn read(&mut self, reader: usize) -> bool {
        let site = self.site_mut();
        let was_busy = site.readers[reader].is_busy;
        let is_reading = site.step_reader(reader);
        if is_reading {
            self.run.fetches += u64::from(was_busy);
            trace!(self, "reader {reader} {}", if was_busy { "is done" } else { "begins" });
        }
        is_reading
    }

    fn pass(&mut self, micros: u64) {
        self.clock.advance(micros);
        let clock = &self.site().shared.clock;
        let second = clock.wall_secs(clock.now().secs);
        lock(&self.witness).set_second(second);
    }

    /// What a worker does with a connection whose socket is ready, or whose turn has come.
    fn serve(&mut self, client: usize) -> Result<(), String> {
        let Some(mut socket) = self.sockets[client].take() else { return Ok(()) };
        socket.is_queued = false;
        let (next, replies) = self.exchange(client, &mut socket);
        let worker = socket.worker;
        let is_open = !matches!(next, Next::Close(_) | Next::Watch(_));
        match next {
            Next::Wait(Waiting::Yield | Waiting::Turn | Waiting::Memory) => socket.is_queued = true,
            Next::Wait(waiting) => {
                socket.is_parked = true;
                self.run.held += u64::from(matches!(waiting, Waiting::Durable(_)));
                if matches!(waiting, Waiting::Commit(_) | Waiting::Durable(_)) {
                    self.site_mut().workers[worker].parked.push(client, waiting);
                }
            }
            Next::Read | Next::Send | Next::Close(_) | Next::Watch(_) => {}
        }
        trace!(self, "worker {worker} serves client {client}: {} bytes of replies, {next:?}", replies.len());
        self.sockets[client] = Some(socket);
        self.await_commit(worker);
        self.receive(client, &replies)?;
        if !is_open || self.clients[client].is_lost {
            self.disconnect(client);
            self.connect(client);
        }
        Ok(())
    }

    /// Receives, executes and sends.
    fn exchange(&mut self, client: usize, socket: &mut Socket) -> (Next, Vec<u8>) {
        let Some(site) = &mut self.site else { return (Next::Read, Vec::new()) };
        let shared = Arc::clone(&site.shared);
        let worker = &mut site.workers[socket.worker];
        let actor = self.clients[client].connection;
        let (witness, is_pinned) = (&self.witness, &mut self.is_pinned);
        let executing = |is_executing: bool| {
            *is_pinned = true;
            lock(witness).actor = is_executing.then_some(actor);
        };
        let holds = !self.scenario.has(Bug::ReplyBeforeCommit);
        socket.exchange(&shared, worker, &mut self.rng, holds, executing)
    }

    /// A client receives what was sent.
    fn receive(&mut self, client: usize, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        for byte in bytes {
            self.run.digest = (self.run.digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        trace!(self, "client {client} receives {}", bytes[..bytes.len().min(160)].escape_ascii());
        let is_disk_faulty = self.site().is_disk_faulty;
        let mut witness = lock(&self.witness);
        let state = &mut self.clients[client];
        let replies = state.receive(bytes, &mut witness, self.scenario.is_sync(), is_disk_faulty)?;
        self.run.replies += u64::from(replies);
        Ok(())
    }

    /// The process ends, and starts again over what the disk has.
    fn crash(&mut self, is_power_loss: bool) -> Result<(), String> {
        let applied = self.applied_place();
        let Some(site) = self.site.take() else { return Ok(()) };
        self.run.restarts += 1;
        self.run.evictions += site.shared.namespaces.stats().evictions;
        self.sockets.iter_mut().for_each(|socket| *socket = None);
        let disk = site.end();
        let memory = disk.after_crash(is_power_loss.then(|| self.rng.u64(..)));
        if self.scenario.sets_clock && self.rng.percent(60) {
            let secs = if self.rng.percent(70) { -self.rng.i64(1..4000) } else { self.rng.i64(1..4000) };
            trace!(self, "the clock is set by {secs} s");
            self.clock.shift(secs);
        }
        if self.rng.percent(50) {
            self.clock.advance(self.rng.u64(..4_000_000));
        }
        let disk = crate::disk::Disk::new(memory, self.scenario);
        let (items, flush_due) = (disk.items(), disk.flush_due());
        {
            let mut witness = lock(&self.witness);
            for client in &self.clients {
                witness.forget(client.connection);
            }
            let mut required = self.guaranteed;
            if self.scenario.is_sync() {
                required = required.max(witness.shown);
            }
            if !is_power_loss {
                required = required.max(applied);
            }
            // The versions of what was never durable are forgotten with it.
            let are_versions_kept = self.scenario.is_sync();
            witness.on_restart(&items, flush_due, required, are_versions_kept)?;
        }
        let wall = self.clock.unix_micros() / 1_000_000;
        trace!(
            self,
            "{}; {} items are there at {wall}",
            if is_power_loss { "power loss" } else { "kill" },
            items.len()
        );
        let memory = disk.after_crash(None);
        let requests_per_event = self.rng.u32(1..=20);
        let site = Site::start(self.scenario, memory, &self.clock, &self.witness, requests_per_event);
        self.site = Some(site.map_err(|error| format!("it does not start again: {error}"))?);
        self.guaranteed = lock(&self.witness).last_place.min(self.guaranteed);
        self.applied.clear();
        for client in 0..self.clients.len() {
            self.connect(client);
        }
        Ok(())
    }

    /// What memory has of a key is what the key has, and so is what the store has.
    fn check_memory(&mut self) -> Result<(), String> {
        let Some(site) = &mut self.site else { return Ok(()) };
        let witness = lock(&self.witness);
        let read_only = site.disk.is_read_only();
        // After a failed fsync nobody knows whether a change was made that a client was told an error of.
        if !(read_only && self.scenario.is_sync())
            && let Some(unexplained) = witness.unexplained()
        {
            return Err(unexplained);
        }
        let (now, second) = (site.shared.clock.now(), witness.second());
        let clock = Arc::clone(&site.shared.clock);
        for key in witness.histories.keys() {
            let expected = witness.look_now(key);
            let guard = site.handle.pin(now);
            let kept = guard.peek(key, guard.prepare(key)).ok().map(|fetched| crate::witness::Item {
                value: fetched.item.value().into(),
                client_flags: fetched.item.client_flags(),
                expires_at: clock.unix_secs_of(fetched.item.expiry()).map(|secs| secs.max(1)),
                version: fetched.item.cas(),
                is_stale: fetched.stale,
                is_token_held: fetched.token != larder_engine::Token::None,
            });
            drop(guard);
            if kept.is_some() && kept.as_ref() != expected {
                let (kept, expected) = (describe(kept.as_ref()), describe(expected));
                return Err(format!("memory has of {} {kept}, not {expected}", key.escape_ascii()));
            }
            let stored = site.disk.item(key).filter(|item| !item.is_past(second));
            // Entries lost with the sync may be there, or the state may be as before.
            if stored.as_ref() != expected && !(read_only && self.scenario.is_sync()) {
                let (stored, expected) = (describe(stored.as_ref()), describe(expected));
                return Err(format!("the store has of {} {stored}, not {expected}", key.escape_ascii()));
            }
        }
        Ok(())
    }

    /// Writes work again, now that the disk does.
    fn probe(&mut self) -> Result<(), String> {
        if self.site().disk.is_read_only() {
            // That is for good, until the next start.
            return self.crash(false);
        }
        // A failed append is tried again.
        self.pass(1_000_000);
        self.settle()?;
        self.site_mut().is_disk_faulty = false;
        let key: crate::witness::Key = b"probe"[..].into();
        let op = Op::Store {
            mode: larder_client::codec::Mode::Set,
            key,
            value: b"probe".to_vec(),
            client_flags: 1,
            exptime: 0,
            compare: None,
        };
        self.send(0, op, false);
        self.settle()
    }

    /// Every key is what it is to be, whoever reads it.
    fn read_all(&mut self) -> Result<(), String> {
        let keys: Vec<_> = lock(&self.witness).histories.keys().cloned().collect();
        for (number, keys) in keys.chunks(5).enumerate() {
            let client = number % self.clients.len();
            self.send(client, Op::Get { keys: keys.to_vec(), exptime: None, vivify: None }, false);
        }
        Ok(())
    }

    #[allow(clippy::expect_used)] // See the field.
    fn site(&self) -> &Site {
        self.site.as_ref().expect("a server runs")
    }

    #[allow(clippy::expect_used)] // See the field.
    fn site_mut(&mut self) -> &mut Site {
        self.site.as_mut().expect("a server runs")
    }
}

/// Far more than all requests of a scenario need, one after the other.
const SETTLE_STEPS_MAX: u64 = 30_000;
