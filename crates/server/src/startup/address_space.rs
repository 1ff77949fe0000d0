//! How much address space the cache reserves.

use std::fs;

use larder_engine::{Reservation, commits_memory, segment_bytes, share_heap};
use rustix::process::{Resource, getrlimit};

use crate::startup::machine_memory;

/// The address space of a cache of `memory_bytes`:
///
/// - without limits: the machine's memory, so that `cache_memlimit` can raise the limit so far;
/// - with `ulimit -v` or `-d`: a few times the memory, of what the limit leaves beside the needs of `threads` and
///   connections;
/// - with `vm.overcommit_memory=2` ([`commits_memory`]): as much as the system allows mappings for, but at least a few
///   times the memory.
pub fn reservation(memory_bytes: u64, threads: usize) -> Reservation {
    let machine_bytes = machine_memory::memory_bytes();
    let modest = |left_bytes| {
        let modest = Reservation::modest(memory_bytes, left_bytes);
        Reservation { memory_bytes_max: modest.memory_bytes_max.min(machine_bytes), ..modest }
    };
    if let Some(limit_bytes) = limit_bytes() {
        let own_bytes = threads as u64 * THREAD_BYTES + CONNECTIONS_BYTES;
        return modest(limit_bytes.saturating_sub(used_bytes() + own_bytes));
    }
    let unlimited = Reservation { memory_bytes_max: machine_bytes, address_space_bytes: u64::MAX };
    if !commits_memory() {
        return unlimited;
    }
    // One handle for each worker, one for the background work.
    let segment_bytes = segment_bytes(memory_bytes as usize, threads + 1) as u64;
    let mapped_bytes = mapped_bytes(segment_bytes, number("/proc/sys/vm/max_map_count"));
    let memory_bytes_max = mapped_bytes.max(modest(u64::MAX).memory_bytes_max).min(machine_bytes);
    Reservation { memory_bytes_max, ..unlimited }
}

/// What a namespace with `share_bytes` of `memory_bytes` gets of the address space of all: where there is no limit,
/// room for a quota up to the whole memory.
pub fn part(whole: Reservation, share_bytes: u64, memory_bytes: u64) -> Reservation {
    if whole.address_space_bytes == u64::MAX && !commits_memory() {
        let memory_bytes_max = Reservation::modest(share_bytes, u64::MAX).memory_bytes_max.max(memory_bytes);
        return Reservation { memory_bytes_max, ..whole };
    }
    let part = |bytes: u64| match bytes {
        u64::MAX => u64::MAX,
        // No more than `bytes`.
        _ => (u128::from(bytes) * u128::from(share_bytes) / u128::from(memory_bytes.max(1))) as u64,
    };
    Reservation {
        memory_bytes_max: part(whole.memory_bytes_max),
        address_space_bytes: part(whole.address_space_bytes),
    }
}

/// Where addresses are limited, makes all threads share one heap: each further heap reserves addresses of its own. Call
/// it before threads are started.
pub fn share() {
    if limit_bytes().is_some() {
        share_heap();
    }
}

/// The limit of the process (`ulimit -v`, `ulimit -d`), if it has any.
fn limit_bytes() -> Option<u64> {
    let limits =
        [Resource::As, Resource::Data].into_iter().filter_map(|resource| getrlimit(resource).current);
    limits.min()
}

/// How much memory there are mappings for, at worst: where memory becomes writable as it is used, each segment may need
/// one, and each large item, of half a segment or more, two for its own.
fn mapped_bytes(segment_bytes: u64, mappings_max: Option<u64>) -> u64 {
    let left = mappings_max.unwrap_or(MAPPINGS_MAX_DEFAULT).saturating_sub(OWN_MAPPINGS);
    left / 4 * segment_bytes
}

fn number(file: &str) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
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
/// Of `vm.max_map_count`.
const MAPPINGS_MAX_DEFAULT: u64 = 65_530;
/// For programs, stacks and the heap: some hundred are in use.
const OWN_MAPPINGS: u64 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_left_for_the_heap() {
        // proc_sys_vm(5): 65530 by default. With segments of 128 KiB, as at -m 64, 30 times the memory.
        let segments = mapped_bytes(128 << 10, Some(65_530)) / (128 << 10);
        assert_eq!(segments, 15_358);
        // All in large items of half a segment: two items and four mappings for each segment of memory.
        assert!(4 * segments + 1_000 < 65_530);
        assert_eq!(mapped_bytes(1, Some(100)), 0);
        assert_eq!(mapped_bytes(1, None), mapped_bytes(1, Some(65_530)));
    }

    #[test]
    fn namespaces_divide_addresses_where_they_are_limited() {
        let limited = Reservation { memory_bytes_max: 400, address_space_bytes: 1_000 };
        let part = part(limited, 25, 100);
        assert_eq!((part.memory_bytes_max, part.address_space_bytes), (100, 250));
    }

    /// Debug builds commit memory on every system.
    #[test]
    fn a_cache_that_commits_memory_reserves_what_there_are_mappings_for() {
        if limit_bytes().is_some() || !commits_memory() {
            return;
        }
        let memory_bytes = 64 << 20;
        let segment_bytes = segment_bytes(memory_bytes as usize, 5) as u64;
        let mapped_bytes = mapped_bytes(segment_bytes, number("/proc/sys/vm/max_map_count"));
        let reserved_bytes = reservation(memory_bytes, 4).memory_bytes_max;
        assert!(reserved_bytes <= mapped_bytes.max(4 * memory_bytes), "{reserved_bytes}, {mapped_bytes}");
    }
}
