//! The highest rate at which a server still keeps a latency.
//!
//! The rate doubles until it fails (or halves until it holds), then the gap between the highest that held and the
//! lowest that failed is halved until it is as small as the tolerance. A short run is not always right: one hiccup of
//! the machine is a bad p99. So a run that fails, or that holds by less than half of the latency, is made up to three
//! times, and the majority counts.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::contestant::launch::{Launch, Pinned};
use crate::contestant::{Contestant, ask_again};
use crate::outcome::{LATENCY_MAX_NANOS, Outcome, Watcher};
use crate::scenario::Scenario;
use crate::{Error, run};

/// What must hold, such as `p99 < 1ms`: of the latency from the time at which a request was due, all commands together.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Goal {
    /// 0 to 100.
    pub percentile: f64,
    /// What it must stay below.
    pub latency_micros: f64,
}

/// What is searched, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who is asked.
    pub contestant: Contestant,
    /// What is asked, and for how long each time; the rate is the search's.
    pub scenario: Scenario,
    /// What must hold.
    pub goal: Goal,
    /// Where the search goes.
    pub bounds: Bounds,
    /// How the server is started, and where it runs.
    pub launch: Launch,
    /// Cores on which the load runs. Empty: wherever the system puts it.
    pub load_cores: Vec<usize>,
}

/// Where a search goes, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The first rate.
    pub start_per_sec: f64,
    /// No lower rate is tried.
    pub min_per_sec: f64,
    /// No higher rate is tried.
    pub max_per_sec: f64,
    /// How far the rate found may lie below the lowest that failed, as a share of it.
    pub tolerance: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { start_per_sec: 10_000.0, min_per_sec: 10.0, max_per_sec: 1e8, tolerance: 0.05 }
    }
}

/// What came of a search.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Search {
    /// What was asked, but for its rate.
    pub scenario: Scenario,
    /// Who was asked.
    pub contestant: Contestant,
    /// Wall clock at the start, seconds since 1970.
    pub started_unix_secs: u64,
    /// What had to hold.
    pub goal: Goal,
    /// See [`Bounds::tolerance`].
    pub tolerance: f64,
    /// The highest rate that held, requests a second. `None`: not even the lowest did.
    pub rate_per_sec: Option<f64>,
    /// The lowest rate that failed. `None`: the highest that was tried held.
    pub failed_rate_per_sec: Option<f64>,
    /// In the order in which they were made.
    pub steps: Vec<Step>,
    /// Why the figures tell of the client rather than of the server, in words.
    pub warnings: Vec<String>,
}

/// One rate, and what was seen at it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Step {
    /// Requests a second that were asked for.
    pub rate_per_sec: f64,
    /// One run, or up to three where one does not settle it.
    pub probes: Vec<Probe>,
    /// Whether most of them held.
    pub holds: bool,
}

/// One short run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Probe {
    /// Requests a second that were answered.
    pub answered_per_sec: f64,
    /// The goal's percentile.
    pub latency_micros: f64,
    /// Share of the requests that the client sent late because no connection was free.
    pub sent_late: f64,
    /// Answers that were wrong.
    pub failures: u64,
    /// Whether the latency was kept, the rate was kept, and nothing failed.
    pub holds: bool,
}

