//! Random choices, all from one seed.

use fastrand::Rng;

/// What random choices are made of.
pub(crate) trait Choose {
    /// True in so many of a hundred cases.
    fn percent(&mut self, percent: u32) -> bool;
}

impl Choose for Rng {
    fn percent(&mut self, percent: u32) -> bool {
        self.u32(..100) < percent
    }
}
