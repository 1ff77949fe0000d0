//! Keys: 1 to 250 bytes without spaces, as they stand in a request.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::Sink;

/// The longest key, in bytes. It holds for the base64 form too.
pub const KEY_BYTES_MAX: usize = 250;

/// Room for a decoded key.
pub type KeyBuffer = [u8; KEY_BYTES_MAX];

/// A key as the client wrote it: plain, or in base64 (the meta commands' flag `b`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    written: &'a [u8],
    base64: bool,
}

impl<'a> Key<'a> {
    /// A plain key; `None` if it is empty or too long.
    pub fn new(written: &'a [u8]) -> Option<Self> {
        (1..=KEY_BYTES_MAX).contains(&written.len()).then_some(Self { written, base64: false })
    }

    /// A key in base64; `None` unless it decodes to at least one byte.
    pub fn base64(written: &'a [u8]) -> Option<Self> {
        let key = Self { base64: true, ..Self::new(written)? };
        decode(written, &mut [0; KEY_BYTES_MAX]).map(|_| key)
    }

    /// The bytes as written.
    pub fn written(self) -> &'a [u8] {
        self.written
    }

    /// Written in base64?
    pub fn is_base64(self) -> bool {
        self.base64
    }

    /// The bytes that the item is stored under.
    #[inline]
    pub fn bytes<'b>(self, buffer: &'b mut KeyBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.base64 {
            return self.written;
        }
        // Checked in `Key::base64`: it does decode.
        let bytes = decode(self.written, buffer).unwrap_or(0);
        &buffer[..bytes]
    }
}

/// Keys of a multi-key command: the rest of its line, all checked to be 1 to 250 bytes long. Or one key of any bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    rest: &'a [u8],
    /// The rest is one key: spaces belong to it.
    is_one: bool,
}

impl<'a> Keys<'a> {
    /// The keys in the rest of a line, which may have spaces around. `None`: none, or one is too long.
    pub fn new(rest: &'a [u8]) -> Option<Self> {
        let keys = Self { rest: trim_start(rest), is_one: false };
        // From a word's start on there must be a space within reach; the words before the last of these spaces are no
        // longer.
        let mut ahead = keys.rest;
        while ahead.len() > KEY_BYTES_MAX {
            let last = memchr::memrchr(b' ', &ahead[..=KEY_BYTES_MAX])?;
            ahead = trim_start(&ahead[last..]);
        }
        (!keys.rest.is_empty()).then_some(keys)
    }

    /// One key, which may have spaces. `None`: it is empty or too long.
    pub fn one(key: &'a [u8]) -> Option<Self> {
        Key::new(key).map(|key| Self { rest: key.written, is_one: true })
    }

    /// What [`Keys::rest`] gave, later.
    pub fn resume(rest: &'a [u8]) -> Self {
        Self { rest: trim_start(rest), is_one: false }
    }

    /// What is left of the line.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// What will be left of it after so many more keys.
    pub fn rest_after(mut self, keys: usize) -> &'a [u8] {
        self.by_ref().take(keys).for_each(drop);
        self.rest
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = Key<'a>;

    fn next(&mut self) -> Option<Key<'a>> {
        let (word, rest) = if self.is_one { (self.rest, &[][..]) } else { split_word(self.rest) };
        self.rest = rest;
        Key::new(word)
    }
}

/// The first word and what follows it and its spaces. No leading spaces expected.
pub(crate) fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', line) {
        Some(end) => (&line[..end], trim_start(&line[end..])),
        None => (line, &[]),
    }
}

fn trim_start(line: &[u8]) -> &[u8] {
    let spaces = line.iter().take_while(|byte| **byte == b' ').count();
    &line[spaces..]
}

/// Writes bytes in base64.
pub(crate) fn encode<S: Sink>(bytes: &[u8], sink: &mut S) {
    let mut encoded = [0; KEY_BYTES_MAX.div_ceil(3) * 4];
    if let Ok(length) = BASE64.encode_slice(bytes, &mut encoded) {
        sink.bytes(&encoded[..length]);
    }
}

/// Decodes as memcached does: bytes outside the alphabet are skipped, padding is required.
fn decode(written: &[u8], buffer: &mut KeyBuffer) -> Option<usize> {
    let mut letters = [0; KEY_BYTES_MAX];
    let mut count = 0;
    for byte in written.iter().take(KEY_BYTES_MAX) {
        if byte.is_ascii_alphanumeric() || b"+/=".contains(byte) {
            letters[count] = *byte;
            count += 1;
        }
    }
    BASE64.decode_slice(&letters[..count], buffer).ok().filter(|length| *length > 0)
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);
