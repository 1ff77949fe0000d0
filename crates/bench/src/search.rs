//! The highest rate at which a server meets a latency goal.
//!
//! The rate doubles until it fails (or halves until it holds). Then the gap between the highest rate that held and the
//! lowest that failed is halved until it is within the tolerance. A single short run may be wrong: one hiccup of the
//! machine makes a bad p99. So a run that fails, or that holds with less than half of the latency to spare, is made up
//! to three times, and the majority counts.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::calibrate::exhausted_warning;
use crate::contestant::launch::{Launch, Pinned};
use crate::contestant::{Contestant, ask_again};
use crate::outcome::{LATENCY_MAX_NANOS, Outcome, Watcher};
use crate::report::units;
use crate::scenario::Scenario;
use crate::{Error, run};

/// The goal, such as `p99 < 1ms`: of the latency from the scheduled time, for all commands together.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Goal {
    /// 0 to 100.
    pub percentile: f64,
    /// The percentile must be below this.
    pub latency_micros: f64,
}

/// What to search, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub contestant: Contestant,
    /// The load, and the length of each run; the search sets the rate.
    pub scenario: Scenario,
    /// The goal.
    pub goal: Goal,
    /// The bounds of the search.
    pub bounds: Bounds,
    /// How the server is started, and on which cores.
    pub launch: Launch,
    /// Cores for the load. Empty: the system chooses.
    pub load_cores: Vec<usize>,
}

/// The bounds of a search, in requests a second.
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

/// The result of a search.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Search {
    /// The load without its rate.
    pub scenario: Scenario,
    /// The server.
    pub contestant: Contestant,
    /// The program and its version: see [`crate::outcome::ServerCost::software`].
    #[serde(default)]
    pub software: String,
    /// Wall clock at the start, seconds since 1970.
    pub started_unix_secs: u64,
    /// The goal.
    pub goal: Goal,
    /// See [`Bounds::tolerance`].
    pub tolerance: f64,
    /// The highest rate that held, in requests a second. `None`: not even the lowest did.
    pub rate_per_sec: Option<f64>,
    /// The lowest rate that failed. `None`: the highest that was tried held.
    pub failed_rate_per_sec: Option<f64>,
    /// In order of time.
    pub steps: Vec<Step>,
    /// Warnings, if the client was the limit.
    pub warnings: Vec<String>,
}

/// One rate, and its runs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Step {
    /// Scheduled requests a second.
    pub rate_per_sec: f64,
    /// One run, or up to three if one is not conclusive.
    pub probes: Vec<Probe>,
    /// True if most of them held.
    pub holds: bool,
}

/// One short run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Probe {
    /// Answered requests.
    #[serde(default)]
    pub requests: u64,
    /// Answered requests a second.
    pub answered_per_sec: f64,
    /// The goal's percentile; [`LATENCY_MAX_NANOS`] if the request at it was due and never sent.
    pub latency_micros: f64,
    /// Share of the requests that the client sent late because no connection was free.
    pub sent_late: f64,
    /// Wrong replies.
    pub failures: u64,
    /// True if the latency was met, the rate was kept, and nothing failed.
    pub holds: bool,
}

