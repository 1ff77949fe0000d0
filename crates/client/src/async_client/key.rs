//! Keys, as a protocol can write them.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_protocol::KEY_BYTES_MAX;

use crate::Error;
use crate::check::is_word;
use crate::codec::Protocol;

/// A valid key. Invariant: it has 1 to 250 bytes as written, and in the text and meta protocols it is a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WireKey {
    /// As written.
    pub bytes: Box<[u8]>,
    /// Meta: written in base64, which the flag `b` says.
    pub is_base64: bool,
}

impl WireKey {
    /// See [`written`].
    pub(super) fn new(key: &[u8], protocol: Protocol) -> Result<Self, Error> {
        let (bytes, is_base64) = written(key, protocol)?;
        Ok(Self { bytes: bytes.into(), is_base64 })
    }

    /// The key itself.
    pub(super) fn original(&self) -> Cow<'_, [u8]> {
        if !self.is_base64 {
            return Cow::Borrowed(&self.bytes);
        }
        // It was made of one, so it can be read.
        Cow::Owned(STANDARD.decode(&self.bytes).unwrap_or_default())
    }

    /// The flag that says how it is written.
    pub(super) fn flag(&self) -> &'static [u8] {
        if self.is_base64 { b"b" } else { b"" }
    }
}

/// A valid key as a protocol writes it, and whether that is base64. Keys with spaces and control characters exist in
/// the binary protocol, and in base64 in the meta protocol, where they have at most 186 bytes: what fits into a key of
/// base64.
#[inline]
pub(super) fn written(key: &[u8], protocol: Protocol) -> Result<(Cow<'_, [u8]>, bool), Error> {
    let is_binary_protocol = protocol == Protocol::Binary;
    if is_word(key) || (is_binary_protocol && (1..=KEY_BYTES_MAX).contains(&key.len())) {
        return Ok((Cow::Borrowed(key), false));
    }
    if protocol == Protocol::Meta && (1..=BASE64_KEY_BYTES_MAX).contains(&key.len()) {
        return Ok((Cow::Owned(STANDARD.encode(key).into_bytes()), true));
    }
    Err(Error::InvalidKey)
}

/// Four characters for three bytes, padded.
const BASE64_KEY_BYTES_MAX: usize = KEY_BYTES_MAX / 4 * 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(key: &[u8], protocol: Protocol) -> Option<(String, bool)> {
        let (bytes, is_base64) = super::written(key, protocol).ok()?;
        Some((String::from_utf8_lossy(&bytes).into_owned(), is_base64))
    }

    #[test]
    fn words_are_written_as_they_are() {
        for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
            assert_eq!(written(b"a", protocol), Some(("a".into(), false)));
            assert_eq!(written("größe".as_bytes(), protocol), Some(("größe".into(), false)));
            assert_eq!(written(&[b'x'; 250], protocol), Some(("x".repeat(250), false)));
            assert_eq!(written(&[b'x'; 251], protocol), None);
            assert_eq!(written(b"", protocol), None);
        }
    }

    #[test]
    fn what_could_be_a_command_is_never_written_as_it_is() {
        for key in [&b"a\r\nflush_all\r\n"[..], b"a b", b"a\n", b"\0", b"a\x7f", b"a\tb"] {
            assert_eq!(written(key, Protocol::Text), None);
            let (text, is_base64) = written(key, Protocol::Meta).expect("in base64");
            assert!(is_base64 && is_word(text.as_bytes()));
            assert!(written(key, Protocol::Binary).is_some());
        }
        // RFC 4648, section 10, but with a space.
        assert_eq!(written(b"fo o", Protocol::Meta), Some(("Zm8gbw==".into(), true)));
        assert_eq!(written(&[0; 186], Protocol::Meta).map(|(text, _)| text.len()), Some(248));
        assert_eq!(written(&[0; 187], Protocol::Meta), None);
        assert_eq!(written(&[0; 251], Protocol::Binary), None);
    }
}
