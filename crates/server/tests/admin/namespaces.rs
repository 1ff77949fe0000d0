//! Namespaces over the operators' HTTP: figures, and emptying one.

use std::os::unix::net::UnixStream;

use larder_conformance::folder::Folder;
use larder_conformance::server::eventually;
use serde_json::Value;

use crate::server::{Larderd, Reply, converse};

const FILLED: &str = "set a:1 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\nget a:1 a:2\r\n";

/// One with a namespace `a:` of 8 MiB, and these options.
fn start(options: &[&str]) -> (Larderd, Folder) {
    let folder = Folder::create();
    folder.write("namespaces.toml", "[namespace.\"a:\"]\nmemory = \"8m\"\n");
    let file = folder.arg("namespaces.toml");
    let admin = folder.arg("admin");
    let own = ["--namespaces", &file, "-m", "32", "--admin-listen", &admin];
    (Larderd::start(&[&own, options].concat()), folder)
}

/// Posts over the server's Unix socket, whose clients need no token.
fn post(folder: &Folder, target: &str, headers: &str) -> Reply {
    let mut stream = UnixStream::connect(folder.file("admin")).expect("larderd listens");
    converse(&mut stream, &request(target, headers))
}

fn request(target: &str, headers: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
}

#[test]
fn a_namespace_is_flushed_by_post_alone() {
    let (server, folder) = start(&[]);
    for (target, headers, status, left) in [
        ("/api/flush?prefix=a%3A", "", 200, 1),
        ("/api/flush?prefix=a:", "", 200, 1),
        ("/api/flush?prefix=%3Cnull%3E&delay=0", "", 200, 1),
        ("/api/flush?prefix=a:&delay=100", "", 200, 2),
        ("/api/flush?prefix=a", "", 404, 2),
        ("/api/flush", "", 400, 2),
        ("/api/flush?prefix=", "", 400, 2),
        ("/api/flush?prefix=a:&delay=x", "", 400, 2),
        ("/api/flush?prefix=a:&Delay=5", "", 400, 2),
        ("/api/flush?prefix=a:&delay=1&delay=2", "", 400, 2),
        ("/api/overview", "", 405, 2),
        // What pages of any site can make a browser send.
        ("/api/flush?prefix=a:", "Origin: http://evil.example\r\n", 403, 2),
        ("/api/flush?prefix=a:", "Origin: null\r\n", 403, 2),
        ("/api/flush?prefix=a:", "Sec-Fetch-Site: cross-site\r\n", 403, 2),
    ] {
        server.cache(FILLED);
        let reply = post(&folder, target, headers);
        assert_eq!(reply.status, status, "{target} {headers}: {}", reply.body);
        assert_eq!(server.cache("get a:1 b\r\n").matches("VALUE").count(), left, "{target} {headers}");
    }
    let reply = server.get("/api/flush?prefix=a:");
    assert!(reply.status == 405 && reply.head.contains("allow: post"), "{}", reply.head);
    let foreign = "POST /api/flush?prefix=a: HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(server.ask(foreign).status, 421);
}

#[test]
fn a_namespace_that_nobody_may_change_is_not_flushed_either() {
    let folder = Folder::create();
    let write = |policy: &str| folder.write("namespaces.toml", format!("[namespace.\"a:\"]\n{policy}"));
    write("");
    let server = Larderd::start(&[
        "--namespaces",
        &folder.arg("namespaces.toml"),
        "-m",
        "32",
        "--admin-listen",
        &folder.arg("admin"),
    ]);
    server.cache(FILLED);
    write("read_only = true\n");
    server.reload();
    eventually(|| server.cache("delete a:nothing\r\n").contains("read-only"));
    let reply = post(&folder, "/api/flush?prefix=a:", "");
    assert_eq!((reply.status, &reply.body[..]), (403, "the namespace is read-only\n"));
    assert_eq!(server.cache("get a:1\r\n").matches("VALUE").count(), 1);
}

#[test]
fn who_shows_no_token_flushes_nothing() {
    let folder = Folder::create();
    folder.write("token", "secret-secret-secret\n");
    let (server, _folder) = start(&["--admin-token-file", &folder.arg("token")]);
    let flush = |headers: &str| server.ask(&request("/api/flush?prefix=a:", headers)).status;
    assert_eq!(flush(""), 401);
    assert_eq!(flush("Authorization: Bearer secret-secret-secret\r\n"), 200);
    let (_server, folder) = start(&["-F"]);
    let reply = post(&folder, "/api/flush?prefix=a:", "");
    assert_eq!((reply.status, &reply.body[..]), (403, "flushing is not allowed (-F)\n"));
}

#[test]
fn each_namespace_is_told_in_figures() {
    let (server, _folder) = start(&[]);
    server.cache(FILLED);
    let told: Value = serde_json::from_str(&server.get("/api/namespaces").body).expect("it is JSON");
    let of = |at: usize, name: &str| told[at][name].clone();
    assert_eq!((of(0, "name"), of(1, "name"), &told[2]), ("<null>".into(), "a:".into(), &Value::Null));
    assert_eq!(
        (of(1, "items"), of(1, "gets"), of(1, "get_hits"), of(1, "sets")),
        (1.into(), 2.into(), 1.into(), 1.into())
    );
    assert_eq!((of(0, "limit_bytes"), of(1, "limit_bytes")), ((24 << 20).into(), (8 << 20).into()));
    let metrics = server.get("/metrics").body;
    for line in [
        "larder_namespace_items{namespace=\"a:\"} 1\n",
        "larder_namespace_items{namespace=\"<null>\"} 1\n",
        "larder_namespace_gets_total{namespace=\"a:\"} 2\n",
        "larder_namespace_memory_limit_bytes{namespace=\"a:\"} 8388608\n",
        "larder_memory_limit_bytes 33554432\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    let plain = Larderd::start(&["-m", "32"]);
    assert_eq!(plain.get("/api/namespaces").body, "[]");
    assert!(!plain.get("/metrics").body.contains("larder_namespace"));
}
