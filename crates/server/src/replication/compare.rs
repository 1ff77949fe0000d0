//! Comparing this site's store with a peer's, piece by piece, in the threads of their connections: what
//! `larder-replication` asks for, performed with the store.

mod answer;
mod ask;
mod figures;

use std::io;

use larder_policy::Table;
use larder_replication::compare::{STEP_BYTES, ScanRead, fingerprint, is_compared, leaf_of};
use larder_replication::state::State;
use larder_store::{Cursor, Store};

pub(super) use self::answer::{answer, is_damage};
pub(super) use self::ask::Comparer;
pub(crate) use self::figures::CompareFigures;
use super::publish::{is_told, state_of};

/// One step of the scan for digests. `unreadable` counts what the store could not read.
fn scan(
    store: &dyn Store,
    table: Option<&Table>,
    horizon: u64,
    position: &[u8],
    unreadable: &mut u64,
) -> io::Result<ScanRead> {
    let mut states = Vec::new();
    let position = visit_step(store, table, horizon, position, unreadable, &mut |key, state| {
        if let Some(fingerprint) = fingerprint(key, state) {
            states.push((leaf_of(key), fingerprint));
        }
    })?;
    Ok(ScanRead { states, position })
}

/// Takes keys and their states.
type Visit<'v> = dyn FnMut(&[u8], &State<&[u8]>) + 'v;

/// Visits the states of one step that are compared. Returns where the next step begins.
fn visit_step(
    store: &dyn Store,
    table: Option<&Table>,
    horizon: u64,
    position: &[u8],
    unreadable: &mut u64,
    visit: &mut Visit<'_>,
) -> io::Result<Option<Vec<u8>>> {
    let mut cursor = match position {
        [] => Cursor::new(),
        position => Cursor::decode(position).ok_or_else(|| io::Error::other("no position of a scan"))?,
    };
    let has_more = store
        .for_each_state(&mut cursor, STEP_BYTES, Some(unreadable), &mut |key, state, value| {
            // What cannot be read is counted.
            let Some(value) = value else { return };
            let state = state_of(state, value);
            if is_compared(&state, horizon) && is_told(table, key) {
                visit(key, &state);
            }
        })
        .map_err(io::Error::other)?;
    Ok(has_more.then(|| cursor.encode()))
}
