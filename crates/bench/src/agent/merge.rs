//! What all agents saw, as one outcome.

use std::collections::VecDeque;

use crate::Outcome;
use crate::outcome::{ClientCost, Period, ServerCost, Tally};
use crate::scenario::Scenario;

/// Periods of several agents, added up as soon as the last agent has told of one.
#[derive(Debug)]
pub(super) struct Periods {
    /// Of each agent, those that others have not told of yet.
    waiting: Vec<VecDeque<Period>>,
    pub done: Vec<Period>,
    pub so_far: Tally,
}

impl Periods {
    pub(super) fn new(agents: usize) -> Self {
        Self { waiting: vec![VecDeque::new(); agents], done: Vec::new(), so_far: Tally::default() }
    }

    /// Takes in what one agent told; the period of all, if that was what was missing.
    pub(super) fn add(&mut self, agent: usize, period: Period) -> Option<&Period> {
        self.waiting[agent].push_back(period);
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        self.merge_next()
    }

    /// The periods that not all agents had: some end a little later than others.
    pub(super) fn finish(mut self) -> (Vec<Period>, Tally) {
        while self.merge_next().is_some() {}
        (self.done, self.so_far)
    }

    fn merge_next(&mut self) -> Option<&Period> {
        let merged = self.waiting.iter_mut().filter_map(VecDeque::pop_front).reduce(|mut all, one| {
            all.tally.add(&one.tally);
            all.secs = all.secs.max(one.secs);
            // Agents on the servers' own machine all see the same CPU.
            all.server_cpu_secs = all.server_cpu_secs.or(one.server_cpu_secs);
            all
        })?;
        self.so_far.add(&merged.tally);
        self.done.push(merged);
        self.done.last()
    }
}

/// Adds up outcomes, given in the order of the agents with their names. What belongs to the whole run (its periods) is
/// given.
pub(super) fn merge(scenario: &Scenario, periods: Vec<Period>, parts: Vec<(String, Outcome)>) -> Outcome {
    let mut whole = Outcome { scenario: scenario.clone(), periods, ..Outcome::default() };
    let mut hosts = Vec::new();
    let mut is_first = true;
    for (agent, part) in parts {
        whole.total.add(&part.total);
        whole.elapsed_secs = whole.elapsed_secs.max(part.elapsed_secs);
        hosts.push(part.environment.host.clone());
        add_client(&mut whole.client, &agent, part.client, is_first);
        for server in part.servers {
            add_server(&mut whole.servers, server);
        }
        if is_first {
            whole.started_unix_secs = part.started_unix_secs;
            whole.environment = part.environment;
        }
        is_first = false;
    }
    hosts.dedup();
    whole.environment.host = hosts.join(", ");
    whole
}

fn add_client(whole: &mut ClientCost, agent: &str, part: ClientCost, is_first: bool) {
    whole.threads += part.threads;
    whole.cpu_secs += part.cpu_secs;
    whole.busiest_thread_share = whole.busiest_thread_share.max(part.busiest_thread_share);
    // The busiest machine.
    whole.host_cpu_share = [whole.host_cpu_share, part.host_cpu_share].into_iter().flatten().reduce(f64::max);
    whole.floor_requests_per_sec = match (whole.floor_requests_per_sec, part.floor_requests_per_sec) {
        (None, floor) if is_first => floor,
        (Some(others), Some(floor)) => Some(others + floor),
        // Without one of them there is no sum.
        _ => None,
    };
    whole.warnings.extend(part.warnings.into_iter().map(|warning| format!("{agent}: {warning}")));
}

/// Every agent tells of the same servers; who runs beside one knows most of it.
fn add_server(servers: &mut Vec<ServerCost>, told: ServerCost) {
    match servers.iter_mut().find(|server| server.address == told.address) {
        None => servers.push(told),
        Some(known) if known.resident_bytes.is_none() && told.resident_bytes.is_some() => *known = told,
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;
    use crate::scenario::Kind;

    fn tally(micros: &[u64]) -> Tally {
        let mut tally = Tally::default();
        let gets = tally.commands.entry(Kind::Get).or_default();
        gets.requests = micros.len() as u64;
        micros.iter().for_each(|&micros| gets.latency_nanos.record(micros * 1000).expect("within bounds"));
        tally
    }

    fn period(micros: &[u64]) -> Period {
        Period { begins_secs: 0.0, secs: 1.0, tally: tally(micros), server_cpu_secs: Some(0.5) }
    }

    #[test]
    fn a_period_is_that_of_all_agents() {
        let mut periods = Periods::new(2);
        assert!(periods.add(0, period(&[1])).is_none());
        assert!(periods.add(0, period(&[2])).is_none());
        let first = periods.add(1, period(&[3, 4])).expect("both have told of the first");
        assert_eq!(first.tally.all().requests, 3);
        assert_eq!(first.server_cpu_secs, Some(0.5));
        let (done, so_far) = periods.finish();
        assert_eq!((done.len(), so_far.all().requests), (2, 4));
    }

    #[test]
    fn percentiles_are_those_of_all_requests() {
        let part = |micros: &[u64], warning: &str| {
            let mut part =
                Outcome { elapsed_secs: micros.len() as f64, total: tally(micros), ..Outcome::default() };
            part.total.failures.insert(Failure::Lost, 1);
            part.client = ClientCost {
                threads: 2,
                cpu_secs: 1.0,
                busiest_thread_share: micros.len() as f64 / 10.0,
                host_cpu_share: Some(micros.len() as f64 / 10.0),
                floor_requests_per_sec: Some(100.0),
                warnings: vec![warning.into()],
            };
            let resident_bytes = (micros.len() == 3).then_some(7);
            part.servers =
                vec![ServerCost { address: "a:1".into(), resident_bytes, ..ServerCost::default() }];
            part
        };
        let whole = merge(
            &Scenario::default(),
            Vec::new(),
            vec![("one".into(), part(&[10], "x")), ("two".into(), part(&[10, 10, 1000], "y"))],
        );
        // Neither agent's median is that of all, nor is a percentile of percentiles.
        let all = whole.total.all();
        assert!(all.latency_nanos.value_at_quantile(0.75) < 10_100);
        assert!(all.latency_nanos.value_at_quantile(0.76) > 990_000);
        assert_eq!(whole.total.failures[&Failure::Lost], 2);
        assert!((whole.elapsed_secs - 3.0).abs() < f64::EPSILON);
        assert_eq!((whole.servers.len(), whole.servers[0].resident_bytes), (1, Some(7)));
        assert_eq!(whole.client.threads, 4);
        assert!((whole.client.busiest_thread_share - 0.3).abs() < f64::EPSILON);
        assert_eq!(whole.client.host_cpu_share, Some(whole.client.busiest_thread_share));
        assert_eq!(whole.client.floor_requests_per_sec, Some(200.0));
        assert_eq!(whole.client.warnings, ["one: x", "two: y"]);
    }
}
