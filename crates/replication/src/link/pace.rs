//! Whether a link is worth compressing for. Within one place, compressing costs more than the bytes that it saves: it
//! pays where the bytes wait for the link, or travel far.

/// What is known of a link.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The other side is in another place.
    is_far: bool,
    /// Bodies that are still to be compressed since one had to wait.
    bodies_left: u32,
}

impl Pace {
    /// The first round trip took so long.
    pub(super) fn note_round_trip(&mut self, micros: u64) {
        self.is_far = micros >= FAR_MICROS;
    }

    /// So many bytes had to wait so long for the network.
    pub(super) fn note_written(&mut self, bytes: usize, waited_micros: u64) {
        let is_slow = (bytes as u64) < waited_micros.saturating_mul(NARROW_BYTES_PER_MICRO);
        if is_slow && waited_micros >= WAIT_MICROS {
            self.bodies_left = NARROW_BODIES;
        }
    }

    /// Whether the next body is to be compressed.
    pub(super) fn compresses(&mut self) -> bool {
        let is_narrow = self.bodies_left > 0;
        self.bodies_left = self.bodies_left.saturating_sub(1);
        self.is_far || is_narrow
    }
}

/// A round trip within a data centre takes less, and so does a handshake there.
const FAR_MICROS: u64 = 2_000;
/// Who waits for less is not slowed down by the link.
const WAIT_MICROS: u64 = 1_000;
/// 64 MB/s: LZ4 makes several times as many bytes a second.
const NARROW_BYTES_PER_MICRO: u64 = 64;
/// How long that is believed.
const NARROW_BODIES: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_or_narrow_link_is_worth_it() {
        let mut near = Pace::default();
        near.note_round_trip(FAR_MICROS - 1);
        near.note_written(200_000, WAIT_MICROS);
        near.note_written(100, WAIT_MICROS - 1);
        assert!(!near.compresses());
        near.note_written(63_000, WAIT_MICROS);
        assert_eq!((0..100).filter(|_| near.compresses()).count(), NARROW_BODIES as usize);
        let mut far = Pace::default();
        far.note_round_trip(FAR_MICROS);
        assert!((0..100).all(|_| far.compresses()));
    }
}
