//! `cache_memlimit`: beyond `-m` up to the machine's memory, and down again.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use larder_conformance::server::{self, Server, eventually};

const MIB: u64 = 1 << 20;

/// Some share segments and some have runs of their own; together 302 MB.
const VALUES: [(&str, u64, usize); 2] = [("small", 10_000, 20_000), ("large", 1_000, 102_000)];

fn larderd() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_larderd"))
}

struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn of(server: &Server) -> Self {
        Self { stream: BufReader::new(server.connect().expect("it listens")) }
    }

    fn send(&mut self, request: &[u8]) {
        self.stream.get_mut().write_all(request).expect("it reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.stream.read_line(&mut line).expect("it answers"), 0, "closed");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n").as_bytes());
        self.line()
    }

    fn stat(&mut self, group: &str, name: &str) -> u64 {
        self.send(format!("stats {group}\r\n").as_bytes());
        let mut value = None;
        loop {
            let line = self.line();
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["END"] => return value.unwrap_or_else(|| panic!("no {name} in stats {group}")),
                ["STAT", key, number] if key == name => value = number.parse().ok(),
                _ => {}
            }
        }
    }

    /// Stores all values, 50 requests at a time.
    fn fill(&mut self) {
        for (name, count, value_bytes) in VALUES {
            let mut requests = Vec::new();
            for number in 0..count {
                requests.extend_from_slice(format!("set {name}{number} 0 0 {value_bytes}\r\n").as_bytes());
                requests.extend_from_slice(&value(number, value_bytes));
                requests.extend_from_slice(b"\r\n");
                if number % 50 == 49 {
                    self.send(&requests);
                    requests.clear();
                    (0..50).for_each(|_| assert_eq!(self.line(), "STORED"));
                }
            }
        }
    }

    /// How many of them it still has, each as it was stored.
    fn kept(&mut self) -> u64 {
        let mut kept = 0;
        for (name, count, value_bytes) in VALUES {
            for number in 0..count {
                if self.ask(&format!("get {name}{number}")) != "END" {
                    assert_eq!(self.line().as_bytes(), value(number, value_bytes));
                    assert_eq!(self.line(), "END");
                    kept += 1;
                }
            }
        }
        kept
    }
}

fn value(number: u64, value_bytes: usize) -> Vec<u8> {
    format!("{number:08}").repeat(value_bytes / 8).into_bytes()
}

#[test]
fn sixteen_times_the_memory_is_used_once_it_is_allowed() {
    for program in server::reference().into_iter().chain([larderd().into()]) {
        let server = Server::start(&program, &["-m", "32"]).expect("it starts");
        let mut client = Client::of(&server);
        assert_eq!(client.ask("cache_memlimit 512"), "OK", "{program:?}");
        assert_eq!(client.stat("", "limit_maxbytes"), 512 * MIB);
        assert_eq!(client.stat("settings", "maxbytes"), 512 * MIB);
        client.fill();
        let count = VALUES.iter().map(|(_, count, _)| count).sum::<u64>();
        let counts = ["curr_items", "evictions"].map(|name| client.stat("", name));
        assert_eq!(counts, [count, 0], "{program:?}");
        assert_eq!(client.kept(), count, "{program:?}");
    }
}

#[test]
fn a_lower_limit_evicts() {
    let server = Server::start(larderd(), &["-m", "32"]).expect("it starts");
    let mut client = Client::of(&server);
    assert_eq!(client.ask("cache_memlimit 512"), "OK");
    client.fill();
    let full_bytes = server.resident_bytes().expect("it runs");
    assert!(full_bytes > 300 * MIB, "{full_bytes}");
    assert_eq!(client.ask("cache_memlimit 32"), "OK");
    assert_eq!(client.stat("", "limit_maxbytes"), 32 * MIB);
    eventually(|| client.stat("", "bytes") <= 32 * MIB);
    eventually(|| server.resident_bytes().expect("it runs") < 64 * MIB);
    let kept = client.kept();
    assert!(kept > 50, "{kept} are left");
}

/// memcached takes any limit.
#[test]
fn more_than_the_machine_has_is_refused() {
    let server = Server::start(larderd(), &["-m", "32"]).expect("it starts");
    let mut client = Client::of(&server);
    for too_much in ["999999999", "1000000000"] {
        let refusal = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust";
        assert_eq!(client.ask(&format!("cache_memlimit {too_much}")), refusal);
    }
    assert_eq!(client.stat("", "limit_maxbytes"), 32 * MIB);
    assert_eq!(client.ask("set key 0 0 5\r\nvalue"), "STORED");
}
