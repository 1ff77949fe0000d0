//! A larderd with an admin listener, and what it takes to ask it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::folder::Folder;
use rustix::process::{Pid, Signal, kill_process};

/// Dropping it kills the process.
pub(crate) struct Larderd {
    child: Child,
    /// With its log.
    folder: Folder,
    pub(crate) cache: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// A response.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Larderd {
    /// Starts it with one TCP listener for operators, on a port of 127.0.0.1, and these options.
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = Folder::create();
        let port_file = folder.file("ports");
        let mut command = Command::new(env!("CARGO_BIN_EXE_larderd"));
        command.args(["-l", "127.0.0.1", "-p", "-1", "--admin-listen", "127.0.0.1:0"]).args(options);
        if is_root() {
            command.args(["-u", "root"]);
        }
        let log = File::create(folder.file("log")).expect("the folder is ours");
        command.env("MEMCACHED_PORT_FILENAME", &port_file).stderr(log);
        let child = command.spawn().expect("larderd is built");
        let deadline = Instant::now() + Duration::from_secs(60);
        let ports = loop {
            match fs::read_to_string(&port_file) {
                Ok(ports) => break ports,
                Err(_) => assert!(Instant::now() < deadline, "larderd does not start"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        let address = |name: &str| {
            let line = ports.lines().find_map(|line| line.strip_prefix(name));
            let port = line.and_then(|port| port.trim().parse().ok()).expect("it has been bound");
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        };
        let server = Self { child, folder, cache: address("TCP INET:"), admin: address("ADMIN INET:") };
        // One that speaks TLS cannot be asked as simply.
        let is_ready = || options.contains(&"--admin-tls") || server.get("/readyz").status == 200;
        while !is_ready() {
            assert!(Instant::now() < deadline, "larderd is not ready");
            thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Lets it read files again. Returns before it has.
    pub(crate) fn reload(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).expect("it runs");
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.file("log")).expect("it was made")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// Sends this, and reads until the server closes.
    pub(crate) fn ask(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(self.admin).expect("larderd listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
        converse(&mut stream, request)
    }

    /// Sends commands to the cache and returns what it answers, up to its end.
    pub(crate) fn cache(&self, commands: &str) -> String {
        let mut stream = TcpStream::connect(self.cache).expect("larderd listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
        stream.write_all(commands.as_bytes()).expect("larderd reads");
        stream.write_all(b"quit\r\n").expect("larderd reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is text");
        answer
    }
}

impl Drop for Larderd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request on a connection, and the response.
pub(crate) fn converse(stream: &mut (impl Read + Write), request: &str) -> Reply {
    let sent = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    // It may answer and close before it has read everything.
    if stream.read_to_end(&mut bytes).is_err() && bytes.is_empty() {
        sent.expect("larderd reads or answers");
    }
    let text = String::from_utf8(bytes).expect("it is text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}
