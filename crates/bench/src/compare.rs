//! Several servers under the same load, in turns, and what can be said of the difference.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Scenario;
use crate::contestant::Contestant;
use crate::outcome::Tally;

/// What is compared, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first is what the others are measured by.
    pub contestants: Vec<Contestant>,
    /// What each is asked; its `target.servers` are set by the comparison.
    pub scenario: Scenario,
    /// Asked of every server when it has started, and not counted. See [`Scenario::fill`] for what needs none of this.
    pub prepare: Vec<Scenario>,
    /// How often each is measured. Two at the least, for an interval.
    pub rounds: usize,
    /// Start every server anew for each round, so that what is peculiar to one process (where its memory lies) is not taken for
    /// the program's.
    pub restart: bool,
    /// How sure an interval is to hold the true ratio, 0 to 1.
    pub confidence: f64,
}

/// What came of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    /// What was asked.
    pub scenario: Scenario,
    /// Wall clock at the start, seconds since 1970.
    pub started_unix_secs: u64,
    /// See [`Plan::confidence`].
    pub confidence: f64,
    /// See [`Plan::restart`].
    pub restart: bool,
    /// In the order of the plan.
    pub standings: Vec<Standing>,
}

/// One server's figures.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Standing {
    /// Who.
    pub contestant: Contestant,
    /// What it calls itself.
    pub version: String,
    /// Round by round; the same round of every server was measured within the same few seconds.
    pub rounds: Vec<Figures>,
    /// To the first server, for every metric that both have. Empty for the first.
    pub ratios: Vec<Ratio>,
    /// Answers that were wrong, in all rounds.
    pub failures: u64,
    /// Why the figures tell of the client rather than of the server, in words.
    pub warnings: Vec<String>,
    /// All rounds added up, for charts of the latencies. Not part of the JSON.
    #[serde(skip)]
    pub total: Tally,
}

/// What one round measured. What could not be measured (another machine's CPU) is absent.
pub type Figures = BTreeMap<Metric, f64>;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Operations a second; a get of n keys is n.
    OperationsPerSec,
    /// Median latency of all commands together, in microseconds, as the others.
    LatencyP50Micros,
    /// 99th percentile.
    LatencyP99Micros,
    /// 99.9th percentile.
    LatencyP999Micros,
    /// CPU seconds of the server, user and system, for a million operations.
    ServerCpuSecsPerMillion,
    /// Resident memory of the server at the end of the round.
    ServerResidentBytes,
    /// Share of the keys asked for that were found, 0 to 1.
    HitRatio,
}

/// How a metric of one server relates to that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Ratio {
    /// Of what.
    pub metric: Metric,
    /// Geometric mean of the rounds' ratios: above 1, this server's figure is higher than the first one's.
    pub ratio: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What may be said.
    pub verdict: Verdict,
}

/// What an interval allows to say. Which way is better depends on the metric: see [`Metric::verdict_word`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies on the better side of 1.
    Better,
    /// The whole interval lies on the worse side of 1.
    Worse,
    /// The interval holds 1: there may be a difference, but these rounds do not show it.
    NoDifferenceShown,
}

impl Metric {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::OperationsPerSec,
        Self::LatencyP50Micros,
        Self::LatencyP99Micros,
        Self::LatencyP999Micros,
        Self::ServerCpuSecsPerMillion,
        Self::ServerResidentBytes,
        Self::HitRatio,
    ];

    /// As a table's heading.
    pub fn heading(self) -> &'static str {
        match self {
            Self::OperationsPerSec => "operations / s",
            Self::LatencyP50Micros => "p50, us",
            Self::LatencyP99Micros => "p99, us",
            Self::LatencyP999Micros => "p99.9, us",
            Self::ServerCpuSecsPerMillion => "server CPU s / M",
            Self::ServerResidentBytes => "resident bytes",
            Self::HitRatio => "hit ratio",
        }
    }

    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::OperationsPerSec | Self::HitRatio)
    }

    /// A verdict in a word or two: a server is faster, memory is smaller.
    pub fn verdict_word(self, verdict: Verdict) -> &'static str {
        let (better, worse) = match self {
            Self::ServerCpuSecsPerMillion => ("cheaper", "dearer"),
            Self::ServerResidentBytes => ("smaller", "larger"),
            Self::HitRatio => ("higher", "lower"),
            _ => ("faster", "slower"),
        };
        match verdict {
            Verdict::Better => better,
            Verdict::Worse => worse,
            Verdict::NoDifferenceShown => "no difference shown",
        }
    }
}
