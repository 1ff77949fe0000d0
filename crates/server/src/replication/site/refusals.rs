//! Connections between sites that end for a reason which does not pass by itself.

use larder_replication::link::Closed;
use larder_replication::wire::Refusal;

use super::Site;
use crate::shared::Shared;

impl Site {
    /// A connection has ended, with the site at this address, which is known if it has proven that it knows the token.
    /// The log has an error if somebody has to see to it. If another server has this site's number, the site takes no
    /// changes from here on.
    pub(in crate::replication) fn note_end(
        &self,
        shared: &Shared,
        address: &str,
        peer: Option<u8>,
        closed: &Closed,
    ) {
        // Who has not proven that it knows the token is not believed; who has is the other server itself, but for the
        // end of a connection of one that has another number.
        if closed.refusal == Refusal::SameSite && closed.by_peer == peer.is_some() {
            self.note_twin(&format!("{closed} (told at {address})"));
        }
        // An address of which nobody has answered yet may be that site's.
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
