//! The datagrams of one reply, put together.

use larder_protocol::udp::{Header, PAYLOAD_BYTES_MAX};

/// The datagrams of one reply, in any order. Invariant: at most [`DATAGRAMS_MAX`] full ones are kept.
#[derive(Debug, Default)]
pub(crate) struct Message {
    parts: Vec<Option<Box<[u8]>>>,
    missing: usize,
}

/// What cannot be, or is too much for UDP: the reply is not to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubtful;

impl Message {
    /// Takes a datagram, which has the number of the request. Returns the reply once it is whole.
    ///
    /// memcached and larderd fill every datagram but the last. One that is shorter was cut on its way, and bytes that
    /// are missing in the middle would move all that follow.
    pub(crate) fn take(&mut self, header: Header, payload: &[u8]) -> Result<Option<Vec<u8>>, Doubtful> {
        let (sequence, total) = (usize::from(header.sequence), usize::from(header.total));
        let is_last = sequence + 1 == total;
        let is_right_size =
            payload.len() == PAYLOAD_BYTES_MAX || (is_last && payload.len() < PAYLOAD_BYTES_MAX);
        let is_of_message = self.parts.is_empty() || self.parts.len() == total;
        if sequence >= total || total > DATAGRAMS_MAX || !is_right_size || !is_of_message {
            return Err(Doubtful);
        }
        if total == 1 {
            return Ok(Some(payload.to_vec()));
        }
        if self.parts.is_empty() {
            self.parts.resize_with(total, || None);
            self.missing = total;
        }
        let part = &mut self.parts[sequence];
        match part {
            // It came twice.
            Some(known) if **known == *payload => return Ok(None),
            Some(_) => return Err(Doubtful),
            None => *part = Some(payload.into()),
        }
        self.missing -= 1;
        Ok((self.missing == 0).then(|| self.parts.drain(..).flatten().collect::<Vec<_>>().concat()))
    }
}

/// So many datagrams a reply may have: 44 KB. A longer one is likely to lose some of them.
const DATAGRAMS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn take(
        message: &mut Message,
        sequence: u16,
        total: u16,
        payload: &[u8],
    ) -> Result<Option<Vec<u8>>, Doubtful> {
        message.take(Header { request_id: 7, sequence, total, reserved: 0 }, payload)
    }

    /// `count` payloads, of which the last one is short, and what they are together.
    fn payloads(count: u16) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut payloads: Vec<_> = (0..count).map(|n| vec![n as u8; PAYLOAD_BYTES_MAX]).collect();
        payloads[usize::from(count) - 1].truncate(5);
        (payloads.clone(), payloads.concat())
    }

    #[test]
    fn order_and_duplicates_change_nothing() {
        let mut random = fastrand::Rng::with_seed(1);
        for count in [1, 2, 3, 32] {
            let (payloads, whole) = payloads(count);
            for _ in 0..50 {
                let mut message = Message::default();
                let mut order: Vec<_> = (0..count).chain(0..count).collect();
                random.shuffle(&mut order);
                let mut seen = std::collections::HashSet::new();
                for sequence in order {
                    seen.insert(sequence);
                    let taken = take(&mut message, sequence, count, &payloads[usize::from(sequence)]);
                    let is_whole = seen.len() == usize::from(count);
                    assert_eq!(taken, Ok(is_whole.then(|| whole.clone())));
                    if is_whole {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_doubtful() {
        let (payloads, _) = payloads(3);
        let begun = || {
            let mut message = Message::default();
            assert_eq!(take(&mut message, 1, 3, &payloads[1]), Ok(None));
            message
        };
        // No such place; another total; cut; the same place with other bytes; too long; too many.
        assert_eq!(take(&mut begun(), 3, 3, &payloads[2]), Err(Doubtful));
        assert_eq!(take(&mut begun(), 0, 0, b""), Err(Doubtful));
        assert_eq!(take(&mut begun(), 0, 2, &payloads[0]), Err(Doubtful));
        assert_eq!(take(&mut begun(), 0, 1, b"END\r\n"), Err(Doubtful));
        assert_eq!(take(&mut begun(), 0, 3, &payloads[0][1..]), Err(Doubtful));
        assert_eq!(take(&mut begun(), 1, 3, &payloads[0]), Err(Doubtful));
        assert_eq!(take(&mut Message::default(), 0, 1, &[0; PAYLOAD_BYTES_MAX + 1]), Err(Doubtful));
        assert_eq!(take(&mut Message::default(), 0, 33, &payloads[0]), Err(Doubtful));
        assert_eq!(take(&mut Message::default(), 65_534, u16::MAX, &payloads[0]), Err(Doubtful));
    }
}