/// Starts the server, if it is not running, and searches. If `stop` is set, what is known until then counts.
///
/// # Errors
/// The server does not start or cannot be asked; nothing was measured before `stop`.
pub fn search(plan: &Plan, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<Search, Error> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let server = plan.launch.start(&plan.contestant, &plan.scenario)?;
    let _pinned = Pinned::to(&plan.load_cores)?;
    let mut scenario = plan.contestant.asked(&plan.scenario, &server.addresses);
    let mut warnings: Vec<String> = Vec::new();
    let mut number = 0;
    let found = find(&plan.bounds, &plan.goal, |rate_per_sec| {
        number += 1;
        watcher.turn(&format!("{} at {rate_per_sec:.0} / s", plan.contestant.name), number, number);
        scenario.set_rate_per_sec(rate_per_sec);
        let outcome = run(&scenario, watcher, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        ask_again(&mut scenario);
        let probe = plan.goal.probe(rate_per_sec, &outcome);
        if probe.holds {
            // At a rate that fails it is no news that the client has its limits.
            let new = outcome.client.warnings.into_iter().filter(|warning| !warnings.contains(warning));
            warnings.extend(new.collect::<Vec<_>>());
        }
        Ok(Some(probe))
    })?;
    if found.steps.is_empty() {
        return Err("stopped before a rate was measured".into());
    }
    Ok(Search {
        scenario: plan.scenario.clone(),
        contestant: plan.contestant.clone(),
        started_unix_secs: started.as_secs(),
        goal: plan.goal,
        tolerance: plan.bounds.tolerance,
        rate_per_sec: found.held_per_sec,
        failed_rate_per_sec: found.failed_per_sec,
        steps: found.steps,
        warnings,
    })
}

impl Goal {
    fn probe(&self, rate_per_sec: f64, outcome: &Outcome) -> Probe {
        let all = outcome.total.all();
        let requests = all.requests as f64;
        let secs = outcome.elapsed_secs.max(f64::MIN_POSITIVE);
        // What was due and never sent is later than all that was: the percentile is one of both together.
        let share = self.percentile / 100.0 * (requests + outcome.total.unsent as f64) / requests.max(1.0);
        let nanos = if share > 1.0 { LATENCY_MAX_NANOS } else { all.latency_nanos.value_at_quantile(share) };
        let latency_micros = nanos as f64 / 1e3;
        let failures = outcome.total.failures.values().sum();
        // Arrivals at random: their number varies by its square root. Three times that is chance, more is a rate not
        // kept.
        let expected = rate_per_sec * secs;
        let rate_is_kept = requests >= expected * (1.0 - RATE_SLACK) - 3.0 * expected.sqrt();
        Probe {
            answered_per_sec: requests / secs,
            latency_micros,
            sent_late: outcome.total.sent_late as f64 / requests.max(1.0),
            failures,
            holds: requests > 0.0 && rate_is_kept && failures == 0 && latency_micros < self.latency_micros,
        }
    }

    /// Whether one run is enough to believe that the rate holds.
    fn is_clear(&self, probe: &Probe) -> bool {
        probe.holds && probe.latency_micros < self.latency_micros / 2.0
    }
}

impl FromStr for Goal {
    type Err = String;

    /// `p99<1ms`, `p99.9 < 500us`, `p50<0.1s`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is no goal such as p99<1ms");
        let (percentile, latency) = text.split_once('<').ok_or_else(wrong)?;
        let percentile: f64 =
            percentile.trim().strip_prefix('p').and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
        let latency = latency.trim();
        let digits = latency.find(|c: char| c.is_alphabetic() || c == 'µ').ok_or_else(wrong)?;
        let (number, unit) = latency.split_at(digits);
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let unit_micros = match unit {
            "us" | "µs" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            _ => return Err(wrong()),
        };
        let latency_micros = number * unit_micros;
        let is_sound =
            (0.0..=100.0).contains(&percentile) && latency_micros > 0.0 && latency_micros.is_finite();
        if is_sound { Ok(Self { percentile, latency_micros }) } else { Err(wrong()) }
    }
}

/// What [`find`] knows.
#[derive(Debug, Default)]
struct Found {
    held_per_sec: Option<f64>,
    failed_per_sec: Option<f64>,
    steps: Vec<Step>,
}

/// Searches with whatever makes a short run at a rate; `None` from it ends the search.
fn find(
    bounds: &Bounds,
    goal: &Goal,
    mut probe: impl FnMut(f64) -> Result<Option<Probe>, Error>,
) -> Result<Found, Error> {
    let mut found = Found::default();
    while let Some(rate_per_sec) = found.next(bounds) {
        let Some(step) = step(rate_per_sec, goal, &mut probe)? else { break };
        if step.holds {
            found.held_per_sec = Some(rate_per_sec);
        } else {
            found.failed_per_sec = Some(rate_per_sec);
        }
        found.steps.push(step);
    }
    Ok(found)
}

impl Found {
    /// The rate to try next; `None` when the gap is small enough, or the bounds are reached.
    fn next(&self, bounds: &Bounds) -> Option<f64> {
        match (self.held_per_sec, self.failed_per_sec) {
            (None, None) => Some(bounds.start_per_sec.clamp(bounds.min_per_sec, bounds.max_per_sec)),
            (Some(held), None) => (held < bounds.max_per_sec).then(|| (held * 2.0).min(bounds.max_per_sec)),
            (None, Some(failed)) => {
                (failed > bounds.min_per_sec).then(|| (failed / 2.0).max(bounds.min_per_sec))
            }
            (Some(held), Some(failed)) => {
                (held < failed * (1.0 - bounds.tolerance)).then(|| f64::midpoint(held, failed))
            }
        }
    }
}

/// Runs once if that is clear, else until two of at most three agree.
fn step(
    rate_per_sec: f64,
    goal: &Goal,
    mut probe: impl FnMut(f64) -> Result<Option<Probe>, Error>,
) -> Result<Option<Step>, Error> {
    let mut probes: Vec<Probe> = Vec::new();
    loop {
        let Some(next) = probe(rate_per_sec)? else { return Ok(None) };
        probes.push(next);
        let held = probes.iter().filter(|probe| probe.holds).count();
        let failed = probes.len() - held;
        if held >= 2 || failed >= 2 || (probes.len() == 1 && goal.is_clear(&next)) {
            return Ok(Some(Step { rate_per_sec, holds: held > failed, probes }));
        }
    }
}

/// Share of the rate that may be missing at the end of a run: answers that were still on their way.
const RATE_SLACK: f64 = 0.01;

#[cfg(test)]
mod tests;
