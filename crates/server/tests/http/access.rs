//! Who is let in.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::eventually;
use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Client, Larderd, program, request};

const TOKEN: &str = "correct-horse-battery";

fn with_token(folder: &Folder, options: &[&str]) -> Larderd {
    folder.write("token", TOKEN);
    Larderd::start(&[&["-u", "root", "--http-token-file", &folder.arg("token")], options].concat())
}

#[test]
fn nothing_is_done_without_the_token() {
    let folder = Folder::create();
    let server = with_token(&folder, &[]);
    let token = format!("Authorization: Bearer {TOKEN}\r\nConnection: close\r\n");
    assert_eq!(server.ask("PUT /v1/items/a", &token, "x").status, 201);
    for header in ["", "Authorization: Bearer correct-horse-batterz\r\n", "Authorization: Basic Og==\r\n"] {
        let mut client = server.connect();
        for (first, content) in [
            ("GET /v1/items/a", ""),
            ("HEAD /v1/items/a", ""),
            ("GET /v1/items?key=a", ""),
            ("PUT /v1/items/a", "y"),
            ("DELETE /v1/items/a", ""),
            ("POST /v1/items/a?op=append", "y"),
            ("POST /v1/items/n?op=incr&initial=1", ""),
            ("GET /else", ""),
            ("PATCH /v1/items/a", ""),
        ] {
            client.send(&request(first, header, content));
            let response = if first.starts_with("HEAD") { client.receive_head() } else { client.receive() };
            let response = response.expect("it is kept");
            assert_eq!(response.status, 401, "{first} {header}");
            assert!(response.head.contains("\r\nwww-authenticate: bearer\r\n"), "{}", response.head);
        }
        // Nor while the content is still to come: it is not asked for.
        client.send(
            "PUT /v1/items/a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n",
        );
        assert_eq!(client.receive().expect("an answer").status, 401);
        assert!(client.receive().is_none());
    }
    // With a token any host will do.
    let mut client = server.connect();
    client.send(&format!("GET /v1/items/a HTTP/1.1\r\nHost: any.example\r\n{token}\r\n"));
    assert_eq!(client.receive().expect("an answer").content, b"x");
    assert_eq!(server.stat("cmd_set"), "1");
}

#[test]
fn a_new_token_takes_the_place_of_the_old_one_at_sighup() {
    let folder = Folder::create();
    let server = with_token(&folder, &["-o", "drop_privileges"]);
    let status =
        |token: &str| server.ask("GET /v1/items/a", &format!("Authorization: Bearer {token}\r\n"), "").status;
    assert_eq!(status(TOKEN), 404);
    folder.write("token", "battery-staple-horse");
    let pid = Pid::from_raw(server.server.pid().try_into().expect("a pid")).expect("a pid");
    kill_process(pid, Signal::HUP).expect("it runs");
    eventually(|| status("battery-staple-horse") == 404);
    assert_eq!(status(TOKEN), 401);
}

