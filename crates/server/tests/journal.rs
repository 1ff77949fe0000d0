//! What larderd says on stderr: nothing, lines for people, JSON for machines, and memcached's own words for tools that
//! read them.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server, eventually};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;

/// A server whose words are read as they come.
struct Talker {
    server: Server,
    lines: Receiver<String>,
}

impl Talker {
    fn start(program: &Path, args: &[&str]) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = server::command(program);
        command.args(args).stderr(writer);
        let server = Server::start_command(command).expect("it starts");
        let (tell, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n') {
                let line = String::from_utf8_lossy(&line.expect("a pipe can be read")).into_owned();
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Self { server, lines }
    }

    fn larderd(args: &[&str]) -> Self {
        Self::start(Path::new(env!("CARGO_BIN_EXE_larderd")), args)
    }

    fn ask(&self, request: &str, reply_bytes: usize) {
        let mut stream = self.server.connect().expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        stream.read_exact(&mut vec![0; reply_bytes]).expect("it answers");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.server.pid() as i32).expect("it is not 0"), signal).expect("it runs");
    }

    /// All that it says until a line has this in it.
    #[track_caller]
    fn until(&self, part: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(Duration::from_secs(60)) else {
                panic!("no {part:?} in {said:#?}")
            };
            said.push(line);
            if said.last().is_some_and(|line| line.contains(part)) {
                return said;
            }
        }
    }

    /// All that it has not said yet, to its end.
    fn rest(self) -> Vec<String> {
        drop(self.server);
        self.lines.iter().collect()
    }
}

/// As memcached, which has nothing to say when all is well.
#[test]
fn without_options_nothing_is_said() {
    for program in server::reference().into_iter().chain([env!("CARGO_BIN_EXE_larderd").into()]) {
        let talker = Talker::start(&program, &[]);
        talker.ask("version\r\n", 8);
        assert_eq!(talker.rest(), Vec::<String>::new(), "{program:?}");
    }
}

/// A person at a terminal is told that the server runs, and at which addresses.
#[test]
fn at_a_terminal_one_line_says_that_it_serves() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("skipped: there is no script(1), which makes terminals");
        return;
    }
    for (options, is_told) in [("", true), ("--log-level=warn", false)] {
        let folder = Folder::create();
        let larderd = env!("CARGO_BIN_EXE_larderd");
        let command = format!("{larderd} -l 127.0.0.1 -p -1 -u root -P {} {options}", folder.arg("pid"));
        let mut script = Command::new("script")
            .args(["-qefc", &command, &folder.arg("typescript")])
            .env("MEMCACHED_PORT_FILENAME", folder.file("ports"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("it is there");
        let said = || std::fs::read_to_string(folder.file("typescript")).unwrap_or_default();
        let mut address = None;
        eventually(|| {
            let ports = std::fs::read_to_string(folder.file("ports")).unwrap_or_default();
            address = ports.trim().strip_prefix("TCP INET: ").map(|port| format!("127.0.0.1:{port}"));
            address.as_ref().is_some_and(|address| std::net::TcpStream::connect(address).is_ok())
        });
        let pid_file = || std::fs::read_to_string(folder.file("pid")).ok()?.trim().parse().ok();
        let mut pid: Option<i32> = None;
        eventually(|| {
            pid = pid_file();
            pid.is_some()
        });
        let line = format!(
            "INFO Serving pid={} addresses=\"tcp:{}\"",
            pid.unwrap_or(0),
            address.unwrap_or_default()
        );
        if is_told {
            eventually(|| said().contains(&line));
        }
        let pid = pid.and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::TERM).expect("it runs");
        script.wait().expect("it is our child");
        assert_eq!(said().matches("INFO").count(), usize::from(is_told), "{}", said());
    }
}

