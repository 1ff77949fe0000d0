//! The collector: one run on many machines.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use super::clock::{Clock, Offset};
use super::merge::{Periods, merge};
use super::message::{Order, Report};
use super::share::{first_prepares, share};
use super::token::{Side, Token};
use super::wire::{BEAT_EVERY, Receiver, Sender, greet};
use super::{PATIENCE, connect};
use crate::outcome::{Phase, Watcher};
use crate::scenario::Scenario;
use crate::{Error, Outcome};

/// Runs `scenario` on all agents (`host:port`) at the same time, and adds up what came. If `stop` is set, what was
/// asked until then counts.
///
/// # Errors An agent cannot be reached, has another token, refuses the scenario or is gone before the end; it is named,
/// and the others are stopped.
pub fn collect(
    agents: &[String],
    token: &Token,
    scenario: &Scenario,
    watcher: &mut dyn Watcher,
    stop: &AtomicBool,
) -> Result<Outcome, Error> {
    if agents.is_empty() {
        return Err("there are no agents".into());
    }
    let parts = share(scenario, agents.len());
    if let Some(agent) = parts.iter().position(|part| part.groups.is_empty()) {
        return Err(format!(
            "{}: no connection is left for it: fewer agents, or more connections",
            agents[agent]
        )
        .into());
    }
    watcher.phase(Phase::Connecting);
    let clock = Clock::new();
    let mut links = Vec::new();
    let mut receivers = Vec::new();
    for address in agents {
        let (link, receiver) = Link::open(address, token, &clock).map_err(|error| blame(address, &error))?;
        links.push(link);
        receivers.push(receiver);
    }

    let (told, reports) = mpsc::channel();
    thread::scope(|scope| {
        for (agent, receiver) in receivers.into_iter().enumerate() {
            let told = told.clone();
            scope.spawn(move || listen(agent, receiver, &told));
        }
        drop(told);
        let beat_at = Instant::now() + BEAT_EVERY;
        let mut collection = Collection { clock, links, reports, beat_at, is_stopped: false, watcher, stop };
        let outcome = collection.run(scenario, &parts);
        // Whether it went well or not: agents see that it is over, and so do the threads that listen.
        collection.links.iter().for_each(|link| link.sender.hang_up());
        outcome
    })
}

/// Hands on what an agent says, until it says no more.
fn listen(agent: usize, mut receiver: Receiver, told: &mpsc::Sender<(usize, Result<Report, Error>)>) {
    loop {
        let report = receiver.receive();
        let is_last = report.is_err();
        if told.send((agent, report)).is_err() || is_last {
            return;
        }
    }
}

/// What the collector has of an agent.
struct Link {
    address: String,
    sender: Sender,
    offset: Offset,
}

impl Link {
    fn open(address: &str, token: &Token, clock: &Clock) -> Result<(Self, Receiver), Error> {
        let (mut sender, mut receiver) = greet(connect(address)?, Side::Collector, token, REPORT_BYTES_MAX)?;
        let offset = Offset::measure(clock, &mut sender, &mut receiver)?;
        Ok((Self { address: address.to_owned(), sender, offset }, receiver))
    }
}

/// A run on all agents.
struct Collection<'a> {
    clock: Clock,
    links: Vec<Link>,
    reports: mpsc::Receiver<(usize, Result<Report, Error>)>,
    /// When agents hear next that someone is here.
    beat_at: Instant,
    /// Agents were told to stop.
    is_stopped: bool,
    watcher: &'a mut dyn Watcher,
    stop: &'a AtomicBool,
}

