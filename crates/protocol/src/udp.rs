//! The frame around requests and replies that travel by UDP. Source: memcached, doc/protocol.txt, "UDP protocol".
//!
//! Eight bytes before the payload of every datagram: request id, sequence number, number of datagrams, reserved; each
//! 16 bits, big-endian. A request is one datagram. A reply is as many as it needs, with the request's id, and its
//! payloads in the order of their sequence numbers are what would come by TCP.

/// Size of the frame.
pub const HEADER_BYTES: usize = 8;
/// The largest datagram of a reply, header included: it fits any Ethernet without fragments.
pub const DATAGRAM_BYTES_MAX: usize = 1400;
/// The most payload that a datagram of a reply carries.
pub const PAYLOAD_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;

/// What [`Header::reserved`] holds where the payload starts with a cookie. larder's own, and only in its cookie mode;
/// all other clients and servers send 0.
pub const COOKIE_MARK: u16 = 0x436b;
/// Size of a cookie.
pub const COOKIE_BYTES: usize = 8;
/// Size of a datagram that brings a client its cookie.
pub const CHALLENGE_BYTES: usize = HEADER_BYTES + COOKIE_BYTES;

/// The frame of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client's number for the request, in all datagrams of the reply.
    pub request_id: u16,
    /// Place of this datagram among those of its message, from 0.
    pub sequence: u16,
    /// Datagrams of the message.
    pub total: u16,
    /// 0, but for what a server may agree on with its clients.
    pub reserved: u16,
}

impl Header {
    /// The header at the head of a datagram, and the payload. `None`: too short for one.
    pub fn split(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (header, payload) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let [a, b, c, d, e, f, g, h] = *header;
        let header = Self {
            request_id: u16::from_be_bytes([a, b]),
            sequence: u16::from_be_bytes([c, d]),
            total: u16::from_be_bytes([e, f]),
            reserved: u16::from_be_bytes([g, h]),
        };
        Some((header, payload))
    }

    /// The header as it is sent.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [a, b] = self.request_id.to_be_bytes();
        let [c, d] = self.sequence.to_be_bytes();
        let [e, f] = self.total.to_be_bytes();
        let [g, h] = self.reserved.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }
}

/// The header and the payload of a request. `None`: to be dropped, as memcached does: without payload, or one of
/// several datagrams. Its sequence number means nothing.
pub fn request(datagram: &[u8]) -> Option<(Header, &[u8])> {
    Header::split(datagram).filter(|(header, payload)| header.total == 1 && !payload.is_empty())
}

/// The cookie at the head of a marked request's payload, and what follows it. `None`: the payload is too short for one.
pub fn split_cookie(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (cookie, rest) = payload.split_first_chunk::<COOKIE_BYTES>()?;
    Some((u64::from_be_bytes(*cookie), rest))
}

/// A cookie, handed to the client that has to send it with its requests: a datagram of a reply that has none.
pub fn challenge(request_id: u16, cookie: u64) -> [u8; CHALLENGE_BYTES] {
    let header = Header { request_id, sequence: 0, total: 0, reserved: COOKIE_MARK };
    let mut challenge = [0; CHALLENGE_BYTES];
    challenge[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    challenge[HEADER_BYTES..].copy_from_slice(&cookie.to_be_bytes());
    challenge
}

/// Datagrams that a reply of `reply_bytes` takes; none if it is empty.
pub fn datagrams(reply_bytes: usize) -> usize {
    reply_bytes.div_ceil(PAYLOAD_BYTES_MAX)
}

/// Size of all datagrams of a reply of `reply_bytes`, headers included.
pub fn framed_bytes(reply_bytes: usize) -> usize {
    reply_bytes + datagrams(reply_bytes) * HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_four_big_endian_numbers() {
        let datagram = b"\x12\x34\x00\x05\x00\x01\xab\xcdget a\r\n";
        let header = Header { request_id: 0x1234, sequence: 5, total: 1, reserved: 0xabcd };
        assert_eq!(Header::split(datagram), Some((header, &b"get a\r\n"[..])));
        assert_eq!(header.to_bytes(), datagram[..HEADER_BYTES]);
    }

    // memcached 1.6.18 answers neither of those that are dropped here.
    #[test]
    fn requests_are_one_datagram_with_a_payload() {
        assert!(request(b"\x00\x07\x00\x00\x00\x01\x00\x00x").is_some());
        assert!(request(b"\x00\x07\x00\x05\x00\x01\x00\x09x").is_some());
        for dropped in [
            &b""[..],
            b"\x00\x07",
            b"\x00\x07\x00\x00\x00\x01\x00\x00",
            b"\x00\x07\x00\x00\x00\x00\x00\x00x",
            b"\x00\x07\x00\x00\x00\x02\x00\x00x",
            b"\x00\x07\x00\x01\x00\x02\x00\x00x",
        ] {
            assert_eq!(request(dropped), None, "{dropped:?}");
        }
    }

    #[test]
    fn a_challenge_is_a_header_and_a_cookie() {
        let challenge = challenge(0x1234, 0x0102_0304_0506_0708);
        assert_eq!(&challenge, b"\x12\x34\x00\x00\x00\x00Ck\x01\x02\x03\x04\x05\x06\x07\x08");
        assert_eq!(split_cookie(&challenge[HEADER_BYTES..]), Some((0x0102_0304_0506_0708, &b""[..])));
        assert_eq!(split_cookie(b"1234567"), None);
    }

    #[test]
    fn replies_are_cut_at_1400_bytes() {
        assert_eq!((datagrams(0), framed_bytes(0)), (0, 0));
        assert_eq!((datagrams(1), framed_bytes(1)), (1, 9));
        assert_eq!((datagrams(1392), framed_bytes(1392)), (1, 1400));
        assert_eq!((datagrams(1393), framed_bytes(1393)), (2, 1409));
        // As seen from memcached 1.6.18: 3 datagrams of 1400 bytes and one of 857.
        assert_eq!((datagrams(5025), framed_bytes(5025)), (4, 3 * 1400 + 857));
    }
}
