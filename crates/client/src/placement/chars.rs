//! What a hash function takes for a character of a key.

/// The characters of a key, as numbers: clients hash the same bytes differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chars {
    /// Bytes with a sign, as C's `char` on x86-64: 0xFF is -1. libmemcached, twemproxy and PHP's memcache
    /// there.
    #[default]
    Signed,
    /// Bytes from 0 to 255, as C's `char` on ARM. The same clients there.
    Unsigned,
    /// UTF-16, as Java's `char`. What is not UTF-8 counts as U+FFFD; no Java client has such keys.
    Utf16,
}

impl Chars {
    /// As C's `char` on this machine.
    pub const NATIVE: Self = if std::ffi::c_char::MIN == 0 { Self::Unsigned } else { Self::Signed };

    /// Passes each character to `next`, as C and Java widen it to 32 bits.
    pub(super) fn fold(self, key: &[u8], start: u32, mut next: impl FnMut(u32, u32) -> u32) -> u32 {
        match self {
            Self::Signed => key.iter().fold(start, |sum, byte| next(sum, signed(*byte))),
            Self::Unsigned => key.iter().fold(start, |sum, byte| next(sum, u32::from(*byte))),
            Self::Utf16 => utf16(key, start, |sum, char| next(sum, u32::from(char))),
        }
    }
}

/// A byte as C's signed `char`, widened.
pub(super) fn signed(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

/// Folds over the UTF-16 of a key.
pub(super) fn utf16<T>(key: &[u8], start: T, next: impl FnMut(T, u16) -> T) -> T {
    String::from_utf8_lossy(key).encode_utf16().fold(start, next)
}