impl Collection<'_> {
    fn run(&mut self, scenario: &Scenario, parts: &[Scenario]) -> Result<Outcome, Error> {
        // What the first one flushes must not be what the others have stored.
        let first = if first_prepares(scenario) { 1 } else { parts.len() };
        let mut warnings = Vec::new();
        self.order_runs(0..first, parts)?;
        self.until_ready(first)?;
        self.order_runs(first..parts.len(), parts)?;
        self.until_ready(parts.len() - first)?;
        self.start()?;
        self.watcher.ready();
        self.watcher.phase(Phase::Running);

        let mut periods = Periods::new(parts.len());
        let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
        while outcomes.len() < parts.len() {
            match self.next()? {
                (agent, Report::Period(period)) if !outcomes.contains_key(&agent) => {
                    if let Some(period) = periods.add(agent, *period) {
                        let period = period.clone();
                        self.watcher.period(&period, &periods.so_far);
                    }
                }
                (agent, Report::Done(outcome)) => drop(outcomes.insert(agent, *outcome)),
                (agent, Report::Begun { late_nanos }) if late_nanos > LATE_NANOS_MAX => {
                    warnings.push(format!(
                        "{}: began {} ms late",
                        self.links[agent].address,
                        late_nanos / 1_000_000
                    ));
                }
                _ => {}
            }
        }
        let named =
            outcomes.into_iter().map(|(agent, part)| (self.links[agent].address.clone(), part)).collect();
        let (periods, _) = periods.finish();
        let mut whole = merge(scenario, periods, named);
        whole.client.warnings.extend(warnings);
        Ok(whole)
    }

    fn order_runs(&mut self, agents: std::ops::Range<usize>, parts: &[Scenario]) -> Result<(), Error> {
        for agent in agents {
            let scenario = Box::new(parts[agent].clone());
            let password = scenario.target.login.as_ref().map(|login| login.password.clone());
            self.order(agent, &Order::Run { scenario, password })?;
        }
        Ok(())
    }

    /// Waits until so many agents more are ready.
    fn until_ready(&mut self, agents: usize) -> Result<(), Error> {
        let mut ready = 0;
        while ready < agents {
            match self.next()? {
                (_, Report::Ready) => ready += 1,
                (_, Report::Phase(phase)) => self.watcher.phase(phase),
                (agent, Report::Done(_)) => {
                    return Err(blame(&self.links[agent].address, &"stopped before the start".into()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Names a moment that all agents will have been told of before it comes.
    fn start(&mut self) -> Result<(), Error> {
        let round_trip_nanos = self.links.iter().map(|link| link.offset.round_trip_nanos).max().unwrap_or(0);
        let at_nanos = self.clock.nanos() + START_DELAY_NANOS + 4 * round_trip_nanos;
        for agent in 0..self.links.len() {
            let at_nanos = self.links[agent].offset.to_theirs(at_nanos);
            self.order(agent, &Order::Start { at_nanos })?;
        }
        Ok(())
    }

    fn order(&mut self, agent: usize, order: &Order) -> Result<(), Error> {
        let link = &mut self.links[agent];
        link.sender.send(order).map_err(|error| blame(&link.address, &error))
    }

    /// What the next agent says.
    fn next(&mut self) -> Result<(usize, Report), Error> {
        loop {
            self.keep_up()?;
            match self.reports.recv_timeout(PATIENCE) {
                Ok((agent, Ok(Report::Failed { reason }))) => {
                    return Err(blame(&self.links[agent].address, &reason.into()));
                }
                Ok((agent, Err(error))) => return Err(blame(&self.links[agent].address, &error)),
                Ok((_, Ok(Report::Beat))) => {}
                Ok((agent, Ok(report))) => return Ok((agent, report)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("all agents are gone".into()),
            }
        }
    }

    /// Tells all agents that someone is here, and whether to stop.
    fn keep_up(&mut self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) && !self.is_stopped {
            self.is_stopped = true;
            (0..self.links.len()).try_for_each(|agent| self.order(agent, &Order::Stop))?;
        }
        if Instant::now() >= self.beat_at {
            self.beat_at = Instant::now() + BEAT_EVERY;
            (0..self.links.len()).try_for_each(|agent| self.order(agent, &Order::Beat))?;
        }
        Ok(())
    }
}

fn blame(agent: &str, error: &Error) -> Error {
    format!("agent {agent}: {error}").into()
}

/// Histograms of a whole run, deflated, are some kilobytes for each command.
const REPORT_BYTES_MAX: usize = 64 << 20;
/// So much time the first agent leaves for the last to be told.
const START_DELAY_NANOS: u64 = 200_000_000;
/// A start that is later than this is worth a warning.
const LATE_NANOS_MAX: u64 = 10_000_000;
