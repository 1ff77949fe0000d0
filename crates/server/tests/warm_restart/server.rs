//! A larderd whose cache is kept in a file, and what it takes to ask it.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::server::{self, Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn larderd() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_larderd"))
}

/// A file in memory, which a server makes; removed at the end.
pub(crate) struct MemoryFile(pub(crate) PathBuf);

impl MemoryFile {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("larderd-warm-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let shared_memory = Path::new("/dev/shm");
        let folder = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        Self(folder.join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Server {
        let mut command = server::command(larderd());
        command.args(["-e", self.path()]).args(args);
        let server = Server::start_command(command).expect("it starts");
        // It names its port before it opens the file.
        assert_eq!(Client::of(&server).ask("mn"), "MN");
        server
    }

    /// What is said by a server that does not start, or does and is stopped at once, and its exit code.
    pub(crate) fn said(&self, args: &[&str]) -> (Option<i32>, String) {
        said_at(self.path(), args)
    }
}

impl MemoryFile {
    /// The files of namespaces beside it: what follows its own name.
    pub(crate) fn beside(&self) -> Vec<String> {
        let own = format!("{}.ns-", self.0.file_name().unwrap().to_str().unwrap());
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().ok();
        let names = fs::read_dir(self.0.parent().unwrap()).unwrap().filter_map(name);
        let mut beside: Vec<_> = names.filter_map(|name| Some(name.strip_prefix(&own)?.to_owned())).collect();
        beside.sort();
        beside
    }

    pub(crate) fn of_namespace(&self, name: &str) -> String {
        format!("{}.ns-{name}", self.path())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        for name in self.beside() {
            let _ = fs::remove_file(self.of_namespace(&name));
        }
        let _ = fs::remove_file(&self.0);
    }
}

pub(crate) fn said_at(path: &str, args: &[&str]) -> (Option<i32>, String) {
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
pub(crate) fn is_listening(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 2)
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// Stops a server and waits for its end.
pub(crate) fn stop(mut server: Server, by: Signal) {
    signal(server.pid(), by);
    eventually(|| !server.is_running());
}

pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn of(server: &Server) -> Self {
        Self(BufReader::new(server.connect().expect("it listens")))
    }

    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(request)
    }

    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n").as_bytes()).unwrap();
        self.line().unwrap()
    }

    pub(crate) fn set(&mut self, key: &str, flags: u32, exptime: i64, value: &[u8]) {
        self.send(format!("set {key} {flags} {exptime} {}\r\n", value.len()).as_bytes()).unwrap();
        self.send(&[value, b"\r\n"].concat()).unwrap();
        assert_eq!(self.line().unwrap(), "STORED");
    }

    /// Flags, CAS value and value.
    pub(crate) fn gets(&mut self, key: &str) -> Option<(u32, u64, Vec<u8>)> {
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

    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        self.word("stats", name).expect(name).parse().expect(name)
    }

    /// A line of a group of statistics.
    pub(crate) fn word(&mut self, group: &str, name: &str) -> Option<String> {
        self.send(format!("{group}\r\n").as_bytes()).unwrap();
        let mut found = None;
        loop {
            let line = self.line().unwrap();
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["END"] => return found,
                ["STAT", key, value] if key == name => found = Some(value.to_owned()),
                _ => {}
            }
        }
    }
}

/// To whom the servers of these tests run as.
pub(crate) fn chown_to_server(path: &Path) {
    if rustix::process::geteuid().is_root() {
        let id = |kind: &str| {
            let output = Command::new("id").args([kind, "nobody"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        };
        std::os::unix::fs::chown(path, Some(id("-u")), Some(id("-g"))).unwrap();
    }
}
