//! Service times of larderd's `stats latency` (docs/statistics.md). memcached has none.

use std::collections::BTreeMap;

/// Numbers of requests of all kinds over all transports, by the upper bound of their bucket in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Latency(BTreeMap<u64, u64>);

impl Latency {
    /// Parses a server's statistics; `None` if it has none of these.
    pub(super) fn read(stats: &[(String, String)]) -> Option<Self> {
        let mut counts = BTreeMap::new();
        let buckets = stats.iter().filter(|(name, _)| name.ends_with(":buckets"));
        for bucket in buckets.flat_map(|(_, buckets)| buckets.split(',')) {
            let (bound_nanos, count) = bucket.split_once('=')?;
            *counts.entry(bound_nanos.parse().ok()?).or_default() += count.parse::<u64>().ok()?;
        }
        (!counts.is_empty()).then_some(Self(counts))
    }

    /// The counts since an earlier sample. If a count went down, the server was restarted.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let grown = |(bound_nanos, now): (&u64, &u64)| {
            let then = earlier.0.get(bound_nanos).copied().unwrap_or(0);
            (*bound_nanos, now.checked_sub(then).unwrap_or(*now))
        };
        Self(self.0.iter().map(grown).collect())
    }

    /// A duration that `share` (0 to 1) of the requests did not exceed; `None`: there were none.
    pub(super) fn quantile_micros(&self, share: f64) -> Option<f64> {
        let count: u64 = self.0.values().sum();
        let rank = ((share * count as f64).ceil() as u64).max(1);
        let mut reached = 0;
        let mut buckets = self.0.iter();
        let bucket = buckets.find(|(_, count)| {
            reached += **count;
            reached >= rank
        });
        bucket.map(|(bound_nanos, _)| *bound_nanos as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_came_since() {
        let look = |gets: &str, stores: &str| {
            let stats = [("get:tcp:count", "7"), ("get:tcp:buckets", gets), ("store:tls:buckets", stores)];
            Latency::read(&stats.map(|(name, value)| (name.to_owned(), value.to_owned()))).expect("it is one")
        };
        let (before, after) = (look("1000=100,9000=1", "2000=5"), look("1000=198,9000=2", "2000=5,50000=1"));
        let between = after.since(&before);
        // 98 of 1 us, one of 9 us, one of 50 us.
        assert_eq!(
            [0.5, 0.98, 0.99, 1.0].map(|share| between.quantile_micros(share)),
            [1.0, 1.0, 9.0, 50.0].map(Some)
        );
        assert_eq!(before.since(&before).quantile_micros(0.5), None);
        // Restarted in between.
        assert_eq!(look("1000=3", "1000=0").since(&after).quantile_micros(1.0), Some(1.0));
        assert_eq!(Latency::read(&[]), None);
    }
}
