//! Damaged values, and values that are larger than they look.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use larder_client::value::{Dialect, Error, Transcoder, Value};

use crate::vector::{all, is_described};

#[test]
fn no_part_of_a_value_is_taken_for_it() {
    for (dialect, vector) in all() {
        let transcoder = Transcoder::new(dialect);
        let length = vector.bytes.len();
        // All cuts of what is short; of the rest the first, the last, and some.
        for cut in (0..length).filter(|cut| length < 3000 || *cut < 50 || cut + 50 > length || cut % 97 == 0)
        {
            if let Ok(value) = transcoder.decode(&vector.bytes[..cut], vector.client_flags) {
                let taken = is_described(&value, &vector.described);
                assert!(!taken, "{dialect:?} {}: {cut} of {length}", vector.name);
            }
        }
    }
}

#[test]
fn random_flags_and_bytes_are_refused_or_within_the_bound() {
    let mut random = fastrand::Rng::with_seed(7);
    let vectors: Vec<_> =
        all().map(|(_, vector)| vector).filter(|vector| vector.bytes.len() < 3000).collect();
    let mut accepted = 0;
    for _ in 0..60_000 {
        let dialect = random.choice(Dialect::ALL).expect("there are some");
        let vector = random.choice(&vectors).expect("there are some");
        let client_flags = match random.u8(..3) {
            0 => random.u32(..),
            1 => 1 << random.u8(..32) | 1 << random.u8(..8),
            _ => vector.client_flags,
        };
        let mut bytes = vector.bytes.clone();
        for _ in 0..random.usize(..4) {
            let place = random.usize(..=bytes.len());
            match bytes.get_mut(place) {
                Some(byte) if random.bool() => *byte = random.u8(..),
                _ => bytes.insert(place, random.u8(..)),
            }
        }
        let bound = random.usize(..8000);
        if let Ok(value) = Transcoder::new(dialect).value_bytes_max(bound).decode(&bytes, client_flags) {
            assert!(value_bytes(&value) <= bound, "{dialect:?} {client_flags} {bytes:?}");
            accepted += 1;
        }
    }
    assert!(accepted > 5_000, "{accepted}");
}

fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Bytes(bytes) | Value::Serialized { bytes, .. } => bytes.len(),
        Value::Text(text) => text.len(),
        _ => 0,
    }
}

#[test]
fn bombs_are_refused() {
    let zeros = vec![0; 8 << 20];
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(&zeros).expect("it is memory");
    let zlib = zlib.finish().expect("it is memory");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&zeros).expect("it is memory");
    let gzip = gzip.finish().expect("it is memory");
    let sized = |length: u32, bytes: &[u8]| [&length.to_le_bytes(), bytes].concat();
    // Level 2: a literal, then a run of 255 * 5000 bytes and more.
    let mut fastlz = vec![0x20, b'a', 0xe0];
    fastlz.extend([255; 5000]);
    fastlz.extend([0, 0]);

    let bound = 1 << 20;
    let decode = |dialect, bytes: &[u8], client_flags| {
        Transcoder::new(dialect).value_bytes_max(bound).decode(bytes, client_flags)
    };
    let too_large = Err(Error::TooLarge { value_bytes_max: bound });
    for (dialect, client_flags) in [
        (Dialect::Plain, 16),
        (Dialect::PhpMemcache, 2),
        (Dialect::PhpMemcached, 16),
        (Dialect::Pymemcache, 8),
        (Dialect::PythonMemcached, 8),
        (Dialect::Pylibmc, 8),
        (Dialect::Dalli, 2),
    ] {
        assert_eq!(decode(dialect, &zlib, client_flags), too_large, "{dialect:?}");
    }
    for (dialect, client_flags) in
        [(Dialect::Spymemcached, 2), (Dialect::Whalin, 34), (Dialect::Whalin, 10), (Dialect::WhalinV1, 2)]
    {
        assert_eq!(decode(dialect, &gzip, client_flags), too_large, "{dialect:?}");
    }
    for (client_flags, bomb) in [(48, &zlib), (80, &fastlz)] {
        for length in [bound as u32 + 1, 8 << 20, u32::MAX] {
            assert_eq!(decode(Dialect::PhpMemcached, &sized(length, bomb), client_flags), too_large);
        }
        // A length that is allowed, and a value that is longer.
        for length in [0, 1, 1000, bound as u32] {
            let refused = decode(Dialect::PhpMemcached, &sized(length, bomb), client_flags);
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
        }
    }
}

