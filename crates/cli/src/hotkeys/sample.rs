//! Counts of the keys of a server's events.

use std::time::Instant;

use larder_client::Address;
use larder_measure::Top;

use crate::Failure;
use crate::events::{Events, Stream, skipped, word};
use crate::target::Target;
use crate::transfer::record::read_key;

/// Keys and their counts, of one server.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    top: Top,
    /// Events with a key.
    events: u64,
    /// Events that the server left out.
    skipped: u64,
    /// Requests a second that the server counted, sampled or not.
    per_sec: Option<f64>,
}

/// Samples of several servers together.
#[derive(Debug)]
pub(crate) struct Sum {
    /// Events with a key.
    pub events: u64,
    /// Events that the servers left out.
    pub skipped: u64,
    /// The most frequent keys, the first of them the most.
    pub hot: Vec<Hot>,
}

/// The requests that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lookups,
    Stores,
}

/// A key that is asked for often.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hot {
    pub key: Vec<u8>,
    /// Requests a second; `None`: the servers do not count them.
    pub per_sec: Option<f64>,
    /// Its share of all requests, 0 to 1.
    pub share: f64,
}

impl Kind {
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Lookups => "look-ups",
            Self::Stores => "stores",
        }
    }

    fn stream(self) -> Stream {
        match self {
            Self::Lookups => Stream::Fetchers,
            Self::Stores => Stream::Mutations,
        }
    }

    /// The statistic that counts them.
    fn counter(self) -> &'static str {
        match self {
            Self::Lookups => "cmd_get",
            Self::Stores => "cmd_set",
        }
    }
}

impl Sample {
    pub(crate) fn empty() -> Self {
        Self { top: Top::new(KEYS_MAX), events: 0, skipped: 0, per_sec: None }
    }

    /// Counts the keys of a server's events until `end`.
    pub(crate) fn take(
        target: &Target,
        address: &Address,
        kind: Kind,
        end: Instant,
    ) -> Result<Self, Failure> {
        let mut sample = Self::empty();
        let mut events = Events::open(target, address, &[kind.stream()])?;
        let (before, begun) = (requests(target, address, kind)?, Instant::now());
        while Instant::now() < end {
            if let Some(line) = events.next()? {
                sample.count(line);
            }
        }
        let after = requests(target, address, kind)?;
        let secs = begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        sample.per_sec = before.zip(after).map(|(before, after)| after.saturating_sub(before) as f64 / secs);
        Ok(sample)
    }

    /// Counts an event.
    pub(crate) fn count(&mut self, line: &[u8]) {
        self.skipped = self.skipped.saturating_add(skipped(line).unwrap_or(0));
        if let Some(key) = word(line, b"key").and_then(|key| read_key(std::str::from_utf8(key).ok()?)) {
            self.events += 1;
            self.top.record(&key, 1);
        }
    }

    /// Halves all counts, so that keys that were hot long ago fade.
    pub(crate) fn fade(&mut self) {
        self.top.fade();
        self.events /= 2;
    }
}

impl Sum {
    /// With at most `keys_max` keys.
    pub(crate) fn of<'s>(samples: impl Iterator<Item = &'s Sample> + Clone, keys_max: usize) -> Self {
        let events = samples.clone().map(|sample| sample.events).sum();
        let per_sec: Option<f64> = samples.clone().map(|sample| sample.per_sec).sum();
        let hot = Top::merged(samples.clone().map(|sample| &sample.top), keys_max).into_iter().map(|hot| {
            let share = hot.count as f64 / u64::max(events, 1) as f64;
            Hot { key: hot.key.to_vec(), share, per_sec: per_sec.map(|per_sec| per_sec * share) }
        });
        let skipped = samples.fold(0_u64, |sum, sample| sum.saturating_add(sample.skipped));
        Self { events, skipped, hot: hot.collect() }
    }
}

/// Requests that the server has counted; `None`: it does not.
fn requests(target: &Target, address: &Address, kind: Kind) -> Result<Option<u64>, Failure> {
    let Some((_, stats)) = target.client_of(&[address.clone().into()])?.stats("").pop() else {
        return Ok(None);
    };
    let stats = stats.map_err(|error| Failure::of(address, &error))?;
    let found = stats.iter().find(|(name, _)| name == kind.counter());
    Ok(found.and_then(|(_, value)| value.parse().ok()))
}

/// A key with more than one in 10,000 requests is certain to be counted.
const KEYS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_by_what_the_events_say() {
        let mut first = Sample::empty();
        for line in ["type=item_get key=a status=found", "type=item_get key=b%20c", "skipped=5", "gid=1"] {
            first.count(line.as_bytes());
        }
        first.per_sec = Some(100.0);
        let mut second = first.clone();
        second.count(b"type=item_get key=a");
        second.count(b"type=item_get key=a");
        let both = [first, second];
        let sum = Sum::of(both.iter(), 2);
        assert_eq!((sum.events, sum.skipped), (6, 10));
        let hot = sum.hot;
        assert_eq!(hot[0].key, b"a");
        assert!((hot[0].share - 4.0 / 6.0).abs() < 1e-9);
        assert_eq!(hot[0].per_sec.map(f64::round), Some(133.0));
        assert_eq!(hot[1].key, b"b c");
        assert_eq!(Sum::of(both.iter(), 1).hot.len(), 1);
        let mut boaster = Sample::empty();
        for _ in 0..2 {
            boaster.count(format!("skipped={}", u64::MAX).as_bytes());
        }
        assert_eq!(Sum::of([boaster.clone(), boaster].iter(), 1).skipped, u64::MAX);
    }
}
