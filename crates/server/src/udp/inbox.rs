//! Datagrams as they come, many at a time.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use arrayvec::ArrayVec;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};

use super::socket::Socket;

/// Room for what one call receives. Bound to its thread.
pub(super) struct Inbox {
    /// The kernel writes into these; rustix has no recvmmsg.
    headers: MultiHeaders<SockaddrStorage>,
    /// Pages that no datagram was long enough to touch take no memory.
    bytes: Vec<u8>,
    received: ArrayVec<Received, BATCH_DATAGRAMS_MAX>,
}

/// A datagram in the inbox.
#[derive(Clone, Copy)]
struct Received {
    bytes: usize,
    from: SocketAddr,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            headers: MultiHeaders::preallocate(BATCH_DATAGRAMS_MAX, None),
            bytes: vec![0; BATCH_DATAGRAMS_MAX * ROOM_BYTES],
            received: ArrayVec::new(),
        }
    }

    /// Receives what waits at a socket, up to a batch; false when there may be no more.
    pub(super) fn receive(&mut self, socket: &Socket) -> bool {
        self.received.clear();
        let mut rooms = self.bytes.chunks_exact_mut(ROOM_BYTES);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH_DATAGRAMS_MAX] =
            std::array::from_fn(|_| [IoSliceMut::new(rooms.next().unwrap_or_default())]);
        let fd = socket.as_fd().as_raw_fd();
        match recvmmsg(fd, &mut self.headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
            Ok(messages) => {
                let received = messages.map(|message| Received {
                    bytes: message.bytes,
                    from: message.address.and_then(to_std).unwrap_or(NOWHERE),
                });
                self.received.extend(received);
                self.received.is_full()
            }
            // What an earlier reply met, told by ICMP: what waits behind it is still to be received.
            Err(error) => !matches!(error, Errno::EAGAIN),
        }
    }

    /// What was received, and from whom.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = (&[u8], SocketAddr)> {
        let rooms = self.bytes.chunks_exact(ROOM_BYTES);
        rooms.zip(&self.received).map(|(room, received)| (&room[..received.bytes], received.from))
    }
}

fn to_std(address: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| (*address).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| (*address).into()))
}

/// Port 0 is nobody's: what seems to come from there is not answered.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
pub(super) const BATCH_DATAGRAMS_MAX: usize = 32;
/// Larger than any datagram can be, so none is cut; and no power of two, or all would begin in the same few lines of the core's cache.
const ROOM_BYTES: usize = (64 << 10) + 3 * 64;
