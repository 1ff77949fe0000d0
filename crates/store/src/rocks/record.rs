//! Keys and values of the database. The first byte of a key says what it is; numbers are little-endian, but in keys.
//!
//! | key | value |
//! |---|---|
//! | `i`, key | an item: its header, then its value |
//! | `f`, sequence (8 bytes, big-endian) | a flush, until a sweep has finished it: version, prefix, exceptions |
//! | `p`, prefix | a delayed flush: sequence, when it is due |
//! | `s` | the last sequence, the highest version |
//!
//! A prefix, and each exception, stands behind its length in 2 bytes.

use crate::entry::{Marks, Meta, Put};
use crate::error::{Error, Result};
use crate::flushes::{decode_exceptions, encode_exceptions};
use crate::log::bytes::Bytes;

pub(super) const ITEM: u8 = b'i';
pub(super) const FLUSH: u8 = b'f';
pub(super) const PENDING: u8 = b'p';
/// The key of the state.
pub(super) const STATE: &[u8] = b"s";

/// Of an item's header: format 1, marks, origin, flags, exptime, version, sequence.
const HEADER_BYTES: usize = 3 + 4 + 3 * 8;
const ITEM_FORMAT: u8 = 1;

/// The database's key of something named so.
pub(super) fn key_of(kind: u8, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(kind);
    key.extend_from_slice(name);
    key
}

/// The database's key of a flush.
pub(super) fn flush_key(sequence: u64) -> Vec<u8> {
    key_of(FLUSH, &sequence.to_be_bytes())
}

/// The sequence in a flush's key.
pub(super) fn sequence_of(key: &[u8]) -> Result<u64> {
    let bytes = key.get(1..).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_be_bytes).ok_or_else(|| damaged("the key of a flush"))
}

/// An item: header and value.
pub(super) fn encode_item(put: &Put<'_>, sequence: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + put.value_bytes());
    out.extend_from_slice(&[ITEM_FORMAT, put.marks.bits(), put.origin]);
    out.extend_from_slice(&put.client_flags.to_le_bytes());
    for number in [put.exptime_secs, put.version, sequence] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put.value.iter().for_each(|piece| out.extend_from_slice(piece));
    out
}

/// An item's meta and value.
pub(super) fn decode_item(bytes: &[u8]) -> Result<(Meta, &[u8])> {
    let mut bytes = Bytes(bytes);
    decode_header(&mut bytes).map(|meta| (meta, bytes.0)).ok_or_else(|| damaged("an item"))
}

fn decode_header(bytes: &mut Bytes<'_>) -> Option<Meta> {
    let value_bytes = bytes.0.len().checked_sub(HEADER_BYTES)?;
    if bytes.u8()? != ITEM_FORMAT {
        return None;
    }
    Some(Meta {
        value_bytes,
        marks: Marks::from_bits(bytes.u8()?)?,
        origin: bytes.u8()?,
        client_flags: bytes.u32()?,
        exptime_secs: bytes.u64()?,
        version: bytes.u64()?,
        sequence: bytes.u64()?,
    })
}

/// Two numbers, as state and delayed flushes have them.
pub(super) fn encode_pair(first: u64, second: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&first.to_le_bytes());
    out[8..].copy_from_slice(&second.to_le_bytes());
    out
}

pub(super) fn decode_pair(bytes: &[u8], what: &'static str) -> Result<(u64, u64)> {
    let mut bytes = Bytes(bytes);
    match (bytes.u64(), bytes.u64()) {
        (Some(first), Some(second)) if bytes.0.is_empty() => Ok((first, second)),
        _ => Err(damaged(what)),
    }
}

/// What a flush's record has beside its sequence.
pub(super) fn encode_flush(prefix: &[u8], except: &[Vec<u8>], version: u64) -> Vec<u8> {
    let mut out = version.to_le_bytes().to_vec();
    out.extend_from_slice(&(prefix.len() as u16).to_le_bytes());
    out.extend_from_slice(prefix);
    encode_exceptions(except, &mut out);
    out
}

/// What a flush's record says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FlushRecord<'b> {
    pub(super) prefix: &'b [u8],
    pub(super) except: Vec<Vec<u8>>,
    pub(super) version: u64,
}

pub(super) fn decode_flush(bytes: &[u8]) -> Result<FlushRecord<'_>> {
    FlushRecord::decode(&mut Bytes(bytes)).ok_or_else(|| damaged("a flush"))
}

impl<'b> FlushRecord<'b> {
    fn decode(bytes: &mut Bytes<'b>) -> Option<Self> {
        let (version, length) = (bytes.u64()?, usize::from(bytes.u16()?));
        let prefix = bytes.take(length)?;
        Some(Self { prefix, except: decode_exceptions(prefix, bytes.0)?, version })
    }
}

/// Something in the database is not as this driver writes it.
fn damaged(what: &str) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not as larder writes it");
    Error::Io { doing: format!("reading {what} from RocksDB"), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_as_they_were_written_and_never_beyond_their_end() {
        let put = Put {
            key: b"key",
            value: &[b"va", b"lue"],
            client_flags: 7,
            exptime_secs: 8,
            version: 9,
            marks: Marks::STALE,
            origin: 10,
            expiry_value_version: 0,
            expiry_version: 0,
            base_version: 0,
        };
        let bytes = encode_item(&put, 11);
        let (meta, value) = decode_item(&bytes).expect("decodes");
        assert_eq!((meta.client_flags, meta.exptime_secs, meta.version, meta.origin), (7, 8, 9, 10));
        assert_eq!(
            (meta.sequence, meta.marks, meta.value_bytes, value),
            (11, Marks::STALE, 5, &b"value"[..])
        );
        for length in 0..HEADER_BYTES {
            assert!(decode_item(&bytes[..length]).is_err(), "{length} bytes");
        }
        for (at, wrong) in [(0, 2), (1, 8)] {
            let mut other = bytes.clone();
            other[at] = wrong;
            assert!(decode_item(&other).is_err(), "byte {at}");
        }
    }

    #[test]
    fn other_records_are_refused_if_they_are_cut_short() {
        assert_eq!(decode_pair(&encode_pair(1, 2), "a pair").expect("decodes"), (1, 2));
        assert!(decode_pair(&[0; 15], "a pair").is_err() && decode_pair(&[0; 17], "a pair").is_err());
        let except = vec![b"a:b".to_vec(), b"a:c:".to_vec()];
        let flush = encode_flush(b"a:", &except, 3);
        assert_eq!(decode_flush(&flush).expect("decodes"), FlushRecord { prefix: b"a:", except, version: 3 });
        let whole = [12, 12 + 5, flush.len()];
        for length in (0..=flush.len()).filter(|length| !whole.contains(length)) {
            assert!(decode_flush(&flush[..length]).is_err(), "{length} bytes");
        }
        assert!(decode_flush(&encode_flush(b"a:", &[b"b:".to_vec()], 3)).is_err(), "no exception of that");
        assert_eq!(sequence_of(&flush_key(1 << 40)).expect("decodes"), 1 << 40);
        assert!(sequence_of(b"f1234567").is_err() && sequence_of(b"").is_err());
    }
}
