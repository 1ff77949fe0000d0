//! The bytes of a record. `docs/store-format.md` describes them.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | CRC32C of the segment's seed, bytes 4..48 and the key |
//! | 4..8 | length of the record without padding |
//! | 8..16 | sequence |
//! | 16..24 | version; of a commit mark: up to which sequence all was durable |
//! | 24..32 | exptime; of a delayed flush: when it is due; of a commit mark: the first sequence of its batch |
//! | 32..36 | client flags |
//! | 36..40 | CRC32C of the value |
//! | 40..42 | length of the key |
//! | 42 | kind |
//! | 43 | marks |
//! | 44 | origin |
//! | 45..48 | zero |
//!
//! Key, value, and zeros up to a multiple of 8 follow. Numbers are little-endian.

use crate::entry::{Marks, Meta, VALUE_BYTES_MAX};

/// Of a header.
pub(super) const HEADER_BYTES: usize = 48;
/// The highest sequence number: counting beyond it overflows nowhere, and nobody appends so much.
pub(super) const SEQUENCE_MAX: u64 = (1 << 62) - 1;
/// Records begin at multiples of this.
pub(super) const ALIGN_BYTES: usize = 8;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Put = 1,
    Delete = 2,
    Flush = 3,
    FlushAt = 4,
    CancelFlushAt = 5,
    /// Ends a batch. That of no entries (its first sequence is above its last) only notes what is durable.
    Commit = 16,
    /// The entries of a sealed segment.
    Footer = 17,
}

impl Kind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Put, Self::Delete, Self::Flush, Self::FlushAt, Self::CancelFlushAt, Self::Commit, Self::Footer]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }
}

/// A record without its key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) sequence: u64,
    pub(super) version: u64,
    pub(super) exptime_secs: u64,
    pub(super) client_flags: u32,
    pub(super) marks: Marks,
    pub(super) origin: u8,
    pub(super) value_checksum: u32,
}

/// Why bytes are no header of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// There is nothing: only zeros.
    Zeros,
    /// The checksum does not match, or there are too few bytes.
    Checksum,
    /// The checksum matches, but the sequence is above [`SEQUENCE_MAX`].
    Sequence,
    /// A newer larder wrote it: the checksum matches, and a field is not known.
    Newer(u8),
}

impl Header {
    /// Header and key, at the front of `bytes`.
    pub(super) fn decode(bytes: &[u8], seed: u32) -> Result<Self, BadHeader> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BadHeader::Checksum);
        };
        if head.iter().all(|&byte| byte == 0) {
            return Err(BadHeader::Zeros);
        }
        let record_bytes = u32_at(head, 4) as usize;
        let key_bytes = usize::from(u16::from_le_bytes([head[40], head[41]]));
        let end = HEADER_BYTES + key_bytes;
        if record_bytes < end || record_bytes - end > VALUE_BYTES_MAX || bytes.len() < end {
            return Err(BadHeader::Checksum);
        }
        if u32_at(head, 0) != crc32c::crc32c_append(seed, &bytes[4..end]) {
            return Err(BadHeader::Checksum);
        }
        let (Some(kind), Some(marks)) = (Kind::from_byte(head[42]), Marks::from_bits(head[43])) else {
            return Err(BadHeader::Newer(head[42]));
        };
        if head[45..48] != [0; 3] {
            return Err(BadHeader::Newer(head[42]));
        }
        let sequence = u64_at(head, 8);
        if sequence > SEQUENCE_MAX {
            return Err(BadHeader::Sequence);
        }
        Ok(Self {
            kind,
            key_bytes,
            value_bytes: record_bytes - end,
            sequence,
            version: u64_at(head, 16),
            exptime_secs: u64_at(head, 24),
            client_flags: u32_at(head, 32),
            marks,
            origin: head[44],
            value_checksum: u32_at(head, 36),
        })
    }

    /// Appends header and key to `out`.
    pub(super) fn encode(&self, key: &[u8], seed: u32, out: &mut Vec<u8>) {
        debug_assert_eq!(key.len(), self.key_bytes);
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.record_bytes() as u32).to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.exptime_secs.to_le_bytes());
        out.extend_from_slice(&self.client_flags.to_le_bytes());
        out.extend_from_slice(&self.value_checksum.to_le_bytes());
        out.extend_from_slice(&(self.key_bytes as u16).to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, self.marks.bits(), self.origin, 0, 0, 0]);
        out.extend_from_slice(key);
        let checksum = crc32c::crc32c_append(seed, &out[start + 4..]);
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// A record without key and value.
    pub(super) fn bare(kind: Kind, sequence: u64) -> Self {
        Self {
            kind,
            key_bytes: 0,
            value_bytes: 0,
            sequence,
            version: 0,
            exptime_secs: 0,
            client_flags: 0,
            marks: Marks::NONE,
            origin: 0,
            value_checksum: 0,
        }
    }

    /// Without padding.
    pub(super) fn record_bytes(&self) -> usize {
        HEADER_BYTES + self.key_bytes + self.value_bytes
    }

    /// With padding.
    pub(super) fn padded_bytes(&self) -> usize {
        padded(self.record_bytes())
    }

    pub(super) fn meta(&self) -> Meta {
        Meta {
            value_bytes: self.value_bytes,
            client_flags: self.client_flags,
            exptime_secs: self.exptime_secs,
            version: self.version,
            marks: self.marks,
            origin: self.origin,
            sequence: self.sequence,
        }
    }
}

/// The next multiple of [`ALIGN_BYTES`].
pub(super) const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN_BYTES)
}

/// Appends zeros up to a multiple of [`ALIGN_BYTES`] of what was written: `bytes`.
pub(super) fn pad(bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; ALIGN_BYTES][..padded(bytes) - bytes]);
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
