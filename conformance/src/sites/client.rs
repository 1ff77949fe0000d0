//! A client of one site: it changes keys that everybody changes, at full speed, and keeps what it was told.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::books::Books;
use super::keys::{ALL_KEYS, ALL_PREFIXES, KEYS, home_of, is_cached, is_short_lived, name, prefix_name};
use super::ledger::{Content, Micros};
use crate::Result;
use crate::wire::Wire;

/// A client. It lives on when its site dies.
pub(super) struct Client {
    id: u64,
    site: usize,
    random: fastrand::Rng,
    /// What was acknowledged so shortly before a death may be lost.
    may_lose: Duration,
    writes: u64,
    changes: Vec<Change>,
    /// By key: the highest version that this connection has seen.
    versions: HashMap<usize, u64>,
    trouble: Option<String>,
}

/// A change that was or may have been carried out.
pub(super) struct Change {
    pub(super) of: Keys,
    pub(super) what: What,
    pub(super) sent: Micros,
    /// When it was answered, or given up.
    pub(super) done: Micros,
    /// Of its exptime, in seconds.
    pub(super) ttl_secs: Option<u64>,
    /// Whether it must be there.
    pub(super) is_promised: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    One(usize),
    Prefix(usize),
    All,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// The version, once it is known.
    Write(Content, Option<u64>),
    Remove,
    Touch,
    Get,
}

/// A request on its way.
struct Request {
    of: Keys,
    what: What,
    ttl_secs: Option<u64>,
    /// It is carried out only if the item has this version.
    compares: Option<u64>,
    has_value: bool,
}

impl Client {
    pub(super) fn new(id: u64, site: usize, seed: u64, may_lose: Duration) -> Self {
        Self {
            id,
            site,
            random: fastrand::Rng::with_seed(seed ^ (id << 32)),
            may_lose,
            writes: 0,
            changes: Vec::new(),
            versions: HashMap::new(),
            trouble: None,
        }
    }

    /// Changes keys until it is over, at the site that has this address while it runs.
    pub(super) fn run(&mut self, address: &Mutex<Option<SocketAddr>>, is_over: &AtomicBool) -> Result<()> {
        let mut bytes = Vec::new();
        while !is_over.load(Relaxed) {
            let address = *address.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(mut wire) = address.and_then(|address| Wire::connect(address).ok()) else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            while !is_over.load(Relaxed) && self.burst(&mut wire, &mut bytes) {}
            if let Some(trouble) = self.trouble.take() {
                return Err(trouble.into());
            }
            self.versions.clear();
        }
        Ok(())
    }

    /// Some requests at once. False: the connection has ended, or something is wrong.
    fn burst(&mut self, wire: &mut Wire, bytes: &mut Vec<u8>) -> bool {
        let mut text = String::new();
        let requests: Vec<_> = (0..self.random.usize(1..=BURST)).map(|_| self.draw(&mut text)).collect();
        bytes.clear();
        bytes.extend_from_slice(text.as_bytes());
        let sent = now_micros();
        let is_sent = wire.send(bytes).is_ok();
        let mut requests = requests.into_iter();
        while let Some(request) = requests.next() {
            let reply = if is_sent { reply(wire) } else { Err("not sent".into()) };
            match reply {
                Ok(reply) => {
                    if let Err(trouble) = self.judge(request, &reply, sent) {
                        self.trouble = Some(trouble);
                        return false;
                    }
                }
                Err(_) => {
                    let done = now_micros();
                    std::iter::once(request).chain(requests).for_each(|lost| self.give_up(lost, sent, done));
                    self.demote(done);
                    return false;
                }
            }
        }
        true
    }

