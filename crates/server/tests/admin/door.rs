//! Who is let in, and what a client may do to the server.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::eventually;

use crate::server::{Larderd, converse, is_root};
use crate::tls::identity;

const PATHS: [&str; 9] = [
    "/metrics",
    "/api/overview",
    "/api/history",
    "/api/memory",
    "/api/keys",
    "/api/curve",
    "/api/slow",
    "/api/connections",
    "/api/peers",
];

#[test]
fn nothing_is_told_without_the_token() {
    let folder = Folder::create();
    folder.write("token", "  correct-horse-battery\n");
    let server = Larderd::start(&["--admin-token-file", &folder.arg("token")]);
    drop(folder);
    for path in PATHS {
        for header in ["", "Authorization: Bearer correct-horse-batterz\r\n", "Authorization: Basic Og==\r\n"]
        {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{header}Connection: close\r\n\r\n");
            let reply = server.ask(&request);
            assert_eq!(reply.status, 401, "{path} {header}");
            assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
        }
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: any.example\r\nAuthorization: Bearer correct-horse-battery\r\n\
             Connection: close\r\n\r\n"
        );
        assert_eq!(server.ask(&request).status, 200, "{path}");
    }
    // Probes of orchestrators, and the page that asks for the token.
    for path in ["/healthz", "/readyz", "/", "/page.js", "/page.css"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

/// Also by a server that can open no other file any more.
#[test]
fn a_new_token_takes_the_place_of_the_old_one_at_sighup() {
    for options in ["maxconns_fast", "drop_privileges"] {
        let folder = Folder::create();
        let write = |token: &str| folder.write("token", token);
        let token_file = write("correct-horse-battery");
        let server = Larderd::start(&["--admin-token-file", &folder.arg("token"), "-o", options]);
        let status = |token: &str| {
            let header = format!("Authorization: Bearer {token}\r\nConnection: close\r\n");
            server.ask(&format!("GET /api/overview HTTP/1.1\r\nHost: a\r\n{header}\r\n")).status
        };
        write("battery-staple-horse");
        server.reload();
        eventually(|| status("battery-staple-horse") == 200);
        assert_eq!(status("correct-horse-battery"), 401);
        // One that is none changes nothing, nor does its absence let everybody in.
        write("short");
        server.reload();
        fs::remove_file(&token_file).expect("the folder is ours");
        server.reload();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!((status("battery-staple-horse"), status("short"), status("")), (200, 401, 401));
    }
}

#[test]
fn a_token_that_could_be_guessed_or_not_be_sent_is_refused() {
    for token in ["", "short", "two words are not a token", "umlauts-are-näh-token"] {
        let folder = Folder::create();
        let token_file = folder.write("token", token);
        let mut larderd = Command::new(env!("CARGO_BIN_EXE_larderd"));
        larderd.args(["-l", "127.0.0.1", "-p", "-1", "--admin-listen", "127.0.0.1:0", "--admin-token-file"]);
        let output = larderd.arg(&token_file).output().expect("larderd is built");
        assert_eq!(output.status.code(), Some(1), "{token}");
    }
}

#[test]
fn the_command_line_is_checked() {
    for (options, code) in [
        (&["--admin-listen", "127.0.0.1"][..], 71),
        (&["--admin-listen", "127.0.0.1:x"], 71),
        (&["--admin-listen", "/nonexistent/at/all"], 71),
        (&["--admin-listen", "127.0.0.1:0", "--admin-tls"], 64),
        (&["--admin-listen", "127.0.0.1:0", "--admin-token-file", "/nonexistent/at/all"], 1),
    ] {
        let mut larderd = Command::new(env!("CARGO_BIN_EXE_larderd"));
        let output = larderd.args(["-l", "127.0.0.1", "-p", "-1"]).args(options).output();
        assert_eq!(output.expect("larderd is built").status.code(), Some(code), "{options:?}");
    }
}

#[test]
fn a_door_that_others_can_reach_is_warned_of() {
    for (address, token, is_open) in
        [("0.0.0.0:0", false, true), ("0.0.0.0:0", true, false), ("127.0.0.1:0", false, false)]
    {
        let folder = Folder::create();
        folder.write("token", "correct-horse-battery");
        let token_file = folder.arg("token");
        let options = ["--admin-listen", address, "--admin-token-file", &token_file];
        let said = said_at_start(&options[..if token { 4 } else { 2 }]);
        assert_eq!(said.contains(" WARN admin HTTP at 0.0.0.0:"), is_open, "{said}");
    }
}

/// Who listens in has all items, and the token to get them again.
#[test]
fn backups_that_are_sent_in_the_open_are_warned_of() {
    let folder = Folder::create();
    folder.write("token", "correct-horse-battery");
    folder.write("server.pem", identity().0);
    let (store, token) = (folder.arg("store"), folder.arg("token"));
    let tls = format!("ssl_chain_cert={}", folder.arg("server.pem"));
    let kept = ["--admin-token-file", &token, "--store", &store];
    let (streams, tls) = (["--backup-token-file", &token], ["--admin-tls", "-Z", "-o", &tls]);
    for (address, options, is_plain) in [
        ("0.0.0.0:0", &streams[..], true),
        ("127.0.0.1:0", &streams, false),
        ("0.0.0.0:0", &[], false),
        ("0.0.0.0:0", &[&streams[..], &tls].concat(), false),
    ] {
        let said = said_at_start(&[&["--admin-listen", address][..], &kept, options].concat());
        let warning = "sends backups, and takes their token, without TLS";
        assert_eq!(said.contains(warning), is_plain, "{said}");
    }
}

#[test]
fn token_files_that_others_can_read_are_warned_of() {
    let folder = Folder::create();
    let path = folder.write("token", "correct-horse-battery");
    for (mode, warning) in
        [(0o644, Some("mode 644")), (0o602, Some("mode 602")), (0o640, None), (0o600, None)]
    {
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("the folder is ours");
        let said =
            said_at_start(&["--admin-listen", "127.0.0.1:0", "--admin-token-file", &folder.arg("token")]);
        assert_eq!(said.contains("--admin-token-file: others can read"), warning.is_some(), "{said}");
        assert!(said.contains(warning.unwrap_or_default()), "{said}");
    }
}

/// The log of a start with these options.
fn said_at_start(options: &[&str]) -> String {
    let mut larderd = Command::new(env!("CARGO_BIN_EXE_larderd"));
    larderd.args(["-l", "127.0.0.1", "-p", "-1", "-v"]).args(options).stderr(Stdio::piped());
    if is_root() {
        larderd.args(["-u", "root"]);
    }
    let mut child = larderd.spawn().expect("larderd is built");
    let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    let said = lines.take_while(|line| !line.contains("Serving pid=")).collect::<Vec<_>>().join("\n");
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    said
}

/// A page of somebody else's could call a loopback listener by a name of its own.
#[test]
fn a_loopback_listener_wants_to_be_called_by_its_name() {
    let server = Larderd::start(&[]);
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]", 200),
        ("rebound.example", 421),
        ("", 421),
        ("[::1].rebound.example", 421),
        ("localhost:80@rebound.example", 421),
    ] {
        for path in ["/metrics", "/api/keys", "/"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            assert_eq!(server.ask(&request).status, status, "{host} {path}");
        }
    }
    assert_eq!(server.ask("GET /metrics HTTP/1.0\r\n\r\n").status, 421);
}

