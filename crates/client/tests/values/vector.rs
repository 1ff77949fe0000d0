//! What clients stored: the files that `tests/data/values/generate.py` writes.

use std::fs;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_client::value::{Dialect, FloatWidth, Format, IntegerWidth, Transcoder, Value};

/// The files, and whose dialect they are in.
pub(crate) const FILES: [(&str, Dialect); 11] = [
    ("php-memcached", Dialect::PhpMemcached),
    ("php-memcache", Dialect::PhpMemcache),
    ("dalli", Dialect::Dalli),
    ("pymemcache", Dialect::Pymemcache),
    ("python-memcached", Dialect::PythonMemcached),
    ("python-memcached", Dialect::Pymemcache),
    ("pylibmc", Dialect::Pylibmc),
    ("spymemcached", Dialect::Spymemcached),
    ("whalin", Dialect::Whalin),
    ("whalin-transcoder", Dialect::Whalin),
    ("whalin-v1-transcoder", Dialect::WhalinV1),
];

/// An item as a client stored it.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) client_flags: u32,
    pub(crate) bytes: Vec<u8>,
    /// As the client described it.
    pub(crate) described: String,
}

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/values")
}

pub(crate) fn read(file: &str) -> Vec<Vector> {
    let text = fs::read_to_string(folder().join(file).with_extension("txt")).expect("it is there");
    let mut records: Vec<(Vector, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match (line.split_at_checked(1), records.last_mut()) {
            (Some(("=", rest)), Some((vector, _))) => {
                vector.described.push_str(rest.strip_prefix(' ').unwrap_or_default());
            }
            (Some(("<", rest)), Some((_, base64))) => base64.push_str(rest.trim()),
            _ => {
                let (name, flags) = line.split_once(' ').expect("a name and flags");
                let client_flags = flags.parse().expect("a number");
                let (bytes, described) = (Vec::new(), String::new());
                records.push((Vector { name: name.into(), client_flags, bytes, described }, String::new()));
            }
        }
    }
    let decoded = |(vector, base64)| Vector { bytes: STANDARD.decode(base64).expect("base64"), ..vector };
    let vectors: Vec<_> = records.into_iter().map(decoded).collect();
    assert!(vectors.len() > 10, "{file}");
    vectors
}

pub(crate) fn all() -> impl Iterator<Item = (Dialect, Vector)> {
    FILES.into_iter().flat_map(|(file, dialect)| read(file).into_iter().map(move |vector| (dialect, vector)))
}

/// Whether this is the value that was described.
pub(crate) fn is_described(value: &Value, described: &str) -> bool {
    let (kind, rest) = described.split_once(' ').unwrap_or((described, ""));
    match (value, kind) {
        (Value::Bytes(bytes), "bytes") => *bytes == bytes_of(rest),
        (Value::Text(text), "text") => text.as_bytes() == bytes_of(rest),
        (Value::Integer(integer), "integer") => rest.parse() == Ok(*integer),
        (Value::Float(float), "float") => rest.parse() == Ok(*float),
        (Value::Bool(bool), "bool") => rest.parse() == Ok(*bool),
        (Value::Date(unix_millis), "date") => rest.parse() == Ok(*unix_millis),
        (Value::Serialized { format, bytes }, "serialized") => {
            let (name, rest) = rest.split_once(' ').expect("a format and bytes");
            *format == format_of(name) && is_content(bytes, rest)
        }
        _ => false,
    }
}

/// The length and the CRC32 of what is long; else all of it.
fn is_content(bytes: &[u8], described: &str) -> bool {
    match described.strip_prefix("@crc ").map(|rest| rest.split_once(' ').expect("two numbers")) {
        Some((length, crc)) => {
            length.parse() == Ok(bytes.len()) && format!("{:08x}", crc32fast::hash(bytes)) == crc
        }
        None => bytes == bytes_of(described),
    }
}

fn format_of(name: &str) -> Format {
    match name {
        "php" => Format::Php,
        "igbinary" => Format::Igbinary,
        "json" => Format::Json,
        "msgpack" => Format::Msgpack,
        "java" => Format::Java,
        "pickle" => Format::Pickle,
        "ruby" => Format::RubyMarshal,
        _ => panic!("{name}"),
    }
}

/// Hexadecimal digits, or how to make bytes that are too many for them.
fn bytes_of(described: &str) -> Vec<u8> {
    let mut words = described.split(' ');
    let recipe = words.next().unwrap_or_default();
    let mut number = || words.next().map(|word| word.parse::<usize>().expect("a number"));
    match recipe {
        "@lines" => {
            let lines: String =
                (0..number().expect("a count")).map(|line| format!("line {line}\n")).collect();
            lines.repeat(number().unwrap_or(1)).into_bytes()
        }
        "@run" => vec![b'a'; number().expect("a length")],
        "@blocks" => {
            let (block, total) = (number().expect("a length"), number().expect("a length"));
            let mut x = 1_u64;
            let block: Vec<u8> = (0..block)
                .map(|_| {
                    x = (x * 1_103_515_245 + 12_345) & 0x7fff_ffff;
                    (x >> 16) as u8
                })
                .collect();
            block.iter().copied().cycle().take(total).collect()
        }
        hex => {
            assert!(hex.len().is_multiple_of(2), "{hex}");
            let digits = |place| u8::from_str_radix(&hex[place..place + 2], 16).expect("hexadecimal");
            (0..hex.len()).step_by(2).map(digits).collect()
        }
    }
}

/// Transcoders of a dialect, for each width of numbers.
pub(crate) fn transcoders(dialect: Dialect) -> impl Iterator<Item = Transcoder> {
    let integers = [IntegerWidth::W64, IntegerWidth::W32, IntegerWidth::W16, IntegerWidth::W8];
    let floats = [FloatWidth::W64, FloatWidth::W32];
    integers.into_iter().flat_map(move |integer| {
        floats.map(|float| Transcoder::new(dialect).integer_width(integer).float_width(float))
    })
}
