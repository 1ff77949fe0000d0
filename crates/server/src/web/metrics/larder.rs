//! larder's own metrics: latencies, use of memory, the predicted hit ratio.

use larder_measure::Snapshot;

use super::text::{Metric, Text};
use crate::namespaces::Report;
use crate::observe::measure::{Class, Transport};
use crate::startup::settings::Port;
use crate::web::state::State;

pub(super) fn write(state: &State, text: &mut Text) {
    let build = Metric::gauge("larder_build_info", "Always 1; the labels tell which build of larder runs.");
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let labels = [("version", crate::LARDER_VERSION), ("arch", std::env::consts::ARCH), ("profile", profile)];
    text.metric(&build).add(&labels, 1);
    let help = "1 while changes are refused for maintenance.";
    text.single(&Metric::gauge("larder_read_only", help), u8::from(state.shared.is_read_only()));
    let help = "Changes refused for maintenance.";
    let refused = state.shared.totals().refused_maintenance;
    text.single(&Metric::counter("larder_refused_read_only_total", help), refused);
    latencies(state, text);
    memory(state, text);
    queues(state, text);
    connections(state, text);
    forecast(state, text);
    namespaces(state, text);
}

/// Of each namespace; nothing without `--namespaces`.
fn namespaces(state: &State, text: &mut Text) {
    let reports = state.shared.namespaces.reports(state.shared.persistence.as_ref());
    if reports.is_empty() {
        return;
    }
    let names: Vec<_> = reports.iter().map(Report::name).collect();
    let mut where_known = |metric: Metric, of: fn(&Report) -> Option<u64>| {
        if reports.iter().all(|report| of(report).is_none()) {
            return;
        }
        let mut samples = text.metric(&metric);
        for (report, name) in reports.iter().zip(&names) {
            if let Some(number) = of(report) {
                samples.add(&[("namespace", name.as_str())], number);
            }
        }
    };
    let disk = "What the items of the namespace take in the store, where that is counted.";
    where_known(Metric::gauge("larder_namespace_disk_bytes", disk), |report| Some(report.disk?.bytes));
    let limit = "What the items of the namespace may take in the store.";
    where_known(Metric::gauge("larder_namespace_disk_limit_bytes", limit), |report| report.disk_limit_bytes);
    let conflicts = "Concurrent changes of which one was lost, as far as this site met both.";
    where_known(Metric::counter("larder_namespace_conflicts_total", conflicts), |report| report.conflicts);
    let mut by_namespace = |metric: Metric, of: fn(&Report) -> u64| {
        let mut samples = text.metric(&metric);
        for (report, name) in reports.iter().zip(&names) {
            samples.add(&[("namespace", name.as_str())], of(report));
        }
    };
    for (name, help, of) in [
        (
            "larder_namespace_memory_limit_bytes",
            "Memory that the namespace may take.",
            (|report| report.memory_limit_bytes) as fn(&Report) -> u64,
        ),
        ("larder_namespace_memory_used_bytes", "Memory that the namespace takes.", |report| {
            report.engine.memory_used_bytes
        }),
        ("larder_namespace_items", "Items of the namespace.", |report| report.engine.items),
        (
            "larder_namespace_bytes",
            "Sizes of the items of the namespace, by memcached's formula.",
            |report| report.engine.bytes,
        ),
    ] {
        by_namespace(Metric::gauge(name, help), of);
    }
    for (name, help, of) in [
        (
            "larder_namespace_gets_total",
            "Keys looked up in the namespace.",
            (|report| report.totals.cmd_get) as fn(&Report) -> u64,
        ),
        ("larder_namespace_get_hits_total", "... and found.", |report| report.totals.get_hits),
        ("larder_namespace_sets_total", "Stores in the namespace.", |report| report.totals.cmd_set),
        ("larder_namespace_evictions_total", "Live items evicted from the namespace.", |report| {
            report.engine.evictions
        }),
        (
            "larder_namespace_expired_total",
            "Expired or flushed items removed from the namespace.",
            |report| report.engine.reclaimed,
        ),
        (
            "larder_namespace_refused_total",
            "Commands refused because the namespace is read-only, not for their user, or over its disk quota.",
            |report| report.totals.refused(),
        ),
    ] {
        by_namespace(Metric::counter(name, help), of);
    }
}

fn latencies(state: &State, text: &mut Text) {
    let measures = &state.shared.measures;
    if !measures.measured().latency {
        return;
    }
    let help = "Service time of requests, from when their bytes were read until their replies were ready.";
    let mut samples = text.metric(&Metric::histogram("larder_request_duration_seconds", help));
    for transport in open_transports(state) {
        for class in Class::ALL {
            let labels = [("command", class.name()), ("transport", transport.name())];
            samples.add_durations(&labels, &measures.service(transport, class));
        }
    }
    let help = "Time from when a socket had something to read until its worker read it.";
    let wait: Snapshot = measures.wait();
    text.metric(&Metric::histogram("larder_socket_wait_seconds", help)).add_durations(&[], &wait);
}

