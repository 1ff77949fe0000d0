//! What clients ask for.

use fastrand::Rng;
use larder_client::codec::{self, Mode, Pipeline, Protocol};

use crate::rng::Choose as _;
use crate::scenario::Scenario;
use crate::witness::{Key, Tick};

/// A request that was sent.
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) op: Op,
    pub(crate) sent: Tick,
    /// There is no reply to success.
    pub(crate) is_quiet: bool,
}

/// What it asks for.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Get {
        keys: Vec<Key>,
        exptime: Option<i64>,
        vivify: Option<i64>,
    },
    Store {
        mode: Mode,
        key: Key,
        value: Vec<u8>,
        client_flags: u32,
        exptime: i64,
        compare: Option<u64>,
    },
    Delete {
        key: Key,
        compare: Option<u64>,
    },
    /// `md` with `I`.
    Invalidate {
        key: Key,
        exptime: Option<i64>,
    },
    Arith {
        key: Key,
        delta: u64,
        decrement: bool,
        initial: Option<(u64, i64)>,
    },
    Touch {
        key: Key,
        exptime: i64,
    },
    Flush {
        delay_secs: u32,
    },
    Noop,
}

/// A CAS value for a compare-and-set, of a key that a client has seen.
pub(crate) type KnownVersion = Option<(Key, u64)>;

impl Op {
    /// The keys that it may change.
    pub(crate) fn keys(&self) -> &[Key] {
        match self {
            Self::Get { keys, .. } => keys,
            Self::Store { key, .. }
            | Self::Delete { key, .. }
            | Self::Invalidate { key, .. }
            | Self::Arith { key, .. }
            | Self::Touch { key, .. } => std::slice::from_ref(key),
            Self::Flush { .. } | Self::Noop => &[],
        }
    }

    /// A random one. `unix_secs`: the time.
    pub(crate) fn random(
        rng: &mut Rng,
        scenario: &Scenario,
        protocol: Protocol,
        number: u64,
        unix_secs: i64,
        known: &KnownVersion,
    ) -> Self {
        let key = |rng: &mut Rng| -> Key {
            let bound = if scenario.evicts { 25 } else { 50 };
            match rng.u32(..100) {
                at if at < bound => format!("hot{}", rng.u32(..scenario.keys_hot)).into_bytes().into(),
                at if at < bound + 10 => format!("number{}", rng.u32(..2)).into_bytes().into(),
                _ => format!("filler{}", rng.u32(..scenario.keys_filler)).into_bytes().into(),
            }
        };
        let exptime = |rng: &mut Rng| match rng.u32(..20) {
            0..12 => 0,
            12..16 => i64::from(rng.u32(1..8)),
            16..18 => unix_secs + i64::from(rng.u32(1..8)),
            18 => 1000,
            _ => -1,
        };
        // Whether a touch with 0 changes anything depends on how the item is kept.
        let touch = |rng: &mut Rng| match exptime(rng) {
            0 => 2000,
            exptime => exptime,
        };
        let is_meta = protocol == Protocol::Meta;
        match rng.u32(..100) {
            0..24 => {
                let count = if rng.percent(25) { rng.usize(2..8) } else { 1 };
                let mut keys: Vec<Key> = (0..count).map(|_| key(rng)).collect();
                // The binary and meta protocols name the key of each value, but not which of two equal ones.
                let mut seen = std::collections::BTreeSet::new();
                keys.retain(|key| seen.insert(key.clone()));
                let vivify =
                    (is_meta && keys.len() == 1 && rng.percent(20)).then(|| i64::from(rng.u32(1..8)));
                Self::Get { keys, exptime: None, vivify }
            }
            24..28 => Self::Get { keys: vec![key(rng)], exptime: Some(touch(rng)), vivify: None },
            28..62 => {
                let mode = match rng.u32(..20) {
                    0..11 => Mode::Set,
                    11..14 => Mode::Add,
                    14..16 => Mode::Replace,
                    16..18 => Mode::Append,
                    _ => Mode::Prepend,
                };
                let mut compare = None;
                let mut at = key(rng);
                if let Some((key, version)) = known
                    && mode == Mode::Set
                    && rng.percent(35)
                {
                    (at, compare) = (key.clone(), Some(*version));
                }
                let value = value(rng, &at, mode, number, scenario.evicts);
                let client_flags = if rng.percent(40) { rng.u32(..) } else { 0 };
                Self::Store { mode, key: at, value, client_flags, exptime: exptime(rng), compare }
            }
            62..70 => {
                let compare = known.as_ref().filter(|_| protocol != Protocol::Text && rng.percent(30));
                match compare {
                    Some((key, version)) => Self::Delete { key: key.clone(), compare: Some(*version) },
                    None => Self::Delete { key: key(rng), compare: None },
                }
            }
            70..74 if is_meta => {
                let exptime = rng.percent(50).then(|| i64::from(rng.u32(1..30)));
                Self::Invalidate { key: key(rng), exptime }
            }
            70..86 => {
                let key = if rng.percent(80) {
                    format!("number{}", rng.u32(..2)).into_bytes().into()
                } else {
                    key(rng)
                };
                let initial = (protocol != Protocol::Text && rng.percent(40))
                    .then(|| (rng.u64(..1000), exptime(rng).max(0)));
                Self::Arith { key, delta: rng.u64(1..200), decrement: rng.bool(), initial }
            }
            86..94 => Self::Touch { key: key(rng), exptime: touch(rng) },
            94..97 if scenario.flushes => {
                Self::Flush { delay_secs: if rng.bool() { 0 } else { rng.u32(1..6) } }
            }
            _ => Self::Noop,
        }
    }

