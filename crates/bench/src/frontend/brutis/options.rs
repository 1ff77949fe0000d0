//! The options of Brutis 0.93: a loop of some sets and some gets.

use super::super::words::Given;
use super::{Refusal, WITHOUT_END_SECS};
use crate::Scenario;
use crate::scenario::{Command, Group, Keys, Kind, Order, Popularity, Sizes, Target, Truth, Until, Values};

struct Options {
    keys: u64,
    first: u64,
    set_popularity: Popularity,
    get_popularity: Popularity,
    prefix: String,
    sets: u64,
    gets: u64,
    operations: Option<u64>,
    pools: usize,
    clients: usize,
    value_bytes: u64,
    keys_per_get: usize,
    period_secs: u64,
    verify: bool,
}

const RATIO_MAX: u64 = 10_000;
const VALUE_BYTES_MAX: u64 = 33_554_432;

pub(super) fn scenario(
    secs: Option<&str>,
    given: &[Given],
    servers: Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Scenario, Refusal> {
    let mut options = Options {
        keys: 1_000_000,
        first: 0,
        set_popularity: Popularity::Sequential,
        get_popularity: Popularity::Uniform,
        prefix: "brutis-".into(),
        sets: 1,
        gets: 10,
        operations: None,
        pools: 1,
        clients: 1,
        value_bytes: 256,
        keys_per_get: 1,
        period_secs: 2,
        verify: false,
    };
    for option in given {
        options.set(option)?;
    }
    if options.verify {
        notes.push("-d: larder's own check stands in for the MD5 checksum in the value".into());
    }
    // Without -t and -n its task manager ends after two days.
    let secs = match (secs.and_then(|secs| secs.parse::<u64>().ok()), options.operations) {
        (Some(secs), _) => Some(secs as f64),
        (None, Some(_)) => None,
        (None, None) => Some(172_800.0_f64.min(WITHOUT_END_SECS)),
    };
    Ok(options.into_scenario(secs, servers))
}

impl Options {
    fn set(&mut self, option: &Given) -> Result<(), Refusal> {
        match option.short {
            Some('k') => self.keys = option.count()?,
            Some('z') => {
                self.first = option.value.parse().map_err(|_| option.refuse("a number is needed"))?
            }
            Some('a') => (self.set_popularity, self.get_popularity) = patterns(option)?,
            Some('p') if option.value.contains(' ') => return Err(option.refuse("no spaces in a key")),
            Some('p') => self.prefix = option.value.clone(),
            Some('r') => (self.sets, self.gets) = ratio(option)?,
            Some('n') => self.operations = Some(option.count()?),
            Some('m') => self.pools = option.count::<u16>()?.into(),
            Some('f') => self.clients = option.count::<u16>()?.into(),
            Some('s') => {
                self.value_bytes = option.count()?;
                if self.value_bytes > VALUE_BYTES_MAX {
                    return Err(option.refuse(format!("at most {VALUE_BYTES_MAX}")));
                }
            }
            Some('b') => self.keys_per_get = option.count::<u16>()?.into(),
            Some('i') => self.period_secs = option.count()?,
            Some('P') => {}
            Some('d') => self.verify = true,
            Some('R') => {
                return Err(option.refuse(
                    "connects anew after so many seconds; larder bench --churn N does after so many requests",
                ));
            }
            _ => return Err(option.refuse("there is no such option")),
        }
        Ok(())
    }

    fn into_scenario(self, secs: Option<f64>, servers: Vec<String>) -> Scenario {
        let clients = self.clients * self.pools;
        let keys = |popularity| Keys {
            // Both ends are asked for.
            count: self.keys + 1,
            first: self.first,
            prefix: self.prefix.clone(),
            bytes: Sizes::Fixed(1),
            popularity,
        };
        let mut commands = Vec::new();
        if self.sets > 0 {
            let key_set = Some(keys(self.set_popularity));
            commands.push(Command {
                kind: Kind::Set,
                weight: self.sets as f64,
                key_set,
                ..Command::default()
            });
        }
        if self.gets > 0 {
            commands.push(Command {
                kind: Kind::Get,
                weight: self.gets as f64,
                keys: self.keys_per_get,
                ..Command::default()
            });
        }
        Scenario {
            name: "brutis".into(),
            target: Target { servers, ..Target::default() },
            until: Until {
                secs,
                requests: self.operations.map(|count| count * self.clients as u64),
                trace_ends: false,
            },
            period_secs: self.period_secs as f64,
            truth: Truth { verify: if self.verify { 1.0 } else { 0.0 }, ..Truth::default() },
            groups: vec![Group {
                connections: clients,
                order: Order::Turn,
                commands,
                keys: keys(self.get_popularity),
                values: Values { bytes: Sizes::Fixed(self.value_bytes), ..Values::default() },
                ..Group::default()
            }],
            ..Scenario::default()
        }
    }
}

fn patterns(option: &Given) -> Result<(Popularity, Popularity), Refusal> {
    let pattern = |word: &str| match word {
        "s" | "S" => Some(Popularity::Sequential),
        "r" | "R" => Some(Popularity::Uniform),
        _ => None,
    };
    let both = option.value.split_once(':').and_then(|(sets, gets)| pattern(sets).zip(pattern(gets)));
    both.ok_or_else(|| option.refuse("two patterns are needed, S or R each, as S:R"))
}

/// As many sets, then as many gets; the smaller of the two is taken as 1, and the other rounded, as in set_intervals().
fn ratio(option: &Given) -> Result<(u64, u64), Refusal> {
    let parsed =
        option.value.split_once(':').and_then(|(sets, gets)| sets.parse().ok().zip(gets.parse().ok()));
    let in_bounds = |(sets, gets): &(u64, u64)| *sets <= RATIO_MAX && *gets <= RATIO_MAX && sets + gets > 0;
    let (sets, gets) = parsed
        .filter(in_bounds)
        .ok_or_else(|| option.refuse(format!("two numbers up to {RATIO_MAX} are needed, as 1:10")))?;
    let rounded = |more: u64, fewer: u64| (more as f64 / fewer as f64).round() as u64;
    Ok(match (sets, gets) {
        (0, _) => (0, 1),
        (_, 0) => (1, 0),
        _ if sets > gets => (rounded(sets, gets), 1),
        _ => (1, rounded(gets, sets)),
    })
}
