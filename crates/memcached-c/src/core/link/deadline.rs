//! The end of a wait.

use std::time::Instant;

use super::duration;

/// When a wait has to end.
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// So many milliseconds from now; negative: never.
    pub(super) fn after(timeout: i32) -> Self {
        Self(duration(timeout).and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    pub(super) fn has_passed(&self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}