#[test]
fn what_happens_to_the_server_is_told_by_v() {
    let talker = Talker::larderd(&["-v", "-m", "100", "-f", "2"]);
    let address = talker.server.address();
    talker.ask("cache_memlimit 80\r\n", 4);
    talker.signal(Signal::TERM);
    let said = talker.until("Exiting normally");
    for (level, words) in [
        ("INFO", "slab-growth-factor has no effect: "),
        ("INFO", "larderd starts version="),
        ("INFO", &format!("listening address=tcp:{address} tls=false")[..]),
        ("INFO", "Serving pid="),
        ("INFO", "memory limit changed megabytes=80"),
        ("INFO", "Stopping reason=\"SIGTERM\""),
        ("INFO", "Exiting normally stop_millis="),
    ] {
        let line = said.iter().find(|line| line.contains(words));
        let line = line.unwrap_or_else(|| panic!("no {words:?} in {said:#?}"));
        // RFC 3339, then the level.
        let (time, rest) = line.split_once(' ').expect("words");
        assert!(time.len() == 27 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{line}");
        assert!(rest.trim_start().starts_with(level), "{line}");
    }
    // Connections and commands are not.
    assert!(!said.iter().any(|line| line.starts_with(['<', '>'])), "{said:#?}");
}

#[test]
fn in_json_every_line_is_an_object() {
    let talker = Talker::larderd(&["--log-format", "json", "--log-level=debug"]);
    talker.ask("set a 0 0 1\r\nb\r\nget \u{e4}\"\r\n", 8);
    talker.signal(Signal::USR1);
    let events: Vec<Value> = talker
        .until("Exiting normally")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let of = |message: &str| {
        let event =
            events.iter().find(|event| event["message"].as_str().is_some_and(|m| m.contains(message)));
        event.unwrap_or_else(|| panic!("no {message:?} in {events:#?}"))
    };
    assert_eq!(of("larderd starts")["memory_mib"], 64);
    assert_eq!(of("listening")["level"], "INFO");
    assert_eq!(of("Gracefully stopping")["reason"], "SIGUSR1");
    assert_eq!(of("new auto-negotiating client connection")["level"], "DEBUG");
    assert_eq!(of("get \u{e4}\"")["level"], "DEBUG");
    assert!(events.iter().all(|event| event["timestamp"].is_string()));
}

#[test]
fn a_refused_start_is_told_in_the_form_that_was_asked_for() {
    let refused = |args: &[&str]| {
        let mut larderd = Command::new(env!("CARGO_BIN_EXE_larderd"));
        let output = larderd.args(args).stderr(Stdio::piped()).output().expect("larderd runs");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("it is text")
    };
    let words = "failed to listen on one of interface(s) 192.0.2.1";
    assert!(refused(&["-l", "192.0.2.1"]).starts_with(words));
    let event: Value =
        serde_json::from_str(&refused(&["-l", "192.0.2.1", "--log-format=json"])).expect("JSON");
    assert!(event["message"].as_str().is_some_and(|message| message.starts_with(words)));
    assert_eq!(event["level"], "ERROR");
    assert!(refused(&["--log-format", "xml"]).contains("text or json"));
    assert!(refused(&["--log-level", "loud"]).contains("debug"));
}

/// But for the numbers of descriptors, and how large the buffers of sockets became.
#[test]
fn vv_says_what_memcached_says() {
    let Some(memcached) = server::reference() else { return };
    let [memcached, larderd] = [&memcached, Path::new(env!("CARGO_BIN_EXE_larderd"))].map(|program| {
        let talker = Talker::start(program, &["-vv"]);
        let mut stream = talker.server.connect().expect("it listens");
        for (request, reply_bytes) in [
            ("set a 0 0 1\r\nb\r\n", 8),
            ("get a\r\n", 21),
            ("get c\r\n", 5),
            ("delete c\r\n", 11),
            ("nonsense\r\n", 7),
        ] {
            stream.write_all(request.as_bytes()).expect("it reads");
            stream.read_exact(&mut vec![0; reply_bytes]).expect("it answers");
        }
        drop(stream);
        let said = talker.until("connection closed.");
        let of_clients = |line: &&String| line.starts_with(['<', '>']) || line.contains("Client using");
        let no_digits = |line: &String| line.replace(|c: char| c.is_ascii_digit(), "");
        let said = said.iter().filter(of_clients).filter(|line| !line.contains("send buffer"));
        said.map(no_digits).collect::<Vec<_>>()
    });
    assert_eq!(larderd, memcached);
}

#[test]
fn who_is_turned_away_is_told_once_in_a_while() {
    let talker = Talker::larderd(&["-c", "1"]);
    let _first = {
        let mut stream = talker.server.connect().expect("it listens");
        stream.write_all(b"version\r\n").expect("it reads");
        stream.read_exact(&mut [0; 8]).expect("it answers");
        stream
    };
    for _ in 0..20 {
        talker.ask("", 5);
    }
    let said = talker.rest();
    assert_eq!(said.len(), 1, "{said:#?}");
    let words = "WARN Too many open connections reason=\"-c is reached\" connections=1 times=1";
    assert!(said[0].ends_with(words), "{said:#?}");
}

#[test]
fn failed_logins_are_told_without_what_was_typed() {
    let folder = Folder::create();
    folder.write("passwords", "ann:one\n");
    let talker = Talker::larderd(&["-Y", &folder.arg("passwords")]);
    for _ in 0..5 {
        talker.ask("set x 0 0 10\r\nann secret\r\n", "CLIENT_ERROR authentication failure\r\n".len());
    }
    let said = talker.rest();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].contains("WARN login failed client=tcp:127.0.0.1:") && said[0].ends_with(" times=1"),
        "{said:#?}"
    );
}

