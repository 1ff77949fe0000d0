//! What is stored in place of a value in pieces.

use std::fmt::Write;
use std::ops::Range;
use std::{error, fmt};

use super::PIECES_MAX;

/// What a value's own key has, if the value is in pieces. Stored as a line of text:
///
/// ```text
/// larder-pieces 1 COUNT VALUE_BYTES PIECE_BYTES CRC32 GENERATION
/// ```
///
/// The first number is the version; the last two are hexadecimal, of 8 and 16 digits. All pieces but the last have
/// `piece_bytes`, and none is empty, so the count is that of the two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    value_bytes: usize,
    /// At least 1.
    piece_bytes: usize,
    checksum: u32,
    generation: u64,
}

/// Why there is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadError {
    /// It begins as a head does, and is none.
    Malformed,
    /// The value has more bytes than allowed, or more pieces than [`PIECES_MAX`].
    TooLarge,
}

impl Head {
    /// The head of a value in pieces of `piece_bytes`, at least 1. `None`: it has no more than that, and is stored as
    /// it is. A value that begins as a head does is never stored as it is.
    ///
    /// `generation` must be another one for each write: a random number.
    ///
    /// # Errors
    /// [`HeadError::TooLarge`].
    pub fn plan(value: &[u8], piece_bytes: usize, generation: u64) -> Result<Option<Self>, HeadError> {
        if value.len() <= piece_bytes && !value.starts_with(MAGIC) {
            return Ok(None);
        }
        let checksum = crc32fast::hash(value);
        let head = Self { value_bytes: value.len(), piece_bytes: piece_bytes.max(1), checksum, generation };
        if head.pieces() > PIECES_MAX { Err(HeadError::TooLarge) } else { Ok(Some(head)) }
    }

    /// The head that was stored. `None`: it is none, but the value itself.
    ///
    /// # Errors
    /// [`HeadError::TooLarge`]: it has more than `value_bytes_max`.
    pub fn parse(item: &[u8], value_bytes_max: usize) -> Result<Option<Self>, HeadError> {
        let Some(fields) = item.strip_prefix(MAGIC) else { return Ok(None) };
        let head = Self::of_fields(fields).ok_or(HeadError::Malformed)?;
        // A number has several spellings, and a head has one.
        if head.to_bytes() != item {
            return Err(HeadError::Malformed);
        }
        let is_large = head.value_bytes > value_bytes_max || head.pieces() > PIECES_MAX;
        if is_large { Err(HeadError::TooLarge) } else { Ok(Some(head)) }
    }

    fn of_fields(fields: &[u8]) -> Option<Self> {
        let mut fields = str::from_utf8(fields).ok()?.trim_end().split(' ');
        let _count = fields.next()?;
        let value_bytes = fields.next()?.parse().ok()?;
        let piece_bytes = fields.next()?.parse().ok().filter(|bytes| *bytes > 0)?;
        let checksum = u32::from_str_radix(fields.next()?, 16).ok()?;
        let generation = u64::from_str_radix(fields.next()?, 16).ok()?;
        Some(Self { value_bytes, piece_bytes, checksum, generation })
    }

    /// The bytes of the item, which keeps the flags of the value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { value_bytes, piece_bytes, checksum, generation } = self;
        let mut bytes = MAGIC.to_vec();
        let fields =
            format!("{} {value_bytes} {piece_bytes} {checksum:08x} {generation:016x}\n", self.pieces());
        bytes.extend_from_slice(fields.as_bytes());
        bytes
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.value_bytes.div_ceil(self.piece_bytes)
    }

    /// How many bytes the value has.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Of which write it is.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The key and the place in the value of each piece. `key` has at most [`KEY_BYTES_MAX`](super::KEY_BYTES_MAX).
    pub fn plan_pieces<'a>(&self, key: &'a [u8]) -> impl Iterator<Item = (Vec<u8>, Range<usize>)> + use<'a> {
        let head = *self;
        (0..head.pieces()).map(move |index| (head.piece_key(key, index), head.piece_range(index)))
    }

    fn piece_key(&self, key: &[u8], index: usize) -> Vec<u8> {
        let mut suffix = String::new();
        let _infallible = write!(suffix, ":{:016x}:{index}", self.generation);
        [key, suffix.as_bytes()].concat()
    }

    fn piece_range(&self, index: usize) -> Range<usize> {
        let start = index.saturating_mul(self.piece_bytes).min(self.value_bytes);
        start..start.saturating_add(self.piece_bytes).min(self.value_bytes)
    }

    /// The value of these pieces, in order. `None`, a miss: one is missing, or of another size, or they do not add up.
    pub fn assemble<P: AsRef<[u8]>>(&self, pieces: impl IntoIterator<Item = Option<P>>) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let mut pieces = pieces.into_iter();
        for index in 0..self.pieces() {
            let piece = pieces.next()??;
            if piece.as_ref().len() != self.piece_range(index).len() {
                return None;
            }
            if index == 0 {
                value.reserve_exact(self.value_bytes);
            }
            value.extend_from_slice(piece.as_ref());
        }
        (crc32fast::hash(&value) == self.checksum).then_some(value)
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the item begins as a value in pieces does, and is none",
            Self::TooLarge => "the value has more bytes or pieces than allowed",
        })
    }
}