    /// Appends it to what a client sends. A quiet one has no tag.
    pub(crate) fn write(&self, pipeline: &mut Pipeline<u64>, output: &mut Vec<u8>, tag: Option<u64>) {
        let number = tag.unwrap_or_default();
        match self {
            Self::Get { keys, exptime, vivify } => {
                let flags = vivify.map_or_else(String::new, |exptime| format!("N{exptime}"));
                let get = codec::Get { with_cas: true, exptime: *exptime, meta_flags: flags.as_bytes() };
                match &keys[..] {
                    [key] => pipeline.get(output, &get, key, number),
                    keys => pipeline.multi_get(output, &get, keys, number),
                }
            }
            Self::Store { mode, key, value, client_flags, exptime, compare } => {
                let store = codec::Store {
                    mode: *mode,
                    key,
                    value: &[value],
                    client_flags: *client_flags,
                    exptime: *exptime,
                    compare: *compare,
                    meta_flags: b"c",
                };
                pipeline.store(output, &store, tag);
            }
            Self::Delete { key, compare } => {
                let delete = codec::Delete { key, compare: *compare, ..codec::Delete::default() };
                pipeline.delete(output, &delete, tag);
            }
            Self::Invalidate { key, exptime } => {
                let flags = exptime.map_or_else(|| "I".to_owned(), |exptime| format!("I T{exptime}"));
                let delete = codec::Delete { key, compare: None, meta_flags: flags.as_bytes() };
                pipeline.delete(output, &delete, tag);
            }
            Self::Arith { key, delta, decrement, initial } => {
                let arith = codec::Arith {
                    key,
                    delta: *delta,
                    decrement: *decrement,
                    initial: *initial,
                    meta_flags: b"",
                };
                pipeline.arith(output, &arith, tag);
            }
            Self::Touch { key, exptime } => {
                pipeline.touch(output, &codec::Touch { key, exptime: *exptime, meta_flags: b"" }, tag);
            }
            Self::Flush { delay_secs } => pipeline.flush_all(output, *delay_secs, tag),
            Self::Noop => pipeline.noop(output, number),
        }
    }

    /// True if it may be sent without a wish for a reply.
    pub(crate) fn may_be_quiet(&self) -> bool {
        !matches!(self, Self::Get { .. } | Self::Touch { .. } | Self::Noop)
    }
}

/// A value that no other request has, but for numbers.
fn value(rng: &mut Rng, key: &[u8], mode: Mode, number: u64, is_large: bool) -> Vec<u8> {
    if key.starts_with(b"number") && rng.percent(80) {
        return rng.u64(..100_000).to_string().into_bytes();
    }
    let mut value = format!("{number}:").into_bytes();
    let is_piece = matches!(mode, Mode::Append | Mode::Prepend);
    let bytes = match rng.u32(..100) {
        _ if is_piece => rng.usize(..40),
        0..50 if is_large && key.starts_with(b"filler") => rng.usize(8000..60_000),
        50..80 if is_large => rng.usize(3000..8000),
        0..40 => rng.usize(..100),
        40..60 => rng.usize(..3000),
        60..85 if key.starts_with(b"filler") => rng.usize(3000..8000),
        // Large items of the engine.
        85..97 => rng.usize(8000..40_000),
        // Received straight into the cache.
        97..100 => rng.usize(66_000..100_000),
        _ => rng.usize(..300),
    };
    let filled = (b'a' + (number % 26) as u8, value.len() + bytes);
    value.resize(filled.1, filled.0);
    value
}
