//! Memory nodes (NUMA): on a machine with several, the index is interleaved over them.

use std::fs;

use larder_engine::Engine;

/// Interleaves the memory that every worker reads over the nodes that this process runs on, if there are several and
/// the process has no memory policy yet. Call it before anything is stored.
pub fn spread(engine: &Engine) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let processors =
        |node| fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).unwrap_or_default();
    let nodes = nodes(&status, processors);
    if nodes.len() < 2 {
        return;
    }
    match engine.spread_over(&nodes) {
        Ok(true) => tracing::info!(nodes = ?nodes, "the index is spread over memory nodes"),
        Ok(false) => tracing::info!(nodes = ?nodes, "memory nodes are used as the process was told to"),
        Err(error) => tracing::info!(nodes = ?nodes, "the index is not spread over memory nodes: {error}"),
    }
}

/// The nodes of which this process may use memory and processors, by its `status` (proc(5)) and the processors of each
/// node. A node without usable processors (`taskset`, a cgroup's set) would only be far away.
fn nodes(status: &str, processors_of: impl Fn(u32) -> String) -> Vec<u32> {
    let allowed = |name| status.lines().find_map(|line| line.strip_prefix(name)).map_or(Vec::new(), numbers);
    let processors = allowed("Cpus_allowed_list:");
    let is_near = |node: &u32| numbers(&processors_of(*node)).iter().any(|one| processors.contains(one));
    allowed("Mems_allowed_list:").into_iter().filter(is_near).collect()
}

/// A list in the kernel's format: "0-1,3" (cpuset(7), "List format"). Empty if it is not a list.
fn numbers(list: &str) -> Vec<u32> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = list.trim().split(',').map(range).collect();
    ranges.into_iter().flatten().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(numbers("0\n"), [0]);
        assert_eq!(numbers("0-1,3"), [0, 1, 3]);
        assert_eq!(numbers("\t0-4,9\n"), [0, 1, 2, 3, 4, 9]);
        for empty in ["", "\n", "none", "1-", "0,x", "3-1"] {
            assert!(numbers(empty).is_empty(), "{empty:?}");
        }
    }

    /// Two nodes with four processors each, and one with memory only.
    fn processors(node: u32) -> String {
        ["0-3\n", "4-7\n", "\n"].get(node as usize).copied().unwrap_or_default().to_owned()
    }

    fn nodes_of(memory: &str, cpus: &str) -> Vec<u32> {
        let status = format!(
            "Name:\tlarderd\nCpus_allowed_list:\t{cpus}\nMems_allowed:\t7\nMems_allowed_list:\t{memory}\n"
        );
        nodes(&status, processors)
    }

    #[test]
    fn nodes_count_that_the_process_runs_on() {
        assert_eq!(nodes_of("0-2", "0-7"), [0, 1], "memory without processors is slow");
        assert_eq!(nodes_of("0-1", "2,5"), [0, 1]);
        assert_eq!(nodes_of("0-1", "0-3"), [0], "taskset, numactl --cpunodebind");
        assert_eq!(nodes_of("1", "0-7"), [1], "a cgroup's memory");
        assert_eq!(nodes_of("0", "0-1"), [0], "one node");
        assert!(nodes("", processors).is_empty(), "a kernel that does not tell");
    }
}
