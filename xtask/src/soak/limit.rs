//! The memory limit of a soak, which may be lowered and raised while it runs.

use std::time::{Duration, Instant};

use larder_conformance::Result;

use super::wire::Wire;

/// The limit that is in force.
pub(crate) struct Limit {
    /// The connection that changes it. `None`: it stays.
    wire: Option<Wire>,
    full_mib: u64,
    mib: u64,
    changed: Instant,
    /// Resident memory has been within its bound since then.
    is_kept: bool,
    lowered: u32,
    /// The longest time that it took until then.
    kept_after_max: Duration,
}

impl Limit {
    pub(crate) fn new(full_mib: u64, wire: Option<Wire>) -> Self {
        Self {
            wire,
            full_mib,
            mib: full_mib,
            changed: Instant::now(),
            is_kept: true,
            lowered: 0,
            kept_after_max: Duration::ZERO,
        }
    }

    /// Lowers or raises it, if that is due.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        let is_due = self.is_kept && self.changed.elapsed() >= INTERVAL;
        let Some(wire) = self.wire.as_mut().filter(|_| is_due) else { return Ok(()) };
        self.is_kept = self.mib < self.full_mib;
        self.mib = if self.is_kept { self.full_mib } else { self.full_mib / LOWERED_PART };
        wire.send(format!("cache_memlimit {}\r\n", self.mib).as_bytes())?;
        let line = wire.line()?;
        self.changed = Instant::now();
        if line == "OK" { Ok(()) } else { Err(format!("cache_memlimit was answered {line:?}").into()) }
    }

    /// Resident memory is so much. Returns the limit by which it is judged: the full one until a lowered one is kept,
    /// which may take a minute. `bytes_max`: how much it may be under a limit.
    pub(crate) fn judging_mib(&mut self, resident_bytes: u64, bytes_max: impl Fn(u64) -> u64) -> Result<u64> {
        let elapsed = self.changed.elapsed();
        if !self.is_kept && resident_bytes <= bytes_max(self.mib) {
            self.is_kept = true;
            self.lowered += 1;
            self.kept_after_max = self.kept_after_max.max(elapsed);
        }
        if !self.is_kept && elapsed > KEPT_WITHIN {
            return Err(format!("a limit of {} MiB is not kept after {elapsed:?}", self.mib).into());
        }
        Ok(if self.is_kept { self.mib } else { self.full_mib })
    }

    /// A line for the report. Empty: the limit stayed.
    pub(crate) fn report(&self) -> String {
        if self.wire.is_none() {
            return String::new();
        }
        let (lowered, secs) = (self.lowered, self.kept_after_max.as_secs_f64());
        format!("; -m lowered to a quarter {lowered} times, and kept after {secs:.1} s at most")
    }
}

/// Time for which a limit is in force; longer if it is not kept yet.
const INTERVAL: Duration = Duration::from_secs(7);
const LOWERED_PART: u64 = 4;
/// Long: the machine may be busy.
const KEPT_WITHIN: Duration = Duration::from_secs(60);
