//! What processes use.

use std::fs;
use std::process::Child;

use larder_conformance::Result;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// CPU seconds of a process until now, user and system, all threads. The kernel tells them in steps of 10 ms.
pub(crate) fn cpu_secs(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // proc(5): the name in parentheses is the second field and may hold anything; utime and stime are the 14th and
    // 15th.
    let fields = stat.rsplit_once(')').ok_or("/proc has no name of a process")?.1;
    let mut ticks = 0.0;
    for field in fields.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<f64>()?;
    }
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// Waits until it has ended, and reads what it used before the system forgets.
pub(crate) fn cpu_secs_at_end(child: &Child) -> Result<f64> {
    waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    cpu_secs(child.id())
}
