//! The flags of Java's clients.

use std::borrow::Cow;

use super::transcoder::{Encoded, Transcoder};
use super::{Error, FloatWidth, Format, IntegerWidth, Value, plain};

/// The same to all.
pub(super) const COMPRESSED: u32 = 2;

/// A type of Java that has flags or a marker of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Bool,
    Byte,
    Short,
    Int,
    Long,
    Float,
    Double,
    Char,
    Text,
    Bytes,
    Date,
    Object,
}

const SPYMEMCACHED: [(u32, Type); 10] = [
    (0, Type::Text),
    (1, Type::Object),
    (0x100, Type::Bool),
    (0x200, Type::Int),
    (0x300, Type::Long),
    (0x400, Type::Date),
    (0x500, Type::Byte),
    (0x600, Type::Float),
    (0x700, Type::Double),
    (0x800, Type::Bytes),
];

/// Where a type has several flags, the first are those that are written. Most values are text.
const WHALIN: [(u32, Type); 15] = [
    (32, Type::Text),
    // Since version 3, objects have no flags.
    (8, Type::Object),
    (0, Type::Object),
    (1, Type::Byte),
    (4, Type::Int),
    (16, Type::Char),
    (64, Type::Text),
    (128, Type::Float),
    (256, Type::Short),
    (512, Type::Double),
    (1024, Type::Date),
    (2048, Type::Text),
    (4096, Type::Bytes),
    (8192, Type::Bool),
    (16_384, Type::Long),
];

/// Markers, not flags.
const WHALIN_V1: [(u32, Type); 12] = [
    (1, Type::Byte),
    (2, Type::Bool),
    (3, Type::Int),
    (4, Type::Long),
    (5, Type::Char),
    (6, Type::Text),
    (7, Type::Text),
    (8, Type::Float),
    (9, Type::Short),
    (10, Type::Double),
    (11, Type::Date),
    (12, Type::Text),
];
const WHALIN_V1_SERIALIZED: u32 = 8;

/// `None`: there are no flags for it.
pub(super) fn encode_spymemcached(value: &Value, transcoder: &Transcoder) -> Result<Option<Encoded>, Error> {
    let Some((java_type, bytes)) = encode(value, transcoder)? else { return Ok(None) };
    let bytes = match java_type {
        Type::Bool => if bytes == [1] { b"1" } else { b"0" }.to_vec(),
        Type::Int | Type::Long | Type::Date | Type::Float | Type::Double => {
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            bytes[zeros..].to_vec()
        }
        _ => bytes,
    };
    Ok(flags_of(&SPYMEMCACHED, java_type).map(|flags| Encoded::new(bytes, flags)))
}

/// `None`: the flags mean nothing.
pub(super) fn decode_spymemcached(bytes: Cow<'_, [u8]>, client_flags: u32) -> Result<Option<Value>, Error> {
    let Some(java_type) = type_of(&SPYMEMCACHED, client_flags & !COMPRESSED) else { return Ok(None) };
    match java_type {
        Type::Bool => Ok(Some(Value::Bool(plain::bit(&bytes)?))),
        // Zeros at the front are left out.
        Type::Int | Type::Float => decode(java_type, padded::<4>(&bytes)?.as_slice().into()).map(Some),
        Type::Long | Type::Double | Type::Date => {
            decode(java_type, padded::<8>(&bytes)?.as_slice().into()).map(Some)
        }
        Type::Byte => decode(java_type, padded::<1>(&bytes)?.as_slice().into()).map(Some),
        _ => decode(java_type, bytes).map(Some),
    }
}

/// `None`: there are no flags for it.
pub(super) fn encode_whalin(value: &Value, transcoder: &Transcoder) -> Result<Option<Encoded>, Error> {
    let Some((java_type, bytes)) = encode(value, transcoder)? else { return Ok(None) };
    Ok(flags_of(&WHALIN, java_type).map(|flags| Encoded::new(bytes, flags)))
}

/// `None`: the flags mean nothing.
#[inline]
pub(super) fn decode_whalin(bytes: Cow<'_, [u8]>, client_flags: u32) -> Result<Option<Value>, Error> {
    type_of(&WHALIN, client_flags & !COMPRESSED).map(|java_type| decode(java_type, bytes)).transpose()
}

/// `None`: there are no flags for it.
pub(super) fn encode_whalin_v1(value: &Value, transcoder: &Transcoder) -> Result<Option<Encoded>, Error> {
    let Some((java_type, bytes)) = encode(value, transcoder)? else { return Ok(None) };
    if java_type == Type::Object {
        return Ok(Some(Encoded::new(bytes, WHALIN_V1_SERIALIZED)));
    }
    let marker = flags_of(&WHALIN_V1, java_type).and_then(|marker| u8::try_from(marker).ok());
    Ok(marker.map(|marker| Encoded::new([&[marker], bytes.as_slice()].concat(), 0)))
}

