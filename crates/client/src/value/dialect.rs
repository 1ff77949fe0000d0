//! Whose flags are spoken.

/// The client whose flags are spoken. All numbers are those of its own code, with the version they were compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// larder's own, which has all types but serialized objects other than JSON. Bits 0 to 3: 0 bytes, 1 text, 2 a
    /// decimal integer, 3 a decimal floating-point number, 4 a boolean (`0`, `1`), 5 a date (decimal milliseconds), 6
    /// JSON. Bit 4: zlib; bit 5: zstd.
    Plain,
    /// PECL memcache 4.0.5. 1 `serialize`, 2 zlib; 0x100 boolean, 0x300 integer, 0x700 floating-point number; a string
    /// without. Bits 16 to 31 are the application's.
    PhpMemcache,
    /// php-memcached 3.2. Bits 0 to 3: 0 string, 1 integer, 2 floating-point number, 3 boolean, 4 `serialize`, 5
    /// igbinary, 6 JSON, 7 MessagePack. Bit 4: compressed, with 5 by zlib, 6 by FastLZ, 7 by zstd; before it the length
    /// of the value (32 bits, little-endian). Bits 16 to 31 are the application's. FastLZ is read, and zlib written,
    /// which php-memcached reads whatever its settings; zstd (its version 3.3) is read with the feature `zstd`.
    PhpMemcached,
    /// spymemcached 2.12.3 (`SerializingTranscoder`). 1 serialized, 2 gzip; 0x100 boolean, 0x200 `int`, 0x300 `long`,
    /// 0x400 `Date`, 0x500 `byte`, 0x600 `float`, 0x700 `double`, 0x800 bytes; text without.
    Spymemcached,
    /// Whalin's client from 2.0 to 3.0.2. 1 `byte`, 4 `int`, 16 `char`, 32, 64 and 2048 text, 128 `float`, 256 `short`,
    /// 512 `double`, 1024 `Date`, 4096 bytes, 8192 boolean, 16384 `long`; 2 gzip, 8 or nothing serialized. It reads
    /// every value without bytes as `null`.
    Whalin,
    /// Whalin's client before 2.0. 2 gzip, 8 serialized; else the first byte is the type.
    WhalinV1,
    /// pymemcache 4.0 (`serde`). 1 pickle, 2 and 4 integer, 8 zlib, 16 text; bytes without. Only its `compressed_serde`
    /// reads what is compressed, so by default nothing is.
    Pymemcache,
    /// python-memcached 1.62. As pymemcache; it reads what is compressed.
    PythonMemcached,
    /// pylibmc 1.6.3. As pymemcache; integers are written with 4, and booleans come back as integers.
    Pylibmc,
    /// dalli 3.0.6. 1 serialized (`Marshal`, unless the application chose another), 2 zlib; raw strings without.
    Dalli,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 10] = [
        Self::Plain,
        Self::PhpMemcache,
        Self::PhpMemcached,
        Self::Spymemcached,
        Self::Whalin,
        Self::WhalinV1,
        Self::Pymemcache,
        Self::PythonMemcached,
        Self::Pylibmc,
        Self::Dalli,
    ];

    /// The name of the client.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "larder",
            Self::PhpMemcache => "PECL memcache",
            Self::PhpMemcached => "php-memcached",
            Self::Spymemcached => "spymemcached",
            Self::Whalin => "Whalin's client",
            Self::WhalinV1 => "Whalin's client before 2.0",
            Self::Pymemcache => "pymemcache",
            Self::PythonMemcached => "python-memcached",
            Self::Pylibmc => "pylibmc",
            Self::Dalli => "dalli",
        }
    }

    /// From how many bytes on a value is compressed: as the client itself does by default. `None`: it does not.
    pub(super) fn compressed_from_bytes(self) -> Option<usize> {
        match self {
            Self::PhpMemcached => Some(2000),
            Self::Spymemcached => Some(16_385),
            Self::Whalin | Self::WhalinV1 => Some(30_721),
            Self::Dalli => Some(4096),
            _ => None,
        }
    }
}

/// What an integer is to Java, which does not take one for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntegerWidth {
    /// `byte`.
    W8,
    /// `short`, which spymemcached has no flags for.
    W16,
    /// `int`.
    W32,
    /// `long`.
    #[default]
    W64,
}

/// What a floating-point number is to Java, which does not take one for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FloatWidth {
    /// `float`.
    W32,
    /// `double`.
    #[default]
    W64,
}
