//! A namespace with a quota of disk that is always reached: it refuses what is its own, and keeps what it has.
//!
//! Two writers, each with keys of its own and one connection, store more than the quota allows. A refused set leaves
//! the old value; a value that was stored is there until it is deleted, or a flush_all of another client comes. Other
//! namespaces are judged by their clients, to whom a refusal is an unexpected reply.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::Result;

use super::client::Shared;
use super::model;
use super::wire::Wire;

/// What came of it.
pub(crate) struct Report {
    pub(crate) stored: u64,
    pub(crate) refused: u64,
    /// The most that the server counted.
    pub(crate) used_bytes_max: u64,
    /// What is there in the end, filled up: by the keys and the documented layout.
    pub(crate) left_bytes: u64,
}

/// Stores until the soak stops, then fills the namespace up. Errors: a reply that must not be, or a use beyond 2 %.
pub(crate) fn run(shared: &Shared, seed: u64) -> Result<Report> {
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|id| {
                scope.spawn(move || {
                    let written = Writer::new(shared, id, seed).and_then(Writer::run);
                    if written.is_err() {
                        shared.stop.store(true, Relaxed);
                    }
                    written
                })
            })
            .collect();
        let mut writers: Vec<_> = writers
            .into_iter()
            .map(|writer| writer.join().map_err(|_| "a writer of the quota panicked")?)
            .collect::<Result<_>>()?;
        writers[0].fill()?;
        let mut report = Report { stored: 0, refused: 0, used_bytes_max: 0, left_bytes: 0 };
        for writer in &mut writers {
            report.stored += writer.stored;
            report.refused += writer.refused;
            report.used_bytes_max = report.used_bytes_max.max(writer.used_bytes_max);
            report.left_bytes += writer.left_bytes()?;
        }
        report.judge(shared)?;
        Ok(report)
    })
}

impl Report {
    fn judge(&self, shared: &Shared) -> Result<()> {
        for (name, bytes) in [("counted", self.used_bytes_max), ("there", self.left_bytes)] {
            if bytes > QUOTA_BYTES + SLACK_BYTES {
                return Err(format!("{bytes} bytes are {name}, of a quota of {QUOTA_BYTES}").into());
            }
        }
        // What a flush has taken is found out after a while, and counts until then.
        let flushes = shared.flushes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_settled = Instant::now().checked_sub(SETTLED_AFTER).is_some_and(|then| flushes.spare(then));
        drop(flushes);
        if is_settled && self.left_bytes < QUOTA_BYTES - SLACK_BYTES {
            let left_bytes = self.left_bytes;
            return Err(format!("full with {left_bytes} bytes, of a quota of {QUOTA_BYTES}").into());
        }
        let mut wire = Wire::connect(shared.address)?;
        wire.send(b"stats namespaces\r\n")?;
        let mut refused = 0;
        loop {
            let line = wire.line()?;
            let Some((name, value)) = line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' ')) else {
                break;
            };
            if name == format!("namespace:{PREFIX}:refused_disk") {
                refused = value.parse()?;
            } else if name.ends_with(":refused_disk") && value != "0" {
                return Err(format!("refused where there is no quota: {line}").into());
            }
        }
        if refused == 0 || refused != self.refused {
            return Err(format!("{} sets were refused, the server counts {refused}", self.refused).into());
        }
        Ok(())
    }
}

/// What a key was given last.
#[derive(Clone, Copy, Debug)]
struct Stored {
    /// The value derives from it.
    version: u32,
    value_bytes: usize,
    /// When the reply came.
    written: Instant,
}

struct Writer<'s> {
    shared: &'s Shared,
    id: usize,
    random: fastrand::Rng,
    wire: Wire,
    /// By key.
    last: Vec<Option<Stored>>,
    version: u32,
    stored: u64,
    refused: u64,
    used_bytes_max: u64,
}

enum Step {
    Set { key: usize, version: u32, value_bytes: usize },
    Get(usize),
    Delete(usize),
}

impl<'s> Writer<'s> {
    fn new(shared: &'s Shared, id: usize, seed: u64) -> Result<Self> {
        Ok(Self {
            shared,
            id,
            random: fastrand::Rng::with_seed(seed ^ (0x7175_6f74 + id as u64)),
            wire: Wire::connect(shared.address)?,
            last: vec![None; KEYS],
            version: 0,
            stored: 0,
            refused: 0,
            used_bytes_max: 0,
        })
    }

    fn name(&self, key: usize) -> String {
        format!("{PREFIX}{}:{key}", self.id)
    }

    fn run(mut self) -> Result<Self> {
        while !self.shared.stop.load(Relaxed) {
            self.batch()?;
            self.sample()?;
        }
        Ok(self)
    }

    /// Requests in one write, each on another key.
    fn batch(&mut self) -> Result<()> {
        let (mut output, mut steps) = (Vec::new(), Vec::new());
        let from = self.random.usize(..KEYS);
        for key in (from..from + BATCH).map(|key| key % KEYS) {
            let step = match self.random.u8(..20) {
                0..15 => {
                    self.version += 1;
                    let value_bytes = self.random.usize(VALUE_BYTES);
                    Step::Set { key, version: self.version, value_bytes }
                }
                15..18 => Step::Get(key),
                _ => Step::Delete(key),
            };
            self.push(&step, &mut output);
            steps.push(step);
        }
        self.wire.send(&output)?;
        steps.into_iter().try_for_each(|step| self.judge(&step).map(drop))
    }

