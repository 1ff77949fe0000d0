//! The text of a key, by its number.

use super::RunError;
use super::sizes::Lengths;
use crate::scenario::Keys;

/// The longest key that memcached takes, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 250;

/// Writes keys: prefix, zeros, number. Numbers that differ give keys that differ, whatever their lengths.
#[derive(Clone, Debug)]
pub(crate) struct KeyMaker {
    /// The prefix, then zeros.
    template: [u8; KEY_BYTES_MAX],
    prefix_bytes: usize,
    lengths: Lengths,
    /// Keys by their index, instead of made ones.
    names: Option<Vec<Box<[u8]>>>,
}

impl KeyMaker {
    /// `field` names the keys in an error.
    pub(crate) fn new(keys: &Keys, field: &str) -> Result<Self, RunError> {
        let fail = |reason: &str| Err(RunError::Scenario { field: field.into(), reason: reason.into() });
        let prefix = keys.prefix.as_bytes();
        if prefix.len() > KEY_BYTES_MAX - DIGITS_MAX {
            return fail("prefix: longer than 230 bytes");
        }
        if prefix.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return fail("prefix: a space or a control character");
        }
        let lengths = Lengths::new(&keys.bytes, &format!("{field}.bytes"))?;
        if lengths.max() > KEY_BYTES_MAX as u64 {
            return fail("bytes: memcached takes keys of up to 250 bytes");
        }
        let mut template = [b'0'; KEY_BYTES_MAX];
        template[..prefix.len()].copy_from_slice(prefix);
        Ok(Self { template, prefix_bytes: prefix.len(), lengths, names: None })
    }

    /// From now on a number is an index of `names`, which are up to 250 bytes long.
    pub(crate) fn use_names(&mut self, names: Vec<Box<[u8]>>) {
        self.names = Some(names);
    }

    /// Key `number`, written into `key`.
    #[inline]
    pub(crate) fn write<'a>(&self, number: u64, key: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        if let Some(names) = &self.names {
            let name = &names[number as usize];
            key[..name.len()].copy_from_slice(name);
            return &key[..name.len()];
        }
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let bytes = (self.lengths.of(number) as usize).max(self.prefix_bytes + digits.len());
        key[..bytes].copy_from_slice(&self.template[..bytes]);
        key[bytes - digits.len()..bytes].copy_from_slice(digits);
        &key[..bytes]
    }
}

/// Digits of the greatest number.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{SizeRange, Sizes};

    fn key(keys: &Keys, number: u64) -> String {
        let mut buffer = [0; KEY_BYTES_MAX];
        String::from_utf8(KeyMaker::new(keys, "").unwrap().write(number, &mut buffer).to_vec()).unwrap()
    }

    #[test]
    fn keys_are_filled_with_zeros() {
        let keys = Keys { prefix: "key:".into(), bytes: Sizes::Fixed(10), ..Keys::default() };
        assert_eq!(key(&keys, 0), "key:000000");
        assert_eq!(key(&keys, 123), "key:000123");
        assert_eq!(key(&keys, 12_345_678), "key:12345678");
        let bare = Keys { prefix: String::new(), bytes: Sizes::Fixed(1), ..Keys::default() };
        assert_eq!(key(&bare, u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn no_two_are_alike_whatever_their_lengths() {
        let bytes = Sizes::Ranges(vec![SizeRange { min: 1, max: 250, weight: 1.0 }]);
        let keys = Keys { prefix: "p".into(), bytes, ..Keys::default() };
        let all: std::collections::HashSet<String> = (0..2000).map(|number| key(&keys, number)).collect();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().any(|key| key.len() > 200));
    }

    #[test]
    fn what_no_server_takes_is_refused() {
        let with = |prefix: &str, bytes| Keys {
            prefix: prefix.into(),
            bytes: Sizes::Fixed(bytes),
            ..Keys::default()
        };
        assert!(KeyMaker::new(&with("a b", 20), "").is_err());
        assert!(KeyMaker::new(&with("k", 251), "").is_err());
        assert!(KeyMaker::new(&with(&"k".repeat(231), 240), "").is_err());
    }
}