    fn draw(&mut self, text: &mut String) -> Request {
        let random = &mut self.random;
        if random.u8(..10) == 0 {
            return self.draw_cached(text);
        }
        // Half of all on a few keys.
        let among = if random.bool() { KEYS / 50 } else { KEYS };
        let key = random.usize(..among);
        let name = name(key);
        let ttl_secs: Option<u64> = match random.u8(..8) {
            0..5 => None,
            _ if is_short_lived(key) => Some(random.u64(1..4)),
            _ => Some(1_000 + 100 * random.u64(..50)),
        };
        let ttl = ttl_secs.unwrap_or(0);
        let flags = random.u32(..1_000);
        self.writes += 1;
        let unique = self.writes;
        // Decimal digits, so that they can be counted up.
        let value = format!("{}{unique:08}", self.id + 1);
        let length = value.len();
        let whole = |flags| Content { value: value.clone().into(), is_whole: true, flags };
        let request = |what| Request { of: Keys::One(key), what, ttl_secs, compares: None, has_value: false };
        let (line, request) = match random.u32(..200_000) {
            0 => ("flush_all\r\n".to_owned(), Request { of: Keys::All, ..request(What::Remove) }),
            1..5 => {
                let prefix = random.usize(..ALL_PREFIXES);
                let line = format!("flush_prefix {}\r\n", prefix_name(prefix));
                (line, Request { of: Keys::Prefix(prefix), ..request(What::Remove) })
            }
            5..40_000 => (format!("md {name}\r\n"), request(What::Remove)),
            40_000..60_000 => (format!("mg {name} T{ttl}\r\n"), request(What::Touch)),
            60_000..80_000 => {
                let content = Content { value: Vec::new(), is_whole: false, flags: None };
                let line = format!("ma {name} c v D{}\r\n", random.u8(1..10));
                let request = request(What::Write(content, None));
                (line, Request { has_value: true, ttl_secs: None, ..request })
            }
            80_000..90_000 => {
                let content = Content { is_whole: false, ..whole(None) };
                let line = format!("ms {name} {length} MA c\r\n{value}\r\n");
                (line, Request { ttl_secs: None, ..request(What::Write(content, None)) })
            }
            90_000..100_000 => {
                let line = format!("ms {name} {length} ME c F{flags} T{ttl}\r\n{value}\r\n");
                (line, request(What::Write(whole(Some(flags)), None)))
            }
            100_000..120_000 if self.versions.contains_key(&key) => {
                let compares = self.versions.get(&key).copied();
                let cas = compares.unwrap_or(0);
                let line = format!("ms {name} {length} C{cas} c F{flags} T{ttl}\r\n{value}\r\n");
                (line, Request { compares, ..request(What::Write(whole(Some(flags)), None)) })
            }
            120_000..140_000 => {
                (format!("mg {name} c v\r\n"), Request { has_value: true, ..request(What::Get) })
            }
            _ => {
                let line = format!("ms {name} {length} c F{flags} T{ttl}\r\n{value}\r\n");
                (line, request(What::Write(whole(Some(flags)), None)))
            }
        };
        let _ = text.write_str(&line);
        request
    }

    /// Of a key that is kept in memory.
    fn draw_cached(&mut self, text: &mut String) -> Request {
        let key = self.random.usize(KEYS..ALL_KEYS);
        let name = name(key);
        self.writes += 1;
        let value = format!("{}{:08}", self.id + 1, self.writes);
        let (line, what) = match self.random.u8(..10) {
            0..3 => (format!("md {name}\r\n"), What::Remove),
            3..6 => (format!("mg {name} v\r\n"), What::Get),
            _ => {
                let line = format!("ms {name} {}\r\n{value}\r\n", value.len());
                let content = Content { value: value.into(), is_whole: true, flags: None };
                (line, What::Write(content, None))
            }
        };
        let _ = text.write_str(&line);
        Request { of: Keys::One(key), what, ttl_secs: None, compares: None, has_value: false }
    }

