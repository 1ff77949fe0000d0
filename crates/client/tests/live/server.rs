//! The memcached that is installed, or else larderd, and a connection to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use larder_client::codec::{Event, Outcome, Pipeline, Protocol};
use larder_conformance::server::{Server, any};

/// Starts memcached with these options, or larderd where there is none.
pub(crate) fn start(args: &[&str]) -> Server {
    Server::start(&any().expect("it builds"), args).expect("it starts")
}

/// A connection that asks and waits.
pub(crate) struct Connection {
    stream: TcpStream,
    pub pipeline: Pipeline<u32>,
    pub output: Vec<u8>,
}

/// What came, without what it borrows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Place, value, client flags.
    pub values: Vec<(u32, String, u32)>,
    pub cas: Option<u64>,
    pub stats: Vec<(String, String)>,
    pub quiet_failures: Vec<String>,
    /// As `Debug` shows it.
    pub outcome: String,
}

impl Connection {
    pub(crate) fn open(server: &Server, protocol: Protocol) -> Self {
        let stream = server.connect().expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
        Self { stream, pipeline: Pipeline::new(protocol), output: Vec::new() }
    }

    /// Sends one request and reads its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: impl FnOnce(&mut Pipeline<u32>, &mut Vec<u8>)) -> Answer {
        request(&mut self.pipeline, &mut self.output);
        self.stream.write_all(&self.output).expect("it reads");
        self.output.clear();
        let mut answer = Answer {
            values: Vec::new(),
            cas: None,
            stats: Vec::new(),
            quiet_failures: Vec::new(),
            outcome: String::new(),
        };
        let mut input = Vec::new();
        while !self.pipeline.is_empty() {
            let mut part = [0; 7];
            let n = self.stream.read(&mut part).expect("it answers");
            assert!(n > 0, "it closed: {:?}", String::from_utf8_lossy(&input));
            input.extend_from_slice(&part[..n]);
            let mut rest = &input[..];
            while let Some(event) = self.pipeline.receive(&mut rest).expect("it keeps to the protocol") {
                match event {
                    Event::Value(value) => {
                        let text = String::from_utf8_lossy(value.bytes).into_owned();
                        answer.values.push((value.index, text, value.client_flags));
                        answer.cas = value.cas;
                    }
                    Event::Stat(name, value) => {
                        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                        answer.stats.push((text(name), text(value)));
                    }
                    Event::QuietFailed(outcome) => answer.quiet_failures.push(format!("{outcome:?}")),
                    Event::KeyFailed(error) => panic!("{error}"),
                    Event::Done(_, Outcome::Error(error)) => answer.outcome = format!("{:?}", error.kind),
                    Event::Done(_, outcome) => answer.outcome = format!("{outcome:?}"),
                }
            }
            let taken = input.len() - rest.len();
            input.drain(..taken);
        }
        assert!(input.is_empty(), "{:?}", String::from_utf8_lossy(&input));
        answer
    }
}
