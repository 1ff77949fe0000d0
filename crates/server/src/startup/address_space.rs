//! How much address space the cache may reserve under a limit (`ulimit -v`, `RLIMIT_AS`).

use std::fs;

use rustix::process::{Resource, getrlimit};

/// The address space left for the cache, beside that of `threads` and connections; `u64::MAX` without a limit.
pub fn left_bytes(threads: usize) -> u64 {
    let Some(limit_bytes) = getrlimit(Resource::As).current else { return u64::MAX };
    let own_bytes = threads as u64 * THREAD_BYTES + CONNECTIONS_BYTES;
    limit_bytes.saturating_sub(used_bytes() + own_bytes)
}

/// Address space of the whole process (proc(5), /proc/pid/statm); 0 if it cannot be read.
fn used_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// A worker's stack (std::thread), its buffers, and its share of the allocator's.
const THREAD_BYTES: u64 = 4 << 20;
/// For connections: some thousands that are idle, or a dozen with the largest buffers.
const CONNECTIONS_BYTES: u64 = 64 << 20;
