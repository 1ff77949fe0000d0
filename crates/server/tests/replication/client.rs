//! A client of one site.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use larder_conformance::server::Server;

/// An item as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    value: Vec<u8>,
    flags: String,
    cas: String,
    has_expiry: bool,
}

pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn of(server: &Server) -> Self {
        // The last listener has no TLS.
        let address = server.addresses().last().expect("it listens");
        Self(BufReader::new(TcpStream::connect(address).expect("larderd listens")))
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).expect("larderd answers"), 0, "larderd hung up");
        line.trim_end().to_owned()
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("larderd reads");
    }

    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.line()
    }

    /// What each key has.
    pub(crate) fn look_up(&mut self, keys: &[String]) -> Vec<Option<Lookup>> {
        let mut seen = Vec::new();
        for keys in keys.chunks(100) {
            let requests: String = keys.iter().map(|key| format!("mg {key} v f t c\r\n")).collect();
            self.0.get_mut().write_all(requests.as_bytes()).expect("larderd reads");
            for _ in keys {
                seen.push(self.item());
            }
        }
        seen
    }

    /// The value and the flags of each key: what sites have in common that give CAS values of their own.
    pub(crate) fn values(&mut self, keys: &[String]) -> Vec<Option<(Vec<u8>, String)>> {
        self.look_up(keys).into_iter().map(|item| item.map(|item| (item.value, item.flags))).collect()
    }

    fn item(&mut self) -> Option<Lookup> {
        let line = self.line();
        let words: Vec<_> = line.split(' ').collect();
        let &["VA", length, flags, ttl, cas] = words.as_slice() else {
            assert_eq!(line, "EN");
            return None;
        };
        let mut value = vec![0; length.parse::<usize>().expect("a length") + 2];
        self.0.read_exact(&mut value).expect("larderd sends the value");
        Some(Lookup { value, flags: flags.into(), cas: cas.into(), has_expiry: ttl != "t-1" })
    }

    /// So many changes at once.
    pub(crate) fn change_at_random(&mut self, keys: &[String], rng: &mut fastrand::Rng, flushes: bool) {
        let mut requests = String::new();
        for _ in 0..CHANGES {
            let key = rng.choice(keys).expect("there are keys");
            let (number, flags) = (rng.u32(..1000), rng.u32(..3));
            let exptime = if rng.u8(..4) == 0 { 5000 } else { 0 };
            let _ = match rng.u32(..2000) {
                _ if flushes && rng.u32(..100_000) == 0 => write!(requests, "flush_all\r\n"),
                ..600 => write!(requests, "delete {key}\r\n"),
                600..800 => write!(requests, "touch {key} {exptime}\r\n"),
                800..1000 => write!(requests, "incr {key} 3\r\n"),
                1000..1100 => write!(requests, "append {key} 0 0 1\r\n7\r\n"),
                1100..1200 => write!(requests, "add {key} 0 0 4\r\n{:04}\r\n", number),
                _ => write!(requests, "set {key} {flags} {exptime} 4\r\n{number:04}\r\n"),
            };
        }
        self.0.get_mut().write_all(requests.as_bytes()).expect("larderd reads");
        for _ in 0..CHANGES {
            let line = self.line();
            assert!(!line.contains("ERROR") || line.contains("non-numeric"), "{line}");
        }
    }

    /// `stats replication`.
    pub(crate) fn figures(&mut self) -> String {
        self.report("stats replication")
    }

    /// The lines of a command that ends with `END`.
    pub(crate) fn report(&mut self, command: &str) -> String {
        let mut figures = String::new();
        let mut line = self.ask(&format!("{command}\r\n"));
        while line != "END" {
            figures += &(line + "\n");
            line = self.line();
        }
        figures
    }

    /// What `stats replication` says of that.
    pub(crate) fn takes_changes(&mut self) -> bool {
        self.figures().contains("STAT takes_changes yes\n")
    }

    /// The status that a set of the binary dialect is answered with.
    pub(crate) fn set_by_binary(&mut self, key: &str, value: &str) -> u16 {
        let mut request = vec![0x80, 0x01, 0, key.len() as u8, 8, 0, 0, 0];
        request.extend((8 + key.len() as u32 + value.len() as u32).to_be_bytes());
        request.extend([0; 4 + 8 + 8]);
        request.extend(key.bytes().chain(value.bytes()));
        let address = self.0.get_ref().peer_addr().expect("it is connected");
        let mut stream = TcpStream::connect(address).expect("larderd listens");
        stream.write_all(&request).expect("larderd reads");
        let mut header = [0; 24];
        stream.read_exact(&mut header).expect("larderd answers");
        u16::from_be_bytes([header[6], header[7]])
    }

    /// The sum of the numbers of `stats replication` whose names end so.
    pub(crate) fn stat(&mut self, suffix: &str) -> u64 {
        let mut line = self.ask("stats replication\r\n");
        let mut sum = 0;
        while line != "END" {
            if let [_, name, value] = line.split(' ').collect::<Vec<_>>().as_slice()
                && name.ends_with(suffix)
            {
                sum += value.parse::<u64>().expect("a number");
            }
            line = self.line();
        }
        sum
    }
}

/// At once.
const CHANGES: usize = 50;
