//! One client of the load: it changes keys of its own by every command, and knows what each reply must be.
//!
//! A burst of requests is sent in one write, so that many changes are on their way when the server dies; then their
//! replies are judged in order. A change that gets no reply counts as acknowledged with the next one that does.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use super::Flushes;
use super::history::{History, difference};
use super::item::{Found, Item, unix_secs};
use super::recording::Recording;
use crate::Result;
use crate::wire::Wire;

/// A client. It lives on when its server dies.
pub(super) struct Client {
    pub(super) id: usize,
    pub(super) random: fastrand::Rng,
    pub(super) history: History,
    pub(super) load: Load,
    trace: Option<Recording>,
    /// Values so far.
    pub(super) writes: u64,
    /// Flushes of this round that are in its history.
    flushes: usize,
    /// By key: the beginnings of the last requests.
    asked: Vec<VecDeque<String>>,
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Keys of each client: some are numbers, some live shortly only.
    pub(super) keys: usize,
    /// The longest value but for those of 3 MB.
    pub(super) value_bytes_max: usize,
    /// Some values have 3 MB.
    pub(super) stores_large: bool,
    /// It flushes all now and then: there is no other client.
    pub(super) flushes: bool,
}

impl Load {
    pub(super) fn numbers(&self) -> usize {
        self.keys / 15
    }

    pub(super) fn numbers_and_short(&self) -> usize {
        self.keys / 8
    }
}

/// How a conversation ended.
pub(super) enum End {
    /// The connection was closed.
    Closed,
    /// A reply that must not be.
    Wrong(String),
}

/// What the reply to a request must be.
pub(super) enum Expected {
    Line(&'static str),
    /// `VALUE` and the item; with its CAS value.
    Value(usize, Arc<Item>, bool),
    /// The same, or `END` if the item may have expired.
    Short(usize, Arc<Item>),
    /// `HD c<cas>` of a new item.
    Stored(usize, Arc<Item>),
    /// `VA <bytes> f t c` and the marks of the item as it was.
    Meta(usize, Arc<Item>),
    Number(u64),
}

struct Step {
    shown: String,
    expected: Expected,
    /// With the reply, so many changes are acknowledged.
    acknowledges: Option<usize>,
}

impl Client {
    pub(super) fn new(id: usize, seed: u64, may_lose: Duration, load: Load) -> Self {
        Self {
            id,
            random: fastrand::Rng::with_seed(seed ^ (id as u64 + 1) << 48),
            history: History::new(load.keys, may_lose),
            load,
            trace: None,
            writes: 0,
            flushes: 0,
            asked: vec![VecDeque::new(); load.keys],
        }
    }

    /// The same, with each request and each acknowledgement put down in a recording.
    pub(super) fn traced(self, trace: Recording) -> Self {
        Self { trace: Some(trace), ..self }
    }

    pub(super) fn name(&self, key: usize) -> String {
        format!("c{}:{key}", self.id)
    }

    /// What was asked last about a key, for a report.
    pub(super) fn describe(&self, key: usize) -> String {
        let asked: Vec<&str> = self.asked[key].iter().map(String::as_str).collect();
        format!("{} (asked last: {})", self.name(key), asked.join(" | "))
    }

    /// Changes keys until the connection is closed. While it waits for replies it holds `flushing` shared; who has it
    /// alone may flush.
    pub(super) fn run(&mut self, address: SocketAddr, flushing: &RwLock<Flushes>) -> End {
        let Ok(mut wire) = Wire::connect(address) else { return End::Closed };
        loop {
            let flushes = flushing.read().unwrap_or_else(PoisonError::into_inner);
            self.note(*flushes);
            if let Some(end) = self.burst(&mut wire) {
                return end;
            }
        }
    }

    /// The round is over.
    pub(super) fn end(&mut self, flushes: Flushes) {
        self.note(flushes);
        self.flushes = 0;
    }

    fn note(&mut self, flushes: Flushes) {
        while self.flushes < flushes.sent {
            self.flushes += 1;
            self.history.flush();
            if self.flushes <= flushes.acknowledged {
                self.history.acknowledge(self.history.len());
            }
        }
    }

