//! The flags of Python's clients.

use std::borrow::Cow;

use super::transcoder::Encoded;
use super::{Error, Format, Value, number, plain};

const PICKLE: u32 = 1;
pub(super) const INTEGER: u32 = 2;
pub(super) const LONG: u32 = 4;
pub(super) const COMPRESSED: u32 = 8;
const TEXT: u32 = 16;

/// `integer` is the flag that this client writes for one. `None`: there are no flags for it.
pub(super) fn encode(value: &Value, integer: u32) -> Option<Encoded> {
    Some(match value {
        Value::Bytes(bytes) => Encoded::new(bytes.as_slice(), 0),
        Value::Text(text) => Encoded::new(text.as_str(), TEXT),
        Value::Integer(number) => Encoded::new(number.to_string(), integer),
        Value::Serialized { format: Format::Pickle, bytes } => Encoded::new(bytes.as_slice(), PICKLE),
        _ => return None,
    })
}

/// `None`: the flags mean nothing.
pub(super) fn decode(bytes: Cow<'_, [u8]>, client_flags: u32) -> Result<Option<Value>, Error> {
    Ok(Some(match client_flags & !COMPRESSED {
        0 => Value::Bytes(bytes.into_owned()),
        TEXT => Value::Text(plain::text(bytes)?),
        INTEGER | LONG => Value::Integer(number::integer(&bytes)?),
        PICKLE => Value::Serialized { format: Format::Pickle, bytes: bytes.into_owned() },
        _ => return Ok(None),
    }))
}
