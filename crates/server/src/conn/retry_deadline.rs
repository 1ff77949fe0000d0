//! How long a request is tried again for want of memory.

use larder_engine::Turn;

/// How long the request at hand has waited for memory that is being reclaimed.
#[derive(Default)]
pub(crate) struct Patience {
    /// 0: it does not wait.
    since_secs: u32,
}

impl Patience {
    pub(crate) fn begin(&mut self, turn: &Turn<'_>) {
        if self.since_secs == 0 {
            self.since_secs = turn.now().secs;
        }
    }

    pub(crate) fn is_over(&self, turn: &Turn<'_>) -> bool {
        self.since_secs != 0 && turn.now().secs.saturating_sub(self.since_secs) > PATIENCE_SECS
    }
}

/// How long a request waits for memory that is being reclaimed, before it is told that there is none. Turns last
/// microseconds; only a thread that lost its core in the middle of one takes longer.
const PATIENCE_SECS: u32 = 2;
