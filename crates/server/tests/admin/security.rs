//! Checks that the promises and limits in SECURITY.md hold.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use larder_conformance::folder::Folder;

use crate::server::{Larderd, converse};
use crate::tls::identity;

/// The way in which a sentence is verified.
enum By {
    /// A test in this file.
    Here(fn()),
    /// A test in another file of the repository: its path and name.
    Test(&'static str, &'static str),
    /// No test: the sentence explains, advises, or says something that a test cannot show.
    Words,
}

use By::{Here, Test, Words};

/// Each sentence of both sections, without its links.
const SENTENCES: &[(&str, By)] = &[
    (
        "A test of larder holds each sentence of this section and the next that can be tested (`crates/server/tests/admin/security.rs`).",
        Words,
    ),
    (
        "No input makes larderd read or write memory that is not its own, or show a client memory that was not stored as a value.",
        Test("conformance/tests/hostile.rs", "random_bytes"),
    ),
    (
        "The code is Rust; `unsafe` is in two crates, in the modules that ARCHITECTURE.md lists.",
        Here(unsafe_code_is_in_three_crates),
    ),
    (
        "No input of a client causes a panic or an endless loop.",
        Test("conformance/tests/hostile.rs", "random_words"),
    ),
    ("Parsers are fuzzed.", Words),
    (
        "What clients can make the server keep is bounded: in the cache by `-m`, outside of it by `-o read_buf_mem_limit` and by 16 KiB for each connection (invariant 6 in ARCHITECTURE.md).",
        Test("crates/server/tests/held_memory.rs", "values_that_are_never_finished_lie_within_the_limit"),
    ),
    (
        "A connection has a share of each round, and expensive commands have fewer turns, so no client delays others for long.",
        Test("crates/server/tests/connection.rs", "commands_about_the_server_wait_for_a_round_with_a_turn"),
    ),
    (
        "If larderd cannot honour an option that protects a listener, it does not start.",
        Here(options_that_would_protect_nobody_are_refused),
    ),
    (
        "That includes `ssl_*` without `-Z`, `ssl_ca_cert` that checks nobody, and a token for a listener that is not there.",
        Here(options_that_would_protect_nobody_are_refused),
    ),
    (
        "It warns of each address that is open to everybody.",
        Test("crates/server/tests/login.rs", "open_doors_are_named_once_each"),
    ),
    (
        "With `-Y` or `-S`, a client without a login can execute nothing but the login itself (and `version` with `-S`).",
        Test("crates/server/tests/auth_table.rs", "binary"),
    ),
    (
        "No other listener lets clients around it: UDP is refused, and items over HTTP need a token.",
        Test("crates/server/tests/http/access.rs", "logins_cannot_be_bypassed"),
    ),
    (
        "Comparisons take constant time, unknown users cost as much as known ones, and guessing takes at most a fifth of one worker (docs/authentication.md).",
        Test("crates/server/tests/login.rs", "who_waits_for_a_dear_check_is_answered_in_turn"),
    ),
    (
        "With `ssl_verify_mode` 2 or 3 no client without a certificate is served over TCP, unless an entry of `-l` says so.",
        Test("crates/server/tests/tls/main.rs", "listeners_ask_for_certificates_as_they_are_told"),
    ),
    (
        "UDP is refused then, and items over HTTP need TLS or a token.",
        Here(options_that_would_protect_nobody_are_refused),
    ),
    (
        "A namespace with `users` is read and written by those alone (docs/guides/namespaces.md).",
        Test("crates/server/tests/namespaces/users.rs", "users_do_what_the_lists_allow"),
    ),
    (
        "A backup below `--backup-dir` needs the right to all namespaces or the token of `--backup-token-file`, and `flush_all` and comparisons of sites need that right.",
        Test(
            "crates/server/tests/namespaces/users.rs",
            "the_backup_token_stands_for_the_right_to_everything",
        ),
    ),
    ("Keys are hashed with a random key of the process.", Words),
    (
        "Over UDP an address gets at most three bytes for each byte received from it, and with `--udp-cookie` no more than it sent, until it shows that it receives (docs/udp.md).",
        Test("crates/server/tests/udp.rs", "a_stranger_never_gets_more_than_it_sent_whatever_it_sends"),
    ),
    (
        "(`--http-listen`) have no administrative commands.",
        Here(items_over_http_have_no_administrative_commands),
    ),
    (
        "No web page is served: a request that a browser sends for another site is refused, and so is a foreign host where there is no token (docs/http.md).",
        Test("crates/server/tests/http/access.rs", "web_pages_are_not_served"),
    ),
    (
        "(`--admin-listen`) changes something only for who shows the token of `--admin-token-file` or a required certificate, or comes by a Unix socket that others cannot open.",
        Here(changes_need_a_token_or_a_socket_of_ones_own),
    ),
    ("To be on the same machine is not enough.", Here(changes_need_a_token_or_a_socket_of_ones_own)),
    (
        "It gives all items to who shows the token of `--backup-token-file`, and to nobody else.",
        Test("crates/server/tests/admin/backup.rs", "nobody_else_takes_one"),
    ),
    ("No other path shows values.", Here(no_path_shows_values)),
    (
        "Figures are open where there is no token; keys are shown only where a token or a certificate is required, or only this machine can connect (docs/admin.md).",
        Here(no_path_shows_values),
    ),
    (
        "It makes connections only to the servers that `--admin-peers` names, with bounded time and size.",
        Test("crates/server/tests/admin/peers.rs", "what_is_no_answer_is_refused"),
    ),
    (
        "(`--site`) exchange nothing before both have proven that they know the token.",
        Test("crates/replication/tests/link.rs", "who_does_not_know_the_token_is_refused"),
    ),
    (
        "On other interfaces than the loopback they need TLS (docs/replication.md).",
        Here(options_that_would_protect_nobody_are_refused),
    ),
    (
        "What a store, a backup or a restore writes is for its owner alone.",
        Test("crates/store/src/files/disk.rs", "what_is_made_is_for_its_owner_alone"),
    ),
    (
        "A file of `-e` that others may write to is refused.",
        Here(a_cache_file_that_others_may_write_to_is_refused),
    ),
    (
        "Started as root, larderd follows no link that the user of `-u` could have planted, and becomes that user before it serves (docs/store.md).",
        Test("crates/server/tests/cli_process.rs", "root_follows_no_links_that_the_user_has_planted"),
    ),
    (
        "A second larderd that cannot serve takes neither the Unix sockets nor the pid file of the first.",
        Test("crates/server/tests/cli_process.rs", "a_second_server_leaves_the_first_one_its_names"),
    ),
    (
        "The log has no values, keys, user names, passwords or tokens, but for `-vv` and `watch`, which show keys.",
        Test("crates/server/tests/journal.rs", "failed_logins_are_told_without_what_was_typed"),
    ),
    (
        "Of an item that is damaged it has a digest of the key.",
        Test(
            "crates/server/tests/replication/compare.rs",
            "a_site_mends_what_it_lost_and_reports_what_it_cannot_explain",
        ),
    ),
    (
        "Any client that can connect, or log in, can read, change and delete all items of namespaces without `users`, flush them, list their keys and watch requests.",
        Words,
    ),
    ("`-F`, `-X` and `-W` forbid the last three.", Here(options_forbid_flushes_lists_and_watching)),
    (
        "Text, passwords of `-Y` and PLAIN and tokens of backups included, and tokens of HTTP without `--admin-tls` or `--http-tls`, is readable in the network.",
        Words,
    ),
    (
        "UDP and Unix sockets have no TLS.",
        Test("crates/server/tests/tls/main.rs", "a_listener_without_tls_and_a_unix_socket_stay_plain"),
    ),
    ("Files of `--store`, of its backups and of `-e` have keys and values as they are.", Words),
    ("A site with the token can change or delete everything at all of them.", Words),
    (
        "Clients that may connect can use all connections, all of the processor and the network, and can evict what others stored; quotas of namespaces bound the last.",
        Words,
    ),
    ("Limit who may connect.", Words),
    ("They can store, delete and flush, if they reach `-U`.", Words),
    (
        "A deleted or expired value stays in the process's memory, and on the disk of a store, until the space is used again.",
        Words,
    ),
    ("Core dumps (`-r`) and swapped pages contain it.", Words),
    ("Response times tell whether a key is there, as in any cache.", Words),
    ("There are no revocation lists.", Words),
    (", such as `ulimit -v` below what larderd asks for (docs/operations.md).", Words),
];

