//! The same load with one parameter changed step by step.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::compare::{Comparison, Plan, compare};
use crate::outcome::Watcher;
use crate::scenario::{Kind, Scenario, Sizes};

/// The parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Load threads.
    Threads,
    /// Connections of every group.
    Connections,
    /// Requests in flight on each connection.
    Pipeline,
    /// Length of every value.
    ValueBytes,
    /// Requests a second of all groups together, in an open loop: see [`Scenario::set_rate_per_sec`].
    RatePerSec,
    /// Keys in every get.
    KeysPerGet,
}

/// An axis and the values along it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Range {
    /// The parameter.
    pub axis: Axis,
    /// In the order of the measurements.
    pub values: Vec<u64>,
}

/// The result.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sweep {
    /// The parameter.
    pub axis: Axis,
    /// Value by value.
    pub steps: Vec<Step>,
}

/// All servers at one value. With a single server there are figures and no ratios.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Step {
    /// The value of the axis.
    pub value: u64,
    /// The measurements there.
    pub comparison: Comparison,
}

/// Compares the servers of `plan` at every value. Servers that are started are started anew for each. If `stop` is set,
/// the values until then count.
///
/// # Errors
/// Those of [`compare`], with the value.
pub fn sweep(
    plan: &Plan,
    range: &Range,
    watcher: &mut dyn Watcher,
    stop: &AtomicBool,
) -> Result<Sweep, Error> {
    let mut steps = Vec::new();
    for &value in &range.values {
        let mut plan = plan.clone();
        range.axis.set(&mut plan.scenario, value);
        for preparation in &mut plan.prepare {
            range.axis.set(preparation, value);
        }
        match compare(&plan, watcher, stop) {
            Ok(comparison) => steps.push(Step { value, comparison }),
            Err(_) if stop.load(Ordering::Relaxed) && !steps.is_empty() => break,
            Err(error) => return Err(format!("{} {value}: {error}", range.axis.name()).into()),
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(Sweep { axis: range.axis, steps })
}

impl Axis {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Threads,
        Self::Connections,
        Self::Pipeline,
        Self::ValueBytes,
        Self::RatePerSec,
        Self::KeysPerGet,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Connections => "connections",
            Self::Pipeline => "pipeline",
            Self::ValueBytes => "value-bytes",
            Self::RatePerSec => "rate",
            Self::KeysPerGet => "keys-per-get",
        }
    }

    /// Sets the value in `scenario`.
    pub fn set(self, scenario: &mut Scenario, value: u64) {
        let count = usize::try_from(value).unwrap_or(usize::MAX);
        match self {
            Self::Threads => scenario.threads = count,
            Self::RatePerSec => scenario.set_rate_per_sec(value as f64),
            Self::Connections => scenario.groups.iter_mut().for_each(|group| group.connections = count),
            Self::Pipeline => scenario.groups.iter_mut().for_each(|group| group.pipeline = count),
            Self::ValueBytes => {
                for group in &mut scenario.groups {
                    let sets = group.commands.iter_mut().flat_map(|command| &mut command.value_set);
                    let all = std::iter::once(&mut group.values).chain(sets);
                    all.for_each(|values| values.bytes = Sizes::Fixed(value));
                }
            }
            Self::KeysPerGet => {
                let commands = scenario.groups.iter_mut().flat_map(|group| &mut group.commands);
                let gets =
                    commands.filter(|command| matches!(command.kind, Kind::Get | Kind::Gets | Kind::Gat));
                gets.for_each(|get| get.keys = count);
            }
        }
    }
}

impl FromStr for Range {
    type Err = String;

    /// Parses `AXIS=VALUES`: a list (`threads=1,2,4`), a range that doubles (`connections=1..50` is 1, 2, 4, 8, 16, 32,
    /// 50), or one with even steps (`rate=10000..50000:10000`). Both ends are included.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = || Axis::ALL.map(Axis::name).join(", ");
        let (name, values) = text.split_once('=').ok_or_else(|| format!("{text:?} is not AXIS=VALUES"))?;
        let axis = Axis::ALL
            .into_iter()
            .find(|axis| axis.name() == name)
            .ok_or_else(|| format!("{name:?} cannot be swept; what can: {}", names()))?;
        let values = match values.split_once("..") {
            Some((first, rest)) => between(first, rest)?,
            None => values.split(',').map(number).collect::<Result<_, _>>()?,
        };
        Ok(Self { axis, values })
    }
}

fn between(first: &str, rest: &str) -> Result<Vec<u64>, String> {
    let (last, step) = match rest.split_once(':') {
        Some((last, step)) => (number(last)?, Some(number(step)?)),
        None => (number(rest)?, None),
    };
    let mut value = number(first)?;
    if value > last {
        return Err(format!("{value} to {last} is no range"));
    }
    let mut values = Vec::new();
    while value < last {
        values.push(value);
        if values.len() >= STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} values"));
        }
        value = value.saturating_add(step.unwrap_or(value));
    }
    values.push(last);
    Ok(values)
}

/// No axis has a meaning at zero.
fn number(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|&value| value > 0).ok_or_else(|| format!("{text:?} is no number above 0"))
}

/// A sweep of more values is probably a typo.
const STEPS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Command, Group};

    fn values(text: &str) -> Vec<u64> {
        text.parse::<Range>().expect("a range").values
    }

    #[test]
    fn ranges_double_or_step_and_hold_both_ends() {
        assert_eq!(values("threads=1..64"), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(values("connections=1..50"), [1, 2, 4, 8, 16, 32, 50]);
        assert_eq!(values("rate=10..45:10"), [10, 20, 30, 40, 45]);
        assert_eq!(values("value-bytes=7,3"), [7, 3]);
        assert_eq!(values("pipeline=8..8"), [8]);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "threads",
            "threads=",
            "threads=0..4",
            "colour=1",
            "rate=4..1",
            "rate=1..2:0",
            "rate=1..9999999:1",
        ] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_width_is_that_of_gets_alone() {
        let commands = vec![Command::default(), Command { kind: Kind::Set, ..Command::default() }];
        let mut scenario =
            Scenario { groups: vec![Group { commands, ..Group::default() }], ..Scenario::default() };
        Axis::KeysPerGet.set(&mut scenario, 100);
        let keys: Vec<usize> = scenario.groups[0].commands.iter().map(|command| command.keys).collect();
        assert_eq!(keys, [100, 1]);
    }
}
