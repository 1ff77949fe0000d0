//! A client that knows what every reply may be.
//!
//! It draws a batch of requests, each on another key, sends them in one write and judges the replies in order. A key's
//! state is settled (expired, flushed) before its request is sent, so that a request is judged by what had to be true
//! when it left. A request may use what is known of its key, such as its CAS value: hence never two on one key
//! unanswered. After a command that gives no reply on success, `mn` shows that it was carried out.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use larder_conformance::Result;

use super::dialogue::{Dialogue, Told};
use super::flushes::Flushes;
use super::model::{self, Entry, Held, Life};
use super::round::{Part, Rounds};
use super::sizes::Sizes;
use super::wire::Wire;

/// What all clients of a soak share.
pub(crate) struct Shared {
    pub(crate) address: SocketAddr,
    pub(crate) stop: AtomicBool,
    pub(crate) tally: Tally,
    pub(crate) flushes: Mutex<Flushes>,
    pub(crate) rounds: Rounds,
    pub(crate) sizes: Sizes,
    /// The server is memcached 1.6.18, which lacks the meta flags E and x, and in which a longer delayed flush_all
    /// brings back what an earlier one took, until it is due itself.
    pub(crate) is_memcached: bool,
    /// The server keeps what it was given: a miss must have a reason.
    pub(crate) keeps: bool,
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
    pub(super) start: Instant,
    /// When the batch that is being judged was sent: its requests were executed since, and a reply may have been held
    /// until a change was on disk.
    pub(super) sent: Instant,
    dialogue: Dialogue,
    /// The first [`NUMBERS`] hold decimal numbers.
    pub(super) entries: Vec<Entry>,
    pub(super) shared_versions: HashMap<usize, u32>,
    /// The newest version of each shared key that was read, per writer.
    pub(super) shared_seen: HashMap<(usize, usize), u32>,
    /// The key that is being judged, for the report.
    pub(super) judged: String,
    part: Part,
}

/// A request that was sent, and what its reply is judged by.
pub(super) enum Step {
    Get { keys: Vec<usize>, with_cas: bool, touch: Option<Life> },
    MetaGet { key: usize, opaque: u32, touch: Option<Life>, vivify: Option<Stub>, quiet: bool },
    Debug { key: usize },
    Store { key: usize, how: How, new: Held, life: Life, silence: Silence },
    Delete { key: usize, silence: Silence },
    Invalidate { key: usize, how: Invalidate },
    Touch { key: usize, life: Life, silence: Silence },
    Count { key: usize, how: Count },
    SharedGet { key: usize, meta: bool },
    SharedStore { key: usize },
    FlushAll { sent: Instant, delay_secs: u32, silence: Silence },
    Version,
}

impl Step {
    /// Whether it may change its keys.
    fn may_change(&self) -> bool {
        match self {
            Self::Get { touch, .. } => touch.is_some(),
            Self::Debug { .. } | Self::SharedGet { .. } | Self::FlushAll { .. } | Self::Version => false,
            // A look-up may take the token of a stale item.
            Self::MetaGet { .. }
            | Self::Store { .. }
            | Self::Delete { .. }
            | Self::Invalidate { .. }
            | Self::Touch { .. }
            | Self::Count { .. }
            | Self::SharedStore { .. } => true,
        }
    }

    /// The keys it is about, as [`Client::name`] numbers them.
    fn keys(&self) -> Vec<usize> {
        match self {
            Self::Get { keys, .. } => keys.clone(),
            Self::MetaGet { key, .. }
            | Self::Debug { key }
            | Self::Store { key, .. }
            | Self::Delete { key, .. }
            | Self::Invalidate { key, .. }
            | Self::Touch { key, .. }
            | Self::Count { key, .. } => vec![*key],
            Self::SharedGet { key, .. } | Self::SharedStore { key } => vec![VALUES_END + key],
            Self::FlushAll { .. } | Self::Version => Vec::new(),
        }
    }
}

/// The empty item that `mg N` makes on a miss.
#[derive(Clone, Copy)]
pub(super) struct Stub {
    pub(super) life: Life,
    /// To be installed (`E`).
    pub(super) cas: Option<u64>,
}

/// What `md` with I or x does.
#[derive(Clone, Copy)]
pub(super) struct Invalidate {
    pub(super) stale: bool,
    /// Takes the value away and sets these client flags (`x F`).
    pub(super) blank: Option<u32>,
    pub(super) life: Option<Life>,
    /// To be installed (`E`).
    pub(super) cas: Option<u64>,
}

