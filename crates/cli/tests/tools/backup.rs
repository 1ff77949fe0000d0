//! Backups as streams, from a server to a new store.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use larder_conformance::folder::Folder;
use larder_conformance::server::Server;

use crate::{Ended, command, larder, larder_fed, ok, start_larderd};

const TOKEN: &str = "correct-horse-battery";

/// larderd with a store of two items, and HTTP for operators at a Unix socket of this folder.
fn kept(folder: &Folder) -> Server {
    folder.write("token", TOKEN);
    let (store, token, admin) = (folder.arg("store"), folder.arg("token"), folder.arg("admin.sock"));
    let server = start_larderd(&["--store", &store, "--backup-token-file", &token, "--admin-listen", &admin]);
    ok(&server, &["set", "greeting", "hello", "--flags", "7"]);
    ok(&server, &["set", "numbers", "123"]);
    server
}

/// `larder backup -`: how it ended, and the stream.
fn stream(folder: &Folder, admin: &str, token: &str) -> (Ended, Vec<u8>) {
    let args = ["backup", "-", "--admin", admin, "--backup-token-file", token];
    let output = command("localhost:1", &args).output().expect("larder runs");
    fs::write(folder.file("backup.tar"), &output.stdout).expect("the folder is ours");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (Ended { code: output.status.code().unwrap_or(-1), out: String::new(), err }, output.stdout)
}

#[test]
fn a_stream_becomes_a_store() {
    let folder = Folder::create();
    let server = kept(&folder);
    let (ended, bytes) = stream(&folder, &folder.arg("admin.sock"), &folder.arg("token"));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.starts_with("larder backup: 2 files, "), "{}", ended.err);

    let to = folder.arg("restored");
    let restored = larder_fed(&server, &["restore", "-", "--to", &to], &bytes);
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert!(restored.out.ends_with("up to change 2\n"), "{}", restored.out);
    let again = larder_fed(&server, &["restore", "-", "--to", &to], &bytes);
    assert_eq!((again.code, again.err.contains("has a store already")), (1, true), "{}", again.err);
    let full = folder.file("full");
    fs::create_dir_all(full.join("directory")).expect("the folder is ours");
    let beside = larder_fed(&server, &["restore", "-", "--to", &folder.arg("full")], &bytes);
    assert_eq!((beside.code, beside.err.contains("directory")), (1, true), "{}", beside.err);
    let checked = larder(&server, &["check", &to]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    let copy = start_larderd(&["-u", "root", "--store", &to]);
    assert!(ok(&copy, &["get", "--long", "greeting"]).starts_with("greeting 7 5 "));
    assert_eq!(ok(&copy, &["get", "numbers"]), "123\n");

    // With the tools that every system has it becomes the directory that a backup in place would be.
    let plain = folder.file("plain");
    fs::create_dir(&plain).expect("the folder is ours");
    let shell = "tar -xf ../backup.tar && sha256sum --check --strict SHA256SUMS && ls";
    let shell = Command::new("sh").args(["-c", shell]).current_dir(&plain).output().expect("a shell");
    let listed = String::from_utf8_lossy(&shell.stdout).into_owned();
    assert!(shell.status.success(), "{listed}{}", String::from_utf8_lossy(&shell.stderr));
    assert!(listed.contains("MANIFEST: OK"), "{listed}");
    ok(&server, &["restore", &folder.arg("plain"), "--to", &folder.arg("from-plain")]);
    let (ended, _) = stream(&folder, &folder.arg("admin.sock"), "/dev/zero");
    assert!(ended.err.contains("/dev/zero: it is too large for a token"), "{}", ended.err);
}

#[test]
fn what_is_cut_is_refused_and_leaves_nothing() {
    let folder = Folder::create();
    let server = kept(&folder);
    let (_, bytes) = stream(&folder, &folder.arg("admin.sock"), &folder.arg("token"));
    let to = folder.arg("restored");
    for length in [0, 100, 600, bytes.len() / 2, bytes.len() - 1024, bytes.len() - 1] {
        let ended = larder_fed(&server, &["restore", "-", "--to", &to], &bytes[..length]);
        assert_eq!(ended.code, 65, "{length}: {}", ended.err);
        let whole = format!("larder restore: the stream, byte {length}: it is cut: it ends here\n");
        assert_eq!(ended.err, whole);
        assert!(!folder.file("restored").exists(), "{length}");
    }
}

