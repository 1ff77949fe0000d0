//! What `watch` tells, beside memcached: the same story on both, and the lines compared field by field, in their order.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use larder_conformance::script::Side;
use larder_conformance::server::{self, Server};
use larder_conformance::{Error, Result, suite};

#[test]
fn lookups_and_stores_are_told_as_memcached_tells_them() -> Result<()> {
    both(|server| {
        let mut client = Client::new(server)?;
        let watcher = Watcher::new(server, "fetchers mutations")?;
        for command in [
            "get nothing",
            "set a%20b 5 0 3\r\nabc",
            "add a%20b 0 100 3\r\nabc",
            "replace a%20b 0 100 1\r\nx",
            "replace none 0 100 1\r\nx",
            "append a%20b 0 0 2\r\nyz",
            "prepend none 0 0 1\r\nx",
            "cas none 0 0 1 7\r\nx",
            "get a%20b",
            "gats 0 a%20b",
            "touch a%20b 200",
            "touch none 200",
            "mg a%20b v",
            "mg none",
            "ms c 2 T60\r\nhi",
            "ms none 1 MR\r\nx",
            "delete c",
            "get c",
        ] {
            client.ask(command)?;
        }
        client.ask("get last")?;
        watcher.until("key=last ", &[])
    })
}

#[test]
fn connections_are_told_as_memcached_tells_them() -> Result<()> {
    both(|server| {
        let watcher = Watcher::new(server, "connevents")?;
        let mut lines = Vec::new();
        for parting in [Some("quit\r\n"), None] {
            let mut client = Client::new(server)?;
            client.ask("get a")?;
            if let Some(parting) = parting {
                client.stream.write_all(parting.as_bytes())?;
            }
            drop(client);
        }
        // Each worker of memcached has lines of its own, which come in no certain order.
        while lines.len() < 4 {
            lines.push(watcher.line(&[])?);
        }
        lines.sort_unstable();
        Ok(lines)
    })
}

#[test]
fn evictions_are_told_as_memcached_tells_them() -> Result<()> {
    both(|server| {
        let mut client = Client::new(server)?;
        let watcher = Watcher::new(server, "evictions")?;
        let value = "v".repeat(1000);
        // Each is kept for ever, or for longer than the test takes, and not fetched. Which go is up to the server.
        for number in 0..4000 {
            let ttl_secs = if number % 2 == 0 { 0 } else { 5000 };
            client.ask(&format!("set key{number} 0 {ttl_secs} 1000\r\n{value}"))?;
        }
        let mut lines: Vec<String> = Vec::new();
        let deadline = Instant::now() + TIMEOUT;
        while lines.len() < 2 && Instant::now() < deadline {
            let line = watcher.line(&["key", "ttl"])?;
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines.sort_unstable();
        Ok(lines)
    })
}

/// memcached 1.6.18 has no such stream: the lines are those of 1.6.45 (logger.c).
#[test]
fn deletions_are_told_as_later_memcacheds_tell_them() -> Result<()> {
    let server = start(&server::larderd()?)?;
    let mut client = Client::new(&server)?;
    let watcher = Watcher::new(&server, "deletions")?;
    for command in ["set a 0 0 2\r\nxy", "delete a", "delete a", "ms b 1\r\nx", "md b"] {
        client.ask(command)?;
    }
    let lines = [watcher.line(&[])?, watcher.line(&[])?];
    let line = |rest: &str| format!("ts=# gid=# type=deleted {rest}");
    assert_eq!(lines, [line("key=a cmd=delete clsid=# size=2"), line("key=b cmd=md clsid=# size=1")]);
    Ok(())
}

/// Plays the story on memcached and on larderd; both must tell the same. memcached may need a few attempts: its threads
/// in the background have something to tell as well.
fn both(story: impl Fn(&Server) -> Result<Vec<String>>) -> Result<()> {
    let told = story(&start(&server::larderd()?)?)?;
    let Some(reference) = server::reference() else { return Ok(()) };
    suite::again(suite::attempts(Side::Reference), || {
        let expected = story(&start(&reference)?)?;
        if told == expected { Ok(()) } else { Err(format!("{told:#?} is not {expected:#?}").into()) }
    })
}

/// A small cache, so that there are evictions, and one worker, so that lines come in order.
fn start(program: &Path) -> Result<Server> {
    Server::start(program, &["-t", "1", "-m", "2"])
}

struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    fn new(server: &Server) -> Result<Self> {
        let stream = connect(server)?;
        Ok(Self { replies: BufReader::new(stream.try_clone()?), stream })
    }

    /// Sends a command and reads all that it is answered.
    fn ask(&mut self, command: &str) -> Result<()> {
        self.stream.write_all(command.as_bytes())?;
        self.stream.write_all(b"\r\nmn\r\n")?;
        let mut line = String::new();
        while line.trim_end() != "MN" {
            line.clear();
            if self.replies.read_line(&mut line)? == 0 {
                return Err(format!("the server closed after {command:?}").into());
            }
        }
        Ok(())
    }
}

struct Watcher {
    lines: std::cell::RefCell<BufReader<TcpStream>>,
}

impl Watcher {
    fn new(server: &Server, streams: &str) -> Result<Self> {
        let mut stream = connect(server)?;
        writeln!(stream, "watch {streams}\r")?;
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        assert_eq!(line, "OK\r\n");
        Ok(Self { lines: lines.into() })
    }

    /// The next line, as [`masked`].
    fn line(&self, varying: &[&str]) -> Result<String> {
        let mut line = String::new();
        self.lines.borrow_mut().read_line(&mut line).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Error::from("no further line comes"),
            _ => error.into(),
        })?;
        // A bare line feed ends it.
        let line = line.strip_suffix('\n').filter(|line| !line.ends_with('\r'));
        Ok(masked(line.ok_or("a line has another end")?, varying))
    }

    /// The lines up to one with this in it.
    fn until(&self, last: &str, varying: &[&str]) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.contains(last)) {
            lines.push(self.line(varying)?);
        }
        Ok(lines)
    }
}

fn connect(server: &Server) -> Result<TcpStream> {
    let stream = server.connect()?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// The line with `#` for values that no two runs have alike: moments, numbers, ports, descriptors; of classes, which
/// are each server's own, only whether there is one.
fn masked(line: &str, varying: &[&str]) -> String {
    let field = |field: &str| match field.split_once('=') {
        Some((name @ ("ts" | "gid" | "rport" | "cfd" | "la"), _)) => format!("{name}=#"),
        Some(("clsid", class)) if class != "0" => "clsid=#".to_owned(),
        // An item that never expires is told apart.
        Some(("ttl", ttl)) if varying.contains(&"ttl") && ttl != "-1" => "ttl=#".to_owned(),
        Some(("key", _)) if varying.contains(&"key") => "key=#".to_owned(),
        _ => field.to_owned(),
    };
    line.split(' ').map(field).collect::<Vec<_>>().join(" ")
}

const TIMEOUT: Duration = Duration::from_secs(60);
