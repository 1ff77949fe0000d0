//! Opening connections at the start of a run. Opening many at once fills a server's accept queue.

use std::time::Duration;
use std::{io, thread};

use super::Thread;
use crate::run::RunError;

impl Thread {
    /// Opens all connections, a few at a time. Those that find no room are tried again, fewer at a time, as long as any
    /// thread makes progress.
    pub(super) fn connect(&mut self) -> Result<(), RunError> {
        let patience_nanos = (self.plan.truth().timeout_secs * 1e9) as u64;
        let mut at_once = AT_ONCE_MAX;
        let mut id = 0;
        while id < self.sockets.len() {
            match self.open(id) {
                Ok(()) => {
                    id += 1;
                    self.control.note_connected();
                    if id.is_multiple_of(at_once) {
                        thread::sleep(PAUSE);
                    }
                }
                Err(error)
                    if is_queue_full(&error)
                        && self.control.unconnected_nanos() < patience_nanos
                        && !self.control.is_stopped() =>
                {
                    self.tally.rest.connect_retries += 1;
                    at_once = (at_once / 2).max(1);
                    thread::sleep(PAUSE);
                }
                Err(error) => {
                    let reason = match id {
                        0 => error.to_string(),
                        _ => format!("connection {} of {}: {error}", id + 1, self.sockets.len()),
                    };
                    return Err(RunError::Server { address: self.address(id).into(), reason });
                }
            }
        }
        Ok(())
    }
}

/// True if a server, or this machine, accepts no more connections for the moment.
fn is_queue_full(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionReset, TimedOut, WouldBlock};
    matches!(error.kind(), AddrNotAvailable | ConnectionReset | TimedOut | WouldBlock)
}

/// Fewer than a server's accept queue usually holds.
const AT_ONCE_MAX: usize = 100;
const PAUSE: Duration = Duration::from_millis(2);
