//! The pollers of the workers, where the kernel has what `--io` asks for.

use std::io;

use crate::net::poller::Poller;
use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::settings::{Io, Settings};

/// Whether there will be pollers, to be asked while whoever started us still listens. Errors: exit code 71.
pub fn probe(settings: &Settings) -> Result<(), Refusal> {
    Poller::new(settings.io).map(drop).map_err(|error| refusal(settings.io, &error))
}

/// One for each worker. To be called in the process that will serve, since a ring does not survive a fork, and before
/// rights are given up and fences set: making a ring is no part of serving. Errors: exit code 71.
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
