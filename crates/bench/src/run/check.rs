//! What can be run, and what cannot.

use super::RunError;
use super::plan::{copies, is_checked};
use super::sizes::Lengths;
use crate::Scenario;
use crate::scenario::{Arrival, Command, Group, Kind, Order, Popularity, Protocol, Transport};

/// The scenario with its defaults filled in.
///
/// # Errors
/// Names the first field that asks for what cannot be.
pub(crate) fn check(scenario: &Scenario) -> Result<Scenario, RunError> {
    let mut scenario = scenario.clone();
    if scenario.period_secs == 0.0 {
        scenario.period_secs = 1.0;
    }
    let until = &mut scenario.until;
    let has_trace = scenario.groups.iter().any(|group| group.trace.is_some());
    let all_end = scenario.groups.iter().all(|group| group.requests.is_some() || group.trace.is_some());
    if until.secs.is_none() && until.requests.is_none() && !until.trace_ends && !all_end {
        until.secs = Some(SECS_DEFAULT);
    }
    ensure(until.secs.is_none_or(is_positive), "until.secs", "must be above 0")?;
    ensure(!until.trace_ends || has_trace, "until.trace_ends", "no group has a trace")?;
    ensure(is_positive(scenario.period_secs), "period_secs", "must be above 0")?;
    ensure(is_amount(scenario.warm_up_secs), "warm_up_secs", "must be 0 or more")?;
    let truth = &scenario.truth;
    ensure(is_share(truth.verify), "truth.verify", "must be from 0 to 1")?;
    ensure(is_share(truth.verify_expiry), "truth.verify_expiry", "must be from 0 to 1")?;
    ensure(is_amount(truth.expiry_slack_secs), "truth.expiry_slack_secs", "must be 0 or more")?;
    ensure(is_positive(truth.timeout_secs), "truth.timeout_secs", "must be above 0")?;
    let target = &scenario.target;
    ensure(!target.servers.is_empty(), "target.servers", "names no server")?;
    ensure(target.replicate <= target.servers.len(), "target.replicate", "is more than there are servers")?;
    ensure(target.replicate > 0 || !target.servers_replicate, "target.servers_replicate", "needs replicate")?;
    ensure(
        target.replicate > 0 || !truth.compare_replicas,
        "truth.compare_replicas",
        "needs target.replicate",
    )?;
    ensure(!scenario.groups.is_empty(), "group", "there is none")?;
    for (at, group) in scenario.groups.iter().enumerate() {
        check_group(&scenario, group).map_err(|(field, reason)| RunError::Scenario {
            field: format!("group[{at}].{field}"),
            reason,
        })?;
    }
    let connections: usize = scenario.groups.iter().map(|group| group.connections).sum();
    ensure(scenario.threads <= connections, "threads", "there are more than connections")?;
    Ok(scenario)
}

/// Field and reason.
type Wrong = (String, String);

fn check_group(scenario: &Scenario, group: &Group) -> Result<(), Wrong> {
    let (target, truth) = (&scenario.target, &scenario.truth);
    need(group.connections > 0, "connections", "must be 1 or more")?;
    need(group.pipeline > 0, "pipeline", "must be 1 or more")?;
    need(group.sockets > 0, "sockets", "must be 1 or more")?;
    need(group.trace.is_none() || !is_checked(truth), "trace", "cannot be checked (truth)")?;
    need(group.trace.as_ref().is_none_or(|trace| trace.repeat > 0), "trace.repeat", "must be 1 or more")?;
    need(group.trace.is_none() || group.commands.is_empty(), "command", "the trace has commands of its own")?;
    need(group.keys.count > 0, "keys.count", "must be 1 or more")?;
    need(group.keys.first.checked_add(group.keys.count).is_some(), "keys.first", "is too large")?;
    if group.transport != Transport::Tcp {
        need(target.tls.is_none(), "transport", "there is no TLS over UDP")?;
        need(target.login.is_none(), "transport", "nobody can log in over UDP")?;
        need(
            target.servers.iter().all(|server| !server.contains('/')),
            "transport",
            "a unix socket knows no UDP",
        )?;
        let may_be_long = [&group.values.bytes]
            .into_iter()
            .chain(group.commands.iter().filter_map(|command| Some(&command.value_set.as_ref()?.bytes)))
            .any(|bytes| Lengths::new(bytes, "").is_ok_and(|lengths| lengths.max() > UDP_VALUE_BYTES_MAX));
        need(
            group.transport == Transport::UdpGets || !may_be_long,
            "values.bytes",
            "more than 1400 bytes do not fit into a datagram",
        )?;
        need(group.reconnect_every == 0, "reconnect_every", "UDP has no connections to be closed")?;
    }
    if target.replicate > 0 {
        // Else two changes of a key could overtake each other on their way to one replica and not on that to another.
        need(group.sockets == 1, "sockets", "with target.replicate: must be 1")?;
        need(group.transport == Transport::Tcp, "transport", "with target.replicate: must be tcp")?;
    }
    match group.arrival {
        Arrival::Closed => {}
        Arrival::Paced { rate_per_sec } => {
            need(is_positive(rate_per_sec), "arrival.rate_per_sec", "must be above 0")?;
        }
        Arrival::Open { rate_per_sec, rate_end_per_sec, .. } => {
            need(is_positive(rate_per_sec), "arrival.rate_per_sec", "must be above 0")?;
            if let Some(rate) = rate_end_per_sec {
                need(is_positive(rate), "arrival.rate_end_per_sec", "must be above 0")?;
                need(scenario.until.secs.is_some(), "arrival.rate_end_per_sec", "needs until.secs")?;
            }
        }
    }
    match group.keys.popularity {
        Popularity::Zipf { exponent } => {
            need((0.01..=10.0).contains(&exponent), "keys.popularity.exponent", "must be from 0.01 to 10")?;
        }
        Popularity::Gaussian { deviation } => {
            need(is_positive(deviation), "keys.popularity.deviation", "must be above 0")?;
        }
        Popularity::Hotspot { hot_keys, hot_requests, moves_every_secs } => {
            need(is_share(hot_keys), "keys.popularity.hot_keys", "must be from 0 to 1")?;
            need(is_share(hot_requests), "keys.popularity.hot_requests", "must be from 0 to 1")?;
            need(is_amount(moves_every_secs), "keys.popularity.moves_every_secs", "must be 0 or more")?;
        }
        Popularity::Window { keys, overwrite } => {
            need(keys > 0, "keys.popularity.keys", "must be 1 or more")?;
            need(is_share(overwrite), "keys.popularity.overwrite", "must be from 0 to 1")?;
        }
        Popularity::Uniform | Popularity::Sequential | Popularity::Reverse => {}
    }
    need(!group.commands.is_empty() || group.trace.is_some(), "command", "there is none")?;
    need(group.commands.len() <= COMMANDS_MAX, "command", "there are more than 65,535")?;
    let sum: f64 = group.commands.iter().map(|command| command.weight).sum();
    need(group.commands.is_empty() || is_positive(sum), "command", "the weights sum up to nothing")?;
    for (at, command) in group.commands.iter().enumerate() {
        check_command(scenario, group, command)
            .map_err(|(field, reason)| (format!("command[{at}].{field}"), reason))?;
    }
    Ok(())
}

