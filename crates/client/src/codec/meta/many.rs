//! The lines of a get of many keys, where the caller has no flags of its own.

/// `mg <key> v f [c] O<number>` for each key, with the next number. Returns how many keys there are.
#[inline]
pub(in super::super) fn get<K: AsRef<[u8]>>(
    output: &mut Vec<u8>,
    with_cas: bool,
    keys: impl IntoIterator<Item = K>,
    mut next_opaque: impl FnMut() -> u32,
) -> u32 {
    let mut count = 0;
    // What is between two keys: the end of a line, and the beginning of the next one.
    let mut between = [0; BETWEEN_KEYS_BYTES_MAX];
    let flags: &[u8] = if with_cas { b" v f c O" } else { b" v f O" };
    between[..flags.len()].copy_from_slice(flags);
    output.extend_from_slice(b"mg ");
    for key in keys {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(next_opaque()).as_bytes();
        let end = flags.len() + digits.len();
        between[flags.len()..end].copy_from_slice(digits);
        between[end..end + NEXT_LINE.len()].copy_from_slice(NEXT_LINE);
        output.extend_from_slice(key.as_ref());
        output.extend_from_slice(&between[..end + NEXT_LINE.len()]);
        count += 1;
    }
    output.truncate(output.len() - b"mg ".len());
    count
}

/// The end of a line, and the beginning of the next one.
const NEXT_LINE: &[u8] = b"\r\nmg ";
/// Flags, ten digits, and [`NEXT_LINE`].
const BETWEEN_KEYS_BYTES_MAX: usize = 32;
