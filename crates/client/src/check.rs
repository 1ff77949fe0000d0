//! What requests may contain, which both clients check before they send anything; and how large replies may be.

use larder_protocol::KEY_BYTES_MAX;

use crate::Error;
use crate::codec::Mode;

/// A group of statistics. It may have arguments: `detail dump`.
pub(crate) fn check_group(group: &str) -> Result<(), Error> {
    match is_part_of_line(group.as_bytes()) {
        true => Ok(()),
        false => {
            Err(Error::Unsupported("a group of statistics has 250 bytes at most and no control characters"))
        }
    }
}

/// Flags of the meta protocol.
pub(crate) fn check_meta_flags(flags: &[u8]) -> Result<(), Error> {
    match is_part_of_line(flags) {
        true => Ok(()),
        false => Err(Error::Unsupported("meta flags have 250 bytes at most and no control characters")),
    }
}

/// The CAS value that a store compares.
pub(crate) fn check_compare(mode: Mode, compare: Option<u64>) -> Result<(), Error> {
    if compare.is_some() && mode != Mode::Set {
        return Err(Error::Unsupported("only a plain store compares CAS values"));
    }
    // In the binary protocol, 0 stands for no comparison.
    if compare == Some(0) {
        return Err(Error::Unsupported("no item has the CAS value 0"));
    }
    Ok(())
}

/// The size of a value that is sent, or was received.
pub(crate) fn check_value(value_bytes: usize, value_bytes_max: usize) -> Result<(), Error> {
    if value_bytes > value_bytes_max { Err(Error::ValueTooLarge { value_bytes }) } else { Ok(()) }
}

/// The bytes of a reply that are needed to go on: a value, of which the server may have sent only the size, and what is
/// around it.
pub(crate) fn check_announced(needed_bytes: usize, value_bytes_max: usize) -> Result<(), Error> {
    check_value(needed_bytes, value_bytes_max.saturating_add(HEAD_BYTES_MAX))
}

/// True if a line of the text and meta protocols does not end within these bytes.
fn is_part_of_line(bytes: &[u8]) -> bool {
    bytes.len() <= KEY_BYTES_MAX && !bytes.iter().any(u8::is_ascii_control)
}

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

/// The line or header before a value, and its end.
const HEAD_BYTES_MAX: usize = 16 << 10;
