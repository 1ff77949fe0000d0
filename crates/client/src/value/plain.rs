//! larder's own flags.

use std::borrow::Cow;

use super::compression::Compression;
use super::transcoder::Encoded;
use super::{Error, Format, Value, number};

const BYTES: u32 = 0;
const TEXT: u32 = 1;
const INTEGER: u32 = 2;
const FLOAT: u32 = 3;
const BOOL: u32 = 4;
const DATE: u32 = 5;
const JSON: u32 = 6;
pub(super) const BY_ZLIB: u32 = 16;
pub(super) const BY_ZSTD: u32 = 32;

/// `None`: there are no flags for it.
pub(super) fn encode(value: &Value) -> Option<Encoded> {
    Some(match value {
        Value::Bytes(bytes) => Encoded::new(bytes.as_slice(), BYTES),
        Value::Text(text) => Encoded::new(text.as_str(), TEXT),
        Value::Integer(integer) => Encoded::new(integer.to_string(), INTEGER),
        Value::Float(float) => Encoded::new(number::LONG_WORDS.text(*float), FLOAT),
        Value::Bool(bool) => Encoded::new(if *bool { "1" } else { "0" }, BOOL),
        Value::Date(unix_millis) => Encoded::new(unix_millis.to_string(), DATE),
        Value::Serialized { format: Format::Json, bytes } => Encoded::new(bytes.as_slice(), JSON),
        Value::Serialized { .. } => return None,
    })
}

/// How a value is compressed.
pub(super) fn compression(client_flags: u32) -> Result<Option<Compression>, Error> {
    match client_flags & (BY_ZLIB | BY_ZSTD) {
        0 => Ok(None),
        BY_ZLIB => Ok(Some(Compression::Zlib)),
        #[cfg(feature = "zstd")]
        BY_ZSTD => Ok(Some(Compression::Zstd)),
        #[cfg(not(feature = "zstd"))]
        BY_ZSTD => Err(Error::UnsupportedCompression("zstd")),
        _ => Err(Error::Damaged { compression: "one compression" }),
    }
}

/// `None`: the flags mean nothing.
pub(super) fn decode(bytes: Cow<'_, [u8]>, client_flags: u32) -> Result<Option<Value>, Error> {
    Ok(Some(match client_flags & !(BY_ZLIB | BY_ZSTD) {
        BYTES => Value::Bytes(bytes.into_owned()),
        TEXT => Value::Text(text(bytes)?),
        INTEGER => Value::Integer(number::integer(&bytes)?),
        FLOAT => Value::Float(number::LONG_WORDS.float(&bytes)?),
        BOOL => Value::Bool(bit(&bytes)?),
        DATE => Value::Date(number::integer(&bytes)?),
        JSON => Value::Serialized { format: Format::Json, bytes: bytes.into_owned() },
        _ => return Ok(None),
    }))
}

#[inline]
pub(super) fn text(bytes: Cow<'_, [u8]>) -> Result<String, Error> {
    String::from_utf8(bytes.into_owned()).map_err(|_| Error::Malformed("text in UTF-8"))
}

/// `1` or `0`.
pub(super) fn bit(bytes: &[u8]) -> Result<bool, Error> {
    match bytes {
        b"1" => Ok(true),
        b"0" => Ok(false),
        _ => Err(Error::Malformed("a boolean")),
    }
}
