//! A server's process on this machine, as /proc shows it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::ask::{Answers, Peer};
use crate::environment::field;

/// A process that was seen to be the server that answers.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
}

/// Resources that a process has used since its start. The kernel tells CPU time in steps of 10 ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) user_secs: f64,
    pub(super) system_secs: f64,
    /// Minor and major ones.
    pub(super) page_faults: u64,
}

impl Usage {
    pub(super) fn cpu_secs(self) -> f64 {
        self.user_secs + self.system_secs
    }
}

impl Process {
    /// The process of a server that runs here, and whose sockets we may see. The pid that `stats` names could be one of
    /// another machine or container, so it counts only if that process holds the socket that we are connected to.
    pub(super) fn find(answers: &Answers) -> Option<Self> {
        let pid = answers.stats.get("pid")?.parse().ok()?;
        let is_it = match answers.peer {
            Peer::Unix { pid: listener } => listener == pid,
            Peer::Tcp { local, server } => local.ip() == server.ip() && listens(pid, server),
        };
        is_it.then_some(Self { pid })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// What it has used. `None`: it is gone.
    pub(super) fn usage(&self) -> Option<Usage> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        // proc(5): the name in parentheses is the second field and may hold anything; minflt is the 10th, majflt the
        // 12th, utime and stime are the 14th and 15th.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks_per_sec = rustix::param::clock_ticks_per_second() as f64;
        Some(Usage {
            user_secs: field(14)? as f64 / ticks_per_sec,
            system_secs: field(15)? as f64 / ticks_per_sec,
            page_faults: field(10)? + field(12)?,
        })
    }

    /// Memory that is in RAM, shared pages included.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        let line = field(&format!("/proc/{}/status", self.pid), "VmRSS")?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024)
    }
}

/// Whether a process holds a socket that listens on the server's port.
fn listens(pid: u32, server: SocketAddr) -> bool {
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        sockets.extend(text.lines().skip(1).filter_map(|line| listener(line, server.port())));
    }
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|link| sockets.iter().any(|socket| link == Path::new(socket)))
}

/// `socket:[inode]`, if a line of /proc/net/tcp is of a socket that listens on a port.
fn listener(line: &str, port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, its_port) = fields.get(1)?.rsplit_once(':')?;
    let matches = u16::from_str_radix(its_port, 16) == Ok(port) && *fields.get(3)? == LISTEN;
    matches.then(|| format!("socket:[{}]", fields.get(9).unwrap_or(&"")))
}
