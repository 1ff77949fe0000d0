//! Notifies systemd of our state: sd_notify(3), and the watchdog of sd_watchdog_enabled(3).
//!
//! The socket is opened at the start and kept: after `-o drop_privileges` no other could be opened.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The supervisor that started us and expects notifications; usually none.
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    /// How often it expects a sign of life.
    watchdog: Option<Duration>,
    fed: Instant,
}

impl Supervisor {
    /// The one that the environment names.
    pub fn of_environment() -> Self {
        let watchdog = watchdog().filter(|_| is_watched());
        Self { socket: connect(), watchdog, fed: Instant::now() }
    }

    /// Notifies it that we serve, at these addresses.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Notifies it that we read files again; [`Supervisor::reloaded`] follows.
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

    /// Sends the sign of life if it is due. Call it more than once in half of `WatchdogSec=`.
    pub(crate) fn live(&mut self) {
        if self.watchdog.is_some_and(|interval| self.fed.elapsed() >= interval / 2) {
            self.fed = Instant::now();
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            // If nobody reads it, it is lost.
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
    // It never blocks: a supervisor that hangs must not stop us.
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}

fn watchdog() -> Option<Duration> {
    let micros = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    Some(Duration::from_micros(micros))
}

/// True if the watchdog is for this process, and not for the one that started it.
fn is_watched() -> bool {
    env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string())
}
