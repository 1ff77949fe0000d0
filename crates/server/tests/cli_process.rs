//! Signals, users, sockets and files: larderd as a process.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, eventually};
use larder_conformance::stats::Stats;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// A server on a Unix socket, killed when dropped.
struct UnixServer {
    child: Child,
    path: PathBuf,
}

impl UnixServer {
    fn start(path: PathBuf, args: &[&str]) -> Self {
        let child =
            larderd().arg("-s").arg(&path).args(args).stderr(Stdio::piped()).spawn().expect("larderd runs");
        let server = Self { child, path };
        eventually(|| server.ask("version\r\n", 8).is_some_and(|reply| reply == "VERSION "));
        server
    }

    /// The first bytes of the reply; `None` if nobody listens.
    fn ask(&self, request: &str, reply_bytes: usize) -> Option<String> {
        let mut stream = UnixStream::connect(&self.path).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut reply = vec![0; reply_bytes];
        stream.read_exact(&mut reply).ok()?;
        Some(String::from_utf8_lossy(&reply).into_owned())
    }

    /// Sends the signal, waits for the end: exit code, and what was said on stderr.
    fn end(&mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().expect("it is piped");
        stderr.read_to_string(&mut said).expect("it ends");
        (self.child.wait().expect("it is our child").code(), said)
    }
}

impl Drop for UnixServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn larderd() -> Command {
    Command::new(env!("CARGO_BIN_EXE_larderd"))
}

#[test]
fn int_and_term_stop_with_exit_code_0() {
    let folder = Folder::create();
    for (signal, verbose, says) in [
        (Signal::INT, "-v", "Exiting normally"),
        (Signal::TERM, "-v", "Exiting normally"),
        (Signal::USR1, "-v", "Gracefully stopping"),
    ] {
        let mut server = UnixServer::start(folder.file("socket"), &[verbose]);
        let (exit_code, said) = server.end(signal);
        assert_eq!(exit_code, Some(0), "{signal:?}");
        assert!(said.contains(says), "{signal:?}: {said}");
    }
}

#[test]
fn hup_and_a_vanished_client_do_not_kill() {
    let folder = Folder::create();
    let server = UnixServer::start(folder.file("socket"), &[]);
    kill_process(Pid::from_child(&server.child), Signal::HUP).expect("it runs");
    for _ in 0..20 {
        let mut stream = UnixStream::connect(&server.path).expect("it listens");
        stream.write_all("version\r\n".repeat(100).as_bytes()).expect("it reads");
        drop(stream);
    }
    assert_eq!(server.ask("get a\r\n", 5).as_deref(), Some("END\r\n"));
}

/// As by a script that waits until it can connect, and then asks for a reload.
#[test]
fn a_reload_that_comes_too_early_does_not_end_the_server() {
    let folder = Folder::create();
    let (users, path) = (folder.file("users"), folder.file("socket"));
    mkfifo(&users, Mode::S_IRWXU).expect("the folder is ours");
    let child = larderd().arg("-s").arg(&path).arg("-Y").arg(&users).stderr(Stdio::piped()).spawn();
    let server = UnixServer { child: child.expect("larderd runs"), path };
    // Opens once larderd reads: in the middle of its start.
    let mut writer = None;
    eventually(|| {
        let mut options = fs::File::options();
        writer = options.write(true).custom_flags(nix::libc::O_NONBLOCK).open(&users).ok();
        writer.is_some()
    });
    kill_process(Pid::from_child(&server.child), Signal::HUP).expect("it runs");
    let mut writer = writer.expect("it is open");
    writer.write_all(b"user:password\n").expect("larderd reads");
    drop(writer);
    eventually(|| server.ask("set x 0 0 13\r\nuser password\r\n", 6).is_some_and(|reply| reply == "STORED"));
}

#[test]
fn the_shutdown_command_stops_if_allowed() {
    let folder = Folder::create();
    let mut server = UnixServer::start(folder.file("socket"), &["-A"]);
    assert_eq!(server.ask("shutdown\r\n", 1), None);
    assert_eq!(server.child.wait().expect("it is our child").code(), Some(0));

    let server = UnixServer::start(folder.file("socket"), &[]);
    let refusal = "SERVER_ERROR: shutdown not enabled\r\n";
    assert_eq!(server.ask("shutdown\r\n", refusal.len()).as_deref(), Some(refusal));
}

#[test]
fn a_unix_socket_has_the_mode_asked_for_and_replaces_a_stale_one() {
    let folder = Folder::create();
    let path = folder.file("socket");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
    let server = UnixServer::start(path.clone(), &[]);
    assert_eq!(mode(&path), 0o700);
    drop(server);
    assert!(path.exists(), "memcached leaves the file behind");
    let _server = UnixServer::start(path.clone(), &["-a", "0766"]);
    assert_eq!(mode(&path), 0o766);
}

