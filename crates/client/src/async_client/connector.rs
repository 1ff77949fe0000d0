//! Connections over something other than the system's sockets.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::Address;

/// Opens connections in place of the system: over a tunnel, or in a simulation. See
/// [`AsyncBuilder::connector`](super::AsyncBuilder::connector).
pub trait Connector: Debug + Send + Sync {
    /// Connects to a server. It is dropped when the time for connecting is over.
    fn connect(&self, address: &Address) -> Connecting;
}

/// What becomes a connection.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>>;

/// The bytes of a connection, in both directions. Dropping it closes it.
pub trait Transport: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Unpin> Transport for T {}
