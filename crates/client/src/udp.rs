//! UDP: which requests go over it, and what is done about its losses.
//!
//! A datagram may be lost, come twice, late, or before an earlier one. [`Udp::FireAndForget`] is libmemcached's answer:
//! it sends changes, and receives nothing. [`Udp::Gets`] receives: each get has a number that no other request of its
//! socket ever has, so that no late or foreign datagram is taken for its reply; what is not answered in time, or not
//! as it should be, is asked for over TCP.
//!
//! A client has one way for all its servers. They listen for UDP at the port of their TCP; unix sockets, TLS, logins
//! and connectors do not exist over UDP, and a client that has them as well refuses its requests. libmemcached refuses
//! the mixture in the same way: some keys could be read, and others not. [`Udp::FireAndForget`] has no warm-up either:
//! nothing tells that a value was deleted at its old place, and it would come back.
//!
//! ```no_run
//! # async fn example() -> Result<(), larder_client::Error> {
//! use std::time::Duration;
//! use larder_client::{Address, AsyncClient, Udp};
//!
//! let server = Address::Inet { host: "10.0.1.1".into(), port: 11211 };
//! let udp = Udp::Gets { wait: Duration::from_millis(20) };
//! let client = AsyncClient::builder().server(server).udp(udp).build();
//! let found = client.get("colour").await?;
//! # Ok(())
//! # }
//! ```

mod message;

use std::time::Duration;

use larder_protocol::udp::{COOKIE_MARK, DATAGRAM_BYTES_MAX, Header};
pub(crate) use message::{Doubtful, Message};

use crate::Error;
use crate::codec::Pipeline;

/// Which requests go over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Udp {
    /// Changes whose answers nobody needs: plain stores, flushes of all servers, and what is sent without a reply. All
    /// other requests are [`Error::Unsupported`]. Success means that the system has taken the datagram. Nothing
    /// repeats what is lost, and order is that of the network.
    FireAndForget,
    /// Gets, over TCP if nothing comes back in time. All other requests go over TCP.
    Gets {
        /// How long a reply may take before TCP is asked, and at most half of the time of the operation. So is a get
        /// for which there is no room: 64 are under way at a server at once.
        wait: Duration,
    },
}

/// What became of gets over UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpCounts {
    /// Gets that were sent.
    pub asked: u64,
    /// Gets that were answered; the others were asked for over TCP.
    pub answered: u64,
    /// Datagrams that belong to no get that waits: late ones, duplicates.
    pub stray: u64,
}

/// Writes a request as one datagram, without the frame's number: [`set_id`].
///
/// # Errors
/// It is too long.
pub(crate) fn write_datagram(
    cookie: Option<u64>,
    pipeline: &mut Pipeline<()>,
    write: impl FnOnce(&mut Pipeline<()>, &mut Vec<u8>),
) -> Result<Vec<u8>, Error> {
    let reserved = cookie.map_or(0, |_| COOKIE_MARK);
    let mut datagram = Header { request_id: 0, sequence: 0, total: 1, reserved }.to_bytes().to_vec();
    datagram.extend(cookie.iter().flat_map(|cookie| cookie.to_be_bytes()));
    write(pipeline, &mut datagram);
    match datagram.len() {
        0..=DATAGRAM_BYTES_MAX => Ok(datagram),
        bytes => Err(Error::DatagramTooLarge { bytes }),
    }
}

/// Numbers a datagram.
pub(crate) fn set_id(datagram: &mut [u8], id: u16) {
    datagram[..2].copy_from_slice(&id.to_be_bytes());
}
