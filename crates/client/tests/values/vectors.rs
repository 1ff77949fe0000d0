//! What clients stored is decoded to what they described, and encoded to what they stored.

use larder_client::value::{Dialect, Encoded, Transcoder, Value};

use crate::vector::{Vector, all, is_described, transcoders};

#[test]
fn what_clients_stored_is_what_they_described() {
    for (dialect, vector) in all() {
        let value = Transcoder::new(dialect).decode(&vector.bytes, vector.client_flags);
        let value = value.unwrap_or_else(|error| panic!("{dialect:?} {}: {error}", vector.name));
        assert!(is_described(&value, &vector.described), "{dialect:?} {}: {value:?}", vector.name);
    }
}

#[test]
fn what_we_encode_is_what_clients_store() {
    let mut compressed = 0;
    for (dialect, vector) in all() {
        let value = decode(dialect, &vector);
        let encoded: Vec<_> = transcoders(dialect).map(|transcoder| transcoder.encode(&value)).collect();
        for encoded in encoded.iter().flatten() {
            let again = Transcoder::new(dialect).decode(&encoded.bytes, encoded.client_flags);
            assert_eq!(again.as_ref(), Ok(&value), "{dialect:?} {}", vector.name);
        }
        let stored = Encoded { bytes: vector.bytes.clone(), client_flags: vector.client_flags };
        if is_written_otherwise(dialect, &vector) {
            assert!(
                !encoded.contains(&Ok(stored)),
                "{dialect:?} {} is written as the client does",
                vector.name
            );
        } else if ["zlib", "gzip", "threshold"].iter().any(|name| vector.name.ends_with(name)) {
            // zlib's versions find other matches.
            let forced = Transcoder::new(dialect).compressed_from_bytes(Some(100)).encode(&value);
            let forced = forced.expect("the client has it, too");
            assert_eq!(forced.client_flags, vector.client_flags, "{dialect:?} {}", vector.name);
            assert_eq!(decode(dialect, &Vector { bytes: forced.bytes, ..vector }), value);
            compressed += 1;
        } else {
            assert!(encoded.contains(&Ok(stored)), "{dialect:?} {}: {encoded:?}", vector.name);
        }
    }
    assert!(compressed > 20);
}

/// What has more than one spelling, and ours is another one.
fn is_written_otherwise(dialect: Dialect, vector: &Vector) -> bool {
    let name = vector.name.as_str();
    match dialect {
        // `-.1` and `1e+100`; FastLZ is only read, and a flag of the application is its own.
        Dialect::PhpMemcached => name.contains("fastlz") || ["tenth", "huge", "user-flags"].contains(&name),
        // `1.0e+100`.
        Dialect::PhpMemcache => ["huge", "user-flags"].contains(&name),
        // These are text; since its version 3, objects have no flags.
        Dialect::Whalin => {
            ["char", "builder", "buffer"].contains(&name) || (name == "list" && vector.client_flags == 0)
        }
        Dialect::WhalinV1 => ["char", "builder", "buffer"].contains(&name),
        // Booleans are integers with the other flag.
        Dialect::Pylibmc => ["true", "false"].contains(&name),
        _ => false,
    }
}

fn decode(dialect: Dialect, vector: &Vector) -> Value {
    Transcoder::new(dialect).decode(&vector.bytes, vector.client_flags).expect("it is valid")
}
