//! A collector's conversation with an agent, on the agent's side.
//!
//! Three threads: one receives orders, one runs the scenario, and the one that was called sends whatever the run
//! reports, and a beat if there is nothing.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::clock::Clock;
use super::message::{Order, Report};
use super::token::Side;
use super::wire::{BEAT_EVERY, Receiver, Sender, greet};
use super::{PATIENCE, Shared, files};
use crate::outcome::{Period, Phase, Tally, Watcher};
use crate::scenario::Scenario;
use crate::{Error, run};

/// Greets, runs what is ordered, and reports. `stop` is the agent's own.
pub(super) fn serve(stream: TcpStream, shared: &Shared, stop: &AtomicBool) -> Result<(), Error> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let (mut sender, mut receiver) = greet(stream, Side::Agent, &shared.token, ORDER_BYTES_MAX)?;
    let clock = Clock::new();
    let scenario = match until_run(&clock, &mut sender, &mut receiver) {
        Ok(scenario) => scenario,
        Err(error) => return refuse(&mut sender, error),
    };
    if let Err(error) = check(&scenario, shared) {
        return refuse(&mut sender, error);
    }
    if shared.is_busy.swap(true, Ordering::Acquire) {
        return refuse(&mut sender, "it runs something for another collector".into());
    }
    run_for(&scenario, clock, &mut sender, receiver, &shared.is_busy, stop)
}

/// Answers questions about the clock until there is something to run.
fn until_run(clock: &Clock, sender: &mut Sender, receiver: &mut Receiver) -> Result<Scenario, Error> {
    loop {
        match receiver.receive()? {
            Order::Clock => sender.send(&Report::Clock { nanos: clock.nanos() })?,
            Order::Beat => sender.send(&Report::Beat)?,
            Order::Run { mut scenario, password } => {
                if let (Some(login), Some(password)) = (&mut scenario.target.login, password) {
                    login.password = password;
                }
                return Ok(*scenario);
            }
            Order::Start { .. } | Order::Stop => return Err("there is nothing to start or stop".into()),
        }
    }
}

fn check(scenario: &Scenario, shared: &Shared) -> Result<(), Error> {
    match files::named(scenario).first() {
        Some(file) if !shared.allow_files => Err(format!(
            "the scenario names the file {file}, and this agent was started without --allow-files"
        )
        .into()),
        _ => Ok(()),
    }
}

/// Tells why there will be no run; that is an error here as well.
fn refuse(sender: &mut Sender, error: Error) -> Result<(), Error> {
    // The collector may be the reason, and gone.
    let _ = sender.send(&Report::Failed { reason: error.to_string() });
    sender.hang_up_gently();
    Err(error)
}

fn run_for(
    scenario: &Scenario,
    clock: Clock,
    sender: &mut Sender,
    receiver: Receiver,
    is_busy: &AtomicBool,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let stop_run = AtomicBool::new(false);
    let (reports, outbox) = mpsc::channel();
    let (start, starts) = mpsc::channel();
    thread::scope(|scope| {
        let orders = scope.spawn(|| take_orders(receiver, start, &stop_run));
        let stop_run = &stop_run;
        let run_thread = scope.spawn(move || {
            let mut reporter = Reporter { clock, reports, starts, stop: stop_run };
            let last = match run(scenario, &mut reporter, stop_run) {
                // Part of a run must not pass for the whole.
                Ok(_) if stop.load(Ordering::Relaxed) => {
                    Report::Failed { reason: "it was stopped where it runs".into() }
                }
                Ok(mut outcome) => {
                    // The collector has got them one by one.
                    outcome.periods.clear();
                    Report::Done(Box::new(outcome))
                }
                Err(error) => Report::Failed { reason: error.to_string() },
            };
            reporter.report(last);
        });

        let sent = send_all(sender, &outbox, stop, stop_run);
        stop_run.store(true, Ordering::Relaxed);
        join(run_thread);
        is_busy.store(false, Ordering::Release);
        // The collector hangs up when it has heard all agents. Hanging up first could cost it the last word.
        while sent.is_ok() && !orders.is_finished() && !stop.load(Ordering::Relaxed) {
            thread::sleep(PATIENCE);
        }
        sender.hang_up();
        // The end of the conversation ends the orders: that is no error unless the run was cut short by it.
        let heard = join(orders);
        sent.and_then(|is_done| if is_done { Ok(()) } else { heard })
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Receives until the conversation is over. The run stops then, since nobody wants its outcome.
fn take_orders(mut receiver: Receiver, start: mpsc::Sender<u64>, stop_run: &AtomicBool) -> Result<(), Error> {
    loop {
        let order = receiver.receive();
        match order {
            // Nobody waits for it, if the run has failed meanwhile.
            Ok(Order::Start { at_nanos }) => drop(start.send(at_nanos)),
            Ok(Order::Beat) => {}
            Ok(Order::Stop) => stop_run.store(true, Ordering::Relaxed),
            Ok(Order::Clock | Order::Run { .. }) => {
                stop_run.store(true, Ordering::Relaxed);
                return Err("an order that makes no sense during a run".into());
            }
            Err(error) => {
                stop_run.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
    }
}

/// Sends what the run reports, until it has ended: true if the last word was said. The agent's own `stop` stops the run
/// as well.
fn send_all(
    sender: &mut Sender,
    outbox: &mpsc::Receiver<Report>,
    stop: &AtomicBool,
    stop_run: &AtomicBool,
) -> Result<bool, Error> {
    let mut idle = Duration::ZERO;
    loop {
        if stop.load(Ordering::Relaxed) {
            stop_run.store(true, Ordering::Relaxed);
        }
        match outbox.recv_timeout(PATIENCE) {
            Ok(report) => {
                idle = Duration::ZERO;
                let is_last = matches!(report, Report::Done(_) | Report::Failed { .. });
                sender.send(&report)?;
                if is_last {
                    return Ok(true);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                idle += PATIENCE;
                if idle >= BEAT_EVERY {
                    idle = Duration::ZERO;
                    sender.send(&Report::Beat)?;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
    }
}

/// Hands to the sender what the run tells.
struct Reporter<'a> {
    clock: Clock,
    reports: mpsc::Sender<Report>,
    starts: mpsc::Receiver<u64>,
    stop: &'a AtomicBool,
}

impl Reporter<'_> {
    fn report(&self, report: Report) {
        // The sender is gone when the collector is: then the run is about to stop.
        let _ = self.reports.send(report);
    }
}

impl Watcher for Reporter<'_> {
    fn phase(&mut self, phase: Phase) {
        self.report(Report::Phase(phase));
    }

    /// Waits for the moment at which all agents begin.
    fn ready(&mut self) {
        self.report(Report::Ready);
        let at_nanos = loop {
            match self.starts.recv_timeout(PATIENCE) {
                Ok(at_nanos) => break at_nanos,
                Err(RecvTimeoutError::Timeout) if !self.stop.load(Ordering::Relaxed) => {}
                Err(_) => return,
            }
        };
        // Bounded, whatever the collector says.
        let wait = Duration::from_nanos(at_nanos.saturating_sub(self.clock.nanos())).min(START_WAIT_MAX);
        thread::sleep(wait);
        self.report(Report::Begun { late_nanos: self.clock.nanos().saturating_sub(at_nanos) });
    }

    fn period(&mut self, period: &Period, _so_far: &Tally) {
        self.report(Report::Period(Box::new(period.clone())));
    }
}

/// A scenario is some kilobytes.
const ORDER_BYTES_MAX: usize = 1 << 20;
const START_WAIT_MAX: Duration = Duration::from_secs(60);