#[test]
fn a_server_that_fails_in_the_middle_is_noticed() {
    let folder = Folder::create();
    let _server = kept(&folder);
    let (_, bytes) = stream(&folder, &folder.arg("admin.sock"), &folder.arg("token"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = listener.local_addr().expect("is bound").to_string();
    let failing = thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("larder connects");
        let mut request = [0; 1000];
        let count = client.read(&mut request).expect("larder asks");
        client.write_all(b"HTTP/1.0 200 OK\r\n\r\n").expect("larder reads");
        client.write_all(&bytes[..700]).expect("larder reads");
        String::from_utf8_lossy(&request[..count]).into_owned()
    });
    let (ended, passed) = stream(&folder, &admin, &folder.arg("token"));
    let request = failing.join().expect("no panic");
    assert!(request.contains(&format!("\r\nAuthorization: Bearer {TOKEN}\r\n")), "{request}");
    assert_eq!((ended.code, passed.len()), (1, 700), "{}", ended.err);
    assert!(ended.err.contains("not complete: byte 700: it is cut"), "{}", ended.err);
}

#[test]
fn who_may_not_gets_a_sentence() {
    let folder = Folder::create();
    let server = kept(&folder);
    let (admin, token) = (folder.arg("admin.sock"), folder.arg("token"));
    folder.write("other", "another-secret-word");
    for (admin, token, code, why) in [
        (&admin, &folder.arg("other"), 77, "the token is not that of --backup-token-file"),
        (&folder.arg("none.sock"), &token, 69, "none.sock"),
        (&server.address().to_string(), &token, 69, "closed the connection"),
        (&admin, &folder.arg("missing"), 64, "missing"),
    ] {
        let (ended, bytes) = stream(&folder, admin, token);
        assert_eq!((ended.code, bytes.len()), (code, 0), "{}", ended.err);
        assert!(ended.err.contains(why), "{}", ended.err);
    }
    for (args, why) in [
        (&["backup", "-"][..], "needs --admin and --backup-token-file"),
        (&["backup", "-", "--since", "monday"], "a stream has everything"),
        (&["backup", "monday", "--admin", &admin], "--admin is for a stream"),
        (&["backup", "monday", "--backup-token-file", &folder.arg("missing")], "missing"),
        (&["restore", "-", "monday", "--to", "/nowhere"], "stands alone"),
    ] {
        let ended = larder(&server, args);
        assert_eq!((ended.code, ended.err.contains(why)), (64, true), "{}", ended.err);
    }
    let without = folder.arg("without.sock");
    let _server = start_larderd(&["--store", &folder.arg("another"), "--admin-listen", &without]);
    let (ended, _) = stream(&folder, &without, &token);
    assert_eq!((ended.code, ended.err.contains("--backup-token-file")), (77, true), "{}", ended.err);
}

/// Below `--backup-dir` as well, for a user who may not read and write everything.
#[test]
fn the_token_stands_for_the_right_to_everything() {
    let folder = Folder::create();
    folder.write("token", TOKEN);
    folder.write("users", "root:pw\nanna:pw\n");
    folder.write("password", "pw");
    folder.write("namespaces", "[default]\nusers = { read = [\"anna\"], write = [\"root\"] }\n");
    let [token, users, password, namespaces, store, backups] =
        ["token", "users", "password", "namespaces", "store", "backups"].map(|name| folder.arg(name));
    let server = start_larderd(&[
        "-Y",
        &users,
        "--namespaces",
        &namespaces,
        "--store",
        &store,
        "--backup-dir",
        &backups,
        "--backup-token-file",
        &token,
    ]);
    let anna = ["backup", "monday", "--user", "anna", "--password-file", &password];
    let refused = larder(&server, &anna);
    let told = "backups need the right to everything or the backup token";
    assert!(refused.code != 0 && refused.err.contains(told), "{}", refused.err);
    let taken = ok(&server, &[&anna[..], &["--backup-token-file", &token]].concat());
    assert!(taken.starts_with("monday: ") && !taken.contains(TOKEN), "{taken}");
    assert!(folder.file("backups/monday/MANIFEST").exists());
}