#[test]
fn every_sentence_is_held() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("SECURITY.md")).expect("it is there");
    let sections = text.split_once("## What is promised").and_then(|(_, rest)| rest.split_once("## Advice"));
    let written: BTreeSet<_> = sentences(sections.expect("both sections").0).into_iter().collect();
    let held: BTreeSet<_> = SENTENCES.iter().map(|(sentence, _)| (*sentence).to_owned()).collect();
    let lost: Vec<_> = held.difference(&written).collect();
    let unheld: Vec<_> = written.difference(&held).collect();
    assert!(
        lost.is_empty() && unheld.is_empty(),
        "not in SECURITY.md: {lost:#?}\nheld by no test: {unheld:#?}"
    );
    let mut done = BTreeSet::new();
    for (sentence, by) in SENTENCES {
        match by {
            Here(check) => {
                if done.insert(*check as usize) {
                    check();
                }
            }
            Test(file, name) => {
                let source = fs::read_to_string(root.join(file)).unwrap_or_default();
                assert!(source.contains(&format!("fn {name}(")), "{sentence}: {file} has no test {name}");
            }
            Words => {}
        }
    }
}

/// The sentences of a section, without headings, titles in bold, and the targets of links.
fn sentences(section: &str) -> Vec<String> {
    let mut words = String::new();
    for line in section.lines().filter(|line| !line.starts_with('#')) {
        words += line.trim().trim_start_matches("- ");
        words.push(' ');
    }
    let plain: String = words.split("**").step_by(2).collect();
    let mut text = String::new();
    let mut rest = &plain[..];
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text += rest;
    let text = text.replace('[', "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split_inclusive(". ").map(|sentence| sentence.trim().to_owned()).collect()
}

fn unsafe_code_is_in_three_crates() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(crates).expect("it is there") {
        let entry = entry.expect("it is there");
        let mut folders = vec![entry.path().join("src")];
        while let Some(folder) = folders.pop() {
            for file in fs::read_dir(folder).into_iter().flatten() {
                let path = file.expect("it is there").path();
                if path.is_dir() {
                    folders.push(path);
                } else if fs::read_to_string(&path).is_ok_and(|source| has_unsafe_code(&source)) {
                    found.insert(entry.file_name().into_string().expect("text"));
                }
            }
        }
    }
    assert_eq!(found, ["engine", "memcached-c"].map(str::to_owned).into());
}

