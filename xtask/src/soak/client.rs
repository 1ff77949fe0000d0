//! A client that knows what every reply may be.
//!
//! It draws a batch of requests, each on another key, sends them in one write and judges the replies in order. A key's
//! state is settled (expired, flushed) before its request is sent, so that a request is judged by what had to be true when it
//! left. After a command that gives no reply on success, `mn` shows that it was carried out.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use larder_conformance::Result;

use super::model::{self, Entry, Held, Life, VALUE_BYTES_MAX};
use super::wire::Wire;

/// What all clients of a soak share.
pub(crate) struct Shared {
    pub(crate) address: SocketAddr,
    pub(crate) stop: AtomicBool,
    pub(crate) tally: Tally,
    /// When the last flush_all that has been answered was sent.
    pub(crate) flush_sent: Mutex<Option<Instant>>,
}

/// What happened so far, all clients together.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) requests: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    /// Keys that a client forgot because their time was over.
    pub(crate) expired: AtomicU64,
    /// Stores that were refused for want of memory.
    pub(crate) out_of_memory: AtomicU64,
    pub(crate) flushes: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// One client, with keys of its own and one connection.
pub(crate) struct Client<'s> {
    pub(super) shared: &'s Shared,
    pub(super) id: usize,
    pub(super) random: fastrand::Rng,
    pub(super) wire: Wire,
    /// The first [`NUMBERS`] hold decimal numbers.
    pub(super) entries: Vec<Entry>,
    pub(super) shared_versions: HashMap<usize, u32>,
    /// The newest version of each shared key that was read, per writer.
    pub(super) shared_seen: HashMap<(usize, usize), u32>,
    /// The key that is being judged, for the report.
    pub(super) judged: String,
}

/// A request that was sent, and what its reply is judged by.
pub(super) enum Step {
    Get { keys: Vec<usize>, with_cas: bool, touch: Option<Life> },
    MetaGet { key: usize, opaque: u32, touch: Option<Life>, vivify: Option<Life>, quiet: bool },
    Debug { key: usize },
    Store { key: usize, how: How, new: Held, life: Life, silence: Silence },
    Delete { key: usize, silence: Silence },
    Stale { key: usize, life: Option<Life> },
    Touch { key: usize, life: Life, silence: Silence },
    Count { key: usize, delta: u64, decrement: bool, initial: Option<u64>, meta: bool, silence: Silence },
    SharedGet { key: usize, meta: bool },
    SharedStore,
    FlushAll { sent: Instant, silence: Silence },
    Version,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    /// With the CAS value that the key has.
    CasRight,
    /// With another.
    CasWrong,
}

/// Which replies are held back; `mn` follows wherever one may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Silence {
    None,
    /// The meta flag q: success is not shown.
    Quiet,
    /// Nothing is shown.
    Noreply,
}

/// A one-line reply, whichever dialect it came in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    Done,
    NotStored,
    Exists,
    NotFound,
    OutOfMemory,
    /// Nothing came before `MN`.
    Nothing,
}

impl<'s> Client<'s> {
    pub(crate) fn new(shared: &'s Shared, id: usize, seed: u64) -> Result<Self> {
        let mut entries = Vec::new();
        entries.resize_with(NUMBERS + VALUES, Entry::default);
        Ok(Self {
            shared,
            id,
            random: fastrand::Rng::with_seed(seed ^ (id as u64) << 32),
            wire: Wire::connect(shared.address)?,
            entries,
            shared_versions: HashMap::new(),
            shared_seen: HashMap::new(),
            judged: String::new(),
        })
    }

    /// Asks until it is told to stop. Errors: a reply that must not be, with the dialogue that led to it.
    pub(crate) fn run(mut self) -> Result<()> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let done = self.batch().and_then(|()| self.sometimes_reconnect());
            if let Err(error) = done {
                let dialogue = self.wire.dialogue(&self.judged);
                return Err(format!("client {}, {}: {error}\n{dialogue}", self.id, self.judged).into());
            }
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<()> {
        let mut steps = Vec::new();
        let mut output = Vec::new();
        let mut taken = HashSet::new();
        let requests = self.random.usize(1..=BATCH_MAX);
        for _ in 0..requests {
            let mut request = Vec::new();
            let Some(step) = self.draw(&mut request, &mut taken) else { continue };
            // A large upload goes alone: the server may stop reading while replies wait for us.
            if output.len() + request.len() > BATCH_BYTES {
                self.exchange(&output, std::mem::take(&mut steps))?;
                output.clear();
                taken.clear();
            }
            self.wire.note_request(&request);
            output.extend_from_slice(&request);
            steps.push(step);
        }
        self.exchange(&output, steps)
    }

    fn exchange(&mut self, output: &[u8], steps: Vec<Step>) -> Result<()> {
        self.wire.send(output)?;
        for step in steps {
            count(&self.shared.tally.requests);
            self.judge(step)?;
        }
        Ok(())
    }

    /// Now and then a connection dies: at rest, or in the middle of an upload, which must leave no trace.
    fn sometimes_reconnect(&mut self) -> Result<()> {
        match self.random.u16(0..2000) {
            0 => self.wire = Wire::connect(self.shared.address)?,
            1..6 => {
                let mut dying = Wire::connect(self.shared.address)?;
                let key = self.random.usize(0..self.entries.len());
                let key = self.name(key);
                let value_bytes = self.random.usize(2..VALUE_BYTES_MAX);
                let value = model::content(&key, u32::MAX, value_bytes);
                let mut request = format!("set {key} 0 0 {value_bytes}\r\n").into_bytes();
                request.extend_from_slice(&value[..self.random.usize(1..value_bytes)]);
                dying.send(&request)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn name(&self, key: usize) -> String {
        format!("client{}:{}:{key}", self.id, if key < NUMBERS { "number" } else { "value" })
    }
}

/// The name of a key that all clients write.
pub(super) fn shared_name(key: usize) -> String {
    format!("shared:{key}")
}

/// Keys of one client.
pub(super) const NUMBERS: usize = 500;
pub(super) const VALUES: usize = 6_000;
/// Keys that all clients write.
pub(super) const SHARED: usize = 500;
/// Requests in one batch.
const BATCH_MAX: usize = 16;
/// What fits in the socket's buffers whatever the server does.
const BATCH_BYTES: usize = 64 * 1024;