fn check_command(scenario: &Scenario, group: &Group, command: &Command) -> Result<(), Wrong> {
    need(is_amount(command.weight), "weight", "must be 0 or more")?;
    let is_whole = command.weight >= 1.0 && command.weight.fract() == 0.0;
    need(group.order != Order::Turn || is_whole, "weight", "in turn: must be a whole number from 1")?;
    let is_get = matches!(command.kind, Kind::Get | Kind::Gets | Kind::Gat);
    need(command.keys == 1 || is_get && command.keys > 0, "keys", "only a get has another number than 1")?;
    let is_always_answered = is_get || matches!(command.kind, Kind::Version | Kind::Noop | Kind::Cas);
    need(!command.noreply || !is_always_answered, "noreply", "this command is always answered")?;
    // A CAS unique is one server's own, and so is the time at which a get touches.
    let is_one_servers = matches!(command.kind, Kind::Cas | Kind::Gat);
    need(
        copies(&scenario.target) == 1 || !is_one_servers,
        "kind",
        "cannot be asked of replicas (target.replicate)",
    )?;
    // Of a number it is not known whether it was set before a change or after it.
    let is_count = matches!(command.kind, Kind::Incr | Kind::Decr);
    need(
        !scenario.truth.compare_replicas || !is_count,
        "kind",
        "cannot be compared (truth.compare_replicas)",
    )?;
    let is_meta = group.protocol == Protocol::Meta;
    need(command.meta_flags.is_empty() || is_meta, "meta_flags", "only with protocol = \"meta\"")?;
    need(command.ttl.iter().all(|ttl| is_amount(ttl.weight)), "ttl", "a weight must be 0 or more")?;
    let sum: f64 = command.ttl.iter().map(|ttl| ttl.weight).sum();
    need(command.ttl.is_empty() || is_positive(sum), "ttl", "the weights sum up to nothing")?;
    if let Some(keys) = &command.key_set {
        need(keys.count > 0, "key_set.count", "must be 1 or more")?;
    }
    Ok(())
}

fn ensure(holds: bool, field: &str, reason: &str) -> Result<(), RunError> {
    if holds { Ok(()) } else { Err(RunError::Scenario { field: field.into(), reason: reason.into() }) }
}

fn need(holds: bool, field: &str, reason: &str) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err((field.into(), reason.into())) }
}

fn is_positive(x: f64) -> bool {
    x > 0.0 && x.is_finite()
}

fn is_amount(x: f64) -> bool {
    x >= 0.0 && x.is_finite()
}

fn is_share(x: f64) -> bool {
    (0.0..=1.0).contains(&x)
}

const SECS_DEFAULT: f64 = 10.0;
/// As much as a datagram carries over Ethernet without being cut; memaslap's limit.
const UDP_VALUE_BYTES_MAX: u64 = 1400;
const COMMANDS_MAX: usize = u16::MAX as usize;
