//! What a key may hold, and what was found of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// An item as the replies tell that it must be.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) value: Arc<[u8]>,
    pub(super) client_flags: u32,
    pub(super) expiry: Option<Expiry>,
    /// 0: not known yet. Shared by all states of a key that have the same CAS value.
    pub(super) cas: Arc<AtomicU64>,
    pub(super) is_stale: bool,
    pub(super) is_token_held: bool,
}

/// When an item expires: between two moments, in Unix time, since the server read its clock between a request and its
/// reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expiry {
    pub(super) from_secs: f64,
    pub(super) until_secs: f64,
}

/// What `mg key v f t c` has found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) value: Vec<u8>,
    pub(super) client_flags: u32,
    /// -1: never.
    pub(super) ttl_secs: i64,
    pub(super) cas: u64,
    /// Of `W`, `X` and `Z` those that were there.
    pub(super) marks: String,
    /// When it was asked for, and when the reply had come, in Unix time.
    pub(super) asked_secs: f64,
    pub(super) told_secs: f64,
}

impl Item {
    pub(super) fn new(value: Arc<[u8]>, client_flags: u32, ttl_secs: u32) -> Self {
        Self {
            value,
            client_flags,
            expiry: Expiry::of(ttl_secs),
            cas: Arc::default(),
            is_stale: false,
            is_token_held: false,
        }
    }

    /// The same with another value, and so another CAS value.
    pub(super) fn with_value(&self, value: Arc<[u8]>) -> Self {
        Self { value, cas: Arc::default(), ..self.clone() }
    }

    /// The same with another life.
    pub(super) fn touched(&self, ttl_secs: u32) -> Self {
        Self { expiry: Expiry::of(ttl_secs), ..self.clone() }
    }

    /// After `md I`, with another life.
    pub(super) fn invalidated(&self, ttl_secs: u32) -> Self {
        Self { is_stale: true, is_token_held: false, cas: Arc::default(), ..self.touched(ttl_secs) }
    }

    pub(super) fn is_marked(&self) -> bool {
        self.is_stale || self.is_token_held
    }

    /// The marks that `mg` shows, in the order of memcached.
    pub(super) fn marks(&self) -> &'static str {
        match (self.is_stale, self.is_token_held) {
            (false, false) => "",
            (true, false) => "WX",
            (true, true) => "XZ",
            (false, true) => "Z",
        }
    }

    pub(super) fn cas(&self) -> Option<u64> {
        Some(self.cas.load(Relaxed)).filter(|&cas| cas != 0)
    }

    /// Whether it may be gone by now.
    pub(super) fn may_have_expired(&self, now_secs: f64) -> bool {
        self.expiry.is_some_and(|expiry| now_secs >= expiry.from_secs)
    }

    /// What differs in what was found; `None`: it is this item.
    pub(super) fn difference(&self, found: &Found) -> Option<String> {
        if self.value[..] != found.value[..] {
            return Some(format!("value {}, not {}", shown(&found.value), shown(&self.value)));
        }
        if self.client_flags != found.client_flags {
            return Some(format!("flags {}, not {}", found.client_flags, self.client_flags));
        }
        if self.marks() != found.marks {
            return Some(format!("marks {:?}, not {:?}", found.marks, self.marks()));
        }
        if self.cas().is_some_and(|cas| cas != found.cas) {
            return Some(format!("CAS value {}, not {}", found.cas, self.cas().unwrap_or(0)));
        }
        let fits = match self.expiry {
            None => found.ttl_secs == -1,
            Some(expiry) => {
                let ttl_secs = found.ttl_secs as f64;
                found.ttl_secs >= 0
                    && ttl_secs >= expiry.from_secs - found.told_secs
                    && ttl_secs <= expiry.until_secs - found.asked_secs
            }
        };
        (!fits).then(|| format!("{} s to live, not {:?}", found.ttl_secs, self.expiry))
    }
}

impl Expiry {
    /// Of an item that is stored or touched now. 0: never.
    pub(super) fn of(ttl_secs: u32) -> Option<Self> {
        let now_secs = unix_secs();
        // The server counts whole seconds, at the write and when it tells how many are left.
        (ttl_secs > 0).then(|| Self {
            from_secs: now_secs + f64::from(ttl_secs) - WITHIN_SECS,
            until_secs: now_secs + f64::from(ttl_secs) + WITHIN_SECS,
        })
    }
}

/// Length and beginning of a value.
pub(super) fn shown(value: &[u8]) -> String {
    format!(
        "of {} bytes that begins with {:?}",
        value.len(),
        value[..value.len().min(40)].escape_ascii().to_string()
    )
}

/// Unix time.
pub(super) fn unix_secs() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// How far two readings of whole seconds may differ from the time between them, and how long a request may wait on a
/// busy machine.
const WITHIN_SECS: f64 = 2.0;
