//! A cache that is right, but for one fault, which it commits at every n-th opportunity and counts.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::wire::{Ask, Done, Request};

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Of a value that is read: a bit is changed.
    Corrupt,
    /// It is a byte shorter, and said to be.
    Shorten,
    /// It is that of another key.
    OtherValue,
    /// It is shown with the name of its key, which is another one.
    OtherKey,
    WrongFlags,
    /// It is the one before.
    Stale,
    /// It is not there.
    Lose,
    /// It is there a second after it expired.
    ExpireLate,
    /// It is not there, and has a time to live.
    ExpireEarly,
    /// A store is acknowledged that was not made, of a key that is there.
    DropStore,
    /// A delete is acknowledged that was not made.
    DropDelete,
    /// Store or get is answered twice: at once, or after 20 ms.
    AnswerTwice,
    AnswerTwiceLater,
    /// The first store of a key is answered twice.
    AnswerFirstTwice,
    /// A get is answered after 900 ms.
    AnswerLate,
    /// A request for no answer is answered.
    AnswerQuiet,
    /// A line that nobody asked for comes before the answer to a get.
    Unasked,
    /// A get is answered but for 3 or 50 bytes in the middle.
    CutOut(usize),
    /// A get is answered never, or by half, and the connection stays open.
    Hang,
    HangMidway,
    /// The connection is closed instead of an answer, or in the middle of it.
    Close,
    CloseMidway,
    Refuse,
    NoMemory,
    /// Nothing is read from a connection any more.
    StopReading,
}

/// A running server. It ends with the process.
pub(super) struct FaultyServer {
    /// `host:port`, for TCP and for UDP.
    pub(super) address: String,
    cache: Arc<Mutex<Cache>>,
}

impl FaultyServer {
    /// `every`: at every so many-th opportunity it does wrong.
    pub(super) fn start(fault: Fault, every: u64) -> Self {
        let (listener, socket) = bind();
        let address = listener.local_addr().unwrap().to_string();
        let cache = Cache { fault, every, opportunities: 0, committed: 0, items: HashMap::new() };
        let cache = Arc::new(Mutex::new(cache));
        let (for_streams, for_datagrams) = (cache.clone(), cache.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let cache = for_streams.clone();
                // A client that goes is no trouble of ours.
                thread::spawn(move || serve(stream?, &cache));
            }
        });
        thread::spawn(move || serve_datagrams(socket, &for_datagrams));
        Self { address, cache }
    }

    /// How often it has done wrong.
    pub(super) fn committed(&self) -> u64 {
        self.cache.lock().unwrap().committed
    }
}

/// The same port for both.
fn bind() -> (TcpListener, UdpSocket) {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
            return (listener, socket);
        }
    }
}

fn serve(mut stream: TcpStream, cache: &Mutex<Cache>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = Request::read(&mut reader)? {
        let (answer, then) = cache.lock().unwrap().answer(&request);
        if let Then::SendLate = then {
            thread::sleep(LATE);
        }
        stream.write_all(&answer)?;
        match then {
            Then::GoOn | Then::SendLate => {}
            Then::Repeat => {
                thread::sleep(Duration::from_millis(20));
                stream.write_all(&answer)?;
            }
            Then::Close => break,
            Then::OnlyRead => return io::copy(&mut reader, &mut io::sink()).map(drop),
            Then::Sleep => thread::sleep(Duration::from_secs(3600)),
        }
    }
    Ok(())
}

/// Requests of one datagram, answered in one.
fn serve_datagrams(socket: UdpSocket, cache: &Mutex<Cache>) -> io::Result<()> {
    let mut buffer = [0; 65536];
    loop {
        let (bytes, client) = socket.recv_from(&mut buffer)?;
        let mut requests = &buffer[8..bytes];
        // Request number, number of the datagram, how many there are, reserved.
        let mut datagram = [&buffer[..2], &[0, 0, 0, 1, 0, 0]].concat();
        let mut is_late = false;
        while let Some(request) = Request::read(&mut requests)? {
            let (answer, then) = cache.lock().unwrap().answer(&request);
            is_late |= matches!(then, Then::SendLate);
            datagram.extend_from_slice(&answer);
        }
        let socket = socket.try_clone()?;
        let send = move || {
            if is_late {
                thread::sleep(LATE);
            }
            socket.send_to(&datagram, client)
        };
        if is_late {
            thread::spawn(send);
        } else {
            send()?;
        }
    }
}

struct Cache {
    fault: Fault,
    every: u64,
    opportunities: u64,
    committed: u64,
    items: HashMap<String, Item>,
}

#[derive(Clone)]
struct Item {
    client_flags: u32,
    value: Vec<u8>,
    /// The one before, if there was one.
    before: Option<Vec<u8>>,
    expires: Option<Instant>,
}

/// What is done besides sending an answer.
enum Then {
    GoOn,
    SendLate,
    Repeat,
    Close,
    OnlyRead,
    Sleep,
}

impl Cache {
    /// Whether to commit `fault` now.
    fn strikes(&mut self, fault: Fault) -> bool {
        if self.fault != fault {
            return false;
        }
        self.opportunities += 1;
        let strikes = self.opportunities.is_multiple_of(self.every);
        self.committed += u64::from(strikes);
        strikes
    }

