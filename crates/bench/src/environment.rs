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

/// The value after the first `name:` of a file in /proc.
pub(crate) fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_owned())
}
