//! Statistics of a server, and rates between two samples.

use std::collections::HashMap;
use std::thread;
use std::time::Instant;

use larder_client::{Client, Server};

use super::latency::Latency;
use crate::Failure;
use crate::target::Target;

/// Servers that are sampled together.
pub(super) struct Fleet {
    members: Vec<Member>,
}

struct Member {
    server: Server,
    client: Client,
    before: Option<Sample>,
}

/// Statistics of a server at one time.
struct Sample {
    at: Instant,
    stats: HashMap<String, String>,
    latency: Option<Latency>,
}

/// A server between two samples. Per second, unless the field says otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    pub server: String,
    pub version: String,
    /// Why it did not answer.
    pub trouble: Option<String>,
    pub gets: f64,
    pub sets: f64,
    /// 0 to 1; `None`: no gets.
    pub hit_ratio: Option<f64>,
    pub evictions: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    pub connections: u64,
    pub items: u64,
    pub used_bytes: u64,
    pub limit_bytes: u64,
    /// Median and 99th percentile of service times; `None`: not reported, or no requests.
    pub p50_micros: Option<f64>,
    pub p99_micros: Option<f64>,
    /// Time until `stats` was answered, over an open connection.
    pub answer_millis: f64,
}

impl Fleet {
    pub(super) fn of(target: &Target) -> Result<Self, Failure> {
        let member = |server: &Server| {
            let client = target.client_of(std::slice::from_ref(server))?;
            Ok(Member { server: server.clone(), client, before: None })
        };
        Ok(Self { members: target.servers()?.iter().map(member).collect::<Result<_, _>>()? })
    }

    /// Samples all servers at the same time: one that hangs delays the others for the timeout at most. The first sample
    /// has no rates.
    pub(super) fn look(&mut self) -> Vec<Rates> {
        thread::scope(|scope| {
            let looks: Vec<_> = self.members.iter_mut().map(|member| scope.spawn(|| member.look())).collect();
            looks.into_iter().map(|look| look.join().unwrap_or_default()).collect()
        })
    }
}

impl Member {
    fn look(&mut self) -> Rates {
        let server = self.server.address.to_string();
        let begin = Instant::now();
        let stats: HashMap<_, _> = match self.client.stats("").pop() {
            Some((_, Ok(stats))) => stats.into_iter().collect(),
            Some((_, Err(error))) => {
                self.before = None;
                return Rates { server, trouble: Some(error.to_string()), ..Rates::default() };
            }
            None => return Rates { server, ..Rates::default() },
        };
        let answer_millis = begin.elapsed().as_secs_f64() * 1000.0;
        let is_larder = stats.contains_key("larder_version");
        let latency = if is_larder { self.latency() } else { None };
        let sample = Sample { at: Instant::now(), stats, latency };
        let mut rates = sample.rates(self.before.as_ref());
        rates.server = server;
        rates.answer_millis = answer_millis;
        self.before = Some(sample);
        rates
    }
}

impl Member {
    /// Statistics that larderd has and memcached does not.
    fn latency(&mut self) -> Option<Latency> {
        let (_, stats) = self.client.stats("latency").pop()?;
        Latency::read(&stats.ok()?)
    }
}

impl Sample {
    fn number(&self, name: &str) -> u64 {
        self.stats.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn rates(&self, before: Option<&Self>) -> Rates {
        let secs = before.map_or(0.0, |before| self.at.duration_since(before.at).as_secs_f64());
        // If a counter went down it was reset, or the server was restarted: then it counts from 0.
        let grown = |name: &str| {
            let (now, then) = (self.number(name), before.map_or(0, |before| before.number(name)));
            now.checked_sub(then).unwrap_or(now)
        };
        let per_sec = |name: &str| if secs > 0.0 { grown(name) as f64 / secs } else { 0.0 };
        let service = match (&self.latency, before.and_then(|before| before.latency.as_ref())) {
            (Some(now), Some(then)) => Some(now.since(then)),
            _ => None,
        };
        let micros = |share| service.as_ref().and_then(|service| service.quantile_micros(share));
        let (hits, misses) = (grown("get_hits") as f64, grown("get_misses") as f64);
        Rates {
            version: self.stats.get("version").cloned().unwrap_or_default(),
            gets: per_sec("cmd_get"),
            sets: per_sec("cmd_set"),
            hit_ratio: (hits + misses > 0.0).then(|| hits / (hits + misses)),
            evictions: per_sec("evictions"),
            read_bytes: per_sec("bytes_read"),
            written_bytes: per_sec("bytes_written"),
            connections: self.number("curr_connections"),
            items: self.number("curr_items"),
            used_bytes: self.number("bytes"),
            limit_bytes: self.number("limit_maxbytes"),
            p50_micros: micros(0.5),
            p99_micros: micros(0.99),
            ..Rates::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(at: Instant, stats: &[(&str, &str)]) -> Sample {
        let stats = stats.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Sample { at, stats: stats.collect(), latency: None }
    }

    #[test]
    fn rates_are_what_has_been_added_in_a_second() {
        let start = Instant::now();
        let before = sample(
            start,
            &[("cmd_get", "100"), ("get_hits", "50"), ("get_misses", "50"), ("evictions", "9")],
        );
        let after = sample(
            start + Duration::from_secs(2),
            &[("cmd_get", "300"), ("get_hits", "200"), ("get_misses", "100"), ("evictions", "4")],
        );
        let rates = after.rates(Some(&before));
        assert_eq!((rates.gets, rates.hit_ratio), (100.0, Some(0.75)));
        // Reset in between.
        assert_eq!(rates.evictions, 2.0);
        assert_eq!(before.rates(None).gets, 0.0);
    }
}