/// A server that cannot serve takes nothing from one that does: neither its socket, nor its pid file, nor its port
/// file.
#[test]
fn a_second_server_leaves_the_first_one_its_names() {
    let folder = Folder::create();
    // The user that root switches to creates files here.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let [socket, pid, store, cache] = ["socket", "pid", "store", "cache"].map(|name| folder.arg(name));
    let [other, damaged, sound] = ["other", "damaged", "sound"].map(|name| folder.arg(name));
    fs::create_dir(&damaged).expect("the folder is ours");
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o777)).expect("it is ours");
    folder.write("damaged/MANIFEST", "none");
    for (first, second) in [
        (vec![], vec!["-s", &other, "--store", &damaged]),
        (vec![], vec!["-s", &other, "--store", "/proc/none"]),
        // It would have to make this directory after it has become another user.
        (
            vec![],
            vec!["-s", &other, "-o", "drop_privileges", "--store", &sound, "--backup-dir", "/proc/none"],
        ),
        (vec!["--store", &store], vec!["-s", &socket, "--store", &store]),
        (vec!["--store", &store], vec!["-s", &other, "--store", &store]),
        (vec!["-e", &cache], vec!["-s", &socket, "-e", &cache]),
        (vec![], vec!["-s", &socket, "-c", "2000000000"]),
        (vec![], vec!["-s", &socket]),
        (vec![], vec!["-s", &other, "--admin-listen", &socket]),
        (vec![], vec!["-s", &other, "--http-listen", &socket]),
    ] {
        let server = UnixServer::start(folder.file("socket"), &[&first[..], &["-P", &pid]].concat());
        let names = || ["pid", "ports"].map(|name| fs::read(folder.file(name)).ok());
        eventually(|| folder.file("pid").exists());
        fs::write(folder.file("ports"), "of the first").expect("the folder is ours");
        let before = names();
        let mut command = larderd();
        let output = command.args(&second).args(["-P", &pid]);
        let output = output.env("MEMCACHED_PORT_FILENAME", folder.file("ports")).output().expect("it runs");
        assert_eq!(output.status.code(), Some(71), "{second:?}");
        assert_eq!(server.ask("version\r\n", 8).as_deref(), Some("VERSION "), "{second:?}");
        assert_eq!(names(), before, "{second:?}");
    }
}

