//! Load whose effect is known, and a comparison with what the next server has of it.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use larder_conformance::server::{Server, eventually};
use rustix::process::Signal;

use crate::server::{Client, signal};

const KEYS: u64 = 300;
const WINDOW: u64 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    flags: u32,
    value: Vec<u8>,
}

/// A client of a server that is stopped again and again.
pub(crate) struct Load {
    /// Its keys begin with this.
    prefix: &'static str,
    /// What they have outlives the server.
    is_kept: bool,
    /// Requests that were carried out.
    done: u64,
    /// What they made of the items.
    model: HashMap<String, Item>,
}

/// How far a client came until its server was gone.
struct Progress {
    /// Requests that were answered.
    answered: u64,
    /// Requests that may have been carried out.
    sent: u64,
}

/// Request number `number` of the client with this prefix: its words, and what it makes of the item.
fn request(prefix: &str, number: u64) -> (Vec<u8>, impl Fn(&mut HashMap<String, Item>)) {
    let mut random = fastrand::Rng::with_seed(number);
    let key = key(prefix, random.u64(..KEYS));
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
    let apply = move |model: &mut HashMap<String, Item>| match kind {
        0..2 => drop(model.remove(&key)),
        2 => {
            if let Some(item) = model.get_mut(&key) {
                item.value.extend(b"and");
            }
        }
        _ => {
            let item = Item { flags: (number % 1000) as u32, value: value.clone() };
            model.insert(key.clone(), item);
        }
    };
    (words, apply)
}

fn key(prefix: &str, number: u64) -> String {
    format!("{prefix}/{number}")
}

impl Load {
    pub(crate) fn new(prefix: &'static str, is_kept: bool) -> Self {
        Self { prefix, is_kept, done: 0, model: HashMap::new() }
    }

    /// How many requests were carried out.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// How many items there are.
    pub(crate) fn items(&self) -> usize {
        self.model.len()
    }

    /// Sends requests, up to a window of them ahead of the replies, until the server is gone.
    fn run(&self, mut connection: Client) -> Progress {
        let (mut sent, mut answered) = (self.done, self.done);
        loop {
            while sent < answered + WINDOW {
                let (words, _) = request(self.prefix, sent + 1);
                sent += 1;
                if connection.send(&words).is_err() {
                    break;
                }
            }
            match connection.line() {
                Ok(line) => {
                    let expected = ["STORED", "DELETED", "NOT_FOUND", "NOT_STORED"];
                    assert!(expected.contains(&line.as_str()), "{line}");
                    answered += 1;
                }
                Err(_) => return Progress { answered, sent },
            }
        }
    }

    /// The items are what the requests up to some number made of them, and that number is none before the last that was
    /// answered; or there are none, if they are not kept.
    fn check(&mut self, Progress { answered, sent }: &Progress, connection: &mut Client) {
        for number in self.done + 1..=*answered {
            request(self.prefix, number).1(&mut self.model);
        }
        self.done = *answered;
        if !self.is_kept {
            self.model.clear();
        }
        let found: HashMap<_, _> = (0..KEYS)
            .filter_map(|number| {
                let key = key(self.prefix, number);
                let (flags, _, value) = connection.gets(&key)?;
                Some((key, Item { flags, value }))
            })
            .collect();
        while self.model != found {
            self.done += 1;
            assert!(
                self.done <= *sent && self.is_kept,
                "{}: {}",
                self.prefix,
                difference(&self.model, &found)
            );
            request(self.prefix, self.done).1(&mut self.model);
        }
    }
}

/// Stops a server under load by this signal, starts the next one, and compares what it has.
pub(crate) fn stop_and_compare(
    server: Server,
    by: Signal,
    loads: &mut [Load],
    start: impl FnOnce() -> Server,
    random: &mut fastrand::Rng,
) -> Server {
    let pause = Duration::from_micros(random.u64(20_000..250_000));
    let progress: Vec<_> = thread::scope(|scope| {
        let run = |load| {
            let connection = Client::of(&server);
            scope.spawn(move || Load::run(load, connection))
        };
        let clients: Vec<_> = loads.iter().map(run).collect();
        thread::sleep(pause);
        signal(server.pid(), by);
        clients.into_iter().map(|client| client.join().expect("no reply was wrong")).collect()
    });
    let mut server = server;
    eventually(|| !server.is_running());
    let server = start();
    let mut connection = Client::of(&server);
    for (load, progress) in loads.iter_mut().zip(&progress) {
        load.check(progress, &mut connection);
    }
    server
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
