//! Service times of larderd's `stats latency` (docs/statistics.md). memcached has none.

use std::collections::BTreeMap;

use larder_client::codec::ErrorKind;
use larder_client::{Address, Client, Error};
use larder_measure::Snapshot;

use crate::Failure;

/// By command and transport: `get`, `tcp`.
pub(crate) type ByCommand = BTreeMap<(String, String), Snapshot>;

/// Asks a client's only server. `None`: it is not larderd, or larderd with `no_latency_histograms`.
pub(crate) fn read(client: &mut Client, address: &Address) -> Result<Option<ByCommand>, Failure> {
    match client.stats("latency").pop() {
        Some((_, Ok(stats))) => Ok(by_command(&stats)),
        Some((_, Err(Error::Refused { kind, .. }))) if kind != ErrorKind::Unauthenticated => Ok(None),
        Some((_, Err(error))) => Err(Failure::of(address, &error)),
        None => Ok(None),
    }
}

/// Parses a server's statistics; `None` if it has none of these.
fn by_command(stats: &[(String, String)]) -> Option<ByCommand> {
    let mut all = ByCommand::new();
    for (name, value) in stats {
        let mut words = name.split(':');
        let (Some(command), Some(transport), Some(what)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let times = || (command.to_owned(), transport.to_owned());
        match what {
            "sum_nanos" => all.entry(times()).or_default().add_sum_nanos(value.parse().ok()?),
            "buckets" => {
                let times = all.entry(times()).or_default();
                for bucket in value.split(',').filter(|bucket| !bucket.is_empty()) {
                    let (bound_nanos, count) = bucket.split_once('=')?;
                    times.add_count(bound_nanos.parse().ok()?, count.parse().ok()?);
                }
            }
            _ => {}
        }
    }
    (!all.is_empty()).then_some(all)
}

/// All commands and transports together.
pub(crate) fn sum(by_command: &ByCommand) -> Snapshot {
    by_command.values().fold(Snapshot::new(), |mut sum, times| {
        sum.add(times);
        sum
    })
}

/// The requests since an earlier sample. If there were more of them then, the server was restarted: it counts from 0.
pub(crate) fn since(now: &Snapshot, earlier: &Snapshot) -> Snapshot {
    if now.count() < earlier.count() { now.clone() } else { now.since(earlier) }
}

/// `None`: there were no requests.
pub(crate) fn mean_nanos(times: &Snapshot) -> Option<f64> {
    let requests = Some(times.count()).filter(|requests| *requests > 0)?;
    Some(times.sum_nanos() as f64 / requests as f64)
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

    /// The bounds are larderd's.
    #[test]
    fn quantiles_are_those_of_what_came_since() {
        let look = |gets: &str, stores: &str| sum(&by_command(&stats(gets, stores)).expect("service times"));
        let before = look("1023=100,9215=1", "2047=5");
        let after = look("1023=198,9215=2", "2047=5,51199=1");
        let between = since(&after, &before);
        // 98 of 1 us, one of 9 us, one of 50 us.
        assert_eq!(between.count(), 100);
        assert_eq!(
            [0.5, 0.98, 0.99, 1.0].map(|share| between.quantile_nanos(share)),
            [1023, 1023, 9215, 51199].map(Some)
        );
        assert_eq!(since(&before, &before).quantile_nanos(0.5), None);
        // Restarted in between.
        assert_eq!(since(&look("1023=3", "1023=0"), &after).quantile_nanos(1.0), Some(1023));
        assert_eq!(by_command(&[]), None);
    }

    #[test]
    fn commands_have_their_own_times() {
        let commands = by_command(&stats("1023=7", "2047=5")).expect("service times");
        let of = |command: &str, transport: &str| &commands[&(command.to_owned(), transport.to_owned())];
        assert_eq!((of("get", "tcp").count(), mean_nanos(of("get", "tcp"))), (7, Some(1000.0)));
        assert_eq!((of("store", "tls").count(), of("store", "tls").quantile_nanos(0.5)), (5, Some(2047)));
        assert_eq!(commands.len(), 2);
    }
}
