//! The control plane: what the main thread does while the workers serve. Never on the path of a request.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::shared::Shared;
use crate::signals::{Asked, Signals};

/// How the server was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At once.
    Now,
    /// When the workers have finished what they are at.
    Gracefully,
}

/// Waits until a signal or the `shutdown` command stops the server.
pub fn run(shared: &Shared, signals: &Signals) -> io::Result<Stop> {
    loop {
        let mut watched =
            [PollFd::new(signals, PollFlags::IN), PollFd::new(shared.shutdown_wake(), PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let was_commanded = !watched[1].revents().is_empty();
        while let Some(asked) = signals.next() {
            match asked {
                Asked::Stop => return Ok(Stop::Now),
                Asked::StopGracefully => return Ok(Stop::Gracefully),
                Asked::Reload => {}
            }
        }
        if was_commanded {
            return Ok(if shared.shutdown_is_graceful() { Stop::Gracefully } else { Stop::Now });
        }
    }
}
