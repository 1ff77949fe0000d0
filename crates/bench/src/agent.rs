//! Load from many machines: an agent on each, and a collector that sends them the scenario and adds up the results.
//!
//! ```text
//! collector                                         agent
//!           ◀── Hello (a random number) ────────────
//!            ─── Proof (another, and a proof of the token) ─────▶
//!           ◀── Proof (of the token, too) ──────────          token    later messages are authenticated
//!            ─── Clock ─▶ ◀─ Clock ── (some times)             clock    the difference of the clocks
//!            ─── Run: its share of the scenario ────▶          share
//!           ◀── Phase .. Ready ─────────────────────
//!            ─── Start: when, by the agent's clock ─▶          all begin within about a millisecond
//!           ◀── Period .. Done: the outcome ────────          merge
//! ```
//!
//! Anyone with the token can make an agent send load to any address that the agent's machine reaches, so agents listen
//! on 127.0.0.1 by default. Messages are authenticated, but not encrypted: if the scenario has a password, use a
//! private network.

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use std::{io, thread};

use crate::Error;

mod clock;
mod collector;
mod files;
mod merge;
mod message;
mod session;
mod share;
mod token;
mod wire;

pub use collector::collect;
pub use token::Token;

/// An agent that listens.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// Shared by the sessions of an agent.
#[derive(Debug)]
struct Shared {
    token: Token,
    allow_files: bool,
    /// A run is in progress: there is at most one.
    is_busy: AtomicBool,
    /// Connections that are open.
    sessions: AtomicUsize,
}

impl Agent {
    /// Listens on `address` (`host:port`). Without `allow_files`, a scenario that names files (traces, sizes, keys of
    /// TLS) is refused: its sender could read them through a server under load.
    ///
    /// # Errors
    /// The address is not one of this machine, or is in use.
    pub fn bind(address: &str, token: Token, allow_files: bool) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
        // So that `stop` is checked while no connection comes.
        listener.set_nonblocking(true)?;
        let (is_busy, sessions) = (AtomicBool::new(false), AtomicUsize::new(0));
        Ok(Self { listener, shared: Arc::new(Shared { token, allow_files, is_busy, sessions }) })
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves collectors until `stop` is set, which also stops a run in progress. `log` gets lines for the operator.
    ///
    /// # Errors
    /// The listener fails.
    pub fn serve(&self, log: &(dyn Fn(String) + Sync), stop: &AtomicBool) -> Result<(), Error> {
        thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                let (stream, peer) = match self.listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        thread::sleep(PATIENCE);
                        continue;
                    }
                    // The client has disconnected, or no descriptor is free for a while.
                    Err(error) => {
                        log(error.to_string());
                        thread::sleep(PATIENCE);
                        continue;
                    }
                };
                if self.shared.sessions.fetch_add(1, Ordering::Relaxed) >= SESSIONS_MAX {
                    self.shared.sessions.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                scope.spawn(move || {
                    if let Err(error) = session::serve(stream, &self.shared, stop) {
                        log(format!("{peer}: {error}"));
                    }
                    self.shared.sessions.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(())
    }
}

/// A connection to an agent.
fn connect(address: &str) -> Result<TcpStream, Error> {
    let mut reason = "no such host".to_owned();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason.into())
}

/// How often `stop` is checked.
const PATIENCE: Duration = Duration::from_millis(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of an agent at the same time. One without a proof is closed after a few seconds.
const SESSIONS_MAX: usize = 16;

#[cfg(test)]
mod tests;
