//! Service times of larderd's `stats latency` (docs/statistics.md). memcached has none.

use std::collections::BTreeMap;

/// Numbers of requests by the upper bound of their bucket in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceTimes {
    counts: BTreeMap<u64, u64>,
    sum_nanos: u64,
}

/// By command and transport: `get`, `tcp`.
pub(crate) type ByCommand = BTreeMap<(String, String), ServiceTimes>;

/// Parses a server's statistics; `None` if it has none of these.
pub(crate) fn by_command(stats: &[(String, String)]) -> Option<ByCommand> {
    let mut all = ByCommand::new();
    for (name, value) in stats {
        let mut words = name.split(':');
        let (Some(command), Some(transport), Some(what)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let times = || (command.to_owned(), transport.to_owned());
        match what {
            "sum_nanos" => all.entry(times()).or_default().sum_nanos = value.parse().ok()?,
            "buckets" => {
                let counts = &mut all.entry(times()).or_default().counts;
                for bucket in value.split(',').filter(|bucket| !bucket.is_empty()) {
                    let (bound_nanos, count) = bucket.split_once('=')?;
                    *counts.entry(bound_nanos.parse().ok()?).or_default() += count.parse::<u64>().ok()?;
                }
            }
            _ => {}
        }
    }
    (!all.is_empty()).then_some(all)
}

/// All commands and transports together; `None` if there are none.
pub(crate) fn all(stats: &[(String, String)]) -> Option<ServiceTimes> {
    let mut sum = ServiceTimes::default();
    by_command(stats)?.values().for_each(|times| sum.add(times));
    Some(sum)
}

impl ServiceTimes {
    /// Adds a duration that was measured here.
    pub(crate) fn record(&mut self, nanos: u64) {
        *self.counts.entry(nanos).or_default() += 1;
        self.sum_nanos += nanos;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (bound_nanos, count) in &other.counts {
            *self.counts.entry(*bound_nanos).or_default() += count;
        }
        self.sum_nanos += other.sum_nanos;
    }

    /// The requests since an earlier sample. If a count went down, the server was restarted.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let grown = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
        let counts = self.counts.iter().map(|(bound_nanos, now)| {
            (*bound_nanos, grown(*now, earlier.counts.get(bound_nanos).copied().unwrap_or(0)))
        });
        Self { counts: counts.collect(), sum_nanos: grown(self.sum_nanos, earlier.sum_nanos) }
    }

    /// Number of requests.
    pub(crate) fn requests(&self) -> u64 {
        self.counts.values().sum()
    }

    /// `None`: there were no requests.
    pub(crate) fn mean_nanos(&self) -> Option<f64> {
        Some(self.requests()).filter(|requests| *requests > 0).map(|n| self.sum_nanos as f64 / n as f64)
    }

    /// A duration in nanoseconds that `share` (0 to 1) of the requests did not exceed; `None`: there were none.
    pub(crate) fn quantile_nanos(&self, share: f64) -> Option<f64> {
        let rank = ((share * self.requests() as f64).ceil() as u64).max(1);
        let mut reached = 0;
        let mut buckets = self.counts.iter();
        let bucket = buckets.find(|(_, count)| {
            reached += **count;
            reached >= rank
        });
        bucket.map(|(bound_nanos, _)| *bound_nanos as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(gets: &str, stores: &str) -> [(String, String); 4] {
        [
            ("get:tcp:count", "7"),
            ("get:tcp:sum_nanos", "7000"),
            ("get:tcp:buckets", gets),
            ("store:tls:buckets", stores),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    }

    #[test]
    fn quantiles_are_those_of_what_came_since() {
        let look = |gets: &str, stores: &str| all(&stats(gets, stores)).expect("service times");
        let (before, after) = (look("1000=100,9000=1", "2000=5"), look("1000=198,9000=2", "2000=5,50000=1"));
        let between = after.since(&before);
        // 98 of 1 us, one of 9 us, one of 50 us.
        assert_eq!(between.requests(), 100);
        assert_eq!(
            [0.5, 0.98, 0.99, 1.0].map(|share| between.quantile_nanos(share)),
            [1e3, 1e3, 9e3, 50e3].map(Some)
        );
        assert_eq!(before.since(&before).quantile_nanos(0.5), None);
        // Restarted in between.
        assert_eq!(look("1000=3", "1000=0").since(&after).quantile_nanos(1.0), Some(1e3));
        assert_eq!(all(&[]), None);
    }

    #[test]
    fn commands_have_their_own_times() {
        let commands = by_command(&stats("1000=7", "2000=5")).expect("service times");
        let of = |command: &str, transport: &str| &commands[&(command.to_owned(), transport.to_owned())];
        assert_eq!((of("get", "tcp").requests(), of("get", "tcp").mean_nanos()), (7, Some(1000.0)));
        assert_eq!((of("store", "tls").requests(), of("store", "tls").quantile_nanos(0.5)), (5, Some(2e3)));
        assert_eq!(commands.len(), 2);
    }
}
