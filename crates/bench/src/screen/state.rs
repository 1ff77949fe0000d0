//! What the screen knows of a run.

use std::time::{Duration, Instant};

use crate::Scenario;
use crate::outcome::{Period, Phase, Tally};
use crate::report::units::{count, duration};
use crate::report::words;
use crate::scenario::Until;

/// Points that a sparkline can show on the widest terminal.
const HISTORY_MAX: usize = 500;

#[derive(Debug)]
pub(super) struct State {
    /// Name and load of the scenario.
    pub(super) title: String,
    pub(super) load: String,
    until: Until,
    /// `round 2 of 5: memcached`, where there are rounds.
    pub(super) turn: String,
    pub(super) phase: Phase,
    /// Since when it runs and counts.
    running_since: Option<Instant>,
    /// The period that ended last.
    pub(super) last: Option<Period>,
    pub(super) so_far: Tally,
    /// Period by period: requests a second, and the 99th percentile in nanoseconds.
    pub(super) rates: Vec<u64>,
    pub(super) p99s: Vec<u64>,
}

impl State {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let name = &scenario.name;
        Self {
            title: if name.is_empty() { "larder bench".into() } else { name.clone() },
            load: words::load(scenario, scenario.threads),
            until: scenario.until,
            turn: String::new(),
            phase: Phase::Connecting,
            running_since: None,
            last: None,
            so_far: Tally::default(),
            rates: Vec::new(),
            p99s: Vec::new(),
        }
    }

    pub(super) fn turn(&mut self, server: &str, round: usize, rounds: usize) {
        self.turn = format!("round {round} of {rounds}: {server}");
        self.running_since = None;
        self.so_far = Tally::default();
        self.last = None;
    }

    pub(super) fn phase(&mut self, phase: Phase) {
        if phase == Phase::Running && self.phase != Phase::Running {
            self.running_since = Some(Instant::now());
        }
        self.phase = phase;
    }

    pub(super) fn period(&mut self, period: &Period, so_far: &Tally) {
        let all = period.tally.all();
        push(&mut self.rates, (all.requests as f64 / period.secs.max(f64::MIN_POSITIVE)) as u64);
        push(&mut self.p99s, all.latency_nanos.value_at_percentile(99.0));
        self.last = Some(period.clone());
        self.so_far = so_far.clone();
    }

    /// How far the phase is, 0 to 1, and the same in words.
    pub(super) fn progress(&self) -> (f64, String) {
        let name = words::phase(self.phase);
        match self.phase {
            Phase::Filling { done, of } => {
                (share(done as f64, of as f64), format!("{name}: {} of {}", count(done), count(of)))
            }
            Phase::Running => self.running(name),
            Phase::Checking => (1.0, name.into()),
            Phase::Connecting | Phase::WarmingUp => (0.0, name.into()),
        }
    }

    fn running(&self, name: &str) -> (f64, String) {
        const SECS_BY_DEFAULT: f64 = 10.0;
        let secs = self.running_since.map_or(Duration::ZERO, |since| since.elapsed()).as_secs_f64();
        let done: u64 = self.so_far.commands.values().map(|figures| figures.requests).sum();
        let by_requests = self
            .until
            .requests
            .map(|of| (share(done as f64, of as f64), format!("{} of {}", count(done), count(of))));
        let open_ended = self.until.requests.is_some() || self.until.trace_ends;
        let of_secs = self.until.secs.or_else(|| (!open_ended).then_some(SECS_BY_DEFAULT));
        let by_time = of_secs.map(|of| {
            let left = duration((of - secs).max(0.0).round());
            (share(secs, of), format!("{} of {}, {left} left", duration(secs.floor()), duration(of)))
        });
        let nearest = by_requests.into_iter().chain(by_time).max_by(|a, b| a.0.total_cmp(&b.0));
        let (share, text) = nearest.unwrap_or_else(|| (0.0, format!("{} until now", duration(secs.floor()))));
        (share, format!("{name}: {text}"))
    }
}

fn share(done: f64, of: f64) -> f64 {
    if of > 0.0 { (done / of).clamp(0.0, 1.0) } else { 0.0 }
}

fn push(history: &mut Vec<u64>, value: u64) {
    if history.len() == HISTORY_MAX {
        history.remove(0);
    }
    history.push(value);
}
