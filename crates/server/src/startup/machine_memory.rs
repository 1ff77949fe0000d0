//! The memory of the machine, or that of the process's control group (container, systemd unit), if that is less.

use std::fs;
use std::path::Path;

use rustix::system::sysinfo;

/// In bytes.
pub fn memory_bytes() -> u64 {
    let info = sysinfo();
    let machine_bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limits(&groups, |path| fs::read_to_string(path).ok()).fold(machine_bytes, u64::min)
}

/// The limits of the groups that /proc/self/cgroup names (cgroups(7)), and of those above them, where they are mounted
/// as usual. In a container the path may be the host's; the container's own group is then the topmost.
fn group_limits(groups: &str, read: impl Fn(&Path) -> Option<String>) -> impl Iterator<Item = u64> {
    let group = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let paths = Path::new(path.trim_start_matches('/')).ancestors();
        Some(paths.map(|path| Path::new(mount).join(path).join(file)).collect::<Vec<_>>())
    };
    let files: Vec<_> = groups.lines().filter_map(group).flatten().collect();
    // "max" is no limit; nor is the largest number of pages, of the first version of control groups.
    files.into_iter().filter_map(move |file| read(&file)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn limits(groups: &str, files: &[(&str, &str)]) -> Vec<u64> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some(file.1.to_owned())
        };
        group_limits(groups, read).collect()
    }

    #[test]
    fn the_memory_is_some_of_the_machines() {
        let machine = fs::read_to_string("/proc/meminfo").expect("Linux");
        let line = machine.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("a total");
        let machine_kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!((1 << 20..=machine_kib << 10).contains(&memory_bytes()));
    }

    #[test]
    fn a_group_and_those_above_it_count() {
        let files = [
            ("/sys/fs/cgroup/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "8589934592\n"),
            ("/sys/fs/cgroup/system.slice/larderd.service/memory.max", "4294967296\n"),
            ("/sys/fs/cgroup/other/memory.max", "1\n"),
        ];
        assert_eq!(limits("0::/system.slice/larderd.service\n", &files), [4 * GIB, 8 * GIB]);
        assert_eq!(limits("0::/system.slice/none.service\n", &files), [8 * GIB]);
        assert!(limits("0::/\n", &files).is_empty());
    }

    #[test]
    fn groups_of_the_first_version_count() {
        let groups = "5:cpu,cpuacct:/a\n4:memory:/docker/0123\n0::/docker/0123\n";
        let files = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(limits(groups, &files), [GIB], "the container sees its own group as the topmost");
    }

    #[test]
    fn what_is_no_list_of_groups_limits_nothing() {
        for groups in ["", "\n", "0\n", "0:\n", "::", "4:memory\n", "max\n"] {
            assert!(limits(groups, &[]).is_empty(), "{groups:?}");
        }
    }
}
