//! `/api/namespaces`: each namespace in figures; `POST /api/flush?prefix=<prefix>&delay=<secs>` empties one.

use larder_protocol::{KEY_BYTES_MAX, Key, number};
use serde::Serialize;

use super::{Refused, parameter};
use crate::web::state::State;

/// Counters count from the start, or from the last `stats reset`.
#[derive(Serialize)]
pub(super) struct Namespace {
    /// `<null>`: the default.
    name: String,
    keep: &'static str,
    is_read_only: bool,
    items: u64,
    bytes: u64,
    limit_bytes: u64,
    used_bytes: u64,
    /// Of the store, where that is counted.
    disk_bytes: Option<u64>,
    disk_limit_bytes: Option<u64>,
    gets: u64,
    get_hits: u64,
    sets: u64,
    evicted: u64,
    expired: u64,
    refused: u64,
}

pub(super) fn namespaces(state: &State) -> Vec<Namespace> {
    let reports = state.shared.namespaces.reports(state.shared.persistence.as_ref());
    let namespace = |report: &crate::namespaces::Report| Namespace {
        name: report.name(),
        keep: report.keep,
        is_read_only: report.is_read_only,
        items: report.engine.items,
        bytes: report.engine.bytes,
        limit_bytes: report.memory_limit_bytes,
        used_bytes: report.engine.memory_used_bytes,
        disk_bytes: report.disk.map(|disk| disk.bytes),
        disk_limit_bytes: report.disk_limit_bytes,
        gets: report.totals.cmd_get,
        get_hits: report.totals.get_hits,
        sets: report.totals.cmd_set,
        evicted: report.engine.evictions,
        expired: report.engine.reclaimed,
        refused: report.totals.refused(),
    };
    reports.iter().map(namespace).collect()
}

pub(super) fn flush(query: &str, state: &State) -> Result<(), Refused> {
    let shared = &*state.shared;
    let delay = parameter(query, "delay").map_or(Some(0), number::parse_u32).ok_or(Refused::BadQuery)?;
    let prefix = parameter(query, "prefix").and_then(Key::percent).ok_or(Refused::BadQuery)?;
    if !shared.settings.flush_all {
        return Err(Refused::NotAllowed);
    }
    let mut buffer = [0; KEY_BYTES_MAX];
    let number = shared.namespaces.named(prefix.bytes(&mut buffer)).ok_or(Refused::NoSuchNamespace)?;
    shared.flush(number, delay.into(), shared.clock.now());
    tracing::info!(namespace = %prefix.written().escape_ascii(), delay, "flushed over HTTP");
    Ok(())
}
