//! Connections between sites that end for a reason which does not pass by itself.

use larder_replication::link::Closed;
use larder_replication::wire::Refusal;

use super::Site;
use crate::shared::Shared;

impl Site {
    /// Notes the end of a connection with the site at this address. `peer` is known if the site has proven that it
    /// knows the token. An error is logged if an operator has to act. If another server has this site's number, the
    /// site takes no changes from here on.
    pub(in crate::replication) fn note_end(
        &self,
        shared: &Shared,
        address: &str,
        peer: Option<u8>,
        closed: &Closed,
    ) {
        // A claim of a peer that has not proven that it knows the token is not believed. If this site ends the
        // connection with a known peer, the clash is about the peer's number, not this site's.
        if closed.refusal == Refusal::SameSite && closed.by_peer == peer.is_some() {
            self.note_twin(&format!("{closed} (told at {address})"));
        }
        // A peer's address at which no site has answered yet may belong to that site.
        let may_be_known_soon = closed.refusal == Refusal::UnknownSite
            && (closed.by_peer || self.peers().values().any(|peer| peer.site == 0));
        if !closed.refusal.stays() || may_be_known_soon {
            tracing::info!(address, site = peer, "a peer's connection ends: {closed}");
        } else if let Some(times) = self.refusals[closed.refusal as usize].happened(shared.clock.now().secs) {
            let by =
                if closed.by_peer { "the other site refuses this one" } else { "the other site is refused" };
            tracing::error!(address, site = peer, times, "{by}: {closed}");
        }
    }
}
