//! `/api/history`, `/api/connections`, `/api/slow`: recent activity.

use larder_protocol::{Dialect, number};
use serde::Serialize;

use super::parameter;
use crate::net::listeners::Address;
use crate::web::history::Point;
use crate::web::state::State;

#[derive(Serialize)]
pub(super) struct History {
    step_secs: u32,
    points: Vec<Point>,
}

/// `?span=day` for minutes instead of seconds; `&after=` and a Unix time for later points only.
pub(super) fn history(state: &State, query: &str) -> History {
    let after_secs = parameter(query, "after").and_then(number::parse_u64);
    let after_secs = after_secs.and_then(|secs| i64::try_from(secs).ok()).unwrap_or(0);
    let history = state.history();
    if parameter(query, "span") == Some(b"day") {
        History { step_secs: 60, points: history.minutes.after(after_secs) }
    } else {
        History { step_secs: 1, points: history.seconds.after(after_secs) }
    }
}

#[derive(Serialize)]
pub(super) struct Connections {
    open: usize,
    open_max: u32,
    accepted: u64,
    /// Beyond the limit.
    rejected: u64,
    closed_for_idleness: u64,
    logins_failed: u64,
    /// Times a connection used up its requests and others had their turn.
    yields: u64,
    /// Open connections, by worker.
    workers: Vec<usize>,
    listeners: Vec<Listener>,
}

#[derive(Serialize)]
struct Listener {
    address: String,
    /// `auto`, `ascii` or `binary`, as `-B` has them, or `http`.
    protocol: &'static str,
    has_tls: bool,
}

pub(super) fn connections(state: &State) -> Connections {
    let shared = &*state.shared;
    let totals = shared.totals();
    let listener = |listener: &crate::net::listeners::Listener| Listener {
        address: match &listener.address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => path.display().to_string(),
        },
        protocol: match listener.dialect {
            None => "auto",
            Some(Dialect::Text) => "ascii",
            Some(Dialect::Binary) => "binary",
            Some(Dialect::Http) => "http",
        },
        has_tls: listener.tls.is_some(),
    };
    Connections {
        open: shared.connection_limiter.open_connections(),
        open_max: shared.settings.connections_max,
        accepted: totals.total_connections,
        rejected: totals.rejected_connections,
        closed_for_idleness: totals.idle_kicks,
        logins_failed: totals.auth_errors,
        yields: totals.conn_yields,
        workers: state.pool.loads().collect(),
        listeners: state.pool.listeners().iter().map(listener).collect(),
    }
}

#[derive(Serialize)]
pub(super) struct Slow {
    is_measured: bool,
    /// Latest first.
    batches: Vec<Batch>,
}

/// A slow batch of requests.
#[derive(Serialize)]
struct Batch {
    /// Unix time.
    at_secs: i64,
    /// The most frequent class in it.
    command: &'static str,
    transport: &'static str,
    requests: u32,
    took_micros: f64,
}

pub(super) fn slow(state: &State) -> Slow {
    let shared = &*state.shared;
    let batches = shared.measures.slow().into_iter().take(BATCHES_MAX).map(|slow| Batch {
        at_secs: shared.clock.wall_secs(slow.at_secs),
        command: slow.class.name(),
        transport: slow.transport.name(),
        requests: slow.requests,
        took_micros: slow.took.as_secs_f64() * 1e6,
    });
    Slow { is_measured: shared.measures.measured().latency, batches: batches.collect() }
}

const BATCHES_MAX: usize = 100;
