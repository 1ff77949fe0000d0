//! Datagrams of the floor server.

use std::net::UdpSocket;

use larder_protocol::udp::{self, DATAGRAM_BYTES_MAX, Header, PAYLOAD_BYTES_MAX};

use super::reply::{Values, take};

/// Answers what has arrived, but not so many that TCP waits long.
pub(super) fn turn(socket: &UdpSocket, input: &mut [u8], output: &mut Vec<u8>, values: &Values) {
    for _ in 0..TURN_DATAGRAMS_MAX {
        let Ok((bytes, client)) = socket.recv_from(input) else { return };
        let Some((header, payload)) = udp::request(&input[..bytes]) else { continue };
        output.clear();
        let mut used = 0;
        while let Some(taken) = take(&payload[used..], values, output) {
            used = (used + taken.bytes + taken.block_bytes).min(payload.len());
        }

        let total = udp::datagrams(output.len()) as u16;
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        for (sequence, part) in output.chunks(PAYLOAD_BYTES_MAX).enumerate() {
            let frame =
                Header { request_id: header.request_id, sequence: sequence as u16, total, reserved: 0 };
            let (head, body) = datagram.split_at_mut(udp::HEADER_BYTES);
            head.copy_from_slice(&frame.to_bytes());
            body[..part.len()].copy_from_slice(part);
            // What the system does not take is lost, as datagrams may be.
            let _ = socket.send_to(&datagram[..udp::HEADER_BYTES + part.len()], client);
        }
    }
}

const TURN_DATAGRAMS_MAX: usize = 64;