#[test]
fn logins_cannot_be_bypassed() {
    let folder = Folder::create();
    folder.write("passwords", "ann:secret\n");
    folder.write("token", TOKEN);
    let refused = |login: &[&str]| {
        let mut larderd = Command::new(program());
        larderd.args(["-l", "127.0.0.1", "-p", "-1", "--http-listen", "127.0.0.1:0"]).args(login);
        let output = larderd.env("MEMCACHED_SASL_PWDB", folder.file("passwords")).output().expect("it runs");
        assert_eq!(output.status.code(), Some(64), "{login:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("it needs --http-token-file"), "{login:?}");
    };
    refused(&["-S"]);
    refused(&["-Y", &folder.arg("passwords")]);
    // With a token that is the login here, and changes nothing elsewhere.
    let server = with_token(&folder, &["-Y", &folder.arg("passwords")]);
    assert_eq!(server.ask("GET /v1/items/a", "", "").status, 401);
    let login = "set a 0 0 10\r\nann:secret\r\n";
    assert_eq!(server.ask("GET /v1/items/a", &format!("Authorization: Bearer {TOKEN}\r\n"), "").status, 404);
    let mut client = server.connect();
    client.send(login);
    assert!(client.receive().is_none_or(|response| response.status == 400));
    let mut text = server.server.connect().expect("larderd listens");
    std::io::Write::write_all(&mut text, b"get a\r\n").expect("larderd reads");
    let mut line = String::new();
    BufReader::new(text).read_line(&mut line).expect("an answer");
    assert_eq!(line, "CLIENT_ERROR unauthenticated\r\n");
}

#[test]
fn the_command_line_is_checked() {
    for (options, code) in [
        (&["--http-listen", "127.0.0.1"][..], 71),
        (&["--http-listen", "127.0.0.1:x"], 71),
        (&["--http-listen", "/nonexistent/at/all"], 71),
        (&["--http-listen", "127.0.0.1:0", "--http-tls"], 64),
        (&["--http-listen", "127.0.0.1:0", "--http-token-file", "/nonexistent/at/all"], 1),
    ] {
        let output = Command::new(program()).args(["-l", "127.0.0.1", "-p", "-1"]).args(options).output();
        assert_eq!(output.expect("larderd is built").status.code(), Some(code), "{options:?}");
    }
}

#[test]
fn a_listener_that_others_can_reach_is_warned_of() {
    for (address, has_token, is_open) in
        [("0.0.0.0:0", false, true), ("0.0.0.0:0", true, false), ("127.0.0.1:0", false, false)]
    {
        let folder = Folder::create();
        let token_file = folder.write("token", TOKEN);
        let mut larderd = Command::new(program());
        larderd.args(["-l", "127.0.0.1", "-p", "-1", "-v", "--http-listen", address]).stderr(Stdio::piped());
        if has_token {
            larderd.arg("--http-token-file").arg(&token_file);
        }
        let mut child = larderd.spawn().expect("larderd is built");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let said = lines.take_while(|line| !line.contains("Serving pid=")).collect::<Vec<_>>().join("\n");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        assert_eq!(said.contains(" WARN HTTP at 0.0.0.0:"), is_open, "{said}");
        assert!(said.contains("listening for HTTP"), "{said}");
    }
}

/// A page of somebody else's could call a loopback listener by a name of its own, or send a form.
#[test]
fn web_pages_are_not_served() {
    let server = Larderd::start(&[]);
    for (host, status) in [
        ("localhost", 404),
        ("127.0.0.1:1", 404),
        ("[::1]", 404),
        ("rebound.example", 421),
        ("", 421),
        ("[::1].rebound.example", 421),
    ] {
        let mut client = server.connect();
        client.send(&format!("GET /v1/items/a HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let response = client.receive().expect("an answer");
        assert_eq!(response.status, status, "{host}");
    }
    let mut client = server.connect();
    client.send("GET http://rebound.example/v1/items/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.receive().expect("an answer").status, 421);
    client.send("GET /v1/items/a HTTP/1.0\r\n\r\n");
    assert_eq!(client.receive().expect("an answer").status, 421);
    let form = "Origin: http://evil.example\r\nContent-Type: text/plain\r\n";
    assert_eq!(server.ask("POST /v1/items/a?op=append", form, "x").status, 403);
    let preflight = "Origin: http://evil.example\r\nAccess-Control-Request-Method: PUT\r\n";
    assert_eq!(server.ask("OPTIONS /v1/items/a", preflight, "").status, 403);
    let options = server.ask("OPTIONS /v1/items/a", "", "");
    assert_eq!(options.status, 405);
    assert!(!options.head.contains("access-control"), "{}", options.head);
    for fence in ["x-content-type-options: nosniff", "cross-origin-resource-policy: same-origin"] {
        assert!(options.head.contains(fence), "{}", options.head);
    }
}

#[test]
fn a_unix_socket_serves_the_same() {
    let folder = Folder::create();
    let _server = Larderd::start(&["-u", "root", "--http-listen", &folder.arg("socket")]);
    let stream = UnixStream::connect(folder.file("socket")).expect("larderd listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
    let mut client = Client(BufReader::new(stream));
    client.send("PUT /v1/items/a HTTP/1.1\r\nHost: whatever\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.receive().expect("an answer").status, 201);
    assert!(fs::metadata(folder.file("socket")).is_ok());
}

/// What an operator reads in the log must not let him in.
#[test]
fn the_log_does_not_show_tokens() {
    let folder = Folder::create();
    folder.write("token", TOKEN);
    let mut larderd = larder_conformance::server::command(program());
    larderd.args([
        "-u",
        "root",
        "-vv",
        "--http-listen",
        "127.0.0.1:0",
        "--http-token-file",
        &folder.arg("token"),
    ]);
    larderd.stderr(fs::File::create(folder.file("log")).expect("the folder is ours"));
    let server = larder_conformance::server::Server::start_command(larderd).expect("larderd starts");
    let server = Larderd { http: server.http_address().expect("it has been bound"), server };
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(server.ask("PUT /v1/items/a", &token, "x").status, 201);
    assert_eq!(server.ask("GET /v1/items?key=a", &format!("{token}Connection: close\r\n"), "").status, 200);
    let log = || fs::read_to_string(folder.file("log")).expect("it is text");
    eventually(|| log().contains("GET /v1/items?key=a"));
    assert!(log().contains("PUT /v1/items/a HTTP/1.1") && !log().contains(TOKEN), "{}", log());
}
