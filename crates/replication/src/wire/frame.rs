//! Frames: `{payload length u32, checksum u32, kind u8, zero u8 x 3}`, then the payload.

use super::WireError;

/// The most bytes of a payload.
pub const FRAME_BYTES_MAX: usize = 512 << 10;
/// The same before both sides have shown that they know the token.
pub const HANDSHAKE_BYTES_MAX: usize = 2 << 10;

const HEAD_BYTES: usize = 12;

/// Appends a frame whose payload `write` appends.
pub(super) fn push_frame(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    write(out);
    let payload_bytes = out.len() - start - HEAD_BYTES;
    debug_assert!(payload_bytes <= FRAME_BYTES_MAX, "a frame of kind {kind} has {payload_bytes} bytes");
    let frame = &mut out[start..];
    frame[..4].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    frame[8] = kind;
    let checksum = checksum(frame);
    frame[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Over all of the frame but the checksum itself.
fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..4]), &frame[8..])
}

/// Finds the frames in what arrives. Keeps what [`push`](Self::push) was given last and a part of one frame.
#[derive(Debug)]
pub struct FrameDecoder {
    bytes: Vec<u8>,
    start: usize,
    payload_bytes_max: usize,
}

impl FrameDecoder {
    /// For a connection whose other side is not known yet.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, payload_bytes_max: HANDSHAKE_BYTES_MAX }
    }

    /// The other side is known: frames may be as long as [`FRAME_BYTES_MAX`].
    pub fn trust(&mut self) {
        self.payload_bytes_max = FRAME_BYTES_MAX;
    }

    /// Takes what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame: its kind and its payload.
    pub fn next_frame(&mut self) -> Result<Option<(u8, &[u8])>, WireError> {
        let rest = &self.bytes[self.start..];
        let Some((&length, _)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let payload_bytes = u32::from_le_bytes(length) as usize;
        if payload_bytes > self.payload_bytes_max {
            return Err(WireError::TooLong);
        }
        let Some(frame) = rest.get(..HEAD_BYTES + payload_bytes) else { return Ok(None) };
        if checksum(frame).to_le_bytes() != frame[4..8] {
            return Err(WireError::Checksum);
        }
        if frame[9..HEAD_BYTES] != [0; 3] {
            return Err(WireError::Malformed("a frame's head has bytes that are not zero"));
        }
        self.start += frame.len();
        Ok(Some((frame[8], &frame[HEAD_BYTES..])))
    }

    /// Bytes that are kept.
    pub fn buffered_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::new()
    }
}
