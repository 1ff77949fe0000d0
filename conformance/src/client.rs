//! A client of a server under test, in the classic text dialect.

use crate::server::Server;
use crate::wire::Wire;

/// One that panics where the server does not answer, or closes the connection.
pub struct Client(Wire);

impl Client {
    /// Connects.
    pub fn of(server: &Server) -> Self {
        Self(Wire::connect(server.address()).expect("the server listens"))
    }

    /// Sends lines, with their ends.
    pub fn send(&mut self, text: &str) {
        self.0.send(text.as_bytes()).expect("the server reads");
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        self.0.line().expect("the server answers")
    }

    /// Sends lines, with their ends, and returns the first line of the reply.
    pub fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.line()
    }

    /// Sends lines, and returns those of the reply: up to this one, or to an error.
    pub fn lines(&mut self, text: &str, end: &str) -> Vec<String> {
        let mut lines = vec![self.ask(text)];
        while lines.last().is_some_and(|line| line != end && !line.contains("ERROR")) {
            lines.push(self.line());
        }
        lines
    }

    /// A value of this length, and the end of its line.
    pub fn value(&mut self, bytes: usize) -> Vec<u8> {
        self.0.value(bytes).expect("the server sends a value")
    }

    /// A statistic of a group, if there is one of this name.
    pub fn stat(&mut self, group: &str, name: &str) -> Option<String> {
        let start = format!("STAT {name} ");
        let lines = self.lines(&format!("stats {group}\r\n"), "END");
        lines.iter().find_map(|line| line.strip_prefix(&start).map(str::to_owned))
    }
}
