//! `/api/peers`: the other servers that `--admin-peers` names.

use serde::Serialize;

use crate::web::peers::{Answer, Figures};
use crate::web::state::State;

#[derive(Serialize)]
pub(super) struct Peers {
    /// In the order of the command line.
    peers: Vec<Peer>,
}

#[derive(Serialize)]
struct Peer {
    /// As on the command line.
    address: String,
    /// Its page.
    url: String,
    /// This server itself, under the address that others use.
    is_own: bool,
    /// null: it has not answered yet, or `reason` says why it cannot be asked.
    figures: Option<Figures>,
    /// Why there are no figures; null: there are, or it is being asked.
    reason: Option<String>,
}

pub(super) fn peers(state: &State) -> Peers {
    let scheme = if state.shared.settings.admin.tls { "https" } else { "http" };
    let peers = state.peers.look().iter().map(|peer| {
        let (figures, reason) = match peer.latest() {
            Some(Answer { figures: Ok(figures), .. }) => (Some(figures), None),
            Some(Answer { figures: Err(reason), .. }) => (None, Some(reason)),
            None => (None, None),
        };
        Peer {
            address: peer.address.text.clone(),
            url: format!("{scheme}://{}/", peer.address.text),
            is_own: figures.as_ref().is_some_and(|figures| figures.process_id == state.process_id),
            figures,
            reason,
        }
    });
    Peers { peers: peers.collect() }
}
