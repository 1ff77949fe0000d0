//! Which writes a flush_all has taken away.

use std::time::{Duration, Instant};

/// What the clients know of the server's flushes. They send one at a time: a flush_all replaces one that is still
/// pending, and which of two came last nobody could tell.
#[derive(Default)]
pub(crate) struct Flushes {
    is_underway: bool,
    /// What was written before then is gone.
    gone_before: Option<Instant>,
    pending: Option<Pending>,
    /// What was written after this was not flushed, unless a flush is under way or pending.
    spares_after: Option<Instant>,
}

struct Pending {
    gone_before: Instant,
    due_by: Instant,
}

impl Flushes {
    /// Whether a flush_all may be sent now; if so, [`Flushes::end`] must follow.
    pub(crate) fn begin(&mut self) -> bool {
        if self.is_underway {
            return false;
        }
        self.gone_before();
        self.pending = None;
        self.is_underway = true;
        true
    }

    /// A flush_all was answered just now, and had not been sent before `sent`. `delay_secs`: 0 if it was to be at once.
    pub(crate) fn end(&mut self, sent: Instant, delay_secs: u32) {
        self.is_underway = false;
        self.spares_after = Some(Instant::now() + Duration::from_secs(u64::from(delay_secs) + 1));
        let delay = Duration::from_secs(delay_secs.into());
        // The server counts in whole seconds: a delay may seem up to one second shorter or longer.
        let gone_before = sent + delay.saturating_sub(Duration::from_secs(1));
        if delay_secs == 0 {
            self.gone_before = Some(gone_before);
        } else {
            self.pending =
                Some(Pending { gone_before, due_by: Instant::now() + delay + Duration::from_secs(1) });
        }
    }

    /// Whether no flush can have taken what was written then.
    pub(crate) fn spare(&self, written: Instant) -> bool {
        !self.is_underway && self.pending.is_none() && self.spares_after.is_none_or(|after| written > after)
    }

    /// What was written before then must be a miss. `None`: nothing was flushed yet.
    pub(crate) fn gone_before(&mut self) -> Option<Instant> {
        if let Some(pending) = self.pending.take_if(|pending| pending.due_by < Instant::now()) {
            self.gone_before = Some(pending.gone_before);
        }
        self.gone_before
    }
}
