//! Sends datagrams, many at a time.

use std::io::IoSlice;
use std::net::SocketAddr;

use arrayvec::ArrayVec;
use larder_protocol::udp::{self, Header, PAYLOAD_BYTES_MAX};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};

use super::socket::Socket;

/// Datagrams that are sent together.
#[derive(Default)]
pub(super) struct Outbox {
    /// The datagrams, back to back.
    bytes: Vec<u8>,
    addressed: Vec<Addressed>,
}

/// A datagram: its end and its destination. It begins where the one before ends.
struct Addressed {
    end: usize,
    to: SocketAddr,
}

impl Outbox {
    /// Adds a reply, framed. An empty reply takes no datagram.
    pub(super) fn push_reply(&mut self, to: SocketAddr, request_id: u16, reply: &[u8]) {
        // Replies are bounded, so their datagrams can be numbered.
        let total = u16::try_from(udp::datagrams(reply.len())).unwrap_or(u16::MAX);
        for (sequence, payload) in (0..total).zip(reply.chunks(PAYLOAD_BYTES_MAX)) {
            let header = Header { request_id, sequence, total, reserved: 0 };
            self.bytes.extend_from_slice(&header.to_bytes());
            self.bytes.extend_from_slice(payload);
            self.addressed.push(Addressed { end: self.bytes.len(), to });
        }
    }

    /// Adds one datagram unchanged.
    pub(super) fn push(&mut self, to: SocketAddr, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.addressed.push(Addressed { end: self.bytes.len(), to });
    }

    /// True if it should be sent before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= OUTBOX_BYTES_MAX
    }

    /// Sends everything and returns how many bytes that was. Datagrams that the socket has no room for are lost, as
    /// datagrams may be: waiting would let one slow client delay all.
    pub(super) fn send(&mut self, socket: &Socket) -> usize {
        let (mut at, mut from, mut sent_bytes) = (0, 0, 0);
        while at < self.addressed.len() {
            let batch = &self.addressed[at..self.addressed.len().min(at + BATCH_DATAGRAMS_MAX)];
            let Some(sent) = self.send_batch(socket, batch, from) else { break };
            // A datagram that cannot be sent at all, to port 0 for example, must not stop those after it.
            let done = sent.max(1);
            let end = batch[done - 1].end;
            if sent > 0 {
                sent_bytes += end - from;
            }
            (at, from) = (at + done, end);
        }
        self.bytes.clear();
        self.bytes.shrink_to(2 * OUTBOX_BYTES_MAX);
        self.addressed.clear();
        sent_bytes
    }

    /// Sends some datagrams, the first of which begins at `from`. Returns how many. `None`: the socket has no room.
    fn send_batch(&self, socket: &Socket, batch: &[Addressed], mut from: usize) -> Option<usize> {
        let mut addresses = ArrayVec::<SocketAddrAny, BATCH_DATAGRAMS_MAX>::new();
        let mut payloads = ArrayVec::<[IoSlice<'_>; 1], BATCH_DATAGRAMS_MAX>::new();
        let mut controls = ArrayVec::<SendAncillaryBuffer<'_, '_, '_>, BATCH_DATAGRAMS_MAX>::new();
        for Addressed { end, to } in batch {
            addresses.push((*to).into());
            payloads.push([IoSlice::new(&self.bytes[from..*end])]);
            controls.push(SendAncillaryBuffer::default());
            from = *end;
        }
        let mut messages: ArrayVec<MMsgHdr<'_>, BATCH_DATAGRAMS_MAX> = addresses
            .iter()
            .zip(&payloads)
            .zip(&mut controls)
            .map(|((address, payload), control)| MMsgHdr::new_with_addr(address, payload, control))
            .collect();
        loop {
            return match sendmmsg(socket, &mut messages, SendFlags::DONTWAIT) {
                Ok(sent) => Some(sent),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS) => None,
                Err(_) => Some(0),
            };
        }
    }
}

const BATCH_DATAGRAMS_MAX: usize = 32;
/// Beyond this, replies are sent before more requests are executed.
const OUTBOX_BYTES_MAX: usize = 256 << 10;
