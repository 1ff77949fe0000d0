//! The time.

/// The clock.
pub struct Clock;
