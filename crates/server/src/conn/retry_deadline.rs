//! How long a request is tried again for want of memory.

use larder_engine::Guard;

/// How long the request at hand has waited for memory that is being reclaimed.
#[derive(Default)]
pub(crate) struct RetryDeadline {
    /// 0: it does not wait.
    since_secs: u32,
}

impl RetryDeadline {
    pub(crate) fn begin(&mut self, guard: &Guard<'_>) {
        if self.since_secs == 0 {
            self.since_secs = guard.now().secs;
        }
    }

    pub(crate) fn is_over(&self, guard: &Guard<'_>) -> bool {
        self.since_secs != 0 && guard.now().secs.saturating_sub(self.since_secs) > RETRY_SECS
    }
}

/// How long a request waits for memory that is being reclaimed, before it is told that there is none. Turns last
/// microseconds; only a thread that lost its core in the middle of one takes longer.
const RETRY_SECS: u32 = 2;
