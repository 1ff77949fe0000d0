//! The memory limit of a soak, which may be lowered and raised while it runs.

use std::time::{Duration, Instant};

use larder_conformance::Result;

use super::wire::Wire;

/// The limit that is in force.
pub(crate) struct Limit {
    /// Who changes it. `None`: it stays.
    wire: Option<Wire>,
    full_mib: u64,
    mib: u64,
    changed: Instant,
    lowered: u32,
    /// How long resident memory was above what a lowered limit allows, at most.
    exceeded_max: Duration,
}

impl Limit {
    pub(crate) fn new(full_mib: u64, wire: Option<Wire>) -> Self {
        Self {
            wire,
            full_mib,
            mib: full_mib,
            changed: Instant::now(),
            lowered: 0,
            exceeded_max: Duration::ZERO,
        }
    }

    /// Lowers or raises it, if that is due.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        let Some(wire) = self.wire.as_mut().filter(|_| self.changed.elapsed() >= INTERVAL) else {
            return Ok(());
        };
        self.mib = if self.mib == self.full_mib { self.full_mib / LOWERED_PART } else { self.full_mib };
        self.lowered += u32::from(self.mib < self.full_mib);
        wire.send(format!("cache_memlimit {}\r\n", self.mib).as_bytes())?;
        let line = wire.line()?;
        self.changed = Instant::now();
        if line == "OK" { Ok(()) } else { Err(format!("cache_memlimit was answered {line:?}").into()) }
    }

    /// The highest limit that was in force within [`LATELY`].
    pub(crate) fn lately_mib(&self) -> u64 {
        if self.changed.elapsed() < LATELY { self.full_mib } else { self.mib }
    }

    /// Resident memory was so much, and `bytes_max` says how much it may be.
    pub(crate) fn note_resident(&mut self, bytes: u64, bytes_max: impl Fn(u64) -> u64) {
        if self.mib < self.full_mib && bytes > bytes_max(self.mib) {
            self.exceeded_max = self.exceeded_max.max(self.changed.elapsed());
        }
    }

    /// What came of it. Empty: it stayed.
    pub(crate) fn report(&self) -> String {
        if self.wire.is_none() {
            return String::new();
        }
        format!(
            "; -m lowered to a quarter {} times, and resident memory within its bound after at most {:.1} s",
            self.lowered,
            self.exceeded_max.as_secs_f64()
        )
    }
}

/// A lowered limit must be kept by then.
const LATELY: Duration = Duration::from_secs(5);
/// How long a limit is in force.
const INTERVAL: Duration = Duration::from_secs(7);
const LOWERED_PART: u64 = 4;