fn has_unsafe_code(source: &str) -> bool {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.into_iter()
        .any(|line| ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| line.contains(word)))
}

fn options_that_would_protect_nobody_are_refused() {
    let folder = Folder::create();
    folder.write("token", "secret-secret-secret\n");
    let (token, store) = (folder.arg("token"), folder.arg("store"));
    let socket = folder.arg("socket");
    let certificates = format!("ssl_chain_cert={}", folder.write("server.pem", identity().0).display());
    let ca = "ssl_verify_mode=2,ssl_ca_cert=ca.pem";
    for (options, reason) in [
        (vec!["-o", ca], "-o ssl_verify_mode needs -Z"),
        (vec!["-o", "ssl_chain_cert=c.pem"], "-o ssl_chain_cert needs -Z"),
        (vec!["-o", "ssl_key=k.pem"], "-o ssl_key needs -Z"),
        (vec!["-o", "ssl_min_version=3"], "-o ssl_min_version needs -Z"),
        (vec!["-Z", "-o", "ssl_chain_cert=c.pem,ssl_ca_cert=ca.pem"], "ssl_ca_cert has no effect"),
        (vec!["-Z", "-o", "ssl_chain_cert=c.pem", "-o", ca, "-U", "-1"], "certificate over UDP"),
        (
            vec!["-Z", "-o", "ssl_chain_cert=c.pem", "-o", ca, "--http-listen", "127.0.0.1:0"],
            "it needs --http-tls or --http-token-file",
        ),
        (vec!["--admin-token-file", &token], "--admin-token-file has no effect: it needs --admin-listen"),
        (vec!["--http-token-file", &token], "--http-token-file has no effect: it needs --http-listen"),
        (vec!["--udp-cookie"], "--udp-cookie has no effect: it needs -U"),
        (
            vec!["--store", &store, "--site", "1", "--replication-token-file", &token],
            "--replication-token-file has no effect: it needs --replication-listen or --peer",
        ),
        (
            vec![
                "--store",
                &store,
                "--site",
                "1",
                "--replication-token-file",
                &token,
                "--replication-listen",
                "0.0.0.0:0",
            ],
            "--replication-listen: other machines may see only what TLS encrypts",
        ),
        (vec!["--admin-listen", "127.0.0.1:0", "--admin-tls"], "--admin-tls has no certificates without -Z"),
        // A Unix socket has no TLS.
        (
            vec!["-Z", "-o", &certificates, "--admin-listen", &socket, "--admin-tls"],
            "--admin-tls has no effect",
        ),
        (vec!["-Z", "-o", &certificates, "--http-listen", &socket, "--http-tls"], "--http-tls has no effect"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larderd"));
        let output = command.args(["-l", "127.0.0.1", "-p", "-1"]).args(&options).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{options:?}: {said}");
        assert!(said.contains(reason), "{options:?}: {said}");
    }
}

fn changes_need_a_token_or_a_socket_of_ones_own() {
    let folder = Folder::create();
    folder.write("token", "secret-secret-secret\n");
    let [token, own] = ["token", "own"].map(|name| folder.arg(name));
    let authorization = "Authorization: Bearer secret-secret-secret\r\n";
    let changes = ["POST /api/flush?prefix=%3Cnull%3E", "POST /api/read-only?state=on"];
    let request = |line: &str, headers: &str| {
        format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
    };
    let by_socket = |change: &str| {
        let mut stream = UnixStream::connect(&own).expect("larderd listens");
        converse(&mut stream, &request(change, "")).status
    };
    for change in changes {
        let server = Larderd::start(&["--admin-listen", &own]);
        for headers in ["", authorization] {
            let reply = server.ask(&request(change, headers));
            assert_eq!(reply.status, 403, "{change}: {}", reply.body);
            assert!(reply.body.contains("--admin-token-file"), "{}", reply.body);
        }
        assert_eq!(server.get("/api/read-only").body, r#"{"is_read_only":false,"refused":0}"#);
        assert!(![401, 403].contains(&by_socket(change)), "{change}");
        drop(server);
        let server = Larderd::start(&["--admin-listen", &own, "-a", "777"]);
        assert_eq!(by_socket(change), 403);
        drop(server);
        let server = Larderd::start(&["--admin-token-file", &token]);
        assert_eq!(server.ask(&request(change, "")).status, 401);
        assert!(![401, 403].contains(&server.ask(&request(change, authorization)).status), "{change}");
    }
}

fn no_path_shows_values() {
    let server = Larderd::start(&["-m", "32"]);
    for _ in 0..2000 {
        server.cache("set some:key 0 0 12\r\nsecret-value\r\nget some:key\r\n");
        if server.get("/api/keys").body.contains("some:key") {
            break;
        }
    }
    let paths = "overview history connections slow memory curve namespaces peers store read-only sites keys";
    let paths = paths.split(' ').map(|name| format!("/api/{name}"));
    for path in paths.chain(["/metrics", "/healthz", "/readyz", "/"].map(str::to_owned)) {
        let reply = server.get(&path);
        assert_eq!(reply.status, 200, "{path}");
        assert!(!reply.body.contains("secret-value"), "{path}");
        assert_eq!(reply.body.contains("some:key"), path == "/api/keys", "{path}");
    }
}

fn items_over_http_have_no_administrative_commands() {
    let folder = Folder::create();
    let socket = folder.arg("items");
    let _server = Larderd::start(&["--http-listen", &socket]);
    for line in
        ["POST /api/flush", "GET /api/overview", "GET /v1/stats", "POST /v1/flush_all", "GET /metrics"]
    {
        let mut stream = UnixStream::connect(&socket).expect("larderd listens");
        let request =
            format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(converse(&mut stream, &request).status, 404, "{line}");
    }
}

fn a_cache_file_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::create();
    folder.write("cache", "");
    fs::set_permissions(folder.file("cache"), fs::Permissions::from_mode(0o666)).expect("it is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_larderd"));
    command.args(["-l", "127.0.0.1", "-p", "-1", "-u", "root", "-e", &folder.arg("cache")]);
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(71));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("others may write to it"), "{said}");
}

fn options_forbid_flushes_lists_and_watching() {
    let server = Larderd::start(&["-F", "-X", "-W"]);
    for (command, answer) in [
        ("flush_all\r\n", "CLIENT_ERROR flush_all not allowed"),
        ("lru_crawler metadump all\r\n", "ERROR metadump not allowed"),
        ("stats cachedump 1 1\r\n", "CLIENT_ERROR stats cachedump not allowed"),
        ("watch fetchers\r\n", "CLIENT_ERROR watch commands not allowed"),
    ] {
        assert!(server.cache(command).starts_with(answer), "{command}: {}", server.cache(command));
    }
}