    fn push(&self, step: &Step, output: &mut Vec<u8>) {
        match *step {
            Step::Set { key, version, value_bytes } => {
                let name = self.name(key);
                output.extend_from_slice(format!("set {name} 0 0 {value_bytes}\r\n").as_bytes());
                output.extend_from_slice(&model::content(&name, version, value_bytes));
                output.extend_from_slice(b"\r\n");
            }
            Step::Get(key) => output.extend_from_slice(format!("get {}\r\n", self.name(key)).as_bytes()),
            Step::Delete(key) => {
                output.extend_from_slice(format!("delete {}\r\n", self.name(key)).as_bytes());
            }
        }
    }

    /// True: a set was refused.
    fn judge(&mut self, step: &Step) -> Result<bool> {
        let line = self.wire.line()?;
        let lacks_memory = line.starts_with("SERVER_ERROR out of memory");
        match (step, line.as_str()) {
            (&Step::Set { key, version, value_bytes }, "STORED") => {
                self.last[key] = Some(Stored { version, value_bytes, written: Instant::now() });
                self.stored += 1;
            }
            (Step::Set { .. }, REFUSED) => {
                self.refused += 1;
                return Ok(true);
            }
            // It takes the old value away.
            (Step::Set { key, .. }, _) if lacks_memory => self.last[*key] = None,
            (Step::Get(_), _) if lacks_memory => {}
            (Step::Get(key), "END") => self.judge_miss(*key)?,
            (Step::Get(key), _) => self.judge_hit(*key, &line)?,
            (Step::Delete(key), "DELETED" | "NOT_FOUND") => self.last[*key] = None,
            (Step::Set { key, .. } | Step::Delete(key), _) => {
                return Err(format!("{}: unexpected reply {line:?}", self.name(*key)).into());
            }
        }
        Ok(false)
    }

    fn judge_hit(&mut self, key: usize, line: &str) -> Result<()> {
        let name = self.name(key);
        let Some(Stored { version, value_bytes, .. }) = self.last[key] else {
            return Err(format!("{name}: a value, where there must be a miss: {line:?}").into());
        };
        if line != format!("VALUE {name} 0 {value_bytes}") {
            return Err(format!("{name}: {line:?}, expected {value_bytes} bytes").into());
        }
        let value = self.wire.block(value_bytes)?;
        if value != model::content(&name, version, value_bytes) || self.wire.line()? != "END" {
            return Err(format!("{name}: not the last value that was stored, version {version}").into());
        }
        Ok(())
    }

    /// Only a flush takes away what was stored.
    fn judge_miss(&mut self, key: usize) -> Result<()> {
        let Some(last) = self.last[key].take() else { return Ok(()) };
        let flushes = self.shared.flushes.lock().unwrap_or_else(PoisonError::into_inner);
        if flushes.spare(last.written) {
            return Err(format!("{}: a miss, though {last:?} was stored", self.name(key)).into());
        }
        Ok(())
    }

    /// What the server counts now.
    fn sample(&mut self) -> Result<()> {
        self.wire.send(b"stats namespaces\r\n")?;
        let wanted = format!("STAT namespace:{PREFIX}:disk_bytes ");
        loop {
            let line = self.wire.line()?;
            if let Some(bytes) = line.strip_prefix(&wanted) {
                self.used_bytes_max = self.used_bytes_max.max(bytes.parse()?);
            } else if line == "END" {
                self.wire.take_replies();
                return Ok(());
            }
        }
    }

    /// Stores small values until one is refused.
    fn fill(&mut self) -> Result<()> {
        for key in 0.. {
            self.last.resize(self.last.len().max(key + 1), None);
            // What is there may become smaller, and give room.
            if self.last[key].is_some() {
                continue;
            }
            self.version += 1;
            let step = Step::Set { key, version: self.version, value_bytes: VALUE_BYTES.start };
            let mut output = Vec::new();
            self.push(&step, &mut output);
            self.wire.send(&output)?;
            if self.judge(&step)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What its keys take by the documented layout: 48 bytes, key and value, up to a multiple of 8.
    fn left_bytes(&mut self) -> Result<u64> {
        let mut left_bytes = 0;
        for key in 0..self.last.len() {
            let name = self.name(key);
            self.wire.send(format!("mg {name} s\r\n").as_bytes())?;
            let line = self.wire.line()?;
            match line.strip_prefix("HD s") {
                Some(value_bytes) => {
                    let value_bytes: usize = value_bytes.parse()?;
                    left_bytes += (48 + name.len() + value_bytes).next_multiple_of(8) as u64;
                }
                None if line == "EN" => self.judge_miss(key)?,
                None => return Err(format!("{name}: unexpected reply {line:?}").into()),
            }
        }
        Ok(left_bytes)
    }
}

/// The namespace.
pub(crate) const PREFIX: &str = "quota:";
pub(crate) const QUOTA_BYTES: u64 = 8 << 20;
/// Within which it holds: 2 %.
const SLACK_BYTES: u64 = QUOTA_BYTES / 50;
const REFUSED: &str = "SERVER_ERROR namespace is over its disk quota";
const WRITERS: usize = 2;
/// Of each writer. All with values of the middle length are one and a half times the quota.
const KEYS: usize = 1_500;
const VALUE_BYTES: std::ops::Range<usize> = 100..8_000;
const BATCH: usize = 16;
/// A flush is counted by then.
const SETTLED_AFTER: Duration = Duration::from_secs(30);