/// Transports with a listener: the others would always be zero.
fn open_transports(state: &State) -> impl Iterator<Item = Transport> {
    use crate::net::listeners::Address;

    let listeners = state.pool.listeners();
    let has_udp = state.shared.settings.udp_port != Port::Off;
    let is_open = |transport: &Transport| match transport {
        Transport::Tcp => listeners.iter().any(|l| l.tls.is_none() && matches!(l.address, Address::Tcp(_))),
        Transport::Unix => listeners.iter().any(|l| matches!(l.address, Address::Unix(_))),
        Transport::Tls => listeners.iter().any(|l| l.tls.is_some()),
        Transport::Udp => has_udp,
    };
    let open: Vec<_> = Transport::ALL.into_iter().filter(is_open).collect();
    open.into_iter()
}

fn memory(state: &State, text: &mut Text) {
    let engine = state.shared.namespaces.stats();
    let limit = Metric::gauge("larder_memory_limit_bytes", "Memory that the cache may take (-m).");
    text.single(&limit, engine.memory_bytes);
    let used = Metric::gauge("larder_memory_used_bytes", "Memory that the cache takes.");
    text.single(&used, engine.memory_used_bytes);
    let help = "Memory that the cache takes, by what it is for.";
    let mut samples = text.metric(&Metric::gauge("larder_memory_bytes", help));
    let [small, main, large] = engine.queues;
    for (kind, bytes) in [
        ("index", engine.index_bytes),
        ("ghost", engine.ghost_bytes),
        ("small_queue", small.memory_bytes),
        ("main_queue", main.memory_bytes),
        ("large_values", large.memory_bytes),
        ("free", engine.free_bytes),
    ] {
        samples.add(&[("kind", kind)], bytes);
    }
}

fn queues(state: &State, text: &mut Text) {
    let engine = state.shared.namespaces.stats();
    let mut by_queue = |metric: Metric, of: fn(&larder_engine::QueueStats) -> u64| {
        let mut samples = text.metric(&metric);
        for (queue, stats) in ["small", "main", "large"].into_iter().zip(&engine.queues) {
            samples.add(&[("queue", queue)], of(stats));
        }
    };
    by_queue(Metric::gauge("larder_queue_items", "Items, by the queue that they wait in."), |queue| {
        queue.items
    });
    by_queue(Metric::gauge("larder_queue_segments", "Segments that hold items."), |queue| queue.segments);
    by_queue(Metric::gauge("larder_queue_live_bytes", "Bytes of items that can be found."), |queue| {
        queue.live_bytes
    });
    by_queue(Metric::gauge("larder_queue_age_seconds", "Age of the oldest segment."), |queue| {
        queue.age_secs.into()
    });
    by_queue(
        Metric::counter("larder_queue_hits_total", "Items found there, but for those who also touched them."),
        |queue| queue.hits,
    );
    by_queue(Metric::counter("larder_queue_evictions_total", "Live items evicted from there."), |queue| {
        queue.evictions
    });
    let help = "Expired and flushed items removed while memory was wanted.";
    by_queue(Metric::counter("larder_queue_expired_total", help), |queue| queue.reclaimed);
    let help = "Items moved to give back the memory of what was overwritten or deleted beside them.";
    text.single(&Metric::counter("larder_items_compacted_total", help), engine.compacted);
    let help = "Segments written to again between what lives in them.";
    text.single(&Metric::counter("larder_segments_threaded_total", help), engine.refilled);
}

fn connections(state: &State, text: &mut Text) {
    let help = "Open connections, by the worker that serves them.";
    let mut samples = text.metric(&Metric::gauge("larder_worker_connections", help));
    for (worker, connections) in state.pool.loads().enumerate() {
        samples.add(&[("worker", &worker.to_string())], connections);
    }
    let totals = state.shared.totals();
    let help = "Logins refused.";
    text.single(&Metric::counter("larder_login_failures_total", help), totals.auth_errors);
    let help = "Connections closed because they were idle.";
    text.single(&Metric::counter("larder_idle_connections_closed_total", help), totals.idle_kicks);
    if state.shared.tls.is_some() {
        let help = "Connections that did not get through the TLS handshake.";
        text.single(
            &Metric::counter("larder_tls_handshake_failures_total", help),
            totals.ssl_handshake_errors,
        );
    }
    if let Some(secs) = state.shared.tls.as_ref().and_then(|tls| tls.secs_to_end()) {
        let help = "Seconds until the first certificate of the chain ends; negative: it has ended.";
        text.single(&Metric::gauge("larder_tls_certificate_validity_seconds", help), secs);
    }
    if state.shared.settings.udp_port != Port::Off {
        let help = "Datagrams, by what became of them.";
        let mut samples = text.metric(&Metric::counter("larder_udp_datagrams_total", help));
        for (fate, count) in [
            ("served", totals.udp_requests),
            ("dropped", totals.udp_dropped),
            ("withheld", totals.udp_withheld),
        ] {
            samples.add(&[("fate", fate)], count);
        }
    }
}

fn forecast(state: &State, text: &mut Text) {
    let prediction = state.shared.forecast.prediction();
    let points: Vec<_> =
        prediction.points.iter().filter_map(|point| Some((point.factor, point.hit_ratio?))).collect();
    if points.is_empty() {
        return;
    }
    let help = "Hit ratio that this workload would have with so many times the memory.";
    let mut samples = text.metric(&Metric::gauge("larder_predicted_hit_ratio", help));
    for (factor, hit_ratio) in points {
        samples.add(&[("memory", &factor.to_string())], hit_ratio);
    }
}
