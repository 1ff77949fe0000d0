//! Starting a contestant and stopping it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::mean::mean_value_bytes;
use super::{Contestant, Place};
use crate::Error;
use crate::scenario::{Scenario, Transport};

/// How servers are started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Cores on which servers run. Empty: wherever the system puts them.
    pub cores: Vec<usize>,
    /// The program and the arguments that make it the floor server; `-p PORT --value-bytes N` is appended.
    pub floor: Vec<OsString>,
}

impl Default for Launch {
    /// Any core; the floor server is `<this program> bench --floor`.
    fn default() -> Self {
        let this = env::current_exe().unwrap_or_else(|_| "larder".into());
        Self { cores: Vec::new(), floor: vec![this.into(), "bench".into(), "--floor".into()] }
    }
}

/// A server that can be asked. Dropping it kills the process, if it was started for this.
#[derive(Debug)]
pub struct Running {
    /// For [`crate::scenario::Target::servers`].
    pub addresses: Vec<String>,
    child: Option<Child>,
    /// Its port, which nobody else is given as long as it runs.
    _port: Option<Port>,
}

impl Running {
    /// The process, if it was started for this.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself, which whoever asked it has seen.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Launch {
    /// Starts it, unless it runs already, and waits until it accepts connections. A started server listens on a free
    /// port of 127.0.0.1, for TCP and (if the scenario needs it) for UDP, or on the unix socket that its own `-s`
    /// names. As root it is told `-u nobody`, without which memcached refuses.
    pub fn start(&self, contestant: &Contestant, scenario: &Scenario) -> Result<Running, Error> {
        match &contestant.place {
            Place::Contacted(addresses) => {
                Ok(Running { addresses: addresses.clone(), child: None, _port: None })
            }
            Place::Started(words) => self.start_program(words, scenario),
            Place::Floor => self.start_floor(scenario),
        }
    }

    fn start_program(&self, words: &[String], scenario: &Scenario) -> Result<Running, Error> {
        let [program, arguments @ ..] = words else { return Err("a command line without a program".into()) };
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1"]);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        command.args(arguments);
        if let Some(path) = socket_path(arguments) {
            return self.spawn(command, path.to_owned(), None);
        }
        let port = Port::take()?;
        let port_word = port.number.to_string();
        // Of an option given twice the last one counts.
        let udp = scenario.groups.iter().any(|group| group.transport != Transport::Tcp);
        command.args(["-p", &port_word, "-U", if udp { &port_word } else { "0" }]);
        self.spawn(command, format!("127.0.0.1:{port_word}"), Some(port))
    }

    /// The floor server answers every get with a value of the length that the scenario has on average.
    fn start_floor(&self, scenario: &Scenario) -> Result<Running, Error> {
        let [program, arguments @ ..] = self.floor.as_slice() else {
            return Err("there is no floor server".into());
        };
        let port = Port::take()?;
        let mut command = Command::new(program);
        command.args(arguments).args(["-p", &port.number.to_string()]);
        command.args(["--value-bytes", &mean_value_bytes(scenario).to_string()]);
        self.spawn(command, format!("127.0.0.1:{}", port.number), Some(port))
    }

    fn spawn(&self, mut command: Command, address: String, port: Option<Port>) -> Result<Running, Error> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let program = command.get_program().to_string_lossy().into_owned();
        let pinned = Pinned::to(&self.cores)?;
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound if !program.contains('/') => {
                format!(
                    "{program}: no such program; a running server is named by its port, as {program}:11211"
                )
            }
            _ => format!("cannot start {program}: {error}"),
        })?;
        drop(pinned);

        let deadline = Instant::now() + START_TIMEOUT;
        let mut running = loop {
            if accepts(&address) {
                break Running { addresses: vec![address], child: Some(child), _port: port };
            }
            if let Some(status) = child.try_wait()? {
                return Err(format!("{program} did not start: {status}").into());
            }
            if Instant::now() > deadline {
                drop(Running { addresses: Vec::new(), child: Some(child), _port: port });
                return Err(format!("{program} does not listen on {address} after {START_TIMEOUT:?}").into());
            }
            thread::sleep(Duration::from_millis(2));
        };
        // Whoever accepts may be another process, to which the port was given in between.
        if let Some(status) = running.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
            return Err(format!("{program} did not start: {status}").into());
        }
        Ok(running)
    }
}

/// Keeps the calling thread on certain cores until it is dropped. Threads and programs that it starts meanwhile inherit
/// that.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: Option<CpuSet>,
}

impl Pinned {
    /// No cores: wherever the system puts it. Errors: a core that is not there, or not for this process.
    pub(crate) fn to(cores: &[usize]) -> Result<Self, Error> {
        if cores.is_empty() {
            return Ok(Self { before: None });
        }
        let before = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        for &core in cores.iter().filter(|&&core| core < CpuSet::MAX_CPU) {
            set.set(core);
        }
        sched_setaffinity(None, &set).map_err(|error| format!("cannot run on cores {cores:?}: {error}"))?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // What was allowed before is allowed now.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// What follows `-s`, memcached's option for a unix socket.
fn socket_path(arguments: &[String]) -> Option<&str> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "-s" {
            return words.next().map(String::as_str);
        }
        if let Some(path) = word.strip_prefix("--unix-socket=") {
            return Some(path);
        }
    }
    None
}

/// A port of 127.0.0.1 that is free for TCP and UDP alike. It is kept until this is dropped, so that nobody else is
/// given it before the server has it. The server binds it all the same, if it sets SO_REUSEADDR, as servers do.
/// `free_port` in conformance/src/server.rs is the same: change both together.
#[derive(Debug)]
struct Port {
    number: u16,
    _socket: OwnedFd,
}

impl Port {
    /// Errors: none is free.
    fn take() -> Result<Self, Error> {
        // Below those that Linux gives to sockets that ask for any (`ip_local_port_range`).
        let mut numbers = std::iter::repeat_with(|| fastrand::u16(10_000..32_768)).take(1000);
        numbers.find_map(Self::of).ok_or_else(|| "no port is free".into())
    }

    fn of(number: u16) -> Option<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        let socket =
            net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
        net::bind(&socket, &address).ok()?;
        // Only now: with it, a port that another process keeps in this way would be had as well.
        net::sockopt::set_socket_reuseaddr(&socket, true).ok()?;
        UdpSocket::bind(address).ok()?;
        Some(Self { number, _socket: socket })
    }
}

fn accepts(address: &str) -> bool {
    if address.contains('/') {
        UnixStream::connect(address).is_ok()
    } else {
        TcpStream::connect(address).is_ok()
    }
}

const START_TIMEOUT: Duration = Duration::from_secs(10);
