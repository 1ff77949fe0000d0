//! Spans, with OpenTelemetry's names of fields for clients of databases.
//! Source: OpenTelemetry, semantic conventions, "Database client spans".

use tracing::field::Empty;
use tracing::{Level, Span};

use super::{Operation, Outcome};
use crate::Address;

/// True if somebody collects spans.
pub(super) fn is_wanted() -> bool {
    tracing::enabled!(target: TARGET, Level::INFO)
}

/// Begins a span, in the one that is current.
pub(super) fn open(name: &'static str, key: Option<&[u8]>, keys: usize) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "memcached",
        otel.kind = "client",
        otel.name = name,
        otel.status_code = Empty,
        db.system.name = "memcached",
        db.operation.name = name,
        db.operation.batch.size = Empty,
        db.query.text = Empty,
        server.address = Empty,
        server.port = Empty,
        error.type = Empty,
        larder.outcome = Empty,
        larder.hits = Empty,
        larder.attempts = Empty,
        larder.near = Empty,
    );
    if keys > 1 {
        span.record("db.operation.batch.size", keys);
    }
    if let Some(key) = key {
        span.record("db.query.text", format!("{name} {}", key.escape_ascii()));
    }
    span
}

/// Adds what came of it. The span ends when it is dropped.
pub(super) fn close(span: &Span, operation: &Operation<'_>) {
    match operation.server {
        Some(Address::Inet { host, port }) => {
            span.record("server.address", host.as_str());
            span.record("server.port", *port);
        }
        Some(Address::Unix(path)) => {
            span.record("server.address", path.display().to_string());
        }
        None => {}
    }
    if let Some(error_type) = operation.error_type {
        span.record("error.type", error_type);
    }
    if operation.outcome == Outcome::Failed {
        span.record("otel.status_code", "ERROR");
    }
    span.record("larder.outcome", operation.outcome.name());
    span.record("larder.attempts", operation.attempts);
    if operation.keys > 1 {
        span.record("larder.hits", operation.hits);
    }
    if operation.is_near {
        span.record("larder.near", true);
    }
}

/// What subscribers filter by.
const TARGET: &str = "larder_client";
