//! The flags of dalli.

use std::borrow::Cow;

use super::transcoder::Encoded;
use super::{Format, Value};

const SERIALIZED: u32 = 1;
pub(super) const COMPRESSED: u32 = 2;

/// `None`: there are no flags for it.
pub(super) fn encode(value: &Value) -> Option<Encoded> {
    Some(match value {
        Value::Bytes(bytes) => Encoded::new(bytes.as_slice(), 0),
        Value::Text(text) => Encoded::new(text.as_str(), 0),
        Value::Serialized {
            format: Format::RubyMarshal | Format::Json | Format::Msgpack | Format::Other,
            bytes,
        } => Encoded::new(bytes.as_slice(), SERIALIZED),
        _ => return None,
    })
}

/// `None`: the flags mean nothing.
pub(super) fn decode(bytes: Cow<'_, [u8]>, client_flags: u32) -> Option<Value> {
    match client_flags & !COMPRESSED {
        0 => Some(Value::Bytes(bytes.into_owned())),
        SERIALIZED => {
            // The flags are the same for each serializer; Marshal begins with its version.
            let is_marshal = bytes.starts_with(b"\x04\x08");
            let format = if is_marshal { Format::RubyMarshal } else { Format::Other };
            Some(Value::Serialized { format, bytes: bytes.into_owned() })
        }
        _ => None,
    }
}
