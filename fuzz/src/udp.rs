//! The frame of UDP.

use larder_protocol::udp::{self as frame, DATAGRAM_BYTES_MAX, HEADER_BYTES};

use crate::text;

/// A datagram.
pub fn udp(datagram: &[u8]) {
    let Some((header, payload)) = frame::request(datagram) else { return };
    assert_eq!(header.total, 1);
    assert_eq!([&header.to_bytes()[..], payload].concat(), datagram);
    if let Some((_, rest)) = frame::split_cookie(payload) {
        assert!(rest.len() < payload.len());
    }
    // A reply fits its datagrams.
    let reply_bytes = payload.len() * 31;
    let datagrams = frame::datagrams(reply_bytes);
    assert_eq!(frame::framed_bytes(reply_bytes), reply_bytes + datagrams * HEADER_BYTES);
    assert!(datagrams * DATAGRAM_BYTES_MAX >= frame::framed_bytes(reply_bytes));
    text(payload);
}