impl error::Error for HeadError {}

const MAGIC: &[u8] = b"larder-pieces 1 ";
/// Two colons, the generation, and the index.
pub(super) const SUFFIX_BYTES_MAX: usize = 1 + 16 + 1 + 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index * 7 % 251) as u8).collect()
    }

    fn plan(value: &[u8], piece_bytes: usize) -> Head {
        Head::plan(value, piece_bytes, 0xabc).expect("it is small").expect("it needs pieces")
    }

    #[test]
    fn the_head_is_a_line() {
        // CRC32's check value.
        let head = plan(b"123456789", 4);
        let line = b"larder-pieces 1 3 9 4 cbf43926 0000000000000abc\n";
        assert_eq!(head.to_bytes(), line);
        assert_eq!(Head::parse(line, 9), Ok(Some(head)));
        assert_eq!(Head::parse(line, 8), Err(HeadError::TooLarge));
        assert_eq!(head.generation(), 0xabc);
        let planned: Vec<_> = head.plan_pieces(b"key").collect();
        assert_eq!(planned[0], (b"key:0000000000000abc:0".to_vec(), 0..4));
        assert_eq!(
            planned[1..],
            [(b"key:0000000000000abc:1".to_vec(), 4..8), (b"key:0000000000000abc:2".to_vec(), 8..9)]
        );
    }

    #[test]
    fn pieces_add_up_to_the_value_and_nothing_else_does() {
        for (bytes, piece_bytes) in [(11, 10), (20, 10), (21, 10), (1000, 1), (5, 4)] {
            let value = value(bytes);
            let head = plan(&value, piece_bytes);
            let pieces: Vec<Option<&[u8]>> =
                head.plan_pieces(b"k").map(|(_, range)| Some(&value[range])).collect();
            assert_eq!(head.assemble(pieces.iter().copied()), Some(value.clone()));
            for index in 0..pieces.len() {
                let mut damaged = pieces.clone();
                damaged[index] = None;
                assert_eq!(head.assemble(damaged.iter().copied()), None);
                let piece = pieces[index].expect("it is there");
                let mut changed = piece.to_vec();
                changed[0] ^= 1;
                for other in [&changed[..], &piece[1..], &[piece, b"x"].concat()] {
                    damaged[index] = Some(other);
                    assert_eq!(head.assemble(damaged.iter().copied()), None);
                }
            }
            assert_eq!(head.assemble(pieces[1..].iter().copied()), None);
        }
    }

    #[test]
    fn a_value_that_looks_like_a_head_is_in_pieces() {
        assert_eq!(Head::plan(b"short", 5, 1), Ok(None));
        let head = plan(b"larder-pieces 1 x", 100);
        assert_eq!(head.pieces(), 1);
        assert_eq!(head.assemble([Some(b"larder-pieces 1 x")]), Some(b"larder-pieces 1 x".to_vec()));
        assert_eq!(Head::parse(b"short", 5), Ok(None));
    }

    #[test]
    fn damaged_heads_are_refused() {
        let line = plan(b"123456789", 4).to_bytes();
        for end in MAGIC.len()..line.len() {
            assert_eq!(Head::parse(&line[..end], 100), Err(HeadError::Malformed), "{end}");
        }
        for wrong in [
            "larder-pieces 1 2 9 4 cbf43926 0000000000000abc\n",
            "larder-pieces 1 3 9 0 cbf43926 0000000000000abc\n",
            "larder-pieces 1 3 09 4 cbf43926 0000000000000abc\n",
            "larder-pieces 1 3 9 4 CBF43926 0000000000000abc\n",
            "larder-pieces 1 3 9 4 cbf43926 0000000000000abc 1\n",
            "larder-pieces 1 3 9 4 cbf43926 +000000000000abc\n",
        ] {
            assert_eq!(Head::parse(wrong.as_bytes(), 100), Err(HeadError::Malformed), "{wrong}");
        }
        let many = "larder-pieces 1 18446744073709551615 18446744073709551615 1 cbf43926 0000000000000abc\n";
        assert_eq!(Head::parse(many.as_bytes(), usize::MAX), Err(HeadError::TooLarge));
        assert_eq!(Head::plan(&value(100_001), 1, 0), Err(HeadError::TooLarge));
        assert_eq!(SUFFIX_BYTES_MAX, plan(&value(100_000), 1).piece_key(b"", PIECES_MAX - 1).len());
    }
}
