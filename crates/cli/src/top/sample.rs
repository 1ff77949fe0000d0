//! Statistics of a server, and rates between two samples.

use std::collections::HashMap;
use std::time::Instant;

use larder_client::{Client, Server};
use larder_measure::Snapshot;

use crate::Failure;
use crate::output::readable;
use crate::parallel;
use crate::service_times;
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
    service: Option<Snapshot>,
}

/// A server between two samples. Per second, unless the field says otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    pub server: String,
    pub version: String,
    /// Why it did not answer.
    pub trouble: Option<Failure>,
    pub gets: f64,
    pub sets: f64,
    pub hits: f64,
    pub misses: f64,
    pub evictions: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    pub connections: u64,
    pub items: u64,
    pub used_bytes: u64,
    pub limit_bytes: u64,
    /// Of the requests since the last sample; `None`: not reported.
    pub service: Option<Snapshot>,
    /// Microseconds until `stats` was answered, over an open connection.
    pub answer_micros: f64,
}

impl Rates {
    /// Reason why the server did not answer, without its name.
    pub(super) fn why(&self) -> Option<String> {
        let message = self.trouble.as_ref()?.message();
        let why = message.strip_prefix(&self.server).and_then(|why| why.strip_prefix(": "));
        Some(readable(why.unwrap_or(message).as_bytes()))
    }

    /// 0 to 1; `None`: no gets.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        let gets = self.hits + self.misses;
        (gets > 0.0).then(|| self.hits / gets)
    }

    /// A percentile of the service times; `None`: not reported, or no requests.
    pub(super) fn quantile_micros(&self, share: f64) -> Option<f64> {
        Some(self.service.as_ref()?.quantile_nanos(share)? as f64 / 1e3)
    }

    /// All servers that answer, as one; the answer is the slowest.
    pub(super) fn total(servers: &[Self]) -> Self {
        let mut total = Self { server: "TOTAL".to_owned(), ..Self::default() };
        for server in servers.iter().filter(|server| server.trouble.is_none()) {
            total.gets += server.gets;
            total.sets += server.sets;
            total.hits += server.hits;
            total.misses += server.misses;
            total.evictions += server.evictions;
            total.read_bytes += server.read_bytes;
            total.written_bytes += server.written_bytes;
            total.connections = total.connections.saturating_add(server.connections);
            total.items = total.items.saturating_add(server.items);
            total.used_bytes = total.used_bytes.saturating_add(server.used_bytes);
            total.limit_bytes = total.limit_bytes.saturating_add(server.limit_bytes);
            total.answer_micros = total.answer_micros.max(server.answer_micros);
            if let Some(service) = &server.service {
                total.service.get_or_insert_default().add(service);
            }
        }
        total
    }
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
        parallel::map(&mut self.members, Member::look)
    }
}

impl Member {
    fn look(&mut self) -> Rates {
        let server = self.server.address.to_string();
        let begin = Instant::now();
        let mut stats: HashMap<_, _> = match self.client.stats("").pop() {
            Some((_, Ok(stats))) => stats.into_iter().collect(),
            Some((_, Err(error))) => {
                self.before = None;
                let trouble = Some(Failure::of(&server, &error));
                return Rates { server, trouble, ..Rates::default() };
            }
            None => return Rates { server, ..Rates::default() },
        };
        let answer_micros = begin.elapsed().as_secs_f64() * 1e6;
        // memcached refuses this sub-command.
        let own = self.client.stats("larder").pop().and_then(|(_, own)| own.ok());
        let is_larder = own.is_some();
        stats.extend(own.into_iter().flatten());
        let read = || service_times::read(&mut self.client, &self.server.address).ok().flatten();
        let service = is_larder.then(read).flatten().map(|times| service_times::sum(&times));
        let sample = Sample { at: Instant::now(), stats, service };
        let mut rates = sample.rates(self.before.as_ref());
        rates.server = server;
        rates.answer_micros = answer_micros;
        self.before = Some(sample);
        rates
    }
}

impl Sample {
    fn number(&self, name: &str) -> u64 {
        self.stats.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Memory that the items take, of `limit_maxbytes`. larderd tells it; `bytes` is memcached's formula, which has
    /// another overhead for each item, and so may exceed the limit of larderd.
    fn used_bytes(&self) -> u64 {
        let own = "larder_memory_used_bytes";
        self.number(if self.stats.contains_key(own) { own } else { "bytes" })
    }

    fn rates(&self, before: Option<&Self>) -> Rates {
        let secs = before.map_or(0.0, |before| self.at.duration_since(before.at).as_secs_f64());
        // If a counter went down it was reset, or the server was restarted: then it counts from 0.
        let grown = |name: &str| {
            let (now, then) = (self.number(name), before.map_or(0, |before| before.number(name)));
            now.checked_sub(then).unwrap_or(now)
        };
        let per_sec = |name: &str| if secs > 0.0 { grown(name) as f64 / secs } else { 0.0 };
        let service = match (&self.service, before.and_then(|before| before.service.as_ref())) {
            (Some(now), Some(then)) => Some(service_times::since(now, then)),
            _ => None,
        };
        Rates {
            version: self.stats.get("version").cloned().unwrap_or_default(),
            gets: per_sec("cmd_get"),
            sets: per_sec("cmd_set"),
            hits: per_sec("get_hits"),
            misses: per_sec("get_misses"),
            evictions: per_sec("evictions"),
            read_bytes: per_sec("bytes_read"),
            written_bytes: per_sec("bytes_written"),
            connections: self.number("curr_connections"),
            items: self.number("curr_items"),
            used_bytes: self.used_bytes(),
            limit_bytes: self.number("limit_maxbytes"),
            service,
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
        Sample { at, stats: stats.collect(), service: None }
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
        assert_eq!((rates.gets, rates.hit_ratio()), (100.0, Some(0.75)));
        // Reset in between.
        assert_eq!(rates.evictions, 2.0);
        assert_eq!(before.rates(None).gets, 0.0);
    }

    #[test]
    fn used_memory_is_what_the_server_counts_itself() {
        let used = |stats: &[(&str, &str)]| sample(Instant::now(), stats).rates(None).used_bytes;
        assert_eq!(used(&[("bytes", "70"), ("larder_memory_used_bytes", "64")]), 64);
        assert_eq!(used(&[("larder_memory_used_bytes", "0"), ("bytes", "70")]), 0);
        assert_eq!(used(&[("bytes", "70")]), 70);
    }

    #[test]
    fn a_total_is_of_the_servers_that_answer() {
        let server = |gets, hits, misses, answer_micros| Rates {
            gets,
            hits,
            misses,
            answer_micros,
            connections: 3,
            ..Rates::default()
        };
        let mut one = server(10.0, 9.0, 1.0, 0.5);
        one.service.get_or_insert_default().add_count(1023, 1);
        let gone = Rates { trouble: Some(Failure::Unreachable("gone".into())), ..server(7.0, 7.0, 7.0, 7.0) };
        let total = Rates::total(&[one, server(30.0, 1.0, 29.0, 0.2), gone]);
        assert_eq!((total.gets, total.connections, total.answer_micros), (40.0, 6, 0.5));
        assert_eq!((total.hit_ratio(), total.quantile_micros(0.5)), (Some(0.25), Some(1.023)));
        let boaster = Rates { items: u64::MAX, connections: u64::MAX, ..Rates::default() };
        assert_eq!(Rates::total(&[boaster.clone(), boaster]).items, u64::MAX);
    }
}
