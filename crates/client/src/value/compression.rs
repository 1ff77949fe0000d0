//! Compressed values, and no more memory for them than is allowed.

use std::io::{Read, Write};

use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use super::{Error, fastlz};

/// How a value is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    /// RFC 1950.
    Zlib,
    /// RFC 1952.
    Gzip,
    /// The length of the value (32 bits, little-endian), then zlib's: php-memcached.
    SizedZlib,
    /// The length, then FastLZ's.
    SizedFastlz,
    /// RFC 8878.
    #[cfg(feature = "zstd")]
    Zstd,
    /// The length, then zstd's.
    #[cfg(feature = "zstd")]
    SizedZstd,
}

impl Compression {
    /// `None`: it cannot compress that.
    pub(super) fn compress(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let level = flate2::Compression::default();
        match self {
            Self::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).ok()?;
                encoder.finish().ok()
            }
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).ok()?;
                encoder.finish().ok()
            }
            Self::SizedZlib => sized(bytes, Self::Zlib),
            Self::SizedFastlz => None,
            #[cfg(feature = "zstd")]
            Self::Zstd => zstd::bulk::compress(bytes, zstd::DEFAULT_COMPRESSION_LEVEL).ok(),
            #[cfg(feature = "zstd")]
            Self::SizedZstd => sized(bytes, Self::Zstd),
        }
    }

    /// The value, if it has at most `value_bytes_max` bytes; its buffer never has more than one byte beyond.
    pub(super) fn decompress(self, bytes: &[u8], value_bytes_max: usize) -> Result<Vec<u8>, Error> {
        let damaged = Error::Damaged { compression: self.name() };
        match self {
            Self::Zlib => read_bounded(ZlibDecoder::new(bytes), value_bytes_max, damaged),
            Self::Gzip => read_bounded(GzDecoder::new(bytes), value_bytes_max, damaged),
            #[cfg(feature = "zstd")]
            Self::Zstd => read_bounded(zstd_decoder(bytes, value_bytes_max)?, value_bytes_max, damaged),
            _ => {
                let (length, bytes) = bytes.split_first_chunk().ok_or_else(|| damaged.clone())?;
                let value_bytes = u32::from_le_bytes(*length) as usize;
                if value_bytes > value_bytes_max {
                    return Err(Error::TooLarge { value_bytes_max });
                }
                let value = match self {
                    Self::SizedFastlz => fastlz::decompress(bytes, value_bytes),
                    #[cfg(feature = "zstd")]
                    Self::SizedZstd => {
                        let decoder = zstd_decoder(bytes, value_bytes_max)?;
                        read_bounded(decoder, value_bytes, damaged.clone()).ok()
                    }
                    _ => Self::Zlib.decompress(bytes, value_bytes).ok(),
                };
                value.filter(|value| value.len() == value_bytes).ok_or(damaged)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Zlib | Self::SizedZlib => "zlib",
            Self::Gzip => "gzip",
            Self::SizedFastlz => "FastLZ",
            #[cfg(feature = "zstd")]
            Self::Zstd | Self::SizedZstd => "zstd",
        }
    }
}

/// The length, then what is compressed.
fn sized(bytes: &[u8], compression: Compression) -> Option<Vec<u8>> {
    let mut output = u32::try_from(bytes.len()).ok()?.to_le_bytes().to_vec();
    output.append(&mut compression.compress(bytes)?);
    Some(output)
}

/// It takes no more memory for earlier bytes than the largest value has, or 8 MiB, which RFC 8878 wants of everybody.
#[cfg(feature = "zstd")]
fn zstd_decoder(bytes: &[u8], value_bytes_max: usize) -> Result<impl Read, Error> {
    let damaged = |_| Error::Damaged { compression: "zstd" };
    let mut decoder = zstd::Decoder::with_buffer(bytes).map_err(damaged)?;
    let window_log_max = value_bytes_max.max(8 << 20).checked_next_power_of_two().map_or(31, usize::ilog2);
    decoder.window_log_max(window_log_max.min(31)).map_err(damaged)?;
    Ok(decoder)
}

/// All that a decoder gives, if that is at most `bytes_max`. The capacity grows with what came, up to one byte beyond.
fn read_bounded(mut decoder: impl Read, bytes_max: usize, damaged: Error) -> Result<Vec<u8>, Error> {
    let mut output = Vec::new();
    loop {
        let length = output.len();
        if length > bytes_max {
            return Err(Error::TooLarge { value_bytes_max: bytes_max });
        }
        let grown = length.saturating_mul(2).max(GROWTH_BYTES_MIN).min(bytes_max.saturating_add(1));
        output.reserve_exact(grown - length);
        output.resize(grown, 0);
        let mut filled = length;
        while filled < grown {
            match decoder.read(&mut output[filled..]) {
                Ok(0) => {
                    output.truncate(filled);
                    return if filled > bytes_max {
                        Err(Error::TooLarge { value_bytes_max: bytes_max })
                    } else {
                        Ok(output)
                    };
                }
                Ok(read) => filled += read,
                Err(_) => return Err(damaged),
            }
        }
    }
}

const GROWTH_BYTES_MIN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written.
    const ALL: &[Compression] = &[
        Compression::Zlib,
        Compression::Gzip,
        Compression::SizedZlib,
        #[cfg(feature = "zstd")]
        Compression::Zstd,
        #[cfg(feature = "zstd")]
        Compression::SizedZstd,
    ];

    /// Gives bytes for ever, and counts.
    struct Endless<'a>(&'a mut usize);

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.fill(b'x');
            *self.0 += buffer.len();
            assert!(*self.0 < 1 << 20, "nobody stops");
            Ok(buffer.len())
        }
    }

    #[test]
    fn a_bomb_is_refused_one_byte_beyond_the_bound() {
        for bytes_max in [0, 1, 4095, 4096, 4097, 100_000] {
            let mut given = 0;
            let refused = read_bounded(Endless(&mut given), bytes_max, Error::Malformed(""));
            assert_eq!(refused, Err(Error::TooLarge { value_bytes_max: bytes_max }));
            assert_eq!(given, bytes_max + 1);
        }
    }

    #[test]
    fn what_fits_exactly_is_taken_without_memory_beyond() {
        for bytes in [0_usize, 1, 4096, 4097, 50_000] {
            let value = vec![7; bytes];
            for compression in ALL {
                let compressed = compression.compress(&value).expect("it can");
                let decompressed = compression.decompress(&compressed, bytes).expect("it fits");
                assert_eq!(decompressed, value);
                assert!(decompressed.capacity() <= bytes + 1, "{} of {bytes}", decompressed.capacity());
                if bytes > 0 {
                    let refused = compression.decompress(&compressed, bytes - 1);
                    assert_eq!(refused, Err(Error::TooLarge { value_bytes_max: bytes - 1 }));
                }
            }
        }
    }

    #[test]
    fn a_length_that_is_not_that_of_the_value_is_refused() {
        let mut compressed = Compression::SizedZlib.compress(&[7; 5000]).expect("it can");
        for length in [0_u32, 4999, 5001, 1 << 20] {
            compressed[..4].copy_from_slice(&length.to_le_bytes());
            let refused = Compression::SizedZlib.decompress(&compressed, 1 << 20);
            assert_eq!(refused, Err(Error::Damaged { compression: "zlib" }), "{length}");
        }
    }
}
