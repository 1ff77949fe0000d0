//! What tables, screen and page say in words, said once.

use super::units::{count, duration, latency, percent, short};
use crate::Outcome;
use crate::outcome::{Failure, Phase, Tally};
use crate::scenario::{Arrival, Group, Kind, Protocol, Scenario, Transport};

/// A command by its text name.
pub fn command(kind: Kind) -> &'static str {
    match kind {
        Kind::Get => "get",
        Kind::Gets => "gets",
        Kind::Gat => "gat",
        Kind::Set => "set",
        Kind::Add => "add",
        Kind::Replace => "replace",
        Kind::Append => "append",
        Kind::Prepend => "prepend",
        Kind::Cas => "cas",
        Kind::Delete => "delete",
        Kind::Incr => "incr",
        Kind::Decr => "decr",
        Kind::Touch => "touch",
        Kind::Version => "version",
        Kind::Noop => "noop",
    }
}

/// Names a kind of failure, in the singular or plural that `number` needs.
pub fn failure(failure: Failure, number: u64) -> &'static str {
    let (one, several) = match failure {
        Failure::ErrorReply => ("error reply", "error replies"),
        Failure::OutOfMemory => ("out of memory", "out of memory"),
        Failure::Protocol => ("answer to something else", "answers to something else"),
        Failure::Timeout => ("timeout", "timeouts"),
        Failure::Closed => ("connection closed by the server", "connections closed by the server"),
        Failure::Connect => ("connection refused", "connections refused"),
        Failure::WrongValue => ("wrong value", "wrong values"),
        Failure::StaleValue => ("stale value", "stale values"),
        Failure::Lost => ("lost value", "lost values"),
        Failure::ExpiredLate => ("value found after its expiry", "values found after their expiry"),
        Failure::ExpiredEarly => ("value gone before its expiry", "values gone before their expiry"),
        Failure::ReplicasDiffer => ("difference between replicas", "differences between replicas"),
    };
    if number == 1 { one } else { several }
}