    /// Sends a few requests, and judges their replies. `Some`: how the conversation ended.
    pub(super) fn burst(&mut self, wire: &mut Wire) -> Option<End> {
        let mut output = Vec::new();
        let mut steps = Vec::new();
        for _ in 0..self.random.usize(1..=8) {
            let before = output.len();
            let key = self.random.usize(0..self.load.keys);
            let expected = self.draw(key, &mut output);
            let shown = output[before..output.len().min(before + 80)].escape_ascii().to_string();
            self.asked[key].push_back(format!("{} {shown}", self.history.len()));
            if self.asked[key].len() > 6 {
                self.asked[key].pop_front();
            }
            if let Some((expected, is_change)) = expected {
                let acknowledges =
                    if is_change { Some(self.history.len()) } else { self.history.newest_change(key) };
                steps.push(Step { shown, expected, acknowledges });
            }
            if output.len() > BURST_BYTES {
                break;
            }
        }
        // All of it was carried out, if not made durable, once this is answered.
        output.extend_from_slice(b"mn\r\n");
        steps.push(Step { shown: "mn".to_owned(), expected: Expected::Line("MN"), acknowledges: None });
        if let Some(trace) = &mut self.trace {
            trace.note_sent(self.id, self.history.len());
        }
        if wire.send(&output).is_err() {
            return Some(End::Closed);
        }
        for step in steps {
            match self.judge(wire, &step.expected) {
                Ok(None) => {}
                Ok(Some(wrong)) => return Some(End::Wrong(format!("{wrong}, to {}", step.shown))),
                Err(_) => return Some(End::Closed),
            }
            if let Some(changes) = step.acknowledges {
                self.history.acknowledge(changes);
                if let Some(trace) = &mut self.trace {
                    trace.note_acknowledged(self.id, changes);
                }
            }
        }
        None
    }

    /// Makes a change that is acknowledged, and with it all before it.
    pub(super) fn settle(&mut self, wire: &mut Wire) -> Result<()> {
        let (key, mut output) = (self.load.keys - 1, Vec::new());
        let name = self.name(key);
        let (expected, _) = self.set(key, &name, "set", 0, &mut output);
        let changes = self.history.len();
        if let Some(trace) = &mut self.trace {
            trace.note_sent(self.id, changes);
        }
        wire.send(&output)?;
        if let Some(wrong) = self.judge(wire, &expected)? {
            return Err(wrong.into());
        }
        self.history.acknowledge(changes);
        if let Some(trace) = &mut self.trace {
            trace.note_acknowledged(self.id, changes);
        }
        Ok(())
    }

    /// Reads a reply. What is wrong with it; `Err`: the connection was closed.
    fn judge(&mut self, wire: &mut Wire, expected: &Expected) -> Result<Option<String>> {
        let line = wire.line()?;
        let wrong = match expected {
            Expected::Line(expected) => {
                (line != *expected).then(|| format!("{line:?} instead of {expected:?}"))
            }
            Expected::Number(number) => {
                let told = if line.starts_with("VA ") {
                    String::from_utf8_lossy(&wire.value(bytes_of(&line, 1))?).into_owned()
                } else {
                    line
                };
                (told.trim_end() != number.to_string()).then(|| format!("{told:?} instead of {number}"))
            }
            Expected::Stored(key, item) => match line.strip_prefix("HD c").and_then(|cas| cas.parse().ok()) {
                Some(cas) => self.learn(*key, item, cas),
                None => Some(format!("{line:?} instead of HD")),
            },
            Expected::Short(_, item) if line == "END" && item.may_have_expired(unix_secs()) => None,
            Expected::Value(key, item, _) | Expected::Short(key, item) => {
                let words: Vec<&str> = line.split(' ').collect();
                if words[0] != "VALUE" {
                    return Ok(Some(format!(
                        "{line:?} instead of a value {}",
                        super::item::shown(&item.value)
                    )));
                }
                let value = wire.value(bytes_of(&line, 3))?;
                let end = wire.line()?;
                if value[..] != item.value[..] || words[2] != item.client_flags.to_string() || end != "END" {
                    return Ok(Some(format!(
                        "{line:?} and {end:?}, value {}, not {}",
                        super::item::shown(&value),
                        super::item::shown(&item.value)
                    )));
                }
                match words.get(4).and_then(|cas| cas.parse().ok()) {
                    Some(cas) => self.learn(*key, item, cas),
                    None if matches!(expected, Expected::Value(_, _, true)) => {
                        Some("no CAS value".to_owned())
                    }
                    None => None,
                }
            }
            Expected::Meta(key, item) => match read_meta(wire, line, unix_secs())? {
                Ok(mut found) => {
                    // The one who made an empty item holds its token.
                    if item.value.is_empty() && !item.is_stale && found.marks == "W" {
                        found.marks.clear();
                    }
                    match difference(&Some(Arc::clone(item)), Some(&found), found.told_secs) {
                        Some(difference) => Some(difference),
                        None => self.learn(*key, item, found.cas),
                    }
                }
                Err(line) => Some(format!("{line:?} instead of a value {}", super::item::shown(&item.value))),
            },
        };
        Ok(wrong)
    }