/// What an increment or decrement does.
#[derive(Clone, Copy)]
pub(super) struct Count {
    pub(super) delta: u64,
    pub(super) decrement: bool,
    /// Made if there is none.
    pub(super) initial: Option<u64>,
    /// To be installed (`E`).
    pub(super) cas: Option<u64>,
    pub(super) meta: bool,
    pub(super) silence: Silence,
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
        entries.resize_with(VALUES_END, Entry::default);
        Ok(Self {
            shared,
            id,
            random: fastrand::Rng::with_seed(seed ^ (id as u64) << 32),
            wire: Wire::connect(shared.address)?,
            start: Instant::now(),
            sent: Instant::now(),
            dialogue: Dialogue::new(VALUES_END + SHARED),
            entries,
            shared_versions: HashMap::new(),
            shared_seen: HashMap::new(),
            judged: String::new(),
            part: Part::default(),
        })
    }

    /// Asks until it is told to stop. Errors: a reply that must not be, with the dialogue that led to it.
    pub(crate) fn run(mut self) -> Result<()> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.batch()?;
            self.sometimes_reconnect()?;
            let (mut part, mut entries) = (mem::take(&mut self.part), mem::take(&mut self.entries));
            let name = |key| (self.name(key), key < NUMBERS);
            part.notice(&self.shared.rounds, &mut entries, &self.shared.flushes, name);
            (self.part, self.entries) = (part, entries);
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<()> {
        let mut output = Vec::new();
        let mut sent = Vec::new();
        let mut taken = HashSet::new();
        let requests = self.random.usize(1..=BATCH_MAX);
        for _ in 0..requests {
            let mut request = Vec::new();
            let Some(step) = self.draw(&mut request, &mut taken) else { continue };
            // A large upload goes alone: the server may stop reading while replies wait for us.
            if output.len() + request.len() > BATCH_BYTES {
                self.exchange(&output, std::mem::take(&mut sent))?;
                output.clear();
                // The keys stay taken: that of the request at hand must, and for the others it does no harm.
            }
            output.extend_from_slice(&request);
            sent.push((step, Told::request(&request)));
        }
        self.exchange(&output, sent)
    }

    fn exchange(&mut self, output: &[u8], sent: Vec<(Step, Told)>) -> Result<()> {
        let (steps, mut told): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
        for step in steps.iter().filter(|step| step.may_change()) {
            self.part.change(&step.keys());
        }
        self.sent = Instant::now();
        let sent_at = self.start.elapsed();
        told.iter_mut().for_each(|told| told.sent(sent_at));
        self.wire.send(output)?;
        for (at, step) in steps.into_iter().enumerate() {
            count(&self.shared.tally.requests);
            let keys = step.keys();
            self.judged.clear();
            let judged = self.judge(step);
            told[at].answered(self.wire.take_replies(), self.start.elapsed());
            if let Err(error) = judged {
                return Err(self.report(&error, &keys, &told, at).into());
            }
            self.dialogue.note(&keys, &told[at]);
        }
        Ok(())
    }

    /// Tells what was answered wrongly, and what was said before.
    fn report(&self, error: &larder_conformance::Error, keys: &[usize], batch: &[Told], at: usize) -> String {
        let key = keys.iter().find(|&&key| self.name(key) == self.judged);
        let of_key = key.map(|&key| self.dialogue.of_key(key)).unwrap_or_default();
        let told = |batch: &[Told]| batch.iter().map(Told::to_string).collect::<String>();
        format!(
            "client {}, {}: {error}\n\
             the request:\n{}the requests before it in its batch:\n{}those behind it:\n{}\
             what was said last about the key, up to then:\n{of_key}",
            self.id,
            self.judged,
            batch[at],
            told(&batch[..at]),
            told(&batch[at + 1..]),
        )
    }

    /// Now and then a connection dies: at rest, or in the middle of an upload, which must leave no trace.
    fn sometimes_reconnect(&mut self) -> Result<()> {
        match self.random.u16(0..2000) {
            0 => self.wire = Wire::connect(self.shared.address)?,
            1..6 => {
                let mut dying = Wire::connect(self.shared.address)?;
                let key = self.random.usize(0..self.entries.len());
                let key = self.name(key);
                let value_bytes = self.random.usize(2..self.shared.sizes.bytes_max());
                let value = model::content(&key, u32::MAX, value_bytes);
                let mut request = format!("set {key} 0 0 {value_bytes}\r\n").into_bytes();
                request.extend_from_slice(&value[..self.random.usize(1..value_bytes)]);
                dying.send(&request)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The name of a number, a value, or behind those a key that all clients write.
    pub(super) fn name(&self, key: usize) -> String {
        match key {
            0..NUMBERS => format!("client{}:number:{key}", self.id),
            NUMBERS..VALUES_END => format!("client{}:value:{key}", self.id),
            _ => shared_name(key - VALUES_END),
        }
    }
}

/// The name of a key that all clients write.
pub(super) fn shared_name(key: usize) -> String {
    format!("shared:{key}")
}

/// Keys of one client.
pub(super) const NUMBERS: usize = 500;
pub(super) const VALUES: usize = 6_000;
const VALUES_END: usize = NUMBERS + VALUES;
/// Keys that all clients write.
pub(super) const SHARED: usize = 500;
/// Requests in one batch.
const BATCH_MAX: usize = 16;
/// What fits in the socket's buffers whatever the server does.
const BATCH_BYTES: usize = 64 * 1024;
