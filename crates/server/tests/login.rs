//! Logging in to a real server: by text, over every kind of listener, confined or not, and with a password file that
//! changes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

const LARDERD: &str = env!("CARGO_BIN_EXE_larderd");

/// A password file.
struct Passwords {
    folder: Folder,
    path: String,
}

impl Passwords {
    fn new(text: &str) -> Self {
        let folder = Folder::create();
        let passwords = Self { path: folder.arg("passwords"), folder };
        passwords.replace(text);
        passwords
    }

    /// As `larder passwd` does it: another file in its place.
    fn replace(&self, text: &str) {
        self.folder.write("passwords", text);
    }
}

fn start(args: &[&str]) -> Server {
    Server::start(Path::new(LARDERD), args).expect("larderd starts")
}

/// What the server answers to `request` until it closes or falls silent.
fn answer(stream: &mut (impl Read + Write), request: &str) -> String {
    // The server may have closed.
    let _ = stream.write_all(request.as_bytes());
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

/// Asks, and says by a known reply when to stop reading. The client must be logged in by the end of it.
fn ask(server: &Server, request: &str) -> String {
    let mut stream = server.connect().expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
    answer(&mut stream, &format!("{request}quit me\r\n"))
}

fn login(user: &str, password: &str) -> String {
    let token = format!("{user} {password}");
    format!("set x 0 0 {}\r\n{token}\r\n", token.len())
}

fn lets_in(server: &Server, user: &str, password: &str) -> bool {
    let mut stream = server.connect().expect("it listens");
    stream.write_all(login(user, password).as_bytes()).expect("it reads");
    let mut reply = [0; 8];
    stream.read_exact(&mut reply).expect("it answers");
    reply == *b"STORED\r\n"
}

fn reload(server: &Server) {
    kill_process(Pid::from_raw(server.pid() as i32).expect("it is not 0"), Signal::HUP).expect("it runs");
}

#[test]
fn after_a_login_the_connection_is_as_any_other() {
    let passwords = Passwords::new("ann:pass:word x\nbob:other");
    let server = start(&["-Y", &passwords.path]);
    let reply = ask(&server, &(login("ann", "pass:word x") + "set a 0 0 1\r\n1\r\nget a x\r\n"));
    assert_eq!(reply, "STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    // Nothing was stored by a login, and another connection is not let in by it.
    let reply = ask(
        &server,
        &("get a x\r\n".to_owned() + &login("bob", "wrong") + &login("bob", "other") + "get x\r\n"),
    );
    let expected = "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\nSTORED\r\nEND\r\n";
    assert_eq!(reply, expected);
    let reply = ask(&server, &(login("bob", "other") + "stats\r\nstats settings\r\n"));
    for line in [
        "STAT auth_cmds 4\r\n",
        "STAT auth_errors 1\r\n",
        &format!("STAT auth_enabled_ascii {}\r\n", passwords.path),
    ] {
        assert!(reply.contains(line), "{line}");
    }
}

/// A hashed password (RFC 7677, section 3: `pencil`) costs milliseconds to check, one at a time in the whole server.
#[test]
fn who_waits_for_a_dear_check_is_answered_in_turn() {
    let passwords = Passwords::new(
        "user:SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
         wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
    );
    let server = start(&["-Y", &passwords.path, "-t", "1"]);
    let mut hintes = Vec::new();
    for _ in 0..12 {
        let mut stream = server.connect().expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
        // What comes behind the login waits with it.
        stream.write_all((login("user", "hint") + "get a\r\n").as_bytes()).expect("it reads");
        hintes.push(stream);
    }
    // Some go away while they wait.
    for gone in hintes.drain(..4) {
        gone.shutdown(std::net::Shutdown::Both).expect("it is connected");
    }
    assert!(lets_in(&server, "user", "pencil"));
    for mut hint in hintes {
        let expected = b"CLIENT_ERROR authentication failure\r\nCLIENT_ERROR unauthenticated\r\n";
        let mut reply = vec![0; expected.len()];
        hint.read_exact(&mut reply).expect("it answers");
        assert_eq!(reply, expected);
    }
}

#[test]
fn a_login_may_come_byte_by_byte() {
    let passwords = Passwords::new("ann:pass");
    let server = start(&["-Y", &passwords.path]);
    let mut stream = server.connect().expect("it listens");
    for byte in login("ann", "wrong").bytes().chain(login("ann", "pass").bytes()) {
        stream.write_all(&[byte]).expect("it reads");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(answer(&mut stream, "quit me\r\n").ends_with("failure\r\nSTORED\r\n"));
}

#[test]
fn hup_reads_the_file_again_and_keeps_the_old_one_if_it_is_broken() {
    let passwords = Passwords::new("ann:one");
    for confined in ["drop_privileges", "no_drop_privileges"] {
        passwords.replace("ann:one");
        let server = start(&["-Y", &passwords.path, "-o", confined]);
        let mut early = server.connect().expect("it listens");
        early.write_all(login("ann", "one").as_bytes()).expect("it reads");
        early.read_exact(&mut [0; 8]).expect("it answers");

        passwords.replace("ann:two\nbob:three");
        assert!(lets_in(&server, "ann", "one"));
        reload(&server);
        eventually(|| lets_in(&server, "bob", "three"));
        assert!(!lets_in(&server, "ann", "one") && lets_in(&server, "ann", "two"));
        // Who is in stays in.
        early.write_all(b"get a\r\n").expect("it reads");
        let mut reply = [0; 5];
        early.read_exact(&mut reply).expect("it answers");
        assert_eq!(&reply, b"END\r\n");

        passwords.replace("broken");
        reload(&server);
        thread::sleep(Duration::from_millis(100));
        assert!(lets_in(&server, "bob", "three"));
    }
}

#[test]
fn every_thread_of_a_confined_server_is_confined_and_serves() {
    let mut server = start(&["-o", "drop_privileges", "-t", "3", "-I", "8m"]);
    let tasks = || fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    // The port is named before the threads start.
    eventually(|| tasks().count() == 4);
    for task in tasks() {
        let status = fs::read_to_string(task.expect("it runs").path().join("status")).expect("it runs");
        assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
    }
    // Large values take and give back memory.
    let value = "x".repeat(4 << 20);
    for _ in 0..40 {
        let mut stream = server.connect().expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
        let request = format!(
            "set a 0 0 {}\r\n{value}\r\nget a\r\ndelete a\r\nstats\r\nstats items\r\nquit\r\n",
            value.len()
        );
        let reply = answer(&mut stream, &request);
        assert!(reply.starts_with("STORED\r\nVALUE a 0 4194304\r\nxxx") && reply.ends_with("END\r\n"));
    }
    kill_process(Pid::from_raw(server.pid() as i32).expect("it is not 0"), Signal::TERM).expect("it runs");
    eventually(|| !server.is_running());
}

#[test]
fn files_that_cannot_be_used_keep_the_server_from_starting() {
    let passwords = Passwords::new("no colon in this secret line");
    for file in [&passwords.path[..], "/nonexistent"] {
        let output = Command::new(LARDERD)
            .args(["-p", "0", "-u", "nobody", "-Y", file])
            .output()
            .expect("larderd runs");
        assert_eq!(output.status.code(), Some(1), "{file}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(file) && !said.contains("secret line"), "{said}");
    }
}

#[test]
fn open_doors_are_named_once_each() {
    let passwords = Passwords::new("ann:one");
    let warnings = |args: &[&str]| {
        let child = Command::new(LARDERD)
            .args(["-u", "nobody", "-p", "-1", "-v"])
            .args(args)
            .stderr(std::process::Stdio::piped())
            .spawn();
        let mut child = child.expect("larderd runs");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let said =
            lines.map(|line| line.expect("it is text")).take_while(|line| !line.contains("Serving pid="));
        let warnings = said.filter(|line| line.contains(" WARN ")).count();
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
        warnings
    };
    assert_eq!(warnings(&["-l", "0.0.0.0"]), 1);
    assert_eq!(warnings(&["-l", "127.0.0.1,0.0.0.0,127.0.0.2"]), 1);
    assert_eq!(warnings(&["-l", "127.0.0.1"]), 0);
    assert_eq!(warnings(&["-s", &passwords.folder.arg("socket")]), 0);
    assert_eq!(warnings(&["-l", "0.0.0.0", "-Y", &passwords.path]), 0);
}

/// What a SASL exchange keeps for its next step is charged: here 16 KiB more than each may have, of a budget of a MiB.
#[test]
fn exchanges_that_are_not_finished_keep_no_more_than_the_budget() {
    let passwords = Passwords::new("user:pencil\n");
    let mut command = server::command(Path::new(LARDERD));
    command.args(["-S", "-o", "read_buf_mem_limit=1"]).env("MEMCACHED_SASL_PWDB", &passwords.path);
    let server = Server::start_command(command).expect("larderd starts");
    let mechanism = b"SCRAM-SHA-256";
    let message = format!("n,,n={},r={}", "u".repeat(8000), "n".repeat(8000));
    let body_bytes = u32::try_from(mechanism.len() + message.len()).expect("it is short");
    let mut start = vec![0x80, 0x21, 0, 13, 0, 0, 0, 0];
    start.extend_from_slice(&body_bytes.to_be_bytes());
    start.extend_from_slice(&[0; 12]);
    start.extend_from_slice(mechanism);
    start.extend_from_slice(message.as_bytes());
    let mut held = Vec::new();
    for _ in 0..150 {
        let mut stream = server.connect().expect("it listens");
        stream.write_all(&start).expect("it reads");
        // A challenge, or the end.
        if stream.read_exact(&mut [0; 24]).is_ok() {
            held.push(stream);
        }
    }
    assert!((10..100).contains(&held.len()), "{} are held", held.len());
    drop(held);
    eventually(|| {
        let mut stream = server.connect().expect("it listens");
        stream.write_all(&start).is_ok() && stream.read_exact(&mut [0; 24]).is_ok()
    });
}

#[test]
fn files_without_an_end_are_refused() {
    for args in [["-Y", "/dev/zero"], ["--admin-listen=127.0.0.1:0", "--admin-token-file=/dev/zero"]] {
        let mut command = Command::new("sh");
        let script = "ulimit -v 2000000 && exec \"$0\" \"$@\"";
        command.args(["-c", script, LARDERD, "-p", "0", "-u", "root"]).args(args);
        let output = command.output().expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("/dev/zero: has more than "), "{said}");
    }
}
