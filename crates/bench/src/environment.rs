//! The machine of a run, as far as its figures depend on it.

use std::fs;

use serde::{Deserialize, Serialize};

/// Properties of the machine for readers of a report. Empty where the system does not report them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Environment {
    /// Its name.
    pub host: String,
    /// The kernel: `Linux 6.1.0-21-amd64`.
    pub kernel: String,
    /// The processor's model.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Total memory.
    pub memory_bytes: u64,
    /// Version of the benchmark.
    pub larder: String,
}

impl Environment {
    /// This machine.
    pub fn here() -> Self {
        let system = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        Self {
            host: text(system.nodename()),
            kernel: format!("{} {}", text(system.sysname()), text(system.release())),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: field("/proc/meminfo", "MemTotal")
                .and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            larder: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// CPU time of this machine until now, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostCpu {
    used_ticks: u64,
    all_ticks: u64,
}

impl HostCpu {
    /// `None`: the kernel does not tell.
    pub(crate) fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The line `cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...` of /proc/stat. Guests are part of USER.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let idle_ticks = ticks.get(3)? + ticks.get(4)?;
        let all_ticks: u64 = ticks.iter().sum();
        Some(Self { used_ticks: all_ticks - idle_ticks, all_ticks })
    }

    /// The share of all processors that was used between two readings.
    pub(crate) fn share_since(self, before: Self) -> Option<f64> {
        let all_ticks = self.all_ticks.checked_sub(before.all_ticks).filter(|&ticks| ticks > 0)?;
        Some(self.used_ticks.saturating_sub(before.used_ticks) as f64 / all_ticks as f64)
    }
}

/// The value after the first `name:` of a file in /proc.
pub(crate) fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_machine_is_what_was_not_idle() {
        let read = |text| HostCpu::read(text).expect("a line of all processors");
        let before = read("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\n");
        // 60 of 100 ticks were used.
        let after = read("cpu  130 5 120 735 105 2 2 1 9 9\ncpu0 1 2 3 4\n");
        assert_eq!(after.share_since(before), Some(0.6));
        assert_eq!(before.share_since(before), None);
        assert_eq!(HostCpu::read("cpu0 1 2 3 4 5\n"), None);
    }
}
