//! Values that tell who they are: what is stored where values are verified.
//!
//! ```text
//! bytes  0..8    number of the key      little endian
//!        8..12   version
//!       12..16   length of the whole
//!       16..     bytes that follow from the three
//! ```
//!
//! After `append` and `prepend` a value is several of them in a row. A value shorter than 16 bytes has no room for a
//! head: it is as many bytes as it has room for of those that follow from key, version and length.

use fastrand::Rng;

use super::mix;

/// Length of a head in bytes.
pub(crate) const HEAD_BYTES: usize = 16;

/// Appends the value of `bytes` for this version of a key.
pub(crate) fn write(value: &mut Vec<u8>, number: u64, version: u32, bytes: usize) {
    let mut body_bytes = bytes;
    if bytes >= HEAD_BYTES {
        value.extend_from_slice(&number.to_le_bytes());
        value.extend_from_slice(&version.to_le_bytes());
        value.extend_from_slice(&(bytes as u32).to_le_bytes());
        body_bytes -= HEAD_BYTES;
    }
    let mut body = Rng::with_seed(seed(number, version, bytes));
    let start = value.len();
    value.resize(start + body_bytes, 0);
    body.fill(&mut value[start..]);
}

/// The newest of the versions that `value` holds.
///
/// # Errors
/// It is none that was stored under this key. `candidates`: versions that a value without a head may have.
pub(crate) fn read(
    mut value: &[u8],
    number: u64,
    candidates: impl Iterator<Item = u32>,
    scratch: &mut Vec<u8>,
) -> Result<u32, String> {
    if value.len() < HEAD_BYTES {
        let mut candidates = candidates;
        let matches = |version: &u32| {
            scratch.clear();
            write(scratch, number, *version, value.len());
            scratch == value
        };
        return candidates.find(matches).ok_or_else(|| "a value that nobody stored".into());
    }
    let mut newest = 0;
    while !value.is_empty() {
        let (head, _) = value.split_at_checked(HEAD_BYTES).ok_or("the value is cut off")?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let named = u64::from(word(0)) | u64::from(word(4)) << 32;
        let (version, bytes) = (word(8), word(12) as usize);
        if named != number {
            return Err(format!("the value says it is of key number {named}"));
        }
        let (piece, rest) = value.split_at_checked(bytes.max(HEAD_BYTES)).ok_or("the value is cut off")?;
        scratch.clear();
        write(scratch, number, version, bytes);
        if scratch != piece {
            return Err(format!("the checksum of version {version} is wrong"));
        }
        newest = newest.max(version);
        value = rest;
    }
    Ok(newest)
}

/// Client flags of a key.
pub(crate) fn client_flags(number: u64) -> u32 {
    mix(number) as u32
}

fn seed(number: u64, version: u32, bytes: usize) -> u64 {
    mix(mix(number) ^ u64::from(version) << 32 ^ bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: u64, version: u32, bytes: usize) -> Vec<u8> {
        let mut value = Vec::new();
        write(&mut value, number, version, bytes);
        assert_eq!(value.len(), bytes);
        value
    }

    fn check(value: &[u8], number: u64) -> Result<u32, String> {
        read(value, number, 1..5, &mut Vec::new())
    }

    #[test]
    fn a_value_tells_its_version() {
        for bytes in [8, 15, 16, 17, 100, 5000] {
            assert_eq!(check(&value(7, 3, bytes), 7), Ok(3), "{bytes}");
            assert!(check(&value(8, 3, bytes), 7).is_err(), "{bytes}");
        }
        let both = [value(7, 4, 20), value(7, 2, 50)].concat();
        assert_eq!(check(&both, 7), Ok(4));
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_seen() {
        for bytes in [12, 40] {
            let good = value(7, 3, bytes);
            for bit in 0..bytes * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(check(&bad, 7), Ok(3), "bit {bit}");
            }
            for cut in HEAD_BYTES..bytes {
                assert!(check(&good[..cut], 7).is_err(), "cut at {cut}");
            }
        }
    }
}
