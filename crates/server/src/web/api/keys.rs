//! `/api/keys`: the busiest keys, and prefixes of keys.

use larder_measure::top::Hot;
use serde::Serialize;

use crate::web::endpoint::AdminEndpoint;
use crate::web::state::State;

#[derive(Serialize)]
pub(super) struct Keys {
    is_measured: bool,
    /// Not shown on this listener: see docs/admin.md.
    is_withheld: bool,
    /// The delimiter that ends a prefix (`-D`).
    prefix_delimiter: char,
    /// Most frequent first.
    keys: Vec<Share>,
    prefixes: Vec<Share>,
}

/// A key or prefix, and its recent number of requests.
#[derive(Serialize)]
struct Share {
    /// Bytes that are not text are escaped as in Rust: `\xff`.
    name: String,
    /// Estimated requests, at most; older ones count less.
    requests: u64,
    /// How much lower the true number may be.
    excess: u64,
}

pub(super) fn keys(state: &State, endpoint: &AdminEndpoint) -> Keys {
    let measures = &state.shared.measures;
    let is_measured = measures.measured().keys;
    let shares = |hot: Vec<Hot>| hot.iter().map(Share::of).collect();
    let (keys, prefixes) =
        if is_measured && endpoint.shows_keys { measures.busiest(ENTRIES_MAX) } else { Default::default() };
    Keys {
        is_measured,
        is_withheld: !endpoint.shows_keys,
        prefix_delimiter: char::from(state.shared.settings.prefix_delimiter),
        keys: shares(keys),
        prefixes: shares(prefixes),
    }
}

impl Share {
    fn of(hot: &Hot) -> Self {
        let name = match std::str::from_utf8(&hot.key) {
            Ok(text) if !text.contains(char::is_control) => text.to_owned(),
            _ => hot.key.escape_ascii().to_string(),
        };
        Self { name, requests: hot.count, excess: hot.excess }
    }
}

const ENTRIES_MAX: usize = 20;
