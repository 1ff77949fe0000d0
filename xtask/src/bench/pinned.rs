//! Programs that are no memcached, each on a core of its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_conformance::Result;

/// A server on one core; killed when dropped.
pub(super) struct Pinned(Child);

impl Pinned {
    /// Starts a command that [`on_core`] began.
    pub(super) fn start(mut command: Command) -> Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that runs `program` on one core; its arguments are to be added.
pub(super) fn on_core(core: usize, program: impl AsRef<Path>) -> Command {
    let mut taskset = Command::new("taskset");
    // It executes the program in its own process, so that the pid is the program's.
    taskset.args(["--cpu-list", &core.to_string()]).arg(program.as_ref());
    taskset
}

/// User and system time of a process with all its threads, in steps of 10 ms.
pub(super) fn cpu_secs(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // proc(5): the name in parentheses may hold anything; utime and stime are the 14th and 15th field.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().skip(11);
    let ticks = fields.take(2).map(str::parse::<u64>).sum::<std::result::Result<u64, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