    fn answer(&mut self, request: &Request) -> (Vec<u8>, Then) {
        // The first store of every key goes well: that fills the cache.
        let is_set_again = matches!(&request.ask, Ask::Set { key, .. } if self.items.contains_key(key));
        let answer = match &request.ask {
            Ask::Get(keys) => {
                let mut answer: Vec<u8> = keys.iter().flat_map(|key| self.get(request, key)).collect();
                answer.extend_from_slice(request.end());
                answer
            }
            Ask::Set { key, client_flags, ttl_secs, value } => {
                self.set(key, *client_flags, *ttl_secs, value);
                request.done(Done::Stored)
            }
            Ask::Delete(key) => request.done(self.delete(key)),
            Ask::Noop => request.done(Done::Ok),
            Ask::Version => request.done(Done::Version),
            Ask::Unknown => request.done(Done::Refused),
        };
        let is_get = matches!(request.ask, Ask::Get(_));
        let is_quiet = request.is_quiet && !is_get;
        if is_quiet && !self.strikes(Fault::AnswerQuiet) {
            let then = if self.strikes(Fault::StopReading) { Then::Sleep } else { Then::GoOn };
            return (Vec::new(), then);
        }
        let is_first_set = matches!(request.ask, Ask::Set { .. }) && !is_set_again;
        if is_first_set && self.strikes(Fault::AnswerFirstTwice) {
            return (answer.repeat(2), Then::GoOn);
        }
        let is_normal = is_get || is_set_again;
        if is_normal && self.strikes(Fault::AnswerTwice) {
            return (answer.repeat(2), Then::GoOn);
        }
        if is_normal && self.strikes(Fault::AnswerTwiceLater) {
            return (answer, Then::Repeat);
        }
        if is_get { self.send(request, answer) } else { (answer, Then::GoOn) }
    }

    /// How the answer to a get goes wrong on its way.
    fn send(&mut self, request: &Request, mut answer: Vec<u8>) -> (Vec<u8>, Then) {
        let fault = self.fault;
        if !matches!(
            fault,
            Fault::Unasked
                | Fault::AnswerLate
                | Fault::CutOut(_)
                | Fault::Hang
                | Fault::HangMidway
                | Fault::Close
                | Fault::CloseMidway
                | Fault::Refuse
                | Fault::NoMemory
        ) || !self.strikes(fault)
        {
            return (answer, Then::GoOn);
        }
        let half = answer.len() / 2;
        let then = match fault {
            Fault::AnswerLate => Then::SendLate,
            Fault::Hang | Fault::HangMidway => Then::OnlyRead,
            Fault::Close | Fault::CloseMidway => Then::Close,
            _ => Then::GoOn,
        };
        match fault {
            Fault::Unasked => answer = [request.done(Done::Stored), answer].concat(),
            Fault::CutOut(bytes) => {
                answer.drain(half..half + bytes);
            }
            Fault::Hang | Fault::Close => answer.clear(),
            Fault::HangMidway | Fault::CloseMidway => answer.truncate(half),
            Fault::Refuse => answer = request.done(Done::Refused),
            Fault::NoMemory => answer = request.done(Done::NoMemory),
            _ => {}
        }
        (answer, then)
    }

    fn get(&mut self, request: &Request, key: &str) -> Vec<u8> {
        let Some(item) = self.items.get(key).cloned() else { return request.miss() };
        let Item { client_flags, mut value, before, expires } = item;
        let middle = value.len() / 2;
        let now = Instant::now();
        if expires.is_some_and(|expires| now >= expires) {
            let is_long_gone = expires.is_some_and(|expires| now >= expires + Duration::from_secs(1));
            if !(is_long_gone && self.strikes(Fault::ExpireLate)) {
                return request.miss();
            }
        }
        if expires.is_some() && self.strikes(Fault::ExpireEarly) || self.strikes(Fault::Lose) {
            return request.miss();
        }
        if self.strikes(Fault::Corrupt) {
            value[middle] ^= 0x10;
        }
        if self.strikes(Fault::Shorten) {
            value.pop();
        }
        if let Some(before) = before
            && self.strikes(Fault::Stale)
        {
            value = before;
        }
        if self.fault == Fault::OtherValue || self.fault == Fault::OtherKey {
            let other = self.items.iter().find(|(other, _)| *other != key);
            if let Some((other, item)) = other.map(|(other, item)| (other.clone(), item.clone())) {
                if self.strikes(Fault::OtherValue) {
                    return request.hit(key, item.client_flags, &item.value);
                }
                if self.strikes(Fault::OtherKey) {
                    return request.hit(&other, item.client_flags, &item.value);
                }
            }
        }
        let client_flags = client_flags ^ u32::from(self.strikes(Fault::WrongFlags));
        request.hit(key, client_flags, &value)
    }

    fn set(&mut self, key: &str, client_flags: u32, ttl_secs: u64, value: &[u8]) {
        let expires = (ttl_secs > 0).then(|| Instant::now() + Duration::from_secs(ttl_secs));
        let before = self.items.get(key).map(|item| item.value.clone());
        if before.is_some() && self.strikes(Fault::DropStore) {
            return;
        }
        self.items.insert(key.into(), Item { client_flags, value: value.to_vec(), before, expires });
    }

    fn delete(&mut self, key: &str) -> Done {
        if !self.items.contains_key(key) {
            return Done::NotFound;
        }
        if !self.strikes(Fault::DropDelete) {
            self.items.remove(key);
        }
        Done::Deleted
    }
}

/// Longer than the timeout of the tests.
const LATE: Duration = Duration::from_millis(900);
