//! `/api/read-only`: whether clients' changes are refused, for maintenance; by POST with `state=on` or `off` they are,
//! or no more.

use serde::Serialize;

use super::{Refused, only_once_each, parameter};
use crate::web::state::State;

#[derive(Serialize)]
pub(super) struct ReadOnly {
    is_read_only: bool,
    /// Since the start, or the last `stats reset`.
    refused: u64,
}

pub(super) fn read_only(state: &State) -> ReadOnly {
    ReadOnly { is_read_only: state.shared.is_read_only(), refused: state.shared.totals().refused_maintenance }
}

pub(super) fn set(query: &str, state: &State) -> Result<(), Refused> {
    only_once_each(query, &["state"]).ok_or(Refused::BadQuery)?;
    match parameter(query, "state") {
        Some(b"on") => state.shared.set_read_only(true),
        Some(b"off") => state.shared.set_read_only(false),
        _ => return Err(Refused::BadQuery),
    }
    Ok(())
}
