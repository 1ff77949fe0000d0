//! A client of one site: it changes keys that everybody changes, at full speed, and keeps what it was told.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ledger::{Content, Ledger, Micros, Seen};
use super::{KEYS, PREFIXES, Step};
use crate::Result;
use crate::wire::Wire;

/// A client. It lives on when its site dies.
pub(super) struct Client {
    id: u64,
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
struct Change {
    of: Keys,
    what: What,
    sent: Micros,
    /// When it was answered, or given up.
    done: Micros,
    /// Whether it must be there.
    is_promised: bool,
}

#[derive(Clone, Copy, Debug)]
enum Keys {
    One(usize),
    Prefix(usize),
    All,
}

#[derive(Clone, Debug)]
enum What {
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
    exptime_secs: Option<u64>,
    /// It is carried out only if the item has this version.
    compares: Option<u64>,
    has_value: bool,
}

impl Client {
    pub(super) fn new(id: u64, seed: u64, may_lose: Duration) -> Self {
        Self {
            id,
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
        let mut exptimes = Vec::new();
        while !is_over.load(Relaxed) {
            let address = *address.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(mut wire) = address.and_then(|address| Wire::connect(address).ok()) else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            while !is_over.load(Relaxed) && self.burst(&mut wire, &mut exptimes) {}
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
            let reply = if is_sent { Self::reply(wire) } else { Err("not sent".into()) };
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
        // Half of all on a few keys.
        let among = if random.bool() { KEYS / 50 } else { KEYS };
        let key = random.usize(..among);
        let name = name(key);
        let ttl_secs: Option<u64> = match random.u8(..8) {
            0..5 => None,
            _ if is_short_lived(key) => Some(random.u64(1..4)),
            _ => Some(1_000 + 100 * random.u64(..50)),
        };
        let exptime_secs = ttl_secs.map(|ttl| now_micros() / 1_000_000 + ttl);
        let ttl = ttl_secs.unwrap_or(0);
        let flags = random.u32(..1_000);
        self.writes += 1;
        let unique = self.writes;
        // Decimal digits, so that they can be counted up.
        let value = format!("{}{unique:08}", self.id + 1);
        let length = value.len();
        let whole = |flags| Content { value: value.clone().into(), is_whole: true, flags };
        let request =
            |what| Request { of: Keys::One(key), what, exptime_secs, compares: None, has_value: false };
        let (line, request) = match random.u32(..200_000) {
            0 => ("flush_all\r\n".to_owned(), Request { of: Keys::All, ..request(What::Remove) }),
            1..5 => {
                let prefix = random.usize(..PREFIXES);
                let line = format!("flush_prefix p{prefix}:\r\n");
                (line, Request { of: Keys::Prefix(prefix), ..request(What::Remove) })
            }
            5..40_000 => (format!("md {name}\r\n"), request(What::Remove)),
            40_000..60_000 => (format!("mg {name} T{ttl}\r\n"), request(What::Touch)),
            60_000..80_000 => {
                let content = Content { value: Vec::new(), is_whole: false, flags: None };
                let line = format!("ma {name} c v D{}\r\n", random.u8(1..10));
                let request = request(What::Write(content, None));
                (line, Request { has_value: true, exptime_secs: None, ..request })
            }
            80_000..90_000 => {
                let content = Content { is_whole: false, ..whole(None) };
                let line = format!("ms {name} {length} MA c\r\n{value}\r\n");
                (line, Request { exptime_secs: None, ..request(What::Write(content, None)) })
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

    /// Words of the line, and the value behind it.
    fn reply(wire: &mut Wire) -> Result<(Vec<String>, Vec<u8>)> {
        let words: Vec<String> = wire.line()?.split(' ').map(str::to_owned).collect();
        let value = match words.as_slice() {
            [code, length, ..] if code == "VA" => wire.value(length.parse()?)?,
            _ => Vec::new(),
        };
        Ok((words, value))
    }

    fn judge(
        &mut self,
        mut request: Request,
        (words, value): &(Vec<String>, Vec<u8>),
        sent: Micros,
    ) -> std::result::Result<(), String> {
        let (Some(code), of) = (words.first(), request.of) else { return Ok(()) };
        let version = words.iter().find_map(|word| word.strip_prefix('c')?.parse::<u64>().ok());
        let wrong = |what: &str| Err(format!("client {}: {what}: {of:?} is answered {words:?}", self.id));
        match code.as_str() {
            "HD" | "VA" | "OK" => {}
            "NF" | "NS" | "EN" | "EX" | "NOT_FOUND" => return Ok(()),
            // Letters do not come up, but an appended number may be too long.
            "CLIENT_ERROR" if request.has_value => return Ok(()),
            _ => return wrong("an error"),
        }
        if let (Keys::One(key), Some(version)) = (of, version) {
            let before = self.versions.insert(key, version).unwrap_or(0);
            if version < before {
                return wrong(&format!("its version was {before} before"));
            }
            if request.compares.is_some_and(|compared| version <= compared) {
                return wrong("a version that is not above the one it replaces");
            }
        }
        match &mut request.what {
            What::Get => return Ok(()),
            What::Write(_, None) if version.is_none() => return wrong("no version"),
            What::Write(content, known) => {
                *known = version;
                if request.has_value {
                    *content = Content { value: value.clone(), is_whole: true, flags: None };
                }
            }
            What::Remove | What::Touch => {}
        }
        self.note(request, sent, now_micros(), true);
        Ok(())
    }

    fn give_up(&mut self, request: Request, sent: Micros, done: Micros) {
        if !matches!(request.what, What::Get) {
            self.note(request, sent, done, false);
        }
    }

    fn note(&mut self, request: Request, sent: Micros, done: Micros, is_promised: bool) {
        let Request { of, what, exptime_secs, .. } = request;
        if let (Keys::One(_), Some(exptime)) = (of, exptime_secs) {
            // An expiry of its own, whatever becomes of the change.
            self.changes.push(Change { of, what: What::Touch, sent: exptime, done, is_promised });
        }
        if !matches!(what, What::Touch) {
            self.changes.push(Change { of, what, sent, done, is_promised });
        }
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
    pub(super) fn tell(&mut self, ledgers: &mut [Ledger]) -> usize {
        let changes = std::mem::take(&mut self.changes);
        let count = changes.len();
        for change in changes {
            match change.of {
                Keys::One(key) => change.tell(&mut ledgers[key]),
                Keys::Prefix(prefix) => {
                    ledgers.iter_mut().skip(prefix).step_by(PREFIXES).for_each(|ledger| change.tell(ledger))
                }
                Keys::All => ledgers.iter_mut().for_each(|ledger| change.tell(ledger)),
            }
        }
        count
    }
}

impl Change {
    fn tell(&self, ledger: &mut Ledger) {
        match &self.what {
            What::Write(content, Some(version)) => ledger.write(*version, content.clone(), self.is_promised),
            What::Write(content, None) => ledger.write_unanswered(content.clone(), self.sent, self.done),
            What::Remove => ledger.remove(self.sent, self.done, self.is_promised),
            What::Touch => ledger.expire_at(self.sent),
            What::Get => {}
        }
    }
}

/// What a site has of each key.
pub(super) fn look(address: SocketAddr) -> Result<Vec<Option<Seen>>> {
    let mut wire = Wire::connect(address)?;
    let mut seen = Vec::new();
    for first in (0..KEYS).step_by(100) {
        let keys = first..(first + 100).min(KEYS);
        let requests: String = keys.clone().map(|key| format!("mg {} c f t v\r\n", name(key))).collect();
        wire.send(requests.as_bytes())?;
        for _ in keys {
            let (words, value) = Client::reply(&mut wire)?;
            if words == ["EN"] {
                seen.push(None);
                continue;
            }
            let [_, _, cas, flags, ttl] = words.as_slice() else { return Err(format!("{words:?}").into()) };
            let ttl: i64 = ttl[1..].parse()?;
            let exptime_secs = u64::try_from(ttl).ok().map(|ttl| now_micros() / 1_000_000 + ttl);
            seen.push(Some(Seen {
                value,
                flags: flags[1..].parse()?,
                version: cas[1..].parse()?,
                exptime_secs,
            }));
        }
    }
    Ok(seen)
}

/// Sets a mark of this round, which is in the log of the site behind all that came before.
pub(super) fn mark(address: SocketAddr, site: usize, round: Step) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    wire.send(format!("set mark{site} 0 0 20\r\n{round:020}\r\n").as_bytes())?;
    match wire.line()?.as_str() {
        "STORED" => Ok(()),
        reply => Err(format!("the mark is answered {reply}").into()),
    }
}

/// Whether the site has everybody's mark of this round.
pub(super) fn has_marks(address: SocketAddr, sites: usize, round: Step) -> Result<bool> {
    let mut wire = Wire::connect(address)?;
    for site in 0..sites {
        wire.send(format!("mg mark{site} v\r\n").as_bytes())?;
        let (_, value) = Client::reply(&mut wire)?;
        if value != format!("{round:020}").as_bytes() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `stats replication`.
pub(super) fn figures(address: SocketAddr) -> Result<String> {
    let mut wire = Wire::connect(address)?;
    wire.send(b"stats replication\r\n")?;
    let mut figures = String::new();
    loop {
        let line = wire.line()?;
        let Some(figure) = line.strip_prefix("STAT ") else { return Ok(figures) };
        figures += &format!("{figure}\n");
    }
}

/// One of them, added up over all peers.
pub(super) fn figure(address: SocketAddr, suffix: &str) -> Result<u64> {
    let figures = figures(address)?;
    let values =
        figures.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| name.ends_with(suffix));
    Ok(values.map(|(_, value)| value.parse::<u64>()).sum::<std::result::Result<_, _>>()?)
}

pub(super) fn name(key: usize) -> String {
    format!("p{}:key{key}", key % PREFIXES)
}

/// These have expiries that come while the test looks.
pub(super) fn is_short_lived(key: usize) -> bool {
    key.is_multiple_of(16)
}

pub(super) fn now_micros() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Requests at once, at most.
const BURST: usize = 64;