/// `None`: the flags mean nothing.
pub(super) fn decode_whalin_v1(bytes: Cow<'_, [u8]>, client_flags: u32) -> Result<Option<Value>, Error> {
    match client_flags & !COMPRESSED {
        WHALIN_V1_SERIALIZED => decode(Type::Object, bytes).map(Some),
        0 => {
            let marker = *bytes.first().ok_or(Error::Malformed("a marker and a value"))?;
            let bytes = match bytes {
                Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[1..]),
                Cow::Owned(mut bytes) => {
                    bytes.remove(0);
                    Cow::Owned(bytes)
                }
            };
            let java_type = type_of(&WHALIN_V1, marker.into());
            decode(java_type.ok_or(Error::Malformed("a known marker and a value"))?, bytes).map(Some)
        }
        _ => Ok(None),
    }
}

fn flags_of(table: &[(u32, Type)], java_type: Type) -> Option<u32> {
    table.iter().find(|(_, known)| *known == java_type).map(|(flags, _)| *flags)
}

#[inline]
fn type_of(table: &[(u32, Type)], flags: u32) -> Option<Type> {
    table.iter().find(|(known, _)| *known == flags).map(|(_, java_type)| *java_type)
}

/// A value as Whalin has it: whole numbers, and a byte for a boolean. `None`: Java has no such type.
fn encode(value: &Value, transcoder: &Transcoder) -> Result<Option<(Type, Vec<u8>)>, Error> {
    let out_of_range = |_| Error::OutOfRange;
    Ok(Some(match value {
        Value::Bytes(bytes) => (Type::Bytes, bytes.clone()),
        Value::Text(text) => (Type::Text, text.clone().into_bytes()),
        Value::Integer(integer) => match transcoder.integer_width {
            IntegerWidth::W8 => {
                (Type::Byte, i8::try_from(*integer).map_err(out_of_range)?.to_be_bytes().to_vec())
            }
            IntegerWidth::W16 => {
                let short = i16::try_from(*integer).map_err(out_of_range)?;
                (Type::Short, i32::from(short).to_be_bytes().to_vec())
            }
            IntegerWidth::W32 => {
                (Type::Int, i32::try_from(*integer).map_err(out_of_range)?.to_be_bytes().to_vec())
            }
            IntegerWidth::W64 => (Type::Long, integer.to_be_bytes().to_vec()),
        },
        Value::Float(float) => match transcoder.float_width {
            FloatWidth::W32 => {
                #[allow(clippy::cast_possible_truncation, reason = "what does not fit is refused")]
                let narrow = *float as f32;
                if f64::from(narrow) != *float && !float.is_nan() {
                    return Err(Error::OutOfRange);
                }
                (Type::Float, narrow.to_be_bytes().to_vec())
            }
            FloatWidth::W64 => (Type::Double, float.to_be_bytes().to_vec()),
        },
        Value::Bool(bool) => (Type::Bool, vec![u8::from(*bool)]),
        Value::Date(unix_millis) => (Type::Date, unix_millis.to_be_bytes().to_vec()),
        Value::Serialized { format: Format::Java, bytes } => (Type::Object, bytes.clone()),
        Value::Serialized { .. } => return Ok(None),
    }))
}

/// The contrary of `encode`.
#[inline]
fn decode(java_type: Type, bytes: Cow<'_, [u8]>) -> Result<Value, Error> {
    Ok(match java_type {
        Type::Bool => match &*bytes {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return Err(Error::Malformed("a boolean")),
        },
        Type::Byte => Value::Integer(i8::from_be_bytes(exact(&bytes)?).into()),
        Type::Short => {
            let short = i16::try_from(i32::from_be_bytes(exact(&bytes)?));
            Value::Integer(short.map_err(|_| Error::OutOfRange)?.into())
        }
        Type::Int => Value::Integer(i32::from_be_bytes(exact(&bytes)?).into()),
        Type::Long => Value::Integer(i64::from_be_bytes(exact(&bytes)?)),
        Type::Float => Value::Float(f32::from_be_bytes(exact(&bytes)?).into()),
        Type::Double => Value::Float(f64::from_be_bytes(exact(&bytes)?)),
        Type::Char => {
            // One half of a surrogate pair is not a character.
            let unit = u16::try_from(u32::from_be_bytes(exact(&bytes)?)).map_err(|_| Error::OutOfRange)?;
            Value::Text(char::from_u32(unit.into()).ok_or(Error::Malformed("a character"))?.into())
        }
        Type::Text => Value::Text(plain::text(bytes)?),
        Type::Bytes => Value::Bytes(bytes.into_owned()),
        Type::Date => Value::Date(i64::from_be_bytes(exact(&bytes)?)),
        Type::Object => Value::Serialized { format: Format::Java, bytes: bytes.into_owned() },
    })
}

fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Error> {
    bytes.try_into().map_err(|_| Error::Malformed("a number of the right size"))
}

/// With zeros at the front.
fn padded<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Error> {
    let mut padded = [0; N];
    let zeros = N.checked_sub(bytes.len()).ok_or(Error::Malformed("a number of the right size"))?;
    padded[zeros..].copy_from_slice(bytes);
    Ok(padded)
}
