//! Receives datagrams, many at a time.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use arrayvec::ArrayVec;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};

use super::socket::Socket;

/// The buffers of one receiving call at one socket. Bound to its thread.
pub(super) struct Inbox {
    /// The kernel writes into these; rustix has no recvmmsg. For one socket only: each header keeps the length of its
    /// last address, and the kernel would truncate an IPv6 address to that of an IPv4 one.
    headers: MultiHeaders<SockaddrStorage>,
    /// Pages that no datagram has reached take no memory.
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

    /// Receives the datagrams that wait at the socket, up to a batch. Replaces the earlier ones.
    pub(super) fn receive(&mut self, socket: &Socket) {
        self.received.clear();
        let mut rooms = self.bytes.chunks_exact_mut(ROOM_BYTES);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH_DATAGRAMS_MAX] =
            std::array::from_fn(|_| [IoSliceMut::new(rooms.next().unwrap_or_default())]);
        let fd = socket.as_fd().as_raw_fd();
        // Errors: nothing waits, or ICMP reports what happened to an earlier reply. The poller reports the datagrams
        // behind it again.
        let messages = recvmmsg(fd, &mut self.headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        self.received.extend(messages.into_iter().flatten().map(|message| Received {
            bytes: message.bytes,
            from: message.address.and_then(to_std).unwrap_or(NOWHERE),
        }));
    }

    /// The number of datagrams.
    pub(super) fn len(&self) -> usize {
        self.received.len()
    }

    /// The datagrams, with their sources.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = (&[u8], SocketAddr)> {
        let rooms = self.bytes.chunks_exact(ROOM_BYTES);
        rooms.zip(&self.received).map(|(room, received)| (&room[..received.bytes], received.from))
    }
}

fn to_std(address: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| (*address).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| (*address).into()))
}

/// Port 0 belongs to nobody: a datagram from it is not answered.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
/// Few: each call prepares all buffers, whether a datagram arrives or not.
pub(super) const BATCH_DATAGRAMS_MAX: usize = 16;
/// Larger than any datagram, so none is truncated; and no power of two, or all buffers would begin in the same sets of
/// the core's cache.
const ROOM_BYTES: usize = (64 << 10) + 3 * 64;
