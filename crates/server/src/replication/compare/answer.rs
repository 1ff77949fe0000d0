//! A peer compares itself with this site.

use std::io;

use larder_replication::compare::{CompareRead, CompareStep, Listed, fingerprint, is_compared, leaf_of};
use larder_replication::entry::Entry;
use larder_replication::link::Publisher;
use larder_replication::state::Expiry;
use larder_store::VecSink;

use super::super::Site;
use super::super::publish::{is_told, state_of};
use super::{scan, visit_step};
use crate::shared::Shared;

/// Performs a step.
pub(in super::super) fn answer(
    step: CompareStep,
    publisher: &mut Publisher,
    shared: &Shared,
    site: &Site,
) -> io::Result<()> {
    let table = shared.namespaces.table();
    let (table, store) = (table.as_deref(), &*site.store);
    // The peer finds out, and what it cannot read of its own counts there.
    let mut unreadable = 0;
    match step {
        CompareStep::Scan { horizon, position } => {
            publisher.compare_scanned(scan(store, table, horizon, &position, &mut unreadable)?);
        }
        CompareStep::List { horizon, position, leaves } => {
            let mut found: Vec<(Vec<u8>, u64, Expiry, u128)> = Vec::new();
            let next = visit_step(store, table, horizon, &position, &mut unreadable, &mut |key, state| {
                if leaves.contains(leaf_of(key))
                    && let Some(fingerprint) = fingerprint(key, state)
                {
                    found.push((key.to_vec(), state.version(), state.expiry, fingerprint));
                }
            })?;
            let listed = found.iter().map(|(key, version, expiry, fingerprint)| Listed {
                key,
                version: *version,
                expiry: *expiry,
                fingerprint: *fingerprint,
            });
            publisher.compare_listed(listed.collect(), next);
        }
        CompareStep::Read { horizon, keys, bytes_max } => {
            let mut read = CompareRead { count: 0, body: Vec::new() };
            for key in keys {
                if is_told(table, &key) {
                    append_state(site, &key, horizon, &mut read.body)?;
                }
                read.count += 1;
                if read.body.len() >= bytes_max {
                    break;
                }
            }
            publisher.compare_read(&read);
        }
    }
    Ok(())
}

/// Appends the entry of a key's state, if it is still compared, durable, and can be read.
fn append_state(site: &Site, key: &[u8], horizon: u64, body: &mut Vec<u8>) -> io::Result<()> {
    let store = &site.store;
    let state = match store.state(key) {
        Ok(Some(state)) if state.sequence <= store.durable_sequence() => state,
        Err(error) if !is_damage(&error) => return Err(io::Error::other(error)),
        _ => return Ok(()),
    };
    let mut sink = VecSink::default();
    let meta = match store.get(key, 0, &mut sink) {
        Err(error) if !is_damage(&error) => return Err(io::Error::other(error)),
        meta => meta.ok().flatten(),
    };
    let value = sink.into_value();
    let known = state_of(&state, &value);
    if meta.is_some_and(|meta| meta.version == state.version) && is_compared(&known, horizon) {
        Entry::of_state(key, &known).for_each(|entry| entry.encode(body));
    }
    Ok(())
}

/// True if a record cannot be read, and others may be.
pub(in super::super) fn is_damage(error: &larder_store::Error) -> bool {
    matches!(error, larder_store::Error::Corrupt { .. } | larder_store::Error::Io { .. })
}
