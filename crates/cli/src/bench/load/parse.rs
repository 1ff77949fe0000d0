//! Values of options.

use larder_bench::scenario::{Command, Kind, Popularity, SizeRange, Sizes, Ttl};
use larder_client::Servers;
use serde::Deserialize as _;
use serde::de::value::{Error as NameError, StrDeserializer};

/// `get=90,set=10`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mix(Vec<(Kind, f64)>);

/// `60` or `60=50,3600=50`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ttls(pub(super) Vec<Ttl>);

impl Mix {
    pub(super) fn commands(&self) -> Vec<Command> {
        self.0.iter().map(|&(kind, weight)| Command { kind, weight, ..Command::default() }).collect()
    }
}

pub(super) fn mix(text: &str) -> Result<Mix, String> {
    let mut kinds = Vec::new();
    for part in text.split(',') {
        let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
        let name = StrDeserializer::<NameError>::new(name.trim());
        let kind = Kind::deserialize(name).map_err(|error| error.to_string())?;
        kinds.push((kind, positive(weight)?));
    }
    Ok(Mix(kinds))
}

pub(super) fn ttls(text: &str) -> Result<Ttls, String> {
    weighted(text)
        .map(|(secs, weight)| {
            let secs = secs.parse().map_err(|_| format!("{secs}: whole seconds are needed"))?;
            Ok(Ttl { secs, weight: weight? })
        })
        .collect::<Result<_, _>>()
        .map(Ttls)
}

/// `100`, `4k`, `16-64`, `16-64=80,65-250=20`, or the path of a file.
pub(super) fn sizes(text: &str) -> Result<Sizes, String> {
    if let Ok(bytes) = bytes(text) {
        return Ok(Sizes::Fixed(bytes));
    }
    if std::path::Path::new(text).is_file() {
        return Ok(Sizes::File { file: text.into() });
    }
    weighted(text)
        .map(|(range, weight)| {
            let (min, max) = range.split_once('-').unwrap_or((range, range));
            let (min, max) = (bytes(min)?, bytes(max)?);
            match min <= max {
                true => Ok(SizeRange { min, max, weight: weight? }),
                false => Err(format!("{range}: {min} is more than {max}")),
            }
        })
        .collect::<Result<_, _>>()
        .map(Sizes::Ranges)
}

pub(super) fn popularity(text: &str) -> Result<Popularity, String> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default();
    let numbers: Vec<f64> = words.map(number).collect::<Result<_, _>>()?;
    match (name, &numbers[..]) {
        ("uniform", []) => Ok(Popularity::Uniform),
        ("sequential", []) => Ok(Popularity::Sequential),
        ("reverse", []) => Ok(Popularity::Reverse),
        ("zipf", []) => Ok(Popularity::Zipf { exponent: 0.99 }),
        ("zipf", &[exponent]) => Ok(Popularity::Zipf { exponent }),
        ("gaussian", &[deviation]) => Ok(Popularity::Gaussian { deviation }),
        ("hotspot", &[hot_keys, hot_requests]) => {
            Ok(Popularity::Hotspot { hot_keys, hot_requests, moves_every_secs: 0.0 })
        }
        ("hotspot", &[hot_keys, hot_requests, moves_every_secs]) => {
            Ok(Popularity::Hotspot { hot_keys, hot_requests, moves_every_secs })
        }
        ("window", &[keys]) => Ok(Popularity::Window { keys: keys as u64, overwrite: 0.0 }),
        ("window", &[keys, overwrite]) => Ok(Popularity::Window { keys: keys as u64, overwrite }),
        _ => Err("uniform, zipf:0.99, gaussian:0.1, sequential, reverse, hotspot:KEYS:REQUESTS[:SECS] or \
                  window:KEYS[:OVERWRITE]"
            .into()),
    }
}

