//! Values as the clients of other languages keep them.
//!
//! A server keeps bytes and 32 bits of flags, and knows the meaning of neither. Each client has its own: the same bit
//! says "compressed" to one and "an integer" to another. A [`Transcoder`] speaks the dialect of one of them, so that a
//! program reads what a PHP, Java, Python or Ruby application keeps, and writes what it can read.
//!
//! ```
//! use larder_client::value::{Dialect, Transcoder, Value};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let php = Transcoder::new(Dialect::PhpMemcached);
//! let visits = php.encode(&Value::from(42))?;
//! assert_eq!((visits.bytes.as_slice(), visits.client_flags), (&b"42"[..], 1));
//! assert_eq!(php.decode(&visits.bytes, visits.client_flags)?, Value::Integer(42));
//! # Ok(())
//! # }
//! # example().expect("it has an integer");
//! ```
//!
//! Objects of these languages are bytes in a named [`Format`], and stay so: nothing here deserializes them. Values that
//! are too large for an item are kept in pieces, by [`chunked`].
//!
//! What is decoded may come from anybody: [`Transcoder::value_bytes_max`] bounds how large it can become, and what is
//! not in the dialect is an [`Error`].

pub mod chunked;
mod compression;
mod dialect;
mod error;
mod fastlz;
mod java;
mod number;
mod php;
mod plain;
mod python;
mod ruby;
mod transcoder;

pub use dialect::{Dialect, FloatWidth, IntegerWidth};
pub use error::Error;
pub use transcoder::{Encoded, Transcoder};

/// A value with its type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Bytes. All strings of PHP and of dalli's raw mode are bytes; see [`Value::as_text`].
    Bytes(Vec<u8>),
    /// Text, in the dialects that tell it from bytes.
    Text(String),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A point in time, in milliseconds since 1970 (UTC): Java's `Date`.
    Date(i64),
    /// An object, as its language serialized it.
    Serialized {
        /// Which serializer made it.
        format: Format,
        /// What it made.
        bytes: Vec<u8>,
    },
}

/// How an object is serialized.
///
/// To deserialize any but [`Format::Json`] and [`Format::Msgpack`] runs code of the sender's choice in some languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// PHP's `serialize`.
    Php,
    /// PHP's `igbinary_serialize`.
    Igbinary,
    /// JSON.
    Json,
    /// MessagePack.
    Msgpack,
    /// Java's `ObjectOutputStream`.
    Java,
    /// Python's `pickle`.
    Pickle,
    /// Ruby's `Marshal`.
    RubyMarshal,
    /// Another, by which the application replaced its client's own.
    Other,
}

impl Value {
    /// The text of [`Value::Text`], or of [`Value::Bytes`] that are UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The name of the type, for messages.
    fn kind(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "bytes",
            Self::Text(_) => "text",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a floating-point number",
            Self::Bool(_) => "a boolean",
            Self::Date(_) => "a date",
            Self::Serialized { format, .. } => match format {
                Format::Php => "an object of PHP",
                Format::Igbinary => "an object by igbinary",
                Format::Json => "JSON",
                Format::Msgpack => "an object by MessagePack",
                Format::Java => "an object of Java",
                Format::Pickle => "an object of Python",
                Format::RubyMarshal => "an object of Ruby",
                Format::Other => "an object in a format of its own",
            },
        }
    }
}

/// JSON, which [`Dialect::Plain`], [`Dialect::PhpMemcached`] and [`Dialect::Dalli`] can keep.
#[cfg(feature = "serde")]
impl Value {
    /// A value as JSON.
    ///
    /// # Errors
    /// It is not one of JSON's.
    pub fn to_json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::Serialized { format: Format::Json, bytes: serde_json::to_vec(value)? })
    }

    /// What JSON says. `None`: this is not JSON.
    ///
    /// # Errors
    /// It is malformed, or not a `T`.
    pub fn from_json<T: serde::de::DeserializeOwned>(&self) -> Option<Result<T, serde_json::Error>> {
        match self {
            Self::Serialized { format: Format::Json, bytes } => Some(serde_json::from_slice(bytes)),
            _ => None,
        }
    }

    /// A `T` from JSON, or from what is JSON as well.
    #[cfg(feature = "tokio")]
    pub(crate) fn read_json<T: serde::de::DeserializeOwned>(&self) -> Result<T, crate::Error> {
        let bytes = match self {
            Self::Bytes(bytes) | Self::Serialized { format: Format::Json, bytes } => bytes,
            Self::Text(text) => text.as_bytes(),
            Self::Integer(integer) => return Ok(T::deserialize(serde_json::Value::from(*integer))?),
            Self::Float(float) => return Ok(T::deserialize(serde_json::Value::from(*float))?),
            Self::Bool(bool) => return Ok(T::deserialize(serde_json::Value::from(*bool))?),
            Self::Date(_) | Self::Serialized { .. } => return Err(Error::NotJson(self.kind()).into()),
        };
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(integer: i64) -> Self {
        Self::Integer(integer)
    }
}

impl From<f64> for Value {
    fn from(float: f64) -> Self {
        Self::Float(float)
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}
