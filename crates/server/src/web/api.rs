//! `/api/...`: the data of the page in JSON, also for scripts.

mod keys;
mod memory;
mod namespaces;
mod overview;
mod peers;
mod read_only;
mod sites;
mod store;
mod traffic;

use larder_protocol::http::Parameters;
use serde::Serialize;

use super::endpoint::AdminEndpoint;
use super::state::State;

/// Answers a path; `None`: it does not exist.
pub(super) fn answer(
    path: &str,
    query: &str,
    endpoint: &AdminEndpoint,
    state: &State,
) -> Option<serde_json::Result<Vec<u8>>> {
    let json = match path.strip_prefix("/api/")? {
        "overview" => json(&overview::overview(state)),
        "history" => json(&traffic::history(state, query)),
        "connections" => json(&traffic::connections(state)),
        "slow" => json(&traffic::slow(state)),
        "memory" => json(&memory::memory(state)),
        "curve" => json(&memory::curve(state)),
        "namespaces" => json(&namespaces::namespaces(state)),
        "peers" => json(&peers::peers(state)),
        "store" => json(&store::store(state)),
        "read-only" => json(&read_only::read_only(state)),
        "sites" => json(&sites::sites(state)),
        "keys" => json(&keys::keys(state, endpoint)),
        _ => return None,
    };
    Some(json)
}

/// Answers a request that changes something, by POST.
pub(super) async fn change(path: &str, query: &str, state: &State) -> Result<(), Refused> {
    if path == READ_ONLY { read_only::set(query, state) } else { namespaces::flush(query, state).await }
}

/// Why a change is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// A parameter is missing or malformed.
    BadQuery,
    /// There is no such namespace.
    NoSuchNamespace,
    /// `-F`.
    NotAllowed,
    /// What a client of the cache would be answered.
    Answered(larder_protocol::Error),
}

/// The paths of [`change`].
pub(super) const FLUSH: &str = "/api/flush";
pub(super) const READ_ONLY: &str = "/api/read-only";

fn json(answer: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(answer)
}

/// `None`: a query has another parameter than these, or one of them twice.
fn only_once_each(query: &str, names: &[&str]) -> Option<()> {
    let mut left = names.to_vec();
    for parameter in Parameters::of(query.as_bytes()) {
        let at = left.iter().position(|name| name.as_bytes() == parameter.name)?;
        left.swap_remove(at);
    }
    Some(())
}

/// The value of the first parameter of this name in a query.
fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q [u8]> {
    Parameters::of(query.as_bytes())
        .find(|parameter| parameter.name == name.as_bytes())
        .map(|parameter| parameter.value)
}
