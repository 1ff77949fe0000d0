//! Retiring: where a claimed segment or run whose items are all dead becomes reusable.
//!
//! Unsafe code lives here because what is retired will be overwritten. The invariant: each byte that was filled is
//! counted as dead once, as the index loses its item ([`crate::Guard::mark_dead`]) or as nobody will find it; so where
//! nothing is live, the index points to nothing.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Acquire;

use crate::engine::Engine;
use crate::log::segment::Claim;
use crate::sync::fence;

impl Engine {
    /// Retires a segment or run that was claimed, and of which nothing is live. What turns out to be live goes back to
    /// its queue.
    pub(crate) fn retire(&self, claim: Claim) {
        let segments = &self.arena.segments;
        // What was seen to be marked dead is counted.
        fence(Acquire);
        let live_bytes = segments.get(claim.id()).usage.live_bytes();
        debug_assert_eq!(live_bytes, 0, "all of it was unlinked");
        if live_bytes == 0 {
            // SAFETY: checked, see above; and what is claimed takes no new items.
            unsafe { self.arena.retire(claim) }
        } else if segments.is_run(claim.id()) {
            self.policy.requeue(segments, claim);
        } else {
            self.policy.put_back(segments, claim);
        }
    }
}
