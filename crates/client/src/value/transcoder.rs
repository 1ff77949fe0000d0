//! Values to bytes and flags, and back.

use std::borrow::Cow;

use super::compression::Compression;
use super::{Dialect, Error, FloatWidth, IntegerWidth, Value, java, php, plain, python, ruby};

/// Encodes and decodes the values of one dialect.
#[derive(Clone, Copy, Debug)]
pub struct Transcoder {
    dialect: Dialect,
    compressed_from_bytes: Option<usize>,
    #[cfg(feature = "zstd")]
    writes_zstd: bool,
    value_bytes_max: usize,
    pub(super) integer_width: IntegerWidth,
    pub(super) float_width: FloatWidth,
}

/// What is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The bytes of the item.
    pub bytes: Vec<u8>,
    /// Its flags. php-memcached and PECL memcache leave bits 16 to 31 to the application.
    pub client_flags: u32,
}

impl Encoded {
    pub(super) fn new(bytes: impl Into<Vec<u8>>, client_flags: u32) -> Self {
        Self { bytes: bytes.into(), client_flags }
    }
}

impl Transcoder {
    /// A transcoder that compresses as the client does by default, and decodes values of up to
    /// [`VALUE_BYTES_MAX`](Self::VALUE_BYTES_MAX).
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            compressed_from_bytes: dialect.compressed_from_bytes(),
            #[cfg(feature = "zstd")]
            writes_zstd: false,
            value_bytes_max: Self::VALUE_BYTES_MAX,
            integer_width: IntegerWidth::default(),
            float_width: FloatWidth::default(),
        }
    }

    /// How many bytes a value may have, unless [`Transcoder::value_bytes_max`] says otherwise.
    pub const VALUE_BYTES_MAX: usize = 64 << 20;

    /// Compresses values of this many bytes and more, where that makes them smaller. `None`: none.
    #[must_use]
    pub fn compressed_from_bytes(self, compressed_from_bytes: Option<usize>) -> Self {
        Self { compressed_from_bytes, ..self }
    }

    /// Compresses by zstd instead of zlib, in the dialects that have it: [`Dialect::Plain`] and
    /// [`Dialect::PhpMemcached`], which only its version 3.3 reads, if it was built with zstd. The others go on as they
    /// do. Both are read with the feature `zstd`, whatever is written.
    #[cfg(feature = "zstd")]
    #[cfg_attr(docsrs, doc(cfg(feature = "zstd")))]
    #[must_use]
    pub fn zstd(self) -> Self {
        Self { writes_zstd: true, ..self }
    }

    /// How many bytes a value may have, decompressed as well. Larger ones are refused before memory is taken for them;
    /// while it is decompressed, a value takes up to twice as much, as its buffer grows.
    #[must_use]
    pub fn value_bytes_max(self, value_bytes_max: usize) -> Self {
        Self { value_bytes_max, ..self }
    }

    /// What integers are to Java.
    #[must_use]
    pub fn integer_width(self, integer_width: IntegerWidth) -> Self {
        Self { integer_width, ..self }
    }

    /// What floating-point numbers are to Java.
    #[must_use]
    pub fn float_width(self, float_width: FloatWidth) -> Self {
        Self { float_width, ..self }
    }

    /// Bytes and flags that mean this value. Where a dialect does not tell text from bytes, it is decoded as bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::OutOfRange`], [`Error::TooLarge`].
    pub fn encode(&self, value: &Value) -> Result<Encoded, Error> {
        let encoded = match self.dialect {
            Dialect::Plain => plain::encode(value),
            Dialect::PhpMemcache => php::encode_memcache(value),
            Dialect::PhpMemcached => php::encode_memcached(value),
            Dialect::Spymemcached => java::encode_spymemcached(value, self)?,
            Dialect::Whalin => java::encode_whalin(value, self)?,
            Dialect::WhalinV1 => java::encode_whalin_v1(value, self)?,
            Dialect::Pymemcache | Dialect::PythonMemcached => python::encode(value, python::INTEGER),
            Dialect::Pylibmc => python::encode(value, python::LONG),
            Dialect::Dalli => ruby::encode(value),
        };
        let unsupported = || Error::Unsupported { dialect: self.dialect.name(), kind: value.kind() };
        let encoded = encoded.ok_or_else(unsupported)?;
        self.check_size(encoded.bytes.len())?;
        match self.compressed_from_bytes {
            Some(from_bytes) if encoded.bytes.len() >= from_bytes => Ok(self.compressed(encoded)),
            _ => Ok(encoded),
        }
    }

    /// The value that bytes and flags mean. Bytes that are owned (`item.value`) become the value's, without a copy.
    ///
    /// # Errors
    /// All but [`Error::Unsupported`].
    pub fn decode<'a>(&self, bytes: impl Into<Cow<'a, [u8]>>, client_flags: u32) -> Result<Value, Error> {
        self.decode_cow(bytes.into(), client_flags)
    }

    fn decode_cow(&self, bytes: Cow<'_, [u8]>, client_flags: u32) -> Result<Value, Error> {
        let compression = match self.dialect {
            Dialect::Plain => plain::compression(client_flags)?,
            Dialect::PhpMemcached => php::compression(client_flags)?,
            _ => {
                let (flag, compression) = self.simple_compression();
                (client_flags & flag != 0).then_some(compression)
            }
        };
        let bytes = match compression {
            Some(compression) => Cow::Owned(compression.decompress(&bytes, self.value_bytes_max)?),
            None => bytes,
        };
        self.check_size(bytes.len())?;
        let value = match self.dialect {
            Dialect::Plain => plain::decode(bytes, client_flags)?,
            Dialect::PhpMemcache => php::decode_memcache(bytes, client_flags)?,
            Dialect::PhpMemcached => php::decode_memcached(bytes, client_flags)?,
            Dialect::Spymemcached => java::decode_spymemcached(bytes, client_flags)?,
            Dialect::Whalin => java::decode_whalin(bytes, client_flags)?,
            Dialect::WhalinV1 => java::decode_whalin_v1(bytes, client_flags)?,
            Dialect::Pymemcache | Dialect::PythonMemcached | Dialect::Pylibmc => {
                python::decode(bytes, client_flags)?
            }
            Dialect::Dalli => ruby::decode(bytes, client_flags),
        };
        value.ok_or_else(|| Error::UnknownFlags { dialect: self.dialect.name(), client_flags })
    }

    fn check_size(&self, bytes: usize) -> Result<(), Error> {
        let value_bytes_max = self.value_bytes_max;
        if bytes > value_bytes_max { Err(Error::TooLarge { value_bytes_max }) } else { Ok(()) }
    }

    fn compressed(&self, encoded: Encoded) -> Encoded {
        let (flag, compression) = self.simple_compression();
        let bytes = compression.compress(&encoded.bytes);
        match bytes {
            Some(bytes) if bytes.len() < encoded.bytes.len() => {
                Encoded { bytes, client_flags: encoded.client_flags | flag }
            }
            _ => encoded,
        }
    }

    /// The compression that is written, and its flags.
    fn simple_compression(&self) -> (u32, Compression) {
        #[cfg(feature = "zstd")]
        match self.dialect {
            Dialect::Plain if self.writes_zstd => return (plain::BY_ZSTD, Compression::Zstd),
            Dialect::PhpMemcached if self.writes_zstd => {
                return (php::COMPRESSED_BY_ZSTD, Compression::SizedZstd);
            }
            _ => {}
        }
        match self.dialect {
            Dialect::Plain => (plain::BY_ZLIB, Compression::Zlib),
            Dialect::PhpMemcached => (php::COMPRESSED_BY_ZLIB, Compression::SizedZlib),
            Dialect::PhpMemcache => (php::COMPRESSED, Compression::Zlib),
            Dialect::Spymemcached | Dialect::Whalin | Dialect::WhalinV1 => {
                (java::COMPRESSED, Compression::Gzip)
            }
            Dialect::Pymemcache | Dialect::PythonMemcached | Dialect::Pylibmc => {
                (python::COMPRESSED, Compression::Zlib)
            }
            Dialect::Dalli => (ruby::COMPRESSED, Compression::Zlib),
        }
    }
}
