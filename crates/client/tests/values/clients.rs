//! What clients make of the values that we store. Each runs where it is installed; `LARDER_VALUE_CLIENTS` says where
//! others are, as `pymemcache=PYTHON` and `jars=FOLDER`, with spaces between.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use larder_client::codec::Store;
use larder_client::value::{Dialect, Encoded, Format, Transcoder, Value};

use crate::start;
use crate::vector::{self, FILES, Vector, is_described, transcoders};

#[test]
fn clients_read_what_we_store() {
    let (server, mut client) = start();
    for (file, dialect) in FILES.into_iter().filter(|file| *file != ("python-memcached", Dialect::Pymemcache))
    {
        let Some(mut reader) = reader(file) else {
            eprintln!("{file} is not installed");
            continue;
        };
        let mut vectors = vector::read(file);
        if file == "whalin" {
            // It stores nothing compressed, and reads it.
            let transcoder = vector::read("whalin-transcoder").into_iter();
            vectors.extend(transcoder.filter(|vector| vector.name.ends_with("gzip")));
        }
        let mut names = String::new();
        for vector in &vectors {
            let value = Transcoder::new(dialect).decode(&vector.bytes, vector.client_flags).expect("valid");
            let Encoded { bytes, client_flags } = encode(dialect, vector, &value);
            let key = vector.name.as_bytes();
            let store = Store { key, value: &[&bytes], client_flags, ..Store::default() };
            client.store(&store).expect("it stores");
            names.push_str(&vector.name);
            names.push('\n');
        }
        let told = run(reader.arg("read").arg(server.address().port().to_string()), &names);
        assert_eq!(told.lines().count(), vectors.len(), "{told}");
        for (line, vector) in told.lines().zip(&vectors) {
            let (name, described) = line.split_once('\t').expect("a name and a description");
            assert_eq!(name, vector.name);
            let value = Transcoder::new(dialect).decode(&vector.bytes, vector.client_flags).expect("valid");
            let (value, expected) = expected(&vectors, file, vector, value);
            assert!(is_described(&value, described), "{file} {name}: {described}, not {expected}");
        }
        eprintln!("{file}: {} values", vectors.len());
    }
}

/// With the widths that the client had, and compressed whatever can be.
fn encode(dialect: Dialect, vector: &Vector, value: &Value) -> Encoded {
    let encoded: Vec<_> =
        transcoders(dialect).filter_map(|transcoder| transcoder.encode(value).ok()).collect();
    let same = encoded
        .iter()
        .find(|encoded| encoded.client_flags == vector.client_flags && encoded.bytes == vector.bytes);
    let forced = Transcoder::new(dialect).compressed_from_bytes(Some(50)).encode(value).expect("valid");
    match same {
        Some(same) if forced.bytes.len() >= same.bytes.len() => same.clone(),
        _ => forced,
    }
}

/// What the client should read, and how it is described.
fn expected(vectors: &[Vector], file: &str, vector: &Vector, value: Value) -> (Value, String) {
    let of = |name: &str| {
        let vector = vectors.iter().find(|vector| vector.name == name).expect("it is there");
        let value = Transcoder::new(Dialect::PhpMemcached).decode(&vector.bytes, vector.client_flags);
        (value.expect("valid"), vector.described.clone())
    };
    match (file, vector.name.as_str()) {
        // It describes what it deserialized by `serialize`; JSON's objects are no arrays.
        ("php-memcached", "array-igbinary" | "array-msgpack") => of("array-php"),
        ("php-memcached", "null-igbinary" | "null-json" | "null-msgpack") => of("null-php"),
        ("php-memcached", "array-json") => {
            let bytes = br#"O:8:"stdClass":2:{s:1:"a";i:1;s:1:"b";a:3:{i:0;b:1;i:1;N;i:2;s:1:"x";}}"#;
            (Value::Serialized { format: Format::Php, bytes: bytes.to_vec() }, "stdClass".into())
        }
        // It reads null as false, its own as well.
        ("php-memcache", "null") => (Value::Bool(false), "bool false".into()),
        // It unpickles them.
        ("pymemcache" | "python-memcached", name @ ("true" | "false")) => {
            (Value::Bool(name == "true"), format!("bool {name}"))
        }
        // It reads every empty value as null: the stream's magic and version, and TC_NULL.
        ("whalin", "empty") => {
            let bytes = b"\xac\xed\x00\x05p".to_vec();
            (Value::Serialized { format: Format::Java, bytes }, "null".into())
        }
        _ => (value, vector.described.clone()),
    }
}

/// The program that reads, unless the client is not installed.
fn reader(file: &str) -> Option<Command> {
    let clients = vector::folder().join("clients");
    let elsewhere = env::var("LARDER_VALUE_CLIENTS").unwrap_or_default();
    let given = |name: &str| elsewhere.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let mut reader = match file {
        "php-memcached" | "php-memcache" => {
            let extension = file.strip_prefix("php-").expect("it is PHP's");
            let check = format!("exit(extension_loaded('{extension}') ? 0 : 1);");
            is_there(Command::new("php").args(["-r", &check]))?;
            Command::new("php")
        }
        "dalli" => {
            is_there(Command::new("ruby").args(["-e", "require 'dalli'"]))?;
            Command::new("ruby")
        }
        "pymemcache" | "python-memcached" | "pylibmc" => {
            let module = if file == "python-memcached" { "memcache" } else { file };
            // Debian's, which its packages are for.
            let python = given(file).unwrap_or("/usr/bin/python3");
            let check = match file {
                "pymemcache" => "from pymemcache.serde import compressed_serde".into(),
                _ => format!("import {module}"),
            };
            let is_there = is_there(Command::new(python).args(["-c", &check]));
            assert!(is_there.is_some() || given(file).is_none(), "{python} has no {file}");
            is_there?;
            Command::new(python)
        }
        _ => {
            let mut java = Command::new("java");
            java.arg("-cp").arg(format!("{}/*", given("jars")?));
            java
        }
    };
    match file {
        "php-memcached" => reader.arg(clients.join("php_memcached.php")),
        "php-memcache" => reader.arg(clients.join("php_memcache.php")),
        "dalli" => reader.arg(clients.join("dalli.rb")),
        "pymemcache" | "python-memcached" | "pylibmc" => reader.arg(clients.join("python.py")).arg(file),
        _ => reader.arg(clients.join("Values.java")).arg(file),
    };
    Some(reader)
}

fn is_there(check: &mut Command) -> Option<()> {
    let status = check.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    status.success().then_some(())
}

fn run(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn numbers_that_the_server_changed_are_numbers() {
    let (_server, mut client) = start();
    for dialect in [Dialect::Plain, Dialect::PhpMemcached, Dialect::PhpMemcache, Dialect::Pymemcache] {
        let transcoder = Transcoder::new(dialect);
        let Encoded { bytes, client_flags } = transcoder.encode(&Value::Integer(10)).expect("valid");
        let store = Store { key: b"key", value: &[&bytes], client_flags, ..Store::default() };
        client.store(&store).expect("it stores");
        assert_eq!(client.decr("key", 1).expect("it changes"), Some(9));
        let item = client.get("key").expect("it gets").expect("it is there");
        assert_eq!(item.value, b"9 ");
        assert_eq!(transcoder.decode(&item.value, item.client_flags), Ok(Value::Integer(9)));
    }
}
