//! How much address space the cache sets aside.

use std::fs;

use larder_engine::Reservation;
use rustix::process::{Resource, getrlimit};

use crate::startup::machine_memory;

/// For a cache of `memory_bytes`: as much as the machine's memory could fill, so that `cache_memlimit` can raise the
/// limit so far. Where the process has a limit (`ulimit -v`, `ulimit -d`), a few times the memory, of what that leaves
/// when `threads` have what they need, and connections some.
pub fn reservation(memory_bytes: u64, threads: usize) -> Reservation {
    let limits = [Resource::As, Resource::Data].into_iter().filter_map(|resource| getrlimit(resource).current);
    let memory_bytes_max = machine_memory::memory_bytes();
    let Some(limit_bytes) = limits.min() else {
        return Reservation { memory_bytes_max, address_space_bytes: u64::MAX };
    };
    let own_bytes = threads as u64 * THREAD_BYTES + CONNECTIONS_BYTES;
    let modest = Reservation::modest(memory_bytes, limit_bytes.saturating_sub(used_bytes() + own_bytes));
    Reservation { memory_bytes_max: modest.memory_bytes_max.min(memory_bytes_max), ..modest }
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