/// `30`, `0.5s`, `2m`, `1h`.
pub(super) fn secs(text: &str) -> Result<f64, String> {
    let (number, unit) = with_unit(text, &[("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]);
    positive(number)
        .map(|number| number * unit)
        .map_err(|_| format!("{text}: a time is needed, as 30s or 2m"))
}

/// `50000`, `50k`, `1.5m`.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = with_unit(text, &[("k", 1e3), ("m", 1e6)]);
    positive(number).map(|number| number * unit)
}

/// `100000`, `100k`, `1_000_000`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let count = rate(&plain)?;
    match count.fract() == 0.0 && count < 9e15 {
        true => Ok(count as u64),
        false => Err(format!("{text}: a whole number is needed")),
    }
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = number(text)?;
    match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => Err(format!("{text}: a share is 0 to 1")),
    }
}

/// A list of servers that is not empty. Weights have no effect: a run spreads its keys evenly.
pub(super) fn servers(list: &str) -> Result<Servers, String> {
    match list.parse() {
        Ok(Servers(servers)) if servers.is_empty() => Err("the list of servers is empty".into()),
        parsed => parsed.map_err(|bad| bad.to_string()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = with_unit(text, &[("k", 1024.0), ("m", 1_048_576.0)]);
    let number: u64 =
        number.parse().map_err(|_| format!("{text}: a length in bytes is needed, as 100 or 4k"))?;
    number.checked_mul(unit as u64).ok_or_else(|| format!("{text}: too much"))
}

fn with_unit<'t>(text: &'t str, units: &[(&str, f64)]) -> (&'t str, f64) {
    let found = units.iter().find_map(|(name, factor)| Some((text.strip_suffix(name)?, *factor)));
    found.unwrap_or((text, 1.0))
}

/// `WHAT=WEIGHT` between commas; without a weight, 1.
fn weighted(text: &str) -> impl Iterator<Item = (&str, Result<f64, String>)> {
    text.split(',').map(|part| {
        let (what, weight) = part.split_once('=').unwrap_or((part, "1"));
        (what.trim(), positive(weight))
    })
}

fn positive(text: &str) -> Result<f64, String> {
    match number(text)? {
        number if number > 0.0 => Ok(number),
        _ => Err(format!("{text}: more than 0 is needed")),
    }
}

fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("{text}: a number is needed"))?;
    match number.is_finite() {
        true => Ok(number),
        false => Err(format!("{text}: a number is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        assert_eq!(mix("get=90,set=10"), Ok(Mix(vec![(Kind::Get, 90.0), (Kind::Set, 10.0)])));
        assert_eq!(mix("incr"), Ok(Mix(vec![(Kind::Incr, 1.0)])));
        assert_eq!(ttls("60=3,0=1").map(|ttls| ttls.0.len()), Ok(2));
        assert_eq!(sizes("4k"), Ok(Sizes::Fixed(4096)));
        let range = |min, max, weight| SizeRange { min, max, weight };
        assert_eq!(sizes("10-20"), Ok(Sizes::Ranges(vec![range(10, 20, 1.0)])));
        assert_eq!(
            sizes("10-20=3,1k=1"),
            Ok(Sizes::Ranges(vec![range(10, 20, 3.0), range(1024, 1024, 1.0)]))
        );
        assert_eq!(
            popularity("hotspot:0.01:0.9:10"),
            Ok(Popularity::Hotspot { hot_keys: 0.01, hot_requests: 0.9, moves_every_secs: 10.0 })
        );
        assert_eq!((secs("2m"), secs("500ms"), secs("7")), (Ok(120.0), Ok(0.5), Ok(7.0)));
        assert_eq!(
            (rate("50k"), count("1_000_000"), count("2m")),
            (Ok(50_000.0), Ok(1_000_000), Ok(2_000_000))
        );
    }

    #[test]
    fn what_is_wrong_is_told() {
        for wrong in ["gets=", "got=1", "get=0", "get=-1", ""] {
            assert!(mix(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "x", "20-10", "1-2=0", "-5"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["zip", "zipf:x", "hotspot:1", "uniform:1"] {
            assert!(popularity(wrong).is_err(), "{wrong}");
        }
        assert!(share("1.1").is_err() && secs("0").is_err() && count("1.5").is_err() && rate("nan").is_err());
    }
}