#[test]
fn only_reading_is_possible() {
    let server = Larderd::start(&[]);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"] {
        let target = if method == "CONNECT" { "localhost:80" } else { "/metrics" };
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let reply = server.ask(&format!("{head}Content-Length: 3\r\n\r\nabc"));
        assert_eq!(reply.status, 405, "{method}");
        assert!(reply.head.contains("allow: get, head"), "{}", reply.head);
    }
    let head = server.ask("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(!head.head.contains("content-length: 0"), "{}", head.head);
    for path in ["/nothing", "/api", "/api/", "/api/nothing", "/../etc/passwd", "/%2e%2e/etc/passwd", "//"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn what_is_no_request_gets_an_error_and_an_end() {
    let server = Larderd::start(&[]);
    let long_path = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000));
    let long_header = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    let many_headers = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(1000));
    for request in [
        "\r\n\r\nget a\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        &long_path,
        &long_header,
        &many_headers,
    ] {
        let mut stream = TcpStream::connect(server.admin).expect("larderd listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
        let reply = converse(&mut stream, request);
        assert!([0, 400, 414, 431].contains(&reply.status), "{request:.40}: {}", reply.status);
    }
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn connections_are_bounded_and_the_cache_does_not_notice() {
    let server = Larderd::start(&[]);
    // None of them ever sends a whole request.
    let idle: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(server.admin).expect("the kernel accepts");
            let _ = stream.write_all(b"GET / HTT");
            stream.set_nonblocking(true).expect("it is a socket");
            stream
        })
        .collect();
    assert_eq!(server.cache("set a 0 0 1\r\nb\r\nget a\r\n"), "STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n");
    // Those beyond the bound are closed at once, the others when their time is over.
    let is_closed = |mut stream: &TcpStream| match stream.read(&mut [0; 1]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    eventually(|| idle.iter().filter(|stream| is_closed(stream)).count() == 200 - 64);
    // Whoever asks at once finds a place all the same, as often as it likes.
    for path in ["/healthz", "/readyz", "/metrics"].iter().cycle().take(100) {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    drop(idle);
    let is_back = || {
        TcpStream::connect(server.admin).is_ok_and(|mut stream| {
            converse(&mut stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .status
                == 200
        })
    };
    eventually(is_back);
}

#[test]
fn a_unix_socket_serves_the_same() {
    let folder = Folder::create();
    let _server = Larderd::start(&["--admin-listen", &folder.arg("socket")]);
    let mut stream = UnixStream::connect(folder.file("socket")).expect("larderd listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: whatever\r\nConnection: close\r\n\r\n";
    let reply = converse(&mut stream, request);
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains("\nmemcached_up 1\n"));
}

#[test]
fn a_confined_server_tells_as_much() {
    let server = Larderd::start(&["-o", "drop_privileges"]);
    for path in PATHS {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

#[test]
fn browsers_are_told_to_keep_it_to_themselves() {
    let server = Larderd::start(&[]);
    for path in ["/", "/page.js", "/page.css", "/api/keys", "/metrics", "/nothing"] {
        let head = server.get(path).head;
        for fence in [
            "content-security-policy: default-src 'none';",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(fence), "{path}: {head}");
        }
        assert!(!head.contains("unsafe-inline") && !head.contains("access-control"), "{path}: {head}");
    }
}
