//! Whole replies, as the network finds them among bytes.

use larder_client::Protocol;

/// The length of the reply at the head, of the meta or the binary protocol. `None`: it is not complete.
pub(super) fn length(input: &[u8], protocol: Protocol) -> Option<usize> {
    let length = if protocol == Protocol::Binary {
        let body = input.get(8..12)?;
        24 + u32::from_be_bytes(body.try_into().ok()?) as usize
    } else {
        let line = line_bytes(input)?;
        let mut words = input[..line].split(|byte| byte.is_ascii_whitespace());
        let value = (words.next() == Some(b"VA")).then(|| words.next()).flatten();
        let value = value.and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse::<usize>().ok());
        line + value.map_or(0, |bytes| bytes + 2)
    };
    (input.len() >= length).then_some(length)
}

/// Each reply has the other's number.
pub(super) fn exchange_opaques(one: &mut Vec<u8>, other: &mut Vec<u8>, protocol: Protocol) {
    if protocol == Protocol::Binary {
        one[12..16].swap_with_slice(&mut other[12..16]);
        return;
    }
    let (Some(in_one), Some(in_other)) = (opaque(one), opaque(other)) else { return };
    let (of_one, of_other) = (one[in_one.clone()].to_vec(), other[in_other.clone()].to_vec());
    one.splice(in_one, of_other);
    other.splice(in_other, of_one);
}

/// Where the meta protocol's `O` and its number are.
fn opaque(reply: &[u8]) -> Option<std::ops::Range<usize>> {
    let line = line_bytes(reply)?;
    let begin = reply[..line].windows(2).position(|bytes| bytes == b" O")?;
    let length = reply[begin + 1..line].iter().position(|byte| byte.is_ascii_whitespace())?;
    Some(begin..begin + 1 + length)
}

fn line_bytes(input: &[u8]) -> Option<usize> {
    Some(input.windows(2).position(|end| end == b"\r\n")? + 2)
}
