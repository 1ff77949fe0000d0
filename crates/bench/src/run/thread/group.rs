//! What a load thread has of a group: whose turn it is, and how much may still be asked.

use std::collections::VecDeque;

use crate::run::control::Control;
use crate::run::schedule::Schedule;
use crate::scenario::Arrival;

/// A group, as far as one thread is concerned.
pub(crate) struct GroupState {
    /// `None`: a closed loop, or a group of which this thread has no lane.
    pub(crate) schedule: Option<Schedule>,
    /// With a schedule: lanes that have room, in the order in which they got it.
    pub(super) ready: VecDeque<usize>,
    /// Time on the run's clock since which at least one of these has been free.
    pub(super) ready_nanos: u64,
    /// Requests that may be asked without claiming more.
    pub(super) claimed: u64,
    pub(crate) is_open: bool,
}

impl GroupState {
    pub(super) fn new(arrival: Arrival) -> Self {
        Self {
            schedule: None,
            ready: VecDeque::new(),
            ready_nanos: 0,
            claimed: 0,
            is_open: matches!(arrival, Arrival::Open { .. }),
        }
    }

    /// Whether a request may be asked and counted; `index` is the group's, `threads` share what is left. Claims more
    /// where nothing is.
    #[inline]
    pub(super) fn may_ask(&mut self, control: &Control, index: usize, threads: usize) -> bool {
        if self.claimed == 0 {
            let wanted = control.claim_size(index, threads);
            self.claimed = control.claim(index, wanted);
        }
        self.claimed > 0
    }

    /// When something is to be asked, on the clock of the run. `u64::MAX`: not before an answer comes.
    #[inline]
    pub(super) fn next_nanos(&self) -> u64 {
        match &self.schedule {
            Some(schedule) if !self.ready.is_empty() => schedule.next_nanos(),
            _ => u64::MAX,
        }
    }
}
