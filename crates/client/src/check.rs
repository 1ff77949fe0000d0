//! What requests may contain. Both clients check it before they send anything.

use larder_protocol::KEY_BYTES_MAX;

/// True if this can be a key in the text and meta protocols.
#[inline]
pub(crate) fn is_word(key: &[u8]) -> bool {
    // Eight bytes at a time; the last eight of a longer key overlap those before them.
    let is_bad = match key.last_chunk() {
        Some(last) => {
            let bits = key
                .as_chunks()
                .0
                .iter()
                .fold(non_word_bits(*last), |bits, chunk| bits | non_word_bits(*chunk));
            bits != 0
        }
        None => key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f),
    };
    (1..=KEY_BYTES_MAX).contains(&key.len()) && !is_bad
}

/// 0 if none of these bytes is a space or a control character.
#[inline]
fn non_word_bits(bytes: [u8; 8]) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    let bytes = u64::from_ne_bytes(bytes);
    let deletes = bytes ^ (ONES * 0x7f);
    // The highest bit of a byte becomes 1 if the byte had a 0 there and is less than what is subtracted. It may do so
    // above such a byte, too, but not without one.
    let up_to_space = bytes.wrapping_sub(ONES * 0x21) & !bytes;
    let delete = deletes.wrapping_sub(ONES) & !deletes;
    (up_to_space | delete) & (ONES * 0x80)
}