    /// The CAS value of an item: what was told before, or above all that the key had.
    fn learn(&mut self, key: usize, item: &Item, cas: u64) -> Option<String> {
        if let Some(known) = item.cas() {
            return (known != cas).then(|| format!("CAS value {cas} after {known} of the same item"));
        }
        let highest = self.history.highest_cas[key];
        if cas <= highest {
            return Some(format!("CAS value {cas}, the key had {highest}"));
        }
        item.cas.store(cas, Relaxed);
        self.history.highest_cas[key] = cas;
        None
    }

    /// What each of its keys holds.
    pub(super) fn look(&self, address: SocketAddr) -> Result<Vec<Option<Found>>> {
        let mut wire = Wire::connect(address)?;
        let mut found = Vec::new();
        let keys: Vec<usize> = (0..self.load.keys).collect();
        for keys in keys.chunks(16) {
            let mut output = Vec::new();
            keys.iter().for_each(|&key| line(&mut output, &format!("mg {} v f t c", self.name(key))));
            let asked_secs = unix_secs();
            wire.send(&output)?;
            for &key in keys {
                let line = wire.line()?;
                if line == "EN" {
                    found.push(None);
                    continue;
                }
                match read_meta(&mut wire, line, asked_secs)? {
                    Ok(item) => found.push(Some(item)),
                    Err(line) => return Err(format!("{line:?} to mg {}", self.name(key)).into()),
                }
            }
        }
        Ok(found)
    }
}

/// The rest of a reply to `mg key v f t c` after its line; the line, if it is none.
fn read_meta(wire: &mut Wire, line: String, asked_secs: f64) -> Result<std::result::Result<Found, String>> {
    if !line.starts_with("VA ") {
        return Ok(Err(line));
    }
    let value = wire.value(bytes_of(&line, 1))?;
    let mut found = Found {
        value,
        client_flags: 0,
        ttl_secs: 0,
        cas: 0,
        marks: String::new(),
        asked_secs,
        told_secs: unix_secs(),
    };
    for flag in line.split(' ').skip(2) {
        let number = flag.get(1..).unwrap_or_default();
        match flag.as_bytes().first() {
            Some(b'f') => found.client_flags = number.parse()?,
            Some(b't') => found.ttl_secs = number.parse()?,
            Some(b'c') => found.cas = number.parse()?,
            Some(mark) => found.marks.push(*mark as char),
            None => {}
        }
    }
    // In which order they come says nothing.
    let mut marks: Vec<char> = found.marks.chars().collect();
    marks.sort_unstable();
    found.marks = marks.into_iter().collect();
    Ok(Ok(found))
}

/// The length that a line names as its word of this number.
fn bytes_of(line: &str, word: usize) -> usize {
    line.split(' ').nth(word).and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

pub(super) fn line(output: &mut Vec<u8>, text: &str) {
    output.extend_from_slice(text.as_bytes());
    output.extend_from_slice(b"\r\n");
}

pub(super) fn put(output: &mut Vec<u8>, text: &str, value: &[u8]) {
    line(output, text);
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

/// What is sent at once fits in the buffers of the sockets, but for one large value.
const BURST_BYTES: usize = 48 << 10;
