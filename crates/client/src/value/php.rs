//! The flags of PHP's two clients.

use std::borrow::Cow;

use super::compression::Compression;
use super::transcoder::Encoded;
use super::{Error, Format, Value, number, plain};

/// Of both, these are the application's.
const USER: u32 = 0xffff_0000;

// PECL memcache.
const SERIALIZED: u32 = 1;
pub(super) const COMPRESSED: u32 = 2;
const BOOL: u32 = 0x100;
const LONG: u32 = 0x300;
const DOUBLE: u32 = 0x700;

/// `None`: there are no flags for it.
pub(super) fn encode_memcache(value: &Value) -> Option<Encoded> {
    Some(match value {
        Value::Bytes(bytes) => Encoded::new(bytes.as_slice(), 0),
        Value::Text(text) => Encoded::new(text.as_str(), 0),
        Value::Integer(integer) => Encoded::new(integer.to_string(), LONG),
        Value::Float(float) => Encoded::new(number::SHORT_WORDS.text(*float), DOUBLE),
        Value::Bool(bool) => Encoded::new(if *bool { "1" } else { "0" }, BOOL),
        Value::Serialized { format: Format::Php, bytes } => Encoded::new(bytes.as_slice(), SERIALIZED),
        _ => return None,
    })
}

/// `None`: the flags mean nothing.
pub(super) fn decode_memcache(bytes: Cow<'_, [u8]>, client_flags: u32) -> Result<Option<Value>, Error> {
    Ok(Some(match client_flags & !USER & !COMPRESSED {
        0 => Value::Bytes(bytes.into_owned()),
        SERIALIZED => Value::Serialized { format: Format::Php, bytes: bytes.into_owned() },
        LONG => Value::Integer(number::integer(&bytes)?),
        DOUBLE => Value::Float(number::SHORT_WORDS.float(&bytes)?),
        BOOL => Value::Bool(plain::bit(&bytes)?),
        _ => return Ok(None),
    }))
}

// php-memcached.
const TYPE: u32 = 0xf;
const FORMATS: [(u32, Format); 4] =
    [(4, Format::Php), (5, Format::Igbinary), (6, Format::Json), (7, Format::Msgpack)];
const IS_COMPRESSED: u32 = 1 << 4;
const BY_ZLIB: u32 = 1 << 5;
const BY_FASTLZ: u32 = 1 << 6;
const BY_ZSTD: u32 = 1 << 7;
pub(super) const COMPRESSED_BY_ZLIB: u32 = IS_COMPRESSED | BY_ZLIB;
#[cfg(feature = "zstd")]
pub(super) const COMPRESSED_BY_ZSTD: u32 = IS_COMPRESSED | BY_ZSTD;

/// `None`: there are no flags for it.
pub(super) fn encode_memcached(value: &Value) -> Option<Encoded> {
    Some(match value {
        Value::Bytes(bytes) => Encoded::new(bytes.as_slice(), 0),
        Value::Text(text) => Encoded::new(text.as_str(), 0),
        Value::Integer(integer) => Encoded::new(integer.to_string(), 1),
        Value::Float(float) => Encoded::new(number::LONG_WORDS.text(*float), 2),
        Value::Bool(bool) => Encoded::new(if *bool { "1" } else { "" }, 3),
        Value::Date(_) => return None,
        Value::Serialized { format, bytes } => {
            let (flags, _) = FORMATS.into_iter().find(|(_, known)| known == format)?;
            Encoded::new(bytes.as_slice(), flags)
        }
    })
}

/// `None`: the flags mean nothing.
pub(super) fn decode_memcached(bytes: Cow<'_, [u8]>, client_flags: u32) -> Result<Option<Value>, Error> {
    // A compression may be named for what was too short to compress.
    let known = TYPE | IS_COMPRESSED | BY_ZLIB | BY_FASTLZ | BY_ZSTD | USER;
    if client_flags & !known != 0 {
        return Ok(None);
    }
    Ok(Some(match client_flags & TYPE {
        0 => Value::Bytes(bytes.into_owned()),
        1 => Value::Integer(number::integer(&bytes)?),
        2 => Value::Float(number::LONG_WORDS.float(&bytes)?),
        3 => Value::Bool(!bytes.is_empty() && plain::bit(&bytes)?),
        flags => match FORMATS.into_iter().find(|(known, _)| *known == flags) {
            Some((_, format)) => Value::Serialized { format, bytes: bytes.into_owned() },
            None => return Ok(None),
        },
    }))
}

/// php-memcached's compression of a value.
pub(super) fn compression(client_flags: u32) -> Result<Option<Compression>, Error> {
    if client_flags & IS_COMPRESSED == 0 {
        return Ok(None);
    }
    match client_flags & (BY_ZLIB | BY_FASTLZ | BY_ZSTD) {
        BY_ZLIB => Ok(Some(Compression::SizedZlib)),
        BY_FASTLZ => Ok(Some(Compression::SizedFastlz)),
        #[cfg(feature = "zstd")]
        BY_ZSTD => Ok(Some(Compression::SizedZstd)),
        #[cfg(not(feature = "zstd"))]
        BY_ZSTD => Err(Error::UnsupportedCompression("zstd")),
        // Versions before 2.0.
        0 => Ok(Some(Compression::Zlib)),
        _ => Err(Error::Damaged { compression: "one compression" }),
    }
}
