//! How much address space the cache may set aside, where a limit is set (`ulimit -v`, `RLIMIT_AS`).

use std::fs;

use rustix::process::{Resource, getrlimit};

/// What is left for the cache when `threads` have what they need, and connections some; `u64::MAX` without a limit.
pub fn left_bytes(threads: usize) -> u64 {
    let Some(limit_bytes) = getrlimit(Resource::As).current else { return u64::MAX };
    let own_bytes = threads as u64 * THREAD_BYTES + CONNECTIONS_BYTES;
    limit_bytes.saturating_sub(used_bytes() + own_bytes)
}

/// Of the whole process (proc(5), /proc/pid/statm); 0 where that is not told.
fn used_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// A worker's stack (std::thread), its buffers, and what the allocator keeps for it.
const THREAD_BYTES: u64 = 4 << 20;
/// For who connects: some thousands that are idle, or a dozen that keep as much as one may.
const CONNECTIONS_BYTES: u64 = 64 << 20;
