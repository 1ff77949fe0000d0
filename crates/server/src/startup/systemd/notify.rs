//! Telling systemd how we are: sd_notify(3), and the watchdog of sd_watchdog_enabled(3).
//!
//! The socket is opened at the start and kept: once rights are given up (`-o drop_privileges`) no other could be.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Who started us and wants to hear of us; mostly nobody.
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    /// So often it wants a sign of life.
    watchdog: Option<Duration>,
    fed: Instant,
}

impl Supervisor {
    /// The one that the environment names.
    pub fn of_environment() -> Self {
        let watchdog = watchdog().filter(|_| is_watched());
        Self { socket: connect(), watchdog, fed: Instant::now() }
    }

    /// We serve, at these addresses.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// We read files again; [`Supervisor::reloaded`] follows.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    pub(crate) fn reloaded(&self) {
        self.tell("READY=1");
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Gives the sign of life if it is due. To be called more than once in half of what `WatchdogSec=` says.
    pub(crate) fn live(&mut self) {
        if self.watchdog.is_some_and(|interval| self.fed.elapsed() >= interval / 2) {
            self.fed = Instant::now();
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            // Whoever does not listen misses it.
            let _ = socket.send(state.as_bytes());
        }
    }
}

fn connect() -> Option<UnixDatagram> {
    let name = env::var("NOTIFY_SOCKET").ok()?;
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    // It never blocks us: a supervisor that is stuck must not be waited for.
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}

fn watchdog() -> Option<Duration> {
    let micros = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    Some(Duration::from_micros(micros))
}

/// Is it us who are watched, and not who started us?
fn is_watched() -> bool {
    env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string())
}
