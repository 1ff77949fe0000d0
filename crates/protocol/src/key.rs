//! Keys: 1 to 250 bytes without spaces, as they stand in a request.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::Sink;
use crate::http::Parameter;

/// The longest key, in bytes. It holds for the base64 form too.
pub const KEY_BYTES_MAX: usize = 250;

/// Room for a decoded key.
pub type KeyBuffer = [u8; KEY_BYTES_MAX];

/// A key as the client wrote it: plain, in base64 (the meta commands' flag `b`), or percent-encoded (HTTP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    written: &'a [u8],
    encoding: Encoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Plain,
    Base64,
    /// Percent-encoded; the text dialects can name the decoded key ...
    Percent,
    /// ... or only in base64.
    BinaryPercent,
}

impl<'a> Key<'a> {
    /// A plain key; `None` if it is empty or too long.
    pub fn new(written: &'a [u8]) -> Option<Self> {
        (1..=KEY_BYTES_MAX).contains(&written.len()).then_some(Self { written, encoding: Encoding::Plain })
    }

    /// A key in base64; `None` unless it decodes to at least one byte.
    pub fn base64(written: &'a [u8]) -> Option<Self> {
        let key = Self { encoding: Encoding::Base64, ..Self::new(written)? };
        decode(written, &mut [0; KEY_BYTES_MAX]).map(|_| key)
    }

    /// A percent-encoded key (RFC 3986, section 2.1); `None` unless it decodes to at least one byte, and to no key that
    /// the other dialects could not name: of those with spaces or control characters their base64 must fit.
    pub fn percent(written: &'a [u8]) -> Option<Self> {
        let mut buffer = [0; KEY_BYTES_MAX];
        let bytes = decode_percent(written, &mut buffer)?;
        let key = &buffer[..bytes];
        let is_binary = key.iter().any(|byte| byte.is_ascii_control() || *byte == b' ');
        if is_binary && key.len() > BINARY_KEY_BYTES_MAX {
            return None;
        }
        let encoding = match is_binary {
            true => Encoding::BinaryPercent,
            false if written.contains(&b'%') => Encoding::Percent,
            false => Encoding::Plain,
        };
        Some(Self { written, encoding })
    }

    /// The bytes as written.
    pub fn written(self) -> &'a [u8] {
        self.written
    }

    /// Written in base64?
    pub fn is_base64(self) -> bool {
        self.encoding == Encoding::Base64
    }

    /// Written as it is?
    pub fn is_plain(self) -> bool {
        self.encoding == Encoding::Plain
    }

    /// Shown in base64 by the meta commands: it was written so, or can be written in no other way.
    pub fn is_binary(self) -> bool {
        matches!(self.encoding, Encoding::Base64 | Encoding::BinaryPercent)
    }

    /// The bytes that the item is stored under.
    #[inline]
    pub fn bytes<'b>(self, buffer: &'b mut KeyBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        // It does decode: that was checked in `Key::base64` and `Key::percent`.
        let bytes = match self.encoding {
            Encoding::Plain => return self.written,
            Encoding::Base64 => decode(self.written, buffer),
            Encoding::Percent | Encoding::BinaryPercent => decode_percent(self.written, buffer),
        };
        &buffer[..bytes.unwrap_or(0)]
    }
}

/// Keys of a multi-key command: the rest of its line, all checked to be 1 to 250 bytes long. Or one key of any bytes,
/// or the parameters `key` of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    rest: &'a [u8],
    list: List,
}

/// How keys are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// With spaces between.
    Words,
    /// The rest is one key: spaces belong to it.
    One,
    /// `key=<key>&key=<key>`, percent-encoded.
    Query,
}

impl<'a> Keys<'a> {
    /// The keys in the rest of a line, which may have spaces around. `None`: none, or one is too long.
    pub fn new(rest: &'a [u8]) -> Option<Self> {
        let keys = Self { rest: trim_start(rest), list: List::Words };
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
        Key::new(key).map(|key| Self { rest: key.written, list: List::One })
    }

    /// The keys of a query, each of which has been checked by [`Key::percent`]; or what [`Keys::rest`] gave of it.
    pub fn query(rest: &'a [u8]) -> Self {
        Self { rest, list: List::Query }
    }

    /// What [`Keys::rest`] gave, later.
    pub fn resume(rest: &'a [u8]) -> Self {
        Self { rest: trim_start(rest), list: List::Words }
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
        let (word, rest) = match self.list {
            List::Words => split_word(self.rest),
            List::One => (self.rest, &[][..]),
            List::Query => {
                let (parameter, rest) = Parameter::split_first(self.rest);
                self.rest = rest.unwrap_or_default();
                return Key::percent(parameter.value).filter(|_| parameter.name == b"key");
            }
        };
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

/// Decodes as memcached does: bytes outside the alphabet are skipped, and padding is required. A NUL is refused, since
/// it ends the line in memcached.
fn decode(written: &[u8], buffer: &mut KeyBuffer) -> Option<usize> {
    if written.contains(&0) {
        return None;
    }
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

/// The number of decoded bytes.
fn decode_percent(written: &[u8], buffer: &mut KeyBuffer) -> Option<usize> {
    let hex = |digit: &u8| char::from(*digit).to_digit(16);
    let (mut rest, mut count) = (written, 0);
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => ((hex(high)? << 4 | hex(low)?) as u8, after),
            (b'%', _) => return None,
            (byte, after) => (*byte, after),
        };
        *buffer.get_mut(count)? = byte;
        count += 1;
        rest = after;
    }
    Some(count).filter(|count| *count > 0)
}

/// The longest key whose base64 has at most 250 characters.
const BINARY_KEY_BYTES_MAX: usize = KEY_BYTES_MAX / 4 * 3;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);
