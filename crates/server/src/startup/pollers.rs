//! Makes the workers' pollers.

use std::io;

use crate::net::poller::Poller;
use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::settings::Settings;

/// One poller for each worker. Errors: exit code 71.
pub fn open(settings: &Settings) -> Result<Vec<Poller>, Refusal> {
    (0..settings.threads)
        .map(|_| Poller::new())
        .collect::<io::Result<_>>()
        .map_err(|error| Refusal::new(EXIT_OS_ERROR, format!("larderd: epoll: {error}")))
}
