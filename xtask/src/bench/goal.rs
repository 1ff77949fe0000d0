//! What larderd is to reach.

use std::fmt;

/// A bound, all of which are upper ones.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// Server CPU at most so many times the floor's.
    OfFloor(f64),
    /// Server CPU in microseconds an operation, as measured on the machine on which the goals were set.
    Micros(f64),
    /// At most so many times memcached's figure.
    OfMemcached(f64),
    /// In words: the row prints its own verdict.
    Words(&'static str),
}

/// larderd's figure and those it is held against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) larderd: f64,
    pub(super) memcached: f64,
    pub(super) floor: f64,
}

impl Goal {
    /// Whether it is reached; `None`: the row tells by itself.
    pub(super) fn is_met(self, figures: Figures) -> Option<bool> {
        match self {
            Self::OfFloor(times) => Some(figures.larderd <= figures.floor * times),
            Self::Micros(micros) => Some(figures.larderd <= micros),
            Self::OfMemcached(times) => Some(figures.larderd <= figures.memcached * times),
            Self::Words(_) => None,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfFloor(times) => write!(f, "at most {times} of the floor"),
            Self::Micros(micros) => write!(f, "at most {micros} us"),
            Self::OfMemcached(1.0) => write!(f, "at most memcached's"),
            Self::OfMemcached(times) => write!(f, "at most {times} of memcached's"),
            Self::Words(words) => f.write_str(words),
        }
    }
}