/// Formats failures as `3 wrong values, 1 timeout`; empty if there were none.
pub fn failures(tally: &Tally) -> String {
    let kinds = tally.failures.iter().filter(|&(_, &number)| number > 0);
    kinds
        .map(|(&kind, &number)| format!("{} {}", count(number), failure(kind, number)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// What makes the figures doubtful, in whole sentences.
pub fn warnings(outcome: &Outcome) -> Vec<String> {
    [outcome.client.warnings.clone(), arrears(&outcome.total)].concat()
}

/// What an open loop sent late or never, if that makes its figures doubtful.
pub fn arrears(total: &Tally) -> Vec<String> {
    let mut warnings = Vec::new();
    if total.unsent > 0 {
        warnings.push(format!(
            "{} never sent, because every connection was waiting for a reply until the end. Real users would have \
             waited longer than these percentiles say.",
            requests(total.unsent)
        ));
    }
    let all: u64 = total.commands.values().map(|figures| figures.requests).sum();
    let is_much = |late: u64| late as f64 > LATE_SHARE_MAX * all as f64;
    if is_much(total.sent_late) {
        warnings.push(format!(
            "{} sent late, because every connection was waiting for a reply. The latency includes that wait. With \
             more connections (-c) it would be the server's alone.",
            requests(total.sent_late)
        ));
    }
    if is_much(total.client_late) {
        warnings.push(format!(
            "{} sent late by larder bench itself, although a connection was free: this machine was busy. The latency \
             includes that delay; the service time does not.",
            requests(total.client_late)
        ));
    }
    warnings
}

/// Formats a count with its verb: `1 request was`, `2 requests were`.
fn requests(number: u64) -> String {
    format!("{} {}", count(number), if number == 1 { "request was" } else { "requests were" })
}

/// Beyond this share of requests that were sent late, more than a few percentiles tell of it.
const LATE_SHARE_MAX: f64 = 0.001;

/// The outcome in a sentence or two, for somebody who reads nothing else.
pub fn headline(outcome: &Outcome) -> String {
    let all = outcome.total.all();
    let rate = all.requests as f64 / outcome.elapsed_secs.max(f64::MIN_POSITIVE);
    let at = |percentile| latency(all.latency_nanos.value_at_percentile(percentile) as f64);
    let mut text = format!(
        "{} requests a second for {}. Half of them were answered within {}, 99 of 100 within {}, 999 of 1000 within {}.",
        short(rate),
        duration(outcome.elapsed_secs),
        at(50.0),
        at(99.0),
        at(99.9),
    );
    if all.hits + all.misses > 0 && all.misses > 0 {
        let ratio = all.hits as f64 / (all.hits + all.misses) as f64;
        text += &format!(" {} of the keys asked for were found.", percent(ratio));
    }
    text
}

/// The name of a run, if it has one, and its servers: `etc: larderd 0.1.0 at 127.0.0.1:11211`,
/// `3 servers, a:11211 to c:11211`.
pub fn title(outcome: &Outcome) -> String {
    let servers = match outcome.servers.as_slice() {
        [] => String::new(),
        [server] if server.software.is_empty() => server.address.clone(),
        [server] => format!("{} at {}", server.software, server.address),
        [first, .., last] => {
            format!("{} servers, {} to {}", outcome.servers.len(), first.address, last.address)
        }
    };
    match (outcome.scenario.name.as_str(), servers.as_str()) {
        ("", "") => "larder bench".to_owned(),
        ("", _) => servers,
        (name, "") => name.to_owned(),
        (name, _) => format!("{name}: {servers}"),
    }
}

/// A server by its name and its program: `new (larderd 0.1.0)`; once where one says the other.
pub fn server(name: &str, software: &str) -> String {
    if software.is_empty() || software == name {
        name.to_owned()
    } else if software.strip_prefix(name).is_some_and(|version| version.starts_with(' ')) {
        software.to_owned()
    } else {
        format!("{name} ({software})")
    }
}

/// How a scenario asks, in a line: `50 connections, closed loop, text over TCP, 1 thread`. 0 threads: not known.
pub fn load(scenario: &Scenario, threads: usize) -> String {
    let connections: usize = scenario.groups.iter().map(|group| group.connections).sum();
    let groups = match scenario.groups.as_slice() {
        [group] => format!("{}, {}", arrival(group.arrival), road(group)),
        groups => format!("{} groups", groups.len()),
    };
    let plural = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let threads = if threads == 0 { String::new() } else { format!(", {}", plural(threads, "thread")) };
    format!("{}, {groups}{threads}", plural(connections, "connection"))
}

/// `closed loop`, `open loop at 50 k/s`.
pub fn arrival(arrival: Arrival) -> String {
    match arrival {
        Arrival::Closed => "closed loop".into(),
        Arrival::Paced { rate_per_sec } => format!("closed loop of at most {}/s", short(rate_per_sec)),
        Arrival::Open { rate_per_sec, rate_end_per_sec: Some(end), .. } => {
            format!("open loop from {}/s to {}/s", short(rate_per_sec), short(end))
        }
        Arrival::Open { rate_per_sec, .. } => format!("open loop at {}/s", short(rate_per_sec)),
    }
}

/// `text over TCP`.
pub fn road(group: &Group) -> String {
    let protocol = match group.protocol {
        Protocol::Text => "text",
        Protocol::Meta => "meta",
        Protocol::Binary => "binary",
    };
    let transport = match group.transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
        Transport::UdpGets => "UDP for gets and TCP",
    };
    format!("{protocol} over {transport}")
}

/// Whether any group has a schedule of its own, so that latency and service time differ.
pub fn is_open(scenario: &Scenario) -> bool {
    scenario.groups.iter().any(|group| matches!(group.arrival, Arrival::Open { .. }))
}

/// Over a table of latencies.
pub fn latency_heading(is_open: bool) -> &'static str {
    if is_open { "latency, from when a request was due" } else { "latency" }
}

/// Over a table of service times.
pub const SERVICE_HEADING: &str = "service time, from when a request was sent";

/// A phase of a run.
pub fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Connecting => "connecting",
        Phase::Filling { .. } => "storing keys",
        Phase::WarmingUp => "warming up",
        Phase::Running => "running",
        Phase::Checking => "comparing what must agree",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::ServerCost;

    #[test]
    fn a_title_names_the_servers() {
        let cost = |address: &str, software: &str| ServerCost {
            address: address.into(),
            software: software.into(),
            ..ServerCost::default()
        };
        let titled = |name: &str, servers: &[ServerCost]| {
            let mut outcome = Outcome { servers: servers.to_vec(), ..Outcome::default() };
            outcome.scenario.name = name.into();
            super::title(&outcome)
        };
        let title = |servers: &[ServerCost]| titled("etc", servers);
        assert_eq!(titled("", &[]), "larder bench");
        assert_eq!(titled("", &[cost("a:1", "memcached 1.6.18")]), "memcached 1.6.18 at a:1");
        assert_eq!(title(&[]), "etc");
        assert_eq!(title(&[cost("a:1", "memcached 1.6.18")]), "etc: memcached 1.6.18 at a:1");
        assert_eq!(title(&[cost("a:1", "")]), "etc: a:1");
        assert_eq!(title(&[cost("a:1", "x"), cost("b:1", "")]), "etc: 2 servers, a:1 to b:1");
        assert_eq!(server("larderd", "larderd 0.1.0"), "larderd 0.1.0");
        assert_eq!(server("new", "larderd 0.1.0"), "new (larderd 0.1.0)");
        assert_eq!(server("floor", ""), "floor");
    }
}
