//! The entries of a batch on their way: cut into parts, so that a value of any size fits frames of a bounded one, and
//! compressed where that pays.

use super::WireError;
use super::message::Message;

/// The most bytes of a part, not compressed.
pub const PART_BYTES_MAX: usize = 256 << 10;

/// Shorter parts are not worth it.
const COMPRESSED_FROM_BYTES: usize = 256;

/// Appends the frames that carry a body; none if it is empty. `compresses`: the link is worth it. Returns how many
/// bytes that has saved.
pub fn push_parts(out: &mut Vec<u8>, body: &[u8], compresses: bool) -> usize {
    let mut saved_bytes = 0;
    for part in body.chunks(PART_BYTES_MAX) {
        let is_long = compresses && part.len() >= COMPRESSED_FROM_BYTES;
        let compressed = is_long.then(|| lz4_flex::block::compress(part));
        let is_smaller = |data: &Vec<u8>| data.len() < part.len() - part.len() / 8;
        let data = compressed.as_ref().filter(|data| is_smaller(data)).map_or(part, Vec::as_slice);
        saved_bytes += part.len() - data.len();
        Message::Part { body_bytes: part.len() as u32, data }.encode(out);
    }
    saved_bytes
}

/// Puts parts together again.
#[derive(Debug)]
pub struct Assembly {
    body: Vec<u8>,
    bytes_max: usize,
}

impl Assembly {
    /// For bodies of at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { body: Vec::new(), bytes_max }
    }

    /// The next part, of a [`Message::Part`]: compressed if it is shorter than what it stands for.
    pub fn push(&mut self, body_bytes: u32, data: &[u8]) -> Result<(), WireError> {
        let part_bytes = body_bytes as usize;
        if part_bytes > PART_BYTES_MAX || part_bytes < data.len() {
            return Err(WireError::Malformed("a part is longer than it may be"));
        }
        if self.body.len() + part_bytes > self.bytes_max {
            return Err(WireError::BodyTooLong);
        }
        let start = self.body.len();
        if part_bytes == data.len() {
            self.body.extend_from_slice(data);
            return Ok(());
        }
        self.body.resize(start + part_bytes, 0);
        match lz4_flex::block::decompress_into(data, &mut self.body[start..]) {
            Ok(written) if written == part_bytes => Ok(()),
            _ => Err(WireError::Malformed("a part cannot be decompressed")),
        }
    }

    /// The body, which ends here.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// Bytes so far.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }
}
