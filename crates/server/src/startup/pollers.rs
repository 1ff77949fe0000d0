//! Makes the workers' pollers, and the refusal if the kernel has none for `--io`.

use std::io;

use crate::net::poller::Poller;
use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::settings::{Io, Settings};

/// Checks that the workers' pollers can be made. Call it before the process goes to the background (while stderr is
/// still connected) and before listeners are bound. Errors: exit code 71.
pub fn probe(settings: &Settings) -> Result<(), Refusal> {
    open(settings).map(drop)
}

/// One poller for each worker. Call it after the fork, which a ring does not survive, and before privileges are dropped
/// and the sandbox begins. Errors: exit code 71.
pub fn open(settings: &Settings) -> Result<Vec<Poller>, Refusal> {
    (0..settings.threads)
        .map(|_| Poller::new(settings.io))
        .collect::<io::Result<_>>()
        .map_err(|error| refusal(settings.io, &error))
}

fn refusal(io: Io, error: &io::Error) -> Refusal {
    let message = match io {
        Io::Epoll => format!("larderd: epoll: {error}"),
        Io::Uring => format!(
            "larderd: --io=uring: {error}: io_uring takes Linux 5.19 or later, kernel.io_uring_disabled=0, and a \
             container that does not forbid it; --io=epoll runs everywhere"
        ),
    };
    Refusal::new(EXIT_OS_ERROR, message)
}
