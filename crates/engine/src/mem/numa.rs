//! Memory nodes (NUMA): from which of them the pages of a region come.
//!
//! By two system calls, for which neither `rustix` nor the C library has functions.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_ulong};
use std::io;

use crate::mem::region::Region;

/// The largest number for which Linux can be built (`CONFIG_NODES_SHIFT` is at most 10).
const NODES_MAX: usize = 1 << 10;
const WORD_BITS: usize = c_ulong::BITS as usize;

/// Nodes as the kernel takes them: one bit each.
type Mask = [c_ulong; NODES_MAX / WORD_BITS];

/// From now on new pages of the region come from these nodes in turn, whichever thread touches them first; existing
/// pages stay where they are. Errors: there are no such nodes, or the process may not set a policy (a container's
/// system call filter).
pub(crate) fn interleave(region: &Region, nodes: &[u32]) -> io::Result<()> {
    let mut mask: Mask = [0; NODES_MAX / WORD_BITS];
    for &node in nodes {
        let word = mask.get_mut(node as usize / WORD_BITS).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node as usize % WORD_BITS);
    }
    // SAFETY: the mapping is the region's own, and none of its bytes changes. The mask has the given length: the kernel
    // reads one bit less than it is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            region.base().as_ptr(),
            region.len_bytes(),
            c_long::from(libc::MPOL_INTERLEAVE),
            mask.as_ptr(),
            NODES_MAX + 1,
            0 as c_long,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True if a memory policy is set for this thread (`numactl`, systemd's `NUMAPolicy=`).
pub(crate) fn has_policy() -> io::Result<bool> {
    let mut policy: c_int = libc::MPOL_DEFAULT;
    let nothing = std::ptr::null_mut::<c_ulong>();
    // SAFETY: the kernel writes the policy's number, and no mask without a place for it.
    let result = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut policy, nothing, 0 as c_long, nothing, 0 as c_long)
    };
    if result == 0 { Ok(policy != libc::MPOL_DEFAULT) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::{Config, Engine, LargePages};

    /// Kernels without NUMA, and filters that forbid these calls, leave nothing to test.
    fn is_possible() -> bool {
        has_policy().inspect_err(|error| println!("not tested: {error}")).is_ok()
    }

    /// What the kernel reports of this region's mapping (numa(7), "/proc/pid/numa_maps").
    fn policy_of(region: &Region) -> String {
        let maps = std::fs::read_to_string("/proc/self/numa_maps").expect("a kernel with NUMA has it");
        let base = region.base().as_ptr() as usize;
        let mut mappings = maps.lines().filter_map(|line| line.split_once(' '));
        let is_up_to = |start: &str| usize::from_str_radix(start, 16).is_ok_and(|start| start <= base);
        mappings.rfind(|(start, _)| is_up_to(start)).expect("it is mapped").1.to_owned()
    }

    #[test]
    fn a_region_is_spread_over_the_nodes_there_are() {
        if is_possible() {
            let region = Region::reserve_committed(1 << 20).expect("address space");
            interleave(&region, &[0]).expect("there is a node 0");
            assert!(policy_of(&region).starts_with("interleave:0"), "{}", policy_of(&region));
        }
    }

    #[test]
    fn nodes_that_there_are_not_are_an_error() {
        let region = Region::reserve_committed(1 << 20).expect("address space");
        for nodes in [&[][..], &[1023], &[1024], &[u32::MAX]] {
            assert!(interleave(&region, nodes).is_err(), "{nodes:?}");
        }
    }

    #[test]
    fn a_policy_of_the_operator_stays() {
        if !is_possible() {
            return;
        }
        let config = Config {
            memory_bytes: 1 << 20,
            item_bytes_max: 1 << 10,
            evict: true,
            handles_max: 1,
            index_power: None,
            large_pages: LargePages::Filled,
            hash_key: [1, 2],
        };
        assert!(Engine::new(config.clone()).and_then(|engine| engine.spread_over(&[0])).expect("node 0"));
        // As after `numactl --membind=0`: a policy belongs to a thread, and those that it starts inherit it.
        let bound = std::thread::spawn(|| {
            let node_0: Mask = std::array::from_fn(|word| c_ulong::from(word == 0));
            let mode = c_long::from(libc::MPOL_BIND);
            // SAFETY: it is this thread's policy alone; the mask is as long as is said.
            let result =
                unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, node_0.as_ptr(), NODES_MAX + 1) };
            assert_eq!(result, 0);
            Engine::new(config).and_then(|engine| engine.spread_over(&[0]))
        });
        assert!(!bound.join().expect("it ends").expect("nothing was to be done"));
    }
}
