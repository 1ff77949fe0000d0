//! Running commands of other sites, as the home of their keys.

use std::io;
use std::time::{Duration, Instant};

use larder_engine::Position;
use larder_protocol::{Command, Error, KEY_BYTES_MAX};
use larder_store::commit::Outcome;

use super::Counts;
use super::codec::{HomeReply, Received, decode_command};
use crate::access::Hosts;
use crate::conn::client::{Client, Peer};
use crate::conn::output::Output;
use crate::conn::waiter::{TURNS_PER_ROUND, Turns, Waiting};
use crate::exec::store_access::StoreAccess;
use crate::exec::{Context, Done, Executor};
use crate::namespaces::{Handles, Rights};
use crate::observe::counters::Counters;
use crate::observe::measure::Recorder;
use crate::persistence::fetch::{Finding, Wanted};
use crate::replication::Site;
use crate::shared::Shared;

/// Runs commands of other sites. Their clients' rights were checked where they came from.
pub(in crate::replication) struct Runner<'s> {
    shared: &'s Shared,
    site: &'s Site,
    handles: Handles,
    /// Its own: a worker's have one writer.
    counters: Counters,
    recorder: Recorder,
    client: Client,
    turns: Turns,
}

impl<'s> Runner<'s> {
    /// Errors: no engine handle is left.
    pub(in crate::replication) fn new(shared: &'s Shared, site: &'s Site) -> io::Result<Self> {
        let handles = shared.namespaces.handles_apart();
        Ok(Self {
            shared,
            site,
            handles: handles.ok_or_else(|| io::Error::other("no engine handle left"))?,
            counters: Counters::default(),
            recorder: shared.recorder(0),
            // No descriptor: nothing can be parked.
            client: Client::new(-1, Peer::Unix, 0, Hosts::Any, 0),
            turns: Turns::new(TURNS_PER_ROUND),
        })
    }

    /// Runs commands in their order. The answers are given once all is as durable as the namespaces want it.
    pub(in crate::replication) fn run_all(&mut self, asked: &[Order]) -> Vec<(u64, Vec<u8>)> {
        let mut replies = Vec::with_capacity(asked.len());
        let mut counts = Counts::default();
        for Order { number, until_micros, command } in asked {
            let run = match decode_command(command) {
                // Nobody waits for it any more, and its client was told that it has failed.
                Some(_) if self.site.now().micros >= *until_micros => {
                    counts.late += 1;
                    None
                }
                Some(received) => {
                    counts.run += 1;
                    Some(self.run(&received, *until_micros))
                }
                None => None,
            };
            replies.push((*number, run.unwrap_or((HomeReply::Error(Error::HomeAway), 0))));
        }
        self.handles.release();
        if let Some(homes) = &self.shared.homes {
            homes.count(|all| {
                all.run += counts.run;
                all.late += counts.late;
            });
        }
        // Once for all, so that they are one sync.
        let last = replies.iter().map(|(_, (_, position))| *position).max().unwrap_or_default();
        if last != 0 {
            self.site.wait_durable(last);
        }
        replies.into_iter().map(|(number, run)| (number, self.settled(run).encode())).collect()
    }

    /// The reply, once its position is durable; 0: none.
    fn settled(&self, (reply, position): (HomeReply, Position)) -> HomeReply {
        let Some(persistence) = self.shared.persistence.as_ref().filter(|_| position != 0) else {
            return reply;
        };
        match persistence.outcome(position) {
            Outcome::Done => reply,
            Outcome::Lost => HomeReply::Error(persistence.loss(position)),
            Outcome::Pending => HomeReply::Error(Error::HomeSilent),
        }
    }

    fn run(&mut self, received: &Received<'_>, until_micros: u64) -> (HomeReply, Position) {
        let since = Instant::now();
        let command = received.command();
        let mut findings = Vec::new();
        while self.site.now().micros < until_micros && !self.site.is_stopping() {
            match self.attempt(command, received.value, std::mem::take(&mut findings), since) {
                Attempt::Done(reply, position) => {
                    // The next command may depend on this one's change.
                    self.site.journal.wake_if_idle();
                    return (reply, position);
                }
                Attempt::Fetch(wanted) if !wanted.is_empty() => {
                    let persistence = self.shared.persistence.as_ref();
                    findings = persistence
                        .map(|persistence| persistence.look_up_now(wanted, &mut self.handles))
                        .unwrap_or_default();
                }
                Attempt::Fetch(_) => std::thread::sleep(PAUSE),
            }
        }
        // It has changed nothing.
        (HomeReply::Error(Error::HomeAway), 0)
    }

    fn attempt(
        &mut self,
        command: Command<'_>,
        value: &[u8],
        findings: Vec<Finding>,
        since: Instant,
    ) -> Attempt {
        let shared = self.shared;
        self.handles.refresh(&shared.namespaces);
        let cx = Context {
            shared,
            counters: &self.counters,
            recorder: &self.recorder,
            // None of them: what is counted for workers is not counted here.
            worker: usize::MAX,
            client: &self.client,
            turns: &self.turns,
        };
        let guards = self.handles.pin(shared.clock.now());
        let mut out = Output::new(Vec::new());
        let mut executor = Executor {
            cx: &cx,
            guards: &guards,
            rights: Rights::ALL,
            out: &mut out,
            key_buffer: [0; KEY_BYTES_MAX],
            deadline_passed: since.elapsed() > MEMORY_PATIENCE,
            store: StoreAccess::new(&cx, findings, None),
            dump: None,
            has_had_its_turn: false,
        };
        match executor.execute_as_home(command, value) {
            Ok(reply) => match HomeReply::of(&reply) {
                Some(reply) => Attempt::Done(reply, guards.awaited()),
                None => Attempt::Done(HomeReply::Error(Error::HomeAway), 0),
            },
            Err(Done::Wait(Waiting::Signal)) => Attempt::Fetch(executor.store.take_wanted()),
            Err(_) => Attempt::Fetch(Vec::new()),
        }
    }
}

/// A command of another site.
pub(in crate::replication) struct Order {
    /// On its connection.
    pub(in crate::replication) number: u64,
    /// On the clock of [`Now::micros`](larder_replication::link::Now::micros): it is not begun later.
    pub(in crate::replication) until_micros: u64,
    pub(in crate::replication) command: Vec<u8>,
}

/// How an attempt ended.
enum Attempt {
    Done(HomeReply, Position),
    /// Nothing happened: again, once these are looked up, or after a pause.
    Fetch(Vec<Wanted>),
}

/// A worker waits as long for memory.
const MEMORY_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);