#[test]
fn what_a_dialect_has_no_flags_for_is_refused() {
    use Dialect::{Dalli, PhpMemcache, PhpMemcached, Plain, Pylibmc, Spymemcached, Whalin};
    for (dialect, value) in [
        (PhpMemcache, Value::Date(0)),
        (PhpMemcached, Value::Date(0)),
        (Dalli, Value::Integer(1)),
        (Pylibmc, Value::Bool(true)),
        (Pylibmc, Value::Float(1.0)),
    ] {
        let refused = Transcoder::new(dialect).encode(&value);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{dialect:?} {value:?}");
    }
    for (dialect, client_flags) in [
        (Plain, 7),
        (PhpMemcache, 0x200),
        (PhpMemcache, 4),
        (PhpMemcached, 8),
        (PhpMemcached, 0x100),
        (Pylibmc, 3),
        (Pylibmc, 32),
        (Spymemcached, 0x900),
        (Spymemcached, 4),
        (Whalin, 36),
        (Dalli, 4),
    ] {
        let refused = Transcoder::new(dialect).decode(b"1", client_flags);
        assert_eq!(refused, Err(Error::UnknownFlags { dialect: dialect.name(), client_flags }));
    }
    if !cfg!(feature = "zstd") {
        for (dialect, client_flags) in [(PhpMemcached, 16 | 128), (Plain, 32)] {
            let zstd = Transcoder::new(dialect).decode(b"\0\0\0\0", client_flags);
            assert_eq!(zstd, Err(Error::UnsupportedCompression("zstd")));
        }
    }
    let large = Transcoder::new(Plain).value_bytes_max(3).encode(&"four".into());
    assert_eq!(large, Err(Error::TooLarge { value_bytes_max: 3 }));
}

#[test]
fn larders_own_flags_have_every_type() {
    let transcoder = Transcoder::new(Dialect::Plain).compressed_from_bytes(Some(100));
    for (value, bytes, client_flags) in [
        (Value::from(&b"\xff"[..]), &b"\xff"[..], 0),
        ("gr\u{fc}n".into(), "gr\u{fc}n".as_bytes(), 1),
        (Value::from(-5), b"-5", 2),
        (Value::from(0.25), b"0.25", 3),
        (true.into(), b"1", 4),
        (Value::Date(1_234_567_890_123), b"1234567890123", 5),
    ] {
        let encoded = transcoder.encode(&value).expect("it has flags");
        assert_eq!((encoded.bytes.as_slice(), encoded.client_flags), (bytes, client_flags));
        assert_eq!(transcoder.decode(bytes, client_flags), Ok(value));
    }
    let long = Value::from("long ".repeat(100));
    let encoded = transcoder.encode(&long).expect("it has flags");
    assert_eq!(encoded.client_flags, 1 | 16);
    assert!(encoded.bytes.len() < 100);
    assert_eq!(transcoder.decode(&encoded.bytes, encoded.client_flags), Ok(long));
}

#[cfg(feature = "serde")]
#[test]
fn json_is_what_serde_makes_of_it() {
    let value = Value::to_json(&("a", 1, [true])).expect("it is JSON");
    let encoded = Transcoder::new(Dialect::Plain).encode(&value).expect("it has flags");
    assert_eq!((encoded.bytes.as_slice(), encoded.client_flags), (&b"[\"a\",1,[true]]"[..], 6));
    let decoded = Transcoder::new(Dialect::Plain).decode(&encoded.bytes, encoded.client_flags);
    let back: (String, u8, Vec<bool>) = decoded.expect("valid").from_json().expect("JSON").expect("valid");
    assert_eq!(back, ("a".to_owned(), 1, vec![true]));
    assert!(Value::Integer(1).from_json::<u8>().is_none());
}
