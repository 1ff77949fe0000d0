//! The rounds of a comparison: who is measured when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Comparison, Figures, Plan, Standing, figures, ratios};
use crate::contestant::launch::{Pinned, Running};
use crate::contestant::{Contestant, ask_again};
use crate::outcome::{Tally, Watcher};
use crate::scenario::{Scenario, Target, Until};
use crate::watch::Watch;
use crate::{Error, Outcome, RunError, run};

/// Measures every server in every round. The order moves on by one each round, so that nobody is always first after a
/// pause. If `stop` is set, the rounds until then count.
///
/// # Errors
/// A server does not start or cannot be asked; nothing was measured before `stop`; a preparation was answered wrongly.
pub fn compare(plan: &Plan, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<Comparison, Error> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let mut entrants: Vec<Entrant<'_>> = plan.contestants.iter().map(Entrant::new).collect();
    let _pinned = Pinned::to(&plan.load_cores)?;
    'rounds: for round in 0..plan.rounds {
        for turn in 0..entrants.len() {
            let entrant = &mut entrants[(round + turn) % plan.contestants.len()];
            watcher.turn(&entrant.contestant.name, round + 1, plan.rounds);
            entrant.measure(plan, watcher, stop).map_err(|error| entrant.blame(error))?;
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
        }
    }

    // A round that not all have finished has no pairs.
    let rounds = entrants.iter().map(|entrant| entrant.rounds.len()).min().unwrap_or(0);
    if rounds == 0 {
        return Err("stopped before every server was measured once".into());
    }
    let mut standings: Vec<Standing> = entrants.into_iter().map(|entrant| entrant.standing(rounds)).collect();
    if let Some((first, others)) = standings.split_first_mut() {
        for other in others {
            other.ratios = ratios(&first.rounds, &other.rounds, plan.confidence);
        }
    }
    Ok(Comparison {
        scenario: plan.scenario.clone(),
        started_unix_secs: started.as_secs(),
        confidence: plan.confidence,
        restart: plan.restart,
        standings,
    })
}

/// What it takes for a server to have a scenario's keys: that, and one request.
fn filling(scenario: &Scenario) -> Scenario {
    let until = Until { requests: Some(1), ..Until::default() };
    Scenario { until, warm_up_secs: 0.0, ..scenario.clone() }
}

/// Waits until servers take next to no CPU time, for so many seconds at most.
fn settle(target: &Target, secs_max: f64, stop: &AtomicBool) {
    let mut watch = Watch::begin(target);
    let end = Instant::now() + Duration::from_secs_f64(secs_max);
    let mut quiet_periods = 0;
    while quiet_periods < QUIET_PERIODS && Instant::now() < end && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(SETTLE_PERIOD);
        let Some(cpu_secs) = watch.period() else { break };
        quiet_periods = if cpu_secs <= SETTLED_CPU_SECS { quiet_periods + 1 } else { 0 };
    }
}

/// A contestant, its server while it runs, and what was measured so far.
struct Entrant<'a> {
    contestant: &'a Contestant,
    server: Option<Running>,
    software: String,
    rounds: Vec<Figures>,
    failures: u64,
    warnings: Vec<String>,
    total: Tally,
}

impl<'a> Entrant<'a> {
    fn new(contestant: &'a Contestant) -> Self {
        Self {
            contestant,
            server: None,
            software: String::new(),
            rounds: Vec::new(),
            failures: 0,
            warnings: Vec::new(),
            total: Tally::default(),
        }
    }

    fn measure(&mut self, plan: &Plan, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<(), Error> {
        if plan.restart {
            self.server = None;
        }
        let is_fresh = self.server.is_none();
        let server = match self.server.take() {
            Some(server) => server,
            None => plan.launch.start(self.contestant, &plan.scenario)?,
        };
        if is_fresh {
            let filling = (plan.settle_secs_max > 0.0).then(|| filling(&plan.scenario));
            for preparation in plan.prepare.iter().chain(&filling) {
                let outcome = run(&self.contestant.asked(preparation, &server.addresses), watcher, stop)?;
                if let Some(example) = outcome.total.examples.first() {
                    return Err(format!("while it was prepared: {example}").into());
                }
            }
        }
        let mut scenario = self.contestant.asked(&plan.scenario, &server.addresses);
        if is_fresh && plan.settle_secs_max > 0.0 {
            settle(&scenario.target, plan.settle_secs_max, stop);
        }
        if !is_fresh || plan.settle_secs_max > 0.0 {
            ask_again(&mut scenario);
        }
        let outcome = run(&scenario, watcher, stop)?;
        self.server = Some(server);
        // What was cut short is no round like the others.
        if !stop.load(Ordering::Relaxed) {
            self.count(outcome);
        }
        Ok(())
    }

    fn count(&mut self, outcome: Outcome) {
        self.rounds.push(figures(&outcome));
        self.failures += outcome.total.failures.values().sum::<u64>();
        self.total.add(&outcome.total);
        for warning in outcome.client.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        if let Some(server) = outcome.servers.into_iter().next() {
            self.software = server.software;
        }
    }

    fn standing(mut self, rounds: usize) -> Standing {
        self.rounds.truncate(rounds);
        Standing {
            contestant: self.contestant.clone(),
            software: self.software,
            rounds: self.rounds,
            ratios: Vec::new(),
            failures: self.failures,
            warnings: [self.warnings, crate::report::words::arrears(&self.total)].concat(),
            total: self.total,
        }
    }

    /// The error with the name of the contestant.
    fn blame(&self, error: Error) -> Error {
        let name = &self.contestant.name;
        match error.downcast::<RunError>() {
            Ok(error) => match *error {
                RunError::Server { address, reason } if address != *name => {
                    RunError::Server { address: format!("{name} ({address})"), reason }.into()
                }
                error => error.into(),
            },
            Err(error) if error.to_string().starts_with(&format!("{name}: ")) => error,
            Err(error) => format!("{name}: {error}").into(),
        }
    }
}

/// Long enough to tell what goes on from the kernel's steps of 10 ms ...
const SETTLE_PERIOD: Duration = Duration::from_secs(1);
/// ... of which there are hardly any in it.
const SETTLED_CPU_SECS: f64 = 0.015;
/// Servers look about once a second whether there is something to do, and may leave it be for a second after they were
/// asked much.
const QUIET_PERIODS: u32 = 3;
