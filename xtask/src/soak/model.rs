//! What a client knows about its keys: what a read may give, and what it must not.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// One key of one client. Nobody else writes it.
#[derive(Default)]
pub(crate) struct Entry {
    /// What a read gives, unless the server evicted it. `None`: it must be a miss.
    pub(crate) held: Option<Held>,
    /// Writes so far; the next value derives from it.
    pub(crate) version: u32,
}

/// A value that was stored and not yet seen to be gone.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) value: Vec<u8>,
    pub(crate) client_flags: u32,
    /// The CAS value, once a reply told it.
    pub(crate) cas: Option<u64>,
    /// `None`: it never expires.
    pub(crate) death: Option<Death>,
    /// When the reply to the last write came.
    pub(crate) written: Instant,
    /// Marked by `md I`.
    pub(crate) is_stale: bool,
    /// Somebody was told to recompute it.
    pub(crate) is_token_out: bool,
    /// It was there for certain: what was not answered may have come too late, for an item whose time was over.
    pub(crate) is_certain: bool,
}

impl Held {
    pub(crate) fn new(value: Vec<u8>, client_flags: u32) -> Self {
        Self {
            value,
            client_flags,
            cas: None,
            death: None,
            written: Instant::now(),
            is_stale: false,
            is_token_out: false,
            is_certain: false,
        }
    }
}

impl Entry {
    /// Forgets what time or a flush has taken away before now: see [`Flushes::gone_before`](super::flushes::Flushes).
    pub(crate) fn settle(&mut self, gone_before: Option<Instant>) {
        let Some(held) = &self.held else { return };
        let is_dead = held.death.is_some_and(|death| death.by < Instant::now());
        let is_flushed = gone_before.is_some_and(|gone_before| held.written < gone_before);
        if is_dead || is_flushed {
            self.held = None;
        }
    }

    /// The write that was sent then, and whose reply came just now, gave the key this value and lifetime.
    pub(crate) fn put(&mut self, mut held: Held, life: Life, sent: Instant) {
        held.written = Instant::now();
        held.death = life.death(sent);
        self.held = if life == Life::Past { None } else { Some(held) };
    }

    /// The key got a new lifetime between then and now.
    pub(crate) fn touch(&mut self, life: Life, sent: Instant) {
        if life == Life::Past {
            self.held = None;
        } else if let Some(held) = &mut self.held {
            held.death = life.death(sent);
            held.is_certain = false;
        }
    }
}

/// How long an item is to live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Life {
    Forever,
    /// Over before it begins: a negative exptime.
    Past,
    /// Seconds from now.
    Secs(u32),
    /// Seconds from now, told to the server as a Unix time.
    UntilIn(u32),
}

impl Life {
    /// Mostly forever; else a few seconds, so that expiry goes on all the time.
    pub(crate) fn draw(random: &mut fastrand::Rng) -> Self {
        match random.u8(0..100) {
            0..60 => Self::Forever,
            60..90 => Self::Secs(random.u32(1..=10)),
            90..94 => Self::UntilIn(random.u32(2..=10)),
            94..97 => Self::Secs(3600),
            _ => Self::Past,
        }
    }

    /// As the protocol writes it (memcached, doc/protocol.txt, "Expiration times").
    pub(crate) fn exptime(self) -> i64 {
        match self {
            Self::Forever => 0,
            Self::Past => -1,
            Self::Secs(secs) => secs.into(),
            Self::UntilIn(secs) => {
                let unix = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
                unix as i64 + i64::from(secs)
            }
        }
    }

    /// When an item goes that got this lifetime between `sent` and now. The clock of the server ticks in whole seconds:
    /// hence one second more than its lifetime, and another for a Unix time, which is rounded as well.
    fn death(self, sent: Instant) -> Option<Death> {
        let (secs, rounding_secs) = match self {
            Self::Forever => return None,
            Self::Past => (0, 0),
            Self::Secs(secs) => (u64::from(secs), 1),
            Self::UntilIn(secs) => (u64::from(secs), 2),
        };
        let from = sent + Duration::from_secs(secs.saturating_sub(EARLY_SECS));
        Some(Death { from, by: Instant::now() + Duration::from_secs(secs + rounding_secs) })
    }
}

/// When an item goes that does not live for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death {
    /// It may be a miss from then on.
    pub(crate) from: Instant,
    /// It must be one from then on.
    pub(crate) by: Instant,
}

/// The bytes of version `version` of `key`: readable as far as there is room, noise behind that.
pub(crate) fn content(key: &str, version: u32, value_bytes: usize) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    (key, version).hash(&mut hasher);
    let mut value = vec![0; value_bytes];
    fastrand::Rng::with_seed(hasher.finish()).fill(&mut value);
    let header = format!("[{key} version {version}, {value_bytes} bytes] ");
    if header.len() <= value_bytes / 2 {
        value[..header.len()].copy_from_slice(header.as_bytes());
    }
    value
}

/// A value that several clients write: names its writer, so that a reader can recompute it.
pub(crate) fn shared_content(key: &str, writer: usize, version: u32, value_bytes: usize) -> Vec<u8> {
    let mut value = format!("{writer} {version} {value_bytes}\n").into_bytes();
    value.extend(content(&format!("{key} by {writer}"), version, value_bytes));
    value
}

/// Writer and version of a shared value. `None`: it is not whole, not of this key, or mixed from several.
pub(crate) fn shared_origin(key: &str, value: &[u8]) -> Option<(usize, u32)> {
    let header = value.split(|&byte| byte == b'\n').next()?;
    let mut numbers = std::str::from_utf8(header).ok()?.split(' ');
    let writer: usize = numbers.next()?.parse().ok()?;
    let version = numbers.next()?.parse().ok()?;
    let value_bytes: usize = numbers.next()?.parse().ok()?;
    // A length that is not the value's own would only make work.
    if value_bytes > value.len() {
        return None;
    }
    (value == shared_content(key, writer, version, value_bytes)).then_some((writer, version))
}

/// So much before its time an item may be gone: the clock of the server ticks in whole seconds.
const EARLY_SECS: u64 = 3;