/// As in a container whose root may not become another user.
#[test]
fn who_may_not_become_the_user_takes_no_names() {
    if !geteuid().is_root() {
        return;
    }
    let folder = Folder::create();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let (pid, other) = (folder.arg("pid"), folder.arg("other"));
    let names = || ["pid", "ports"].map(|name| fs::read(folder.file(name)).ok());
    let server = UnixServer::start(folder.file("socket"), &["-P", &pid]);
    eventually(|| folder.file("pid").exists());
    fs::write(folder.file("ports"), "of the first").expect("the folder is ours");
    let before = names();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-setuid", "--", env!("CARGO_BIN_EXE_larderd")]);
    command.args(["-u", "nobody", "-s", &other, "-P", &pid]);
    let output = command.env("MEMCACHED_PORT_FILENAME", folder.file("ports")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{said}");
    assert!(said.contains("failed to assume identity of user nobody: "), "{said}");
    assert_eq!(names(), before);
    assert!(!folder.file("other").exists());
    assert_eq!(server.ask("version\r\n", 8).as_deref(), Some("VERSION "));
}

/// Whoever may read a directory can lock it.
#[test]
fn a_lock_of_somebody_elses_on_the_directory_keeps_no_server_out() {
    let folder = Folder::create();
    let directory = fs::File::open(folder.path()).expect("it is ours");
    directory.lock().expect("nobody else has it");
    UnixServer::start(folder.file("socket"), &[]);
}

#[test]
fn of_servers_that_find_a_stale_socket_at_once_one_serves() {
    let folder = Folder::create();
    let path = folder.file("socket");
    for _ in 0..3 {
        drop(UnixServer::start(path.clone(), &[]));
        let start = || {
            let child = larderd().arg("-s").arg(&path).stderr(Stdio::null()).spawn().expect("larderd runs");
            UnixServer { child, path: path.clone() }
        };
        let mut servers: Vec<_> = std::iter::repeat_with(start).take(6).collect();
        let mut ends = Vec::new();
        eventually(|| {
            ends = servers.iter_mut().filter_map(|server| server.child.try_wait().expect("ours")).collect();
            ends.len() >= 5
        });
        assert!(ends.iter().all(|end| end.code() == Some(71)), "{ends:?}");
        eventually(|| servers[0].ask("version\r\n", 8).is_some());
    }
}

#[test]
fn a_pid_file_of_another_server_is_not_removed() {
    let folder = Folder::create();
    let pid_file = folder.file("pid");
    let start = |socket: &str| {
        let socket = folder.file(socket);
        let mut command = larderd();
        let status = command.arg("-d").arg("-s").arg(&socket).arg("-P").arg(&pid_file).status();
        assert!(status.expect("larderd runs").success());
        eventually(|| UnixStream::connect(&socket).is_ok());
    };
    let pid = || fs::read_to_string(&pid_file).ok()?.trim().parse().ok().and_then(Pid::from_raw);
    start("first");
    let mut first = None;
    eventually(|| {
        first = pid();
        first.is_some()
    });
    start("second");
    eventually(|| pid() != first);
    let (first, second) = (first.expect("it was there"), pid().expect("it is there"));
    kill_process(first, Signal::TERM).expect("it runs");
    let has_ended = |pid: Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    eventually(|| has_ended(first));
    assert_eq!(pid(), Some(second));
    kill_process(second, Signal::TERM).expect("it runs");
    eventually(|| has_ended(second));
    assert!(!pid_file.exists());
}

#[test]
fn a_file_in_the_place_of_the_unix_socket_is_not_removed() {
    let folder = Folder::create();
    let path = folder.file("precious");
    fs::write(&path, "precious").expect("the folder is ours");
    let output = larderd().arg("-s").arg(&path).output().expect("larderd runs");
    assert_eq!(output.status.code(), Some(71));
    assert_eq!(fs::read_to_string(&path).expect("it is still there"), "precious");
}

#[test]
fn every_address_of_a_list_is_named_in_the_port_file() {
    let folder = Folder::create();
    let path = folder.file("ports");
    let mut child = larderd()
        .args(["-p", "-1", "-l", "127.0.0.1,127.0.0.2", "-l", "127.0.0.3:0"])
        .env("MEMCACHED_PORT_FILENAME", &path)
        .spawn()
        .expect("larderd runs");
    eventually(|| path.exists());
    let ports = fs::read_to_string(&path).expect("it is there");
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(ports.lines().filter(|line| line.starts_with("TCP INET: ")).count(), 3, "{ports}");
}

#[test]
fn a_pid_file_is_written_and_left_in_the_foreground() {
    let folder = Folder::create();
    let path = folder.file("pid");
    let mut server = UnixServer::start(folder.file("socket"), &["-P", path.to_str().expect("it is text")]);
    let expected = format!("{}\n", server.child.id());
    assert_eq!(fs::read_to_string(&path).expect("it is there"), expected);
    server.end(Signal::TERM);
    assert!(path.exists());
}

/// Opening a FIFO waits for its other end, which may never come. Whatever lies there is not replaced.
#[test]
fn a_pid_file_that_is_no_regular_file_is_left_alone() {
    let folder = Folder::create();
    for (name, said_of_it) in [("pid", "not a regular file"), ("pid.tmp", "No such device or address")] {
        let path = folder.file(name);
        mkfifo(&path, Mode::S_IRWXU).expect("the folder is ours");
        // Root opens it as nobody.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is ours");
        let mut server = UnixServer::start(folder.file("socket"), &["-P", &folder.arg("pid")]);
        let (_, said) = server.end(Signal::TERM);
        let expected = format!("Could not write the pid file {}: {said_of_it}", folder.arg("pid"));
        assert!(said.contains(&expected), "{said}");
        assert!(fs::symlink_metadata(&path).expect("it is still there").file_type().is_fifo());
        fs::remove_file(path).expect("the folder is ours");
    }
}

#[test]
fn a_daemon_leaves_its_starter_and_removes_its_pid_file() {
    let folder = Folder::create();
    let (socket, pid_file) = (folder.file("socket"), folder.file("pid"));
    let output =
        larderd().arg("-d").arg("-s").arg(&socket).arg("-P").arg(&pid_file).output().expect("larderd runs");
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.contains("running as user nobody"), geteuid().is_root(), "{said}");
    eventually(|| pid_file.exists() && UnixStream::connect(&socket).is_ok());
    let pid = fs::read_to_string(&pid_file).expect("it is there").trim().parse().expect("it is a number");
    let process = PathBuf::from(format!("/proc/{pid}"));
    if !geteuid().is_root() || fs::read_link(process.join("cwd")).is_ok() {
        assert_eq!(fs::read_link(process.join("cwd")).expect("it runs"), Path::new("/"));
    }
    kill_process(Pid::from_raw(pid).expect("it is not 0"), Signal::TERM).expect("it runs");
    eventually(|| {
        !process.exists() || fs::read_to_string(process.join("stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
    assert!(!pid_file.exists());
}

#[test]
fn root_without_u_becomes_nobody_and_says_so() {
    if !geteuid().is_root() {
        return;
    }
    let folder = Folder::create();
    let mut server = UnixServer::start(folder.file("socket"), &["-t", "2"]);
    let tasks = || fs::read_dir(format!("/proc/{}/task", server.child.id())).expect("it runs");
    // One worker may answer before the other runs.
    eventually(|| tasks().count() == 3);
    for task in tasks() {
        let status = fs::read_to_string(task.expect("it runs").path().join("status")).expect("it runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux writes it");
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let nobody = Command::new("id").args(["-u", "nobody"]).output().expect("id is there").stdout;
        let nobody = String::from_utf8_lossy(&nobody).trim().to_owned();
        assert_eq!(field("Uid:"), vec![nobody; 4]);
        assert!(!field("Groups:").contains(&"0".to_owned()));
    }
    let (_, said) = server.end(Signal::TERM);
    assert!(said.contains("running as user nobody"), "{said}");
}

/// What lies in a folder of the user whom root becomes may be that user's trap.
#[test]
fn root_follows_no_links_that_the_user_has_planted() {
    if !geteuid().is_root() {
        return;
    }
    let nobody = |path: &Path| fs::symlink_metadata(path).expect("it is there").uid() == uid_of_nobody();
    let folder = Folder::create();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let [trap, private] = ["trap", "private"].map(|name| folder.file(name));
    fs::create_dir(&trap).expect("the folder is ours");
    fs::create_dir(&private).expect("the folder is ours");
    let victim = private.join("victim");
    fs::write(&victim, "precious").expect("the folder is ours");
    for name in ["pid.tmp", "ports.lck", "pid", "ports"] {
        symlink(&victim, trap.join(name)).expect("the folder is ours");
    }
    symlink(&private, trap.join("way")).expect("the folder is ours");
    chown(&trap, Some(uid_of_nobody()), None).expect("we are root");

    let command = |socket: &Path| {
        let mut command = larderd();
        command.args(["-u", "nobody", "-s"]).arg(socket).env("MEMCACHED_PORT_FILENAME", trap.join("ports"));
        command.arg("-P").arg(trap.join("pid")).stderr(Stdio::null());
        command
    };
    // By the link root would have got there.
    let mut astray = command(&trap.join("way/socket")).spawn().expect("larderd runs");
    let socket = private.join("socket");
    eventually(|| socket.exists() || astray.try_wait().is_ok_and(|end| end.is_some()));
    let _ = astray.kill();
    assert_eq!(astray.wait().expect("it is our child").code(), Some(71));
    assert!(!socket.exists());

    for name in ["pid.tmp", "ports.lck"] {
        let mut refused = command(&trap.join("socket"));
        if name == "pid.tmp" {
            // This does not keep the server from starting.
            refused.env_remove("MEMCACHED_PORT_FILENAME");
        }
        let mut child = refused.spawn().expect("larderd runs");
        let is_there = || UnixStream::connect(trap.join("socket")).is_ok();
        eventually(|| is_there() || child.try_wait().is_ok_and(|end| end.is_some()));
        std::thread::sleep(Duration::from_millis(100));
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "precious", "{name}");
    }
    // Where there is no trap it goes on as ever, in a folder of the user's and in one of root's.
    for folder in [&trap, &private] {
        let socket = folder.join("plain");
        let _server = UnixServer::start(socket.clone(), &["-u", "nobody"]);
        assert!(nobody(&socket), "{}", socket.display());
    }
}

fn uid_of_nobody() -> u32 {
    let output = Command::new("id").args(["-u", "nobody"]).output().expect("id is there").stdout;
    String::from_utf8_lossy(&output).trim().parse().expect("it is a number")
}

#[test]
fn locked_memory_is_what_is_used() {
    let larderd = Path::new(env!("CARGO_BIN_EXE_larderd"));
    // Root may lock memory whatever the limit; another user only if there is none, and then serves without.
    for user in ["root", "nobody"] {
        let server = Server::start(larderd, &["-k", "-m", "64", "-u", user]).expect("larderd starts");
        Stats::of(server.address()).expect("it serves");
        let resident_mib = server.resident_bytes().expect("it runs") >> 20;
        assert!(resident_mib < 32, "{user}: {resident_mib} MiB of an empty cache");
    }
}

#[test]
fn u_root_stays_root() {
    if !geteuid().is_root() {
        return;
    }
    let larderd = Path::new(env!("CARGO_BIN_EXE_larderd"));
    // The later -u wins over the one that the starter gives.
    let server = Server::start(larderd, &["-u", "root"]).expect("larderd starts");
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    assert!(status.contains("Uid:\t0\t0\t0\t0"), "{status}");
}
