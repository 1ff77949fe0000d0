//! The bytes of a record. `docs/store-format.md` describes them.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | CRC32C of the segment's seed, bytes 4..48, the key and the extension |
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
//! | 45 | 1: there is an extension; 2: a flush goes by version |
//! | 46..48 | zero |
//!
//! Key, extension, value, and zeros up to a multiple of 8 follow. Numbers are little-endian. The extension, 24 bytes,
//! is there if it says anything: base version, the version of the value that the expiry is said of, and that of the
//! expiry.

use crate::entry::{FlushBy, KEY_BYTES_MAX, Marks, Meta, VALUE_BYTES_MAX};
use crate::state::{ItemState, KeyState};

/// Of a header.
pub(super) const HEADER_BYTES: usize = 48;
/// Of the extension of a header.
pub(super) const EXTENSION_BYTES: usize = 24;
/// All of a record but its value has at most so many bytes.
pub(super) const FRONT_BYTES_MAX: usize = HEADER_BYTES + KEY_BYTES_MAX + EXTENSION_BYTES;
/// Flags of byte 45.
const HAS_EXTENSION: u8 = 1;
const BY_VERSION: u8 = 2;
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
    Note = 6,
    /// Ends a batch. That of no entries (its first sequence is above its last) only notes what is durable.
    Commit = 16,
    /// The entries of a sealed segment.
    Footer = 17,
}

impl Kind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        const ALL: [Kind; 8] = [
            Kind::Put,
            Kind::Delete,
            Kind::Flush,
            Kind::FlushAt,
            Kind::CancelFlushAt,
            Kind::Note,
            Kind::Commit,
            Kind::Footer,
        ];
        ALL.into_iter().find(|&kind| kind as u8 == byte)
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
    /// 0: none is known.
    pub(super) base_version: u64,
    /// Of the value that the expiry is said of. Of a put: 0 if it is the version. Of a deletion: 0 if none is known.
    pub(super) expiry_value_version: u64,
    /// Of the expiry; 0 as before.
    pub(super) expiry_version: u64,
    pub(super) flush_by: FlushBy,
}

/// How long a record with these first bytes is without its value: nothing of it is verified yet.
pub(super) fn front_bytes(head: &[u8; HEADER_BYTES]) -> usize {
    let extension_bytes = if head[45] & HAS_EXTENSION == 0 { 0 } else { EXTENSION_BYTES };
    HEADER_BYTES + usize::from(u16_at(head, 40)) + extension_bytes
}

/// False: these are not the first bytes of a header of this version whose record has at most so many bytes. Far cheaper
/// than a checksum.
pub(super) fn may_be_header(head: &[u8; HEADER_BYTES], record_bytes_max: u64) -> bool {
    let record_bytes = u32_at(head, 4);
    Kind::from_byte(head[42]).is_some()
        && head[45] & !(HAS_EXTENSION | BY_VERSION) == 0
        && head[46..48] == [0; 2]
        && front_bytes(head) as u64 <= u64::from(record_bytes)
        && u64::from(record_bytes) <= record_bytes_max
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
        let end = front_bytes(head);
        if record_bytes < end || record_bytes - end > VALUE_BYTES_MAX || bytes.len() < end {
            return Err(BadHeader::Checksum);
        }
        if u32_at(head, 0) != crc32c::crc32c_append(seed, &bytes[4..end]) {
            return Err(BadHeader::Checksum);
        }
        let (Some(kind), Some(marks)) = (Kind::from_byte(head[42]), Marks::from_bits(head[43])) else {
            return Err(BadHeader::Newer(head[42]));
        };
        if head[45] & !(HAS_EXTENSION | BY_VERSION) != 0 || head[46..48] != [0; 2] {
            return Err(BadHeader::Newer(head[42]));
        }
        let sequence = u64_at(head, 8);
        if sequence > SEQUENCE_MAX {
            return Err(BadHeader::Sequence);
        }
        let extension = &bytes[HEADER_BYTES + key_bytes..end];
        let [base_version, expiry_value_version, expiry_version] =
            if extension.is_empty() { [0; 3] } else { [0, 8, 16].map(|at| u64_at(extension, at)) };
        if !extension.is_empty() && [base_version, expiry_value_version, expiry_version] == [0; 3] {
            return Err(BadHeader::Newer(head[42]));
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
            base_version,
            expiry_value_version,
            expiry_version,
            flush_by: if head[45] & BY_VERSION == 0 { FlushBy::Sequence } else { FlushBy::Version },
        })
    }

    /// Appends header, key and extension to `out`.
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
        let mut flags = if self.has_extension() { HAS_EXTENSION } else { 0 };
        if self.flush_by == FlushBy::Version {
            flags |= BY_VERSION;
        }
        out.extend_from_slice(&[self.kind as u8, self.marks.bits(), self.origin, flags, 0, 0]);
        out.extend_from_slice(key);
        if self.has_extension() {
            out.extend_from_slice(&self.base_version.to_le_bytes());
            out.extend_from_slice(&self.expiry_value_version.to_le_bytes());
            out.extend_from_slice(&self.expiry_version.to_le_bytes());
        }
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
            base_version: 0,
            expiry_value_version: 0,
            expiry_version: 0,
            flush_by: FlushBy::Sequence,
        }
    }

    fn has_extension(&self) -> bool {
        self.base_version != 0 || self.expiry_value_version != 0 || self.expiry_version != 0
    }

    /// Where the value begins in the record.
    pub(super) fn value_start(&self) -> usize {
        HEADER_BYTES + self.key_bytes + if self.has_extension() { EXTENSION_BYTES } else { 0 }
    }

    /// Without padding.
    pub(super) fn record_bytes(&self) -> usize {
        self.value_start() + self.value_bytes
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

    /// Of both registers; of a flush its version.
    pub(super) fn highest_version(&self) -> u64 {
        self.version.max(self.expiry_version)
    }

    /// What a put or a deletion says.
    pub(super) fn state(&self) -> KeyState {
        let Self { value_bytes, client_flags, marks, .. } = *self;
        let is_put = self.kind == Kind::Put;
        KeyState {
            version: self.version,
            base_version: self.base_version,
            item: is_put.then_some(ItemState { value_bytes, client_flags, marks }),
            expiry_value_version: if is_put {
                self.version.max(self.expiry_value_version)
            } else {
                self.expiry_value_version
            },
            expiry_version: if is_put { self.highest_version() } else { self.expiry_version },
            exptime_secs: self.exptime_secs,
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
