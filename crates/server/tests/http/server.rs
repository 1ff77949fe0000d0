//! A larderd that serves items over HTTP, and what it takes to ask it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use larder_conformance::server::{self, Server};

/// Dropping it kills the process.
pub(crate) struct Larderd {
    pub(crate) server: Server,
    pub(crate) http: SocketAddr,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) content: Vec<u8>,
}

/// A connection.
pub(crate) struct Client<S: Read>(pub(crate) BufReader<S>);

impl Larderd {
    /// Starts it with a listener on a free port of 127.0.0.1, and these options.
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = server::command(program());
        command.args(["--http-listen", "127.0.0.1:0"]).args(options);
        let server = Server::start_command(command).expect("larderd starts");
        let http = server.http_address().expect("it has been bound");
        Self { server, http }
    }

    pub(crate) fn connect(&self) -> Client<TcpStream> {
        let stream = server::connect(self.http).expect("larderd listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is no zero");
        Client(BufReader::new(stream))
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, first: &str, headers: &str, content: &str) -> Response {
        let mut client = self.connect();
        client.send(&request(first, headers, content));
        client.receive().expect("larderd answers")
    }

    /// A statistic.
    pub(crate) fn stat(&self, name: &str) -> String {
        let mut stream = self.server.connect().expect("larderd listens");
        stream.write_all(b"stats\r\nquit\r\n").expect("larderd reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is text");
        let line = answer.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.expect("there is one").to_owned()
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: &str) {
        self.0.get_mut().write_all(bytes.as_bytes()).expect("larderd reads");
    }

    /// Reads a response with a Content-Length. `None`: larderd has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Response> {
        let Response { status, head, .. } = self.receive_head()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut content = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        self.0.read_exact(&mut content).expect("all of it");
        Some(Response { status, head, content })
    }

    /// The same of a response without content, as that to HEAD, whatever length it names.
    pub(crate) fn receive_head(&mut self) -> Option<Response> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).unwrap_or(0) == 0 {
                return None;
            }
        }
        let head = head.to_ascii_lowercase();
        let status = head[9..12].parse().expect("a status");
        Some(Response { status, head, content: Vec::new() })
    }
}

pub(crate) fn request(first: &str, headers: &str, content: &str) -> String {
    let length = match content {
        "" => String::new(),
        _ => format!("Content-Length: {}\r\n", content.len()),
    };
    format!("{first} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n{content}")
}

pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_larderd"))
}
