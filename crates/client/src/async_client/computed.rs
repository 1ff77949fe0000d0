//! How a value is computed, and what comes of it.

use std::sync::Arc;
use std::time::Duration;
use std::{error, fmt};

use tokio::time::Instant;

use super::AsyncClient;
use super::observer::{Computation, ComputationResult};
use crate::value::Encoded;
use crate::{Error, Ttl};

/// Options of [`AsyncClient::get_or_compute_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeOptions {
    /// How long what was computed lives, unless it says so itself ([`Computed::ttl`]).
    pub ttl: Ttl,
    /// One reader computes the value anew once it lives no longer than this, while the others get the old one. Only in
    /// the meta protocol. Default: no reader does.
    pub before_expiry: Option<Duration>,
    /// The limit for the whole operation, and for the computation in it: also how long no other process computes the
    /// same. Default: 10 seconds.
    pub timeout: Duration,
    /// How long to wait for another process's computation before computing as well, since that process may have died.
    /// With an old value nobody waits: one task recomputes this long after this client first saw the lease taken, or
    /// its computation failed. More than computations usually take. Default: 5 seconds.
    pub wait: Duration,
}

impl Default for ComputeOptions {
    fn default() -> Self {
        Self {
            ttl: Ttl::Never,
            before_expiry: None,
            timeout: Duration::from_secs(10),
            wait: Duration::from_secs(5),
        }
    }
}

/// A value that was computed. Bytes and strings are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// The value.
    pub value: Vec<u8>,
    /// Returned with the value; opaque to the server.
    pub client_flags: u32,
    /// Its time to live, in place of [`ComputeOptions::ttl`].
    pub ttl: Option<Ttl>,
}

impl From<Vec<u8>> for Computed {
    fn from(value: Vec<u8>) -> Self {
        Self { value, ..Self::default() }
    }
}

impl From<String> for Computed {
    fn from(value: String) -> Self {
        value.into_bytes().into()
    }
}

impl From<&str> for Computed {
    fn from(value: &str) -> Self {
        value.as_bytes().to_vec().into()
    }
}

impl From<Encoded> for Computed {
    fn from(value: Encoded) -> Self {
        Self { value: value.bytes, client_flags: value.client_flags, ttl: None }
    }
}

/// Why there is no value.
#[derive(Debug)]
pub enum ComputeError<E> {
    /// The computation failed, for this task and all that waited for it.
    Computation(Arc<E>),
    /// [`Error::Timeout`]: the time was over. [`Error::InvalidKey`]: no item can have this key.
    Client(Error),
}

impl<E: fmt::Display> fmt::Display for ComputeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Computation(error) => error.fmt(f),
            Self::Client(error) => error.fmt(f),
        }
    }
}

impl<E: error::Error + 'static> error::Error for ComputeError<E> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Computation(error) => Some(&**error),
            Self::Client(error) => Some(error),
        }
    }
}

/// Tells the observer of a computation, however it ends.
pub(super) struct Telling<'a> {
    client: &'a AsyncClient,
    began: Instant,
    is_refresh: bool,
    is_told: bool,
}

impl<'a> Telling<'a> {
    pub(super) fn new(client: &'a AsyncClient, is_refresh: bool) -> Self {
        Self { client, began: Instant::now(), is_refresh, is_told: false }
    }

    pub(super) fn tell(mut self, result: ComputationResult<'_>) {
        self.is_told = true;
        self.tell_observer(result);
    }

    fn tell_observer(&self, result: ComputationResult<'_>) {
        let elapsed = self.began.elapsed();
        self.client.shared.tell_computed(Computation { elapsed, is_refresh: self.is_refresh, result });
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell_observer(ComputationResult::Cancelled);
        }
    }
}
