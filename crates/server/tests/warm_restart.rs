//! `-e FILE`: a server that goes on with the cache of the one before, however that ended.
//!
//! Expected results are memcached's (`memcached -e`), but where it gives up: a start in the second of the stop, another
//! stop than by SIGUSR1, other options. `LARDER_WARM_ROUNDS=100` kills more often than the test by itself does.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fs, thread};

use larder_conformance::server::{self, Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

fn larderd() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_larderd"))
}

/// A file in memory, which a server makes; removed at the end.
struct MemoryFile(PathBuf);

impl MemoryFile {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("larderd-warm-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let shared_memory = Path::new("/dev/shm");
        let folder = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        Self(folder.join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn start(&self, args: &[&str]) -> Server {
        let server = Server::start(larderd(), &[&["-e", self.path()], args].concat()).expect("it starts");
        // It names its port before it opens the file.
        assert_eq!(Client::of(&server).ask("mn"), "MN");
        server
    }

    /// What is said by a server that does not start, or does and is stopped at once, and its exit code.
    fn said(&self, args: &[&str]) -> (Option<i32>, String) {
        said_at(self.path(), args)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn said_at(path: &str, args: &[&str]) -> (Option<i32>, String) {
    let mut command = server::command(larderd());
    let mut child = command.args(["-e", path]).args(args).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // One that starts is told to stop, again and again, since a signal that comes too early ends it.
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline);
        let said_it_serves = is_listening(child.id());
        if said_it_serves {
            signal(child.id(), Signal::TERM);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let lines = String::from_utf8_lossy(&stderr).into_owned();
    (status.code(), lines)
}

/// True once the process takes signals by itself: its threads run.
fn is_listening(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 2)
}

fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// Stops a server and waits for its end.
fn stop(mut server: Server, by: Signal) {
    signal(server.pid(), by);
    eventually(|| !server.is_running());
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(server: &Server) -> Self {
        Self(BufReader::new(server.connect().expect("it listens")))
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(request)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n").as_bytes()).unwrap();
        self.line().unwrap()
    }

    fn set(&mut self, key: &str, flags: u32, exptime: i64, value: &[u8]) {
        self.send(format!("set {key} {flags} {exptime} {}\r\n", value.len()).as_bytes()).unwrap();
        self.send(&[value, b"\r\n"].concat()).unwrap();
        assert_eq!(self.line().unwrap(), "STORED");
    }

    /// Flags, CAS value and value.
    fn gets(&mut self, key: &str) -> Option<(u32, u64, Vec<u8>)> {
        let head = self.ask(&format!("gets {key}"));
        if head == "END" {
            return None;
        }
        let words: Vec<_> = head.split(' ').collect();
        let mut value = vec![0; words[3].parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut value).unwrap();
        value.truncate(value.len() - 2);
        assert_eq!(self.line().unwrap(), "END");
        Some((words[2].parse().unwrap(), words[4].parse().unwrap(), value))
    }

    fn stat(&mut self, name: &str) -> u64 {
        self.send(b"stats\r\n").unwrap();
        let mut found = None;
        loop {
            let line = self.line().unwrap();
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["END"] => return found.expect(name),
                ["STAT", key, value] if key == name => found = value.parse().ok(),
                _ => {}
            }
        }
    }
}

/// As memcached after SIGUSR1: flags, CAS values, times to live and `curr_items` are right, CAS values and `uptime` go
/// on. Here also after SIGTERM, SIGINT and SIGKILL, with other options, and in the second of the stop.
#[test]
fn a_server_goes_on_with_the_cache_of_the_one_before() {
    let file = MemoryFile::new();
    let large = vec![b'l'; 3_000_000];
    let mut server = file.start(&["-I", "8m"]);
    let mut client = Client::of(&server);
    client.set("flags", 4_000_000_000, 0, b"value");
    client.set("large", 1, 0, &large);
    client.set("empty", 2, 0, b"");
    client.set("ttl", 3, 1000, b"value");
    client.set("brief", 4, 2, b"value");
    client.set("gone", 5, 0, b"value");
    assert_eq!(client.ask("delete gone"), "DELETED");
    assert_eq!(client.ask("touch empty 500"), "TOUCHED");
    assert_eq!(client.ask("mn"), "MN");
    let (_, first_cas, _) = client.gets("flags").unwrap();
    let mut last_cas = first_cas;
    let ends: [(Signal, &[&str]); 5] = [
        (Signal::USR1, &["-I", "8m"]),
        (Signal::TERM, &["-t", "1", "-I", "8m"]),
        (Signal::INT, &["-t", "9", "-c", "50", "-R", "7", "-B", "ascii"]),
        (Signal::KILL, &["-m", "80", "-I", "8m"]),
        (Signal::KILL, &["-m", "40", "-M"]),
    ];
    let mut uptime = client.stat("uptime");
    for (number, (by, args)) in ends.into_iter().enumerate() {
        // All of it in the same second.
        stop(server, by);
        server = file.start(args);
        client = Client::of(&server);
        let (flags, cas, value) = client.gets("flags").expect("it is kept");
        assert_eq!((flags, cas, &value[..]), (4_000_000_000, first_cas, &b"value"[..]));
        assert_eq!(client.gets("large").map(|(_, _, value)| value == large), Some(true));
        assert_eq!(client.gets("gone"), None);
        for (key, ttl_secs) in [("ttl", 1000), ("empty", 500)] {
            let ttl = client.ask(&format!("mg {key} t"));
            let left: u32 = ttl.strip_prefix("HD t").expect("it expires").parse().unwrap();
            assert!((ttl_secs - 60..=ttl_secs).contains(&left), "{ttl}");
        }
        let key = format!("new-{number}");
        client.set(&key, 0, 0, b"new");
        let (_, cas, _) = client.gets(&key).unwrap();
        assert!(cas > last_cas, "{cas} is above {last_cas}");
        last_cas = cas;
        assert_eq!(
            client.ask("mg brief").split(' ').next(),
            Some(if client.gets("brief").is_some() { "HD" } else { "EN" })
        );
        let brief = u64::from(client.gets("brief").is_some());
        assert_eq!(client.stat("curr_items"), 4 + brief + number as u64 + 1);
        let now = client.stat("uptime");
        assert!(now >= uptime);
        uptime = now;
    }
    // What expires meanwhile is gone.
    stop(server, Signal::USR1);
    let server = file.start(&[]);
    let mut client = Client::of(&server);
    client.set("brief", 4, 1, b"value");
    stop(server, Signal::USR1);
    thread::sleep(Duration::from_millis(2100));
    let server = file.start(&[]);
    let mut client = Client::of(&server);
    assert_eq!(client.gets("brief"), None);
    assert!(client.gets("ttl").is_some());
    assert_eq!(client.ask("cache_memlimit 100"), "OK");
}

#[test]
fn flushes_and_the_shutdown_command_are_kept() {
    let file = MemoryFile::new();
    let server = file.start(&["-A"]);
    let mut client = Client::of(&server);
    client.set("flushed", 0, 0, b"value");
    assert_eq!(client.ask("flush_all"), "OK");
    client.set("there", 0, 0, b"value");
    client.send(b"shutdown\r\n").unwrap();
    let mut server = server;
    eventually(|| !server.is_running());
    let server = file.start(&[]);
    let mut client = Client::of(&server);
    assert_eq!(client.gets("flushed"), None);
    assert!(client.gets("there").is_some());
    assert_eq!(client.ask("flush_all 1"), "OK");
    stop(server, Signal::KILL);
    thread::sleep(Duration::from_millis(2100));
    let server = file.start(&[]);
    assert_eq!(Client::of(&server).gets("there"), None);
}

/// Every line, and that a file that is not larder's stays as it is.
#[test]
fn what_cannot_be_used_is_named() {
    let file = MemoryFile::new();
    stop(file.start(&[]), Signal::USR1);
    let cold = |reason: &str| {
        let (code, said) = file.said(&[]);
        assert_eq!(code, Some(0), "{said}");
        let expected = format!("the cache in {} cannot be kept, it starts empty: {reason}", file.path());
        assert!(said.lines().any(|line| line.ends_with(&expected)), "{said}");
    };
    let write = |bytes: &[u8], at: u64| {
        use std::os::unix::fs::FileExt as _;
        let opened = fs::File::options().write(true).open(&file.0).unwrap();
        opened.write_all_at(bytes, at).unwrap();
    };
    write(&9u32.to_ne_bytes(), 12);
    cold("it has format 9 of another version of larder");
    write(b"x", 20);
    cold("its first page is damaged");
    fs::File::options().write(true).open(&file.0).unwrap().set_len(10_000).unwrap();
    cold("it was truncated");
    write(&[0; 120], 8);
    cold("it was never finished");
    let running = file.start(&[]);
    let refused = |path: &str, reason: &str| {
        let (code, said) = said_at(path, &[]);
        assert_eq!((code, said.trim_end()), (Some(71), format!("larderd: -e {path}: {reason}").as_str()));
    };
    refused(file.path(), "another process is using it");
    drop(running);
    let other = MemoryFile::new();
    for content in [&b"precious"[..], &[0; 5000]] {
        fs::write(&other.0, content).unwrap();
        chown_to_server(&other.0);
        refused(other.path(), "it is not larder's, and is left as it is; name a new file, or remove it");
        assert_eq!(fs::read(&other.0).unwrap(), content);
    }
    // memcached dies of an empty file.
    fs::write(&other.0, b"").unwrap();
    chown_to_server(&other.0);
    assert_eq!(other.said(&[]), (Some(0), String::new()));
    let link = MemoryFile::new();
    std::os::unix::fs::symlink(&other.0, &link.0).unwrap();
    refused(link.path(), "it is a symbolic link");
    refused("/dev/null", "it is a device");
    refused("/dev/shm", "it is a directory");
    // 1 TiB: more than the file system of any machine that runs this has free.
    let (code, said) = other.said(&["-m", "1048576"]);
    assert!(code == Some(71) && said.contains("MiB of the 1048576 MiB that are to be cached"), "{said}");
    fs::set_permissions(&other.0, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    refused(other.path(), "others may write to it (mode 666)");
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&other.0, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        std::os::unix::fs::chown(&other.0, Some(1), None).unwrap();
        let (code, said) = other.said(&[]);
        // Without the right to write to it, it is not opened.
        assert!(code == Some(71) && said.contains(&format!("-e {}: ", other.path())), "{said}");
    }
}

/// To whom the servers of these tests run as.
fn chown_to_server(path: &Path) {
    if rustix::process::geteuid().is_root() {
        let id = |kind: &str| {
            let output = Command::new("id").args([kind, "nobody"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        };
        std::os::unix::fs::chown(path, Some(id("-u")), Some(id("-g"))).unwrap();
    }
}

const CLIENTS: u64 = 4;
const KEYS: u64 = 300;
const WINDOW: u64 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    flags: u32,
    value: Vec<u8>,
}

/// Request number `number` of a client: its key, its words, and what it makes of the item.
fn request(client: u64, number: u64) -> (String, Vec<u8>, impl Fn(&mut HashMap<String, Item>)) {
    let mut random = fastrand::Rng::with_seed(number * CLIENTS + client);
    let key = format!("{client}/{}", random.u64(..KEYS));
    let kind = random.u32(0..10);
    let bytes = if random.u32(0..300) == 0 { random.usize(60_000..300_000) } else { random.usize(0..2500) };
    let mut value = format!("{number}:").into_bytes();
    value.resize(value.len() + bytes, b'a' + (number % 26) as u8);
    let words = match kind {
        0..2 => format!("delete {key}\r\n").into_bytes(),
        2 => [format!("append {key} 0 0 3\r\n").as_bytes(), b"and\r\n"].concat(),
        _ => {
            let exptime = if number.is_multiple_of(2) { 0 } else { 10_000 };
            let head = format!("set {key} {} {exptime} {}\r\n", number % 1000, value.len());
            [head.as_bytes(), &value, b"\r\n"].concat()
        }
    };
    let changed = key.clone();
    let apply = move |model: &mut HashMap<String, Item>| match kind {
        0..2 => drop(model.remove(&changed)),
        2 => {
            if let Some(item) = model.get_mut(&changed) {
                item.value.extend(b"and");
            }
        }
        _ => {
            let item = Item { flags: (number % 1000) as u32, value: value.clone() };
            model.insert(changed.clone(), item);
        }
    };
    (key, words, apply)
}

/// Sends requests from the first on, up to a window of them ahead of the replies, until the server is gone. Returns how
/// many were answered, and how many may have been carried out.
fn load(server: &Server, client: u64, done: u64) -> (u64, u64) {
    let mut connection = Client::of(server);
    let (mut sent, mut answered) = (done, done);
    loop {
        while sent < answered + WINDOW {
            let (_, words, _) = request(client, sent + 1);
            sent += 1;
            if connection.send(&words).is_err() {
                break;
            }
        }
        match connection.line() {
            Ok(line) => {
                assert!(["STORED", "DELETED", "NOT_FOUND", "NOT_STORED"].contains(&line.as_str()), "{line}");
                answered += 1;
            }
            Err(_) => return (answered, sent),
        }
    }
}

fn rounds() -> u64 {
    std::env::var("LARDER_WARM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20)
}

/// After each kill the items of each client are what its requests up to some number made of them, and that number is
/// none before the last that was answered.
#[test]
fn a_server_that_is_killed_under_load_loses_nothing_and_invents_nothing() {
    let file = MemoryFile::new();
    let args: &[&str] = &["-m", "16", "-t", "3"];
    let mut server = file.start(args);
    let mut models = vec![(0, HashMap::new()); CLIENTS as usize];
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..rounds() {
        let pid = server.pid();
        let pause = Duration::from_micros(random.u64(20_000..250_000));
        let progress: Vec<_> = thread::scope(|scope| {
            let server = &server;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let done = models[client as usize].0;
                    scope.spawn(move || load(server, client, done))
                })
                .collect();
            thread::sleep(pause);
            signal(pid, Signal::KILL);
            clients.into_iter().map(|client| client.join().expect("no reply was wrong")).collect()
        });
        drop(server);
        server = file.start(args);
        let mut connection = Client::of(&server);
        assert_eq!(connection.stat("evictions"), 0);
        for (client, (answered, sent)) in progress.into_iter().enumerate() {
            let (done, model) = &mut models[client];
            for number in *done + 1..=answered {
                request(client as u64, number).2(model);
            }
            *done = answered;
            let found: HashMap<_, _> = (0..KEYS)
                .filter_map(|key| {
                    let key = format!("{client}/{key}");
                    let (flags, _, value) = connection.gets(&key)?;
                    Some((key, Item { flags, value }))
                })
                .collect();
            while *model != found {
                *done += 1;
                assert!(*done <= sent, "round {round}, client {client}: {}", difference(model, &found));
                request(client as u64, *done).2(model);
            }
        }
        let items: usize = models.iter().map(|(_, model)| model.len()).sum();
        assert_eq!(connection.stat("curr_items"), items as u64);
    }
    let requests: u64 = models.iter().map(|(done, _)| done).sum();
    println!("{requests} requests in {} rounds", rounds());
}

fn difference(model: &HashMap<String, Item>, found: &HashMap<String, Item>) -> String {
    let brief = |item: Option<&Item>| {
        item.map(|item| String::from_utf8_lossy(&item.value).chars().take(12).collect::<String>())
    };
    let keys = model.keys().chain(found.keys()).filter(|&key| model.get(key) != found.get(key)).take(5);
    let lines: Vec<_> = keys
        .map(|key| format!("{key}: {:?}, not {:?}", brief(found.get(key)), brief(model.get(key))))
        .collect();
    lines.join("; ")
}
