//! Conversations with namespaces, split at every point. Expected replies: docs/guides/namespaces.md.

use std::path::PathBuf;
use std::sync::Arc;

use larder_conformance::folder::Folder;
use larder_engine::{Store, Stored};
use larder_policy::Keep;
use larder_server::conn::client::Peer;
use larder_server::persistence::StoreSettings;
use larder_server::startup::settings::Settings;

use crate::harness::{Client, JOURNAL_CHANGES_MAX, Server};
use crate::small;
use crate::splits::for_each_split;

const FILE: &str = r#"
[namespace."a:"]
memory = "2m"
item_bytes_max = "300k"

[namespace."ro:"]
read_only = true
"#;

fn converse(input: &str, replies: &str) {
    let folder = Folder::create();
    let file: PathBuf = folder.write("namespaces.toml", FILE);
    let settings = Settings { namespaces_file: Some(file), ..small() };
    for_each_split(&settings, input.as_bytes(), replies.as_bytes(), false);
}

#[test]
fn flushes_of_one_namespace() {
    converse(
        "set a:1 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\nflush_prefix a:\r\nget a:1 b\r\nmf YTo= b k O1 T0\r\nmf a: q\r\n\
         mf none k\r\nmf\r\nflush_prefix\r\nflush_prefix a: x\r\nflush_prefix a: 0 noreply\r\nflush_prefix none\r\n\
         flush_prefix <null> 0\r\nget b\r\nmn\r\n",
        "STORED\r\nSTORED\r\nOK\r\nVALUE b 0 1\r\ny\r\nEND\r\nHD kYTo= b O1\r\nNF knone\r\n\
         CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n\
         CLIENT_ERROR bad command line format\r\nNOT_FOUND\r\nOK\r\nEND\r\nMN\r\n",
    );
}

#[test]
fn keys_of_several_namespaces_in_one_batch() {
    converse(
        "set a:1 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nset ro:1 0 0 1\r\n3\r\nset a:2 0 0 1\r\n4\r\nget a:1\r\nget b\r\n\
         get ro:1\r\nget a:1 ro:1 b a:2\r\nincr a:1 1\r\nincr ro:1 1\r\nms ro:1 1 q\r\nx\r\nmn\r\n",
        "STORED\r\nSTORED\r\nSERVER_ERROR namespace is read-only\r\nSTORED\r\nVALUE a:1 0 1\r\n1\r\nEND\r\n\
         VALUE b 0 1\r\n2\r\nEND\r\nEND\r\nVALUE a:1 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nVALUE a:2 0 1\r\n4\r\nEND\r\n2\r\n\
         SERVER_ERROR namespace is read-only\r\nSERVER_ERROR namespace is read-only\r\nMN\r\n",
    );
}

/// Large values are received in parts, and sent from where they lie: each in the engine of its namespace.
#[test]
fn large_values_live_in_their_namespace() {
    let (fits, too_large) = ("f".repeat(250_000), "t".repeat(310_000));
    let default = "d".repeat(700_000);
    converse(
        &format!(
            "set a:1 0 0 250000\r\n{fits}\r\nset a:1 0 0 310000\r\n{too_large}\r\nget a:1\r\nset ro:1 0 0 250000\r\n{fits}\r\n\
             set a:2 0 0 250000\r\n{fits}\r\nset b 0 0 700000\r\n{default}\r\nget a:2 b\r\nmn\r\n"
        ),
        &format!(
            "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\nSERVER_ERROR namespace is read-only\r\nSTORED\r\n\
             STORED\r\nVALUE a:2 0 250000\r\n{fits}\r\nVALUE b 0 700000\r\n{default}\r\nEND\r\nMN\r\n"
        ),
    );
}

/// A value that cannot be buffered is refused while it arrives: the old item of who may not write stays.
#[test]
fn a_refused_value_removes_nothing_of_who_may_not_write() {
    let folder = Folder::create();
    let file = "[namespace.\"ro:\"]\nread_only = true\nmemory = \"128m\"\nitem_bytes_max = 8192\n";
    let mut settings = Settings {
        memory_bytes: 256 << 20,
        namespaces_file: Some(folder.write("namespaces.toml", file)),
        ..small()
    };
    settings.accepted.read_buf_bytes_max = 1;
    let mut server = Server::new(settings);
    let engine = Arc::clone(&server.shared.namespaces.engines()[1]);
    let mut handle = engine.handle().unwrap();
    let now = server.shared.clock.now();
    let guard = handle.pin(now);
    assert!(matches!(guard.store(guard.prepare(b"ro:1"), &Store::set(b"ro:1", b"x")), Stored::Stored { .. }));
    drop(guard);

    let mut client = Client::default();
    let value = "v".repeat(20_000);
    server.receive(&mut client, format!("set ro:1 0 0 20000\r\n{}", &value[..100]).as_bytes());
    server.receive(&mut client, format!("{}\r\nget ro:1\r\nmn\r\n", &value[100..]).as_bytes());
    let replies = String::from_utf8(client.replies).unwrap();
    assert_eq!(replies, "SERVER_ERROR namespace is read-only\r\nVALUE ro:1 0 1\r\nx\r\nEND\r\nMN\r\n");
}

/// Where the journal is full, a value that is too large waits as a change does: it would remove the old one.
#[test]
fn a_refused_value_is_a_change_that_the_journal_admits() {
    let folder = Folder::create();
    let file = "[namespace.\"s:\"]\nkeep = \"store\"\ndurability = \"os\"\nmemory = \"2m\"\nitem_bytes_max = \"300k\"\n";
    let settings = Settings {
        namespaces_file: Some(folder.write("namespaces.toml", file)),
        keep: Some(Keep::Cache),
        store: Some(StoreSettings::default()),
        ..small()
    };
    let mut server = Server { peer: Peer::Unix, ..Server::new(settings) };
    let changes = |server: &Server| server.shared.persistence.as_ref().unwrap().journal().load().0;
    let mut client = Client::default();
    for number in 0..JOURNAL_CHANGES_MAX {
        server.receive(&mut client, format!("set s:{number} 0 0 1\r\nx\r\n").as_bytes());
    }
    assert_eq!(client.replies, "STORED\r\n".repeat(JOURNAL_CHANGES_MAX).as_bytes());
    assert_eq!(changes(&server), JOURNAL_CHANGES_MAX as u64);
    client.replies.clear();
    server.receive(&mut client, b"set s:0 0 0 310000\r\nvvv");
    assert_eq!(String::from_utf8(client.replies).unwrap(), "");
    assert_eq!(changes(&server), JOURNAL_CHANGES_MAX as u64);
}