/// Starts the server if needed, and searches. If `stop` is set, the result until then counts.
///
/// # Errors
/// The server does not start or cannot be reached; nothing was measured before `stop`.
pub fn search(plan: &Plan, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<Search, Error> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let server = plan.launch.start(&plan.contestant, &plan.scenario)?;
    let _pinned = Pinned::to(&plan.load_cores)?;
    let mut scenario = plan.contestant.asked(&plan.scenario, &server.addresses);
    let mut warnings: Vec<String> = Vec::new();
    // By the rate that failed.
    let mut exhausted: Vec<(f64, String)> = Vec::new();
    let mut software = String::new();
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
        if !probe.holds {
            exhausted.extend(exhausted_warning(&outcome.client).map(|warning| (rate_per_sec, warning)));
        }
        if let Some(server) = outcome.servers.first() {
            software.clone_from(&server.software);
        }
        if probe.holds {
            // At a rate that fails, warnings about the client are expected.
            let new = outcome.client.warnings.into_iter().filter(|warning| !warnings.contains(warning));
            warnings.extend(new.collect::<Vec<_>>());
        }
        Ok(Some(probe))
    })?;
    if found.steps.is_empty() {
        return Err("stopped before a rate was measured".into());
    }
    let limit = exhausted.into_iter().find(|(rate_per_sec, _)| Some(*rate_per_sec) == found.failed_per_sec);
    warnings.extend(limit.map(|(_, warning)| warning));
    warnings.extend(plan.goal.few_warning(&found));
    Ok(Search {
        scenario: plan.scenario.clone(),
        contestant: plan.contestant.clone(),
        software,
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
        // Requests that were due and never sent are later than all others: the percentile includes both.
        let share = self.percentile / 100.0 * (requests + outcome.total.unsent as f64) / requests.max(1.0);
        let nanos = if share > 1.0 { LATENCY_MAX_NANOS } else { all.latency_nanos.value_at_quantile(share) };
        let latency_micros = nanos as f64 / 1e3;
        let failures = outcome.total.failures.values().sum();
        // The number of random arrivals varies by its square root. A deviation of up to three times that is chance.
        let expected = rate_per_sec * secs;
        let rate_is_kept = requests >= expected * (1.0 - RATE_SLACK) - 3.0 * expected.sqrt();
        Probe {
            requests: all.requests,
            answered_per_sec: requests / secs,
            latency_micros,
            sent_late: outcome.total.sent_late as f64 / requests.max(1.0),
            failures,
            holds: requests > 0.0 && rate_is_kept && failures == 0 && latency_micros < self.latency_micros,
        }
    }

    /// The requests that the percentile needs: ten are slower, so one of them more or less hardly moves it. A maximum
    /// (p100) is what it is.
    fn requests_min(&self) -> u64 {
        let slower = 1.0 - self.percentile / 100.0;
        if slower <= 0.0 { 0 } else { (SLOWER_MIN / slower).round() as u64 }
    }

    /// A warning if the rate that was found rests on too few requests.
    fn few_warning(&self, found: &Found) -> Option<String> {
        let step = found.steps.iter().rfind(|step| step.holds)?;
        let requests = step.probes.iter().map(|probe| probe.requests).min()?;
        (requests < self.requests_min()).then(|| {
            format!(
                "a p{} of {} requests says little, it needs {} or more: raise --secs",
                self.percentile,
                units::count(requests),
                units::count(self.requests_min())
            )
        })
    }

    /// True if one run is enough to accept the rate.
    fn is_clear(&self, probe: &Probe) -> bool {
        probe.holds && probe.latency_micros < self.latency_micros / 2.0
    }
}

impl Probe {
    /// The percentile with its unit; `never sent` if the request at it was due, and no connection was free for it.
    pub fn latency(&self) -> String {
        if self.is_sent() { units::latency(self.latency_micros * 1e3) } else { "never sent".to_owned() }
    }

    /// Whether the request at the percentile was sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.latency_micros * 1e3 < LATENCY_MAX_NANOS as f64
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

/// The state of [`find`].
#[derive(Debug, Default)]
struct Found {
    held_per_sec: Option<f64>,
    failed_per_sec: Option<f64>,
    steps: Vec<Step>,
}

/// Searches with a function that makes a short run at a rate. If that returns `None`, the search ends.
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
    /// The next rate; `None` when the gap is small enough, or at the bounds.
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

/// Runs once if the result is clear, else until two of at most three agree.
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

/// Requests that are slower than a percentile that can be told.
const SLOWER_MIN: f64 = 10.0;
/// Share of the rate that may be missing at the end of a run: replies that are still under way.
const RATE_SLACK: f64 = 0.01;

#[cfg(test)]
mod tests;