#[test]
fn that_no_descriptors_are_left_is_told() {
    // Of one user, so that the limit of the one may be set by the other.
    let talker = Talker::larderd(&["-t", "1", "-u", "root"]);
    talker.ask("version\r\n", 8);
    let pid = talker.server.pid();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count() as u64;
    let limit = Rlimit { current: Some(open), maximum: Some(open) };
    let pid = Pid::from_raw(pid as i32).expect("it is not 0");
    prlimit(Some(pid), Resource::Nofile, limit).expect("it may be lowered");
    let _clients: Vec<_> =
        (0..3).map(|_| talker.server.connect().expect("the kernel lets it wait")).collect();
    let said = talker.until("Too many open connections");
    assert!(
        said.iter().any(|line| line.contains("WARN") && line.contains("no descriptors left")),
        "{said:#?}"
    );
}

/// systemd.exec(5), `$JOURNAL_STREAM`; sd-daemon(3), the numbers.
#[test]
fn systemds_journal_gets_the_level_as_it_reads_it() {
    let folder = Folder::create();
    let path = folder.file("stderr");
    let file = File::create(&path).expect("the folder is ours");
    let of_file = file.metadata().expect("it is open");
    let stream = format!("{}:{}", of_file.dev(), of_file.ino());
    for (stream, starts) in [(&stream[..], ["<6>listening address=", "<4>"]), ("1:1", ["2", "2"])] {
        file.set_len(0).expect("it is ours");
        let mut command = server::command(Path::new(env!("CARGO_BIN_EXE_larderd")));
        // An address that anybody can reach is warned of.
        command.args(["-v", "-l", "0.0.0.0"]).env("JOURNAL_STREAM", stream);
        command.stderr(OpenOptions::new().append(true).open(&path).expect("it is there"));
        let _server = Server::start_command(command).expect("it starts");
        // It answers before it has said everything.
        eventually(|| {
            let said = std::fs::read_to_string(&path).expect("it is there");
            starts.iter().all(|start| said.lines().any(|line| line.starts_with(start)))
        });
    }
}

#[test]
fn a_client_may_raise_the_level() {
    let talker = Talker::larderd(&[]);
    talker.ask("cache_memlimit 70\r\nverbosity 1\r\ncache_memlimit 80\r\n", 12);
    talker.ask("verbosity 0\r\ncache_memlimit 90\r\n", 8);
    let mut said = talker.rest();
    said.retain(|line| line.contains("memory limit"));
    assert!(said.len() == 1 && said[0].ends_with("changed megabytes=80"), "{said:#?}");
}

/// Nor does who asks for a damaged item again and again fill the log.
#[test]
fn a_damaged_item_is_told_once_in_a_while() {
    let folder = Folder::create();
    let args = ["--store", &folder.arg("store"), "--durability", "sync"];
    let talker = Talker::larderd(&args);
    talker.ask("set key 0 0 5\r\nvalue\r\n", 8);
    talker.server.stop().expect("it runs");
    let files = std::fs::read_dir(folder.file("store")).expect("it is there");
    let damaged = files.flatten().filter(|file| {
        let mut bytes = std::fs::read(file.path()).expect("it can be read");
        let found = bytes.windows(8).position(|window| window == b"keyvalue");
        if let Some(at) = found {
            bytes[at + 3] ^= 1;
            std::fs::write(file.path(), bytes).expect("it can be written");
        }
        found.is_some()
    });
    assert_eq!(damaged.count(), 1);
    let talker = Talker::larderd(&args);
    let reply = "SERVER_ERROR store cannot read this item\r\n";
    talker.ask(&"get key\r\n".repeat(1000), 1000 * reply.len());
    let is_told = |line: &&String| line.contains("the store cannot be read");
    let told = talker.rest().iter().filter(is_told).count();
    assert!((1..100).contains(&told), "{told}");
}