    fn judge(
        &mut self,
        mut request: Request,
        (words, value): &(Vec<String>, Vec<u8>),
        sent: Micros,
    ) -> std::result::Result<(), String> {
        let (Some(code), of) = (words.first(), request.of) else { return Ok(()) };
        let version = words.iter().find_map(|word| word.strip_prefix('c')?.parse::<u64>().ok());
        let is_elsewhere = self.is_elsewhere(of);
        let wrong = |what: &str| Err(format!("client {}: {what}: {of:?} is answered {words:?}", self.id));
        match code.as_str() {
            "HD" | "VA" | "OK" => {}
            "NF" | "NS" | "EN" | "EX" | "NOT_FOUND" => return Ok(()),
            // Letters do not come up, but an appended number may be too long.
            "CLIENT_ERROR" if request.has_value => return Ok(()),
            "SERVER_ERROR" if is_elsewhere && words[1] == "home" => {
                // "home site did not answer and may have run this", or it has not.
                if words[3] == "did" {
                    self.give_up(request, sent, now_micros());
                }
                return Ok(());
            }
            _ => return wrong("an error"),
        }
        if let (Keys::One(key), Some(version)) = (of, version) {
            let before = self.versions.insert(key, version).unwrap_or(0);
            // What the home answers may be ahead of what is here.
            if version < before && !is_elsewhere {
                return wrong(&format!("its version was {before} before"));
            }
            if request.compares.is_some_and(|compared| version <= compared) {
                return wrong("a version that is not above the one it replaces");
            }
        }
        match &mut request.what {
            What::Get => return Ok(()),
            What::Write(_, None) if version.is_none() && !is_in_cache(of) => return wrong("no version"),
            What::Write(content, known) => {
                *known = version;
                if request.has_value {
                    *content = Content { value: value.clone(), is_whole: true, flags: None };
                }
            }
            What::Remove | What::Touch => {}
        }
        // With durability interval the home's death may have lost it, of which this client hears nothing.
        let is_promised = !is_elsewhere || self.may_lose.is_zero();
        self.note(request, sent, now_micros(), is_promised);
        Ok(())
    }

    fn give_up(&mut self, request: Request, sent: Micros, done: Micros) {
        if !matches!(request.what, What::Get) {
            // What is on its way to a home may be run later.
            let done = if self.is_elsewhere(request.of) { LATER } else { done };
            self.note(request, sent, done, false);
        }
    }

    /// True if another site is the home.
    fn is_elsewhere(&self, of: Keys) -> bool {
        matches!(of, Keys::One(key) if home_of(key).is_some_and(|home| home != self.site))
    }

    fn note(&mut self, request: Request, sent: Micros, done: Micros, is_promised: bool) {
        let Request { of, what, ttl_secs, .. } = request;
        self.changes.push(Change { of, what, sent, done, ttl_secs, is_promised });
    }

    /// The site may have died: what was acknowledged a short time ago is not promised.
    fn demote(&mut self, now: Micros) {
        let since = now.saturating_sub(u64::try_from(self.may_lose.as_micros()).unwrap_or(u64::MAX));
        if !self.may_lose.is_zero() {
            self.changes.iter_mut().rev().take_while(|change| change.done >= since).for_each(|change| {
                change.is_promised = false;
            });
        }
    }

    /// How many changes there were, and what is known from them.
    pub(super) fn tell(&mut self, books: &mut Books) -> usize {
        let changes = std::mem::take(&mut self.changes);
        changes.iter().for_each(|change| books.note(change));
        changes.len()
    }
}

fn is_in_cache(of: Keys) -> bool {
    matches!(of, Keys::One(key) if is_cached(key))
}

pub(super) fn now_micros() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Words of a line, and the value behind it.
pub(super) fn reply(wire: &mut Wire) -> Result<(Vec<String>, Vec<u8>)> {
    let words: Vec<String> = wire.line()?.split(' ').map(str::to_owned).collect();
    let value = match words.as_slice() {
        [code, length, ..] if code == "VA" => wire.value(length.parse()?)?,
        _ => Vec::new(),
    };
    Ok((words, value))
}

/// Requests at once, at most.
const BURST: usize = 64;
/// A moment after the test.
const LATER: Micros = 1 << 60;
