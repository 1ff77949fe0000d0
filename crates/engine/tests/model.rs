//! The engine against a plain map with a virtual clock: random operations, every answer compared.
//!
//! With room for everything the answers must be equal. Under eviction what is gone is gone, but what is there must be
//! right: then a miss is always allowed, and tells the model to forget.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashMap;

use larder_engine::{
    Arith, Compare, Config, Counted, Deleted, Engine, Expiry, Fetch, FetchError, Guard, Handle, Invalidate,
    LargePages, LookupHint, Mode, Now, Store, Stored, Token, WriteError,
};

/// Steps per run; `LARDER_MODEL_STEPS` for more.
fn steps() -> u64 {
    let default = if cfg!(miri) { 300 } else { 400_000 };
    std::env::var("LARDER_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(default)
}

/// xorshift64*: repeatable, and good enough to choose operations.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

#[derive(Clone, Debug)]
struct Modelled {
    value: Vec<u8>,
    client_flags: u32,
    expiry: u32,
    cas: u64,
    fetched: bool,
    stale: bool,
    token: bool,
    binary_key: bool,
    used_secs: u32,
}

struct Model {
    items: HashMap<Vec<u8>, Modelled>,
    /// May items vanish?
    evicts: bool,
    /// May there be no memory for a change?
    refuses: bool,
    flush_at: u32,
    item_bytes_max: usize,
    given: Given,
}

/// The CAS values that the engine has given.
#[derive(Default)]
struct Given {
    last: u64,
    count: u64,
}

impl Given {
    /// One handle gives each only once, and so one above all before; none is large, whatever clients install.
    fn check(&mut self, cas: u64, installed: Option<u64>) -> u64 {
        match installed.filter(|&installed| installed != 0) {
            Some(installed) => assert_eq!(cas, installed),
            None => {
                assert!(
                    cas > self.last,
                    "a fresh CAS value {cas} is above all before, the last of which is {}",
                    self.last
                );
                (self.last, self.count) = (cas, self.count + 1);
                assert!(
                    cas <= 1 + self.count * 2 * HANDLES as u64,
                    "{cas} is the value number {}",
                    self.count
                );
            }
        }
        cas
    }
}

impl Model {
    /// The live item.
    fn get(&mut self, key: &[u8], now: Now) -> Option<&mut Modelled> {
        let expired = self.items.get(key).is_some_and(|item| item.expiry != 0 && item.expiry <= now.secs);
        if expired {
            self.items.remove(key);
        }
        self.items.get_mut(key)
    }

    /// Under eviction an item may have to move; without, only one that is not there needs memory.
    fn may_refuse_touch(&self, old: Option<&Modelled>) -> bool {
        self.evicts || self.refuses && old.is_none()
    }

    fn fits(&self, key: &[u8], value_bytes: usize, client_flags: u32) -> bool {
        key.len() + value_bytes + 59 + if client_flags == 0 { 0 } else { 4 } <= self.item_bytes_max
    }
}

fn expiry(secs: u32) -> Expiry {
    if secs == 0 { Expiry::NEVER } else { Expiry::at(secs) }
}

/// If the engine does not have a key, the model must not either, unless items may vanish; then it forgets.
fn agree_on_presence(model: &mut Model, guard: &Guard<'_>, key: &[u8]) {
    let there = guard.peek(key, guard.prepare(key)).is_ok();
    let expected = model.get(key, guard.now()).is_some();
    if expected && !there && model.evicts {
        model.items.remove(key);
    } else {
        assert_eq!(there, expected, "presence of {:?}", key.escape_ascii().to_string());
    }
}

fn check(model: &mut Model, guard: &Guard<'_>, key: &[u8]) {
    let now = guard.now();
    let lookup = guard.peek(key, guard.prepare(key));
    let Some(expected) = model.get(key, now) else {
        assert!(lookup.is_err(), "found {:?}, which should be gone", key.escape_ascii().to_string());
        return;
    };
    let lookup = lookup.expect("presence was agreed on");
    assert!(lookup.item.value() == expected.value, "value of {:?}", key.escape_ascii().to_string());
    assert_eq!(lookup.item.key(), key);
    assert_eq!(lookup.item.client_flags(), expected.client_flags);
    assert_eq!(lookup.item.expiry(), expiry(expected.expiry));
    assert_eq!(lookup.item.cas(), expected.cas);
    assert_eq!(lookup.item.is_binary_key(), expected.binary_key);
    assert_eq!((lookup.hit_before, lookup.stale), (expected.fetched, expected.stale));
    assert_eq!(lookup.token == Token::Held, expected.token);
    assert_eq!(lookup.idle_secs, now.secs - expected.used_secs);
}

fn note_use(item: &mut Modelled, now: Now) {
    if !item.fetched || now.secs - item.used_secs >= 60 {
        item.used_secs = now.secs;
    }
    item.fetched = true;
}

fn any_key(random: &mut Random, keys: u64) -> Vec<u8> {
    format!("key:{:0width$}", random.below(keys), width = 1 + random.below(2) as usize * 12).into_bytes()
}

/// Keys, and where they lay when their turn began.
type Guessed<'t> = Vec<(Vec<u8>, LookupHint<'t>)>;

fn hint<'t>(guard: &'t Guard<'_>, random: &mut Random, keys: u64) -> Guessed<'t> {
    let keys: Vec<_> = (0..random.below(4)).map(|_| any_key(random, keys)).collect();
    let hashes: Vec<_> = keys.iter().map(|key| guard.prepare(key)).collect();
    keys.into_iter().zip(guard.hint_gets(&hashes)).collect()
}

fn step(
    model: &mut Model,
    guard: &Guard<'_>,
    hinted: &Guessed<'_>,
    random: &mut Random,
    keys: u64,
    value_bytes_max: u64,
) {
    let now = guard.now();
    let (key, hint) = match hinted.get(random.below(8) as usize) {
        Some((key, hint)) => (key.clone(), *hint),
        None => (any_key(random, keys), LookupHint::default()),
    };
    let hash = guard.prepare(&key);
    let length = match random.below(20) {
        0 => random.below(value_bytes_max),
        1..=4 => random.below(value_bytes_max / 16 + 1),
        _ => random.below(100),
    };
    let value: Vec<u8> = if random.chance(4) {
        (random.next() >> random.below(60)).to_string().into_bytes()
    } else {
        (0..length).map(|at| (at as u8).wrapping_add(length as u8)).collect()
    };
    let client_flags = if random.chance(3) { random.next() as u32 } else { 0 };
    let dies = match random.below(6) {
        0 => now.secs + 1 + random.below(3) as u32,
        1 => now.secs + 1 + random.below(5000) as u32,
        2 => now.secs.saturating_sub(random.below(3) as u32).max(1),
        _ => 0,
    };
    agree_on_presence(model, guard, &key);
    let old = model.get(&key, now).cloned();
    let old_cas = old.as_ref().map_or(0, |old| old.cas);
    let given = random.chance(10).then(|| match random.below(3) {
        0 => u64::MAX - random.below(2),
        1 => model.given.last + random.below(8),
        _ => random.below(1 << 60),
    });
    match random.below(100) {
        0..40 => {
            let mode =
                [Mode::Set, Mode::Set, Mode::Set, Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend]
                    [random.below(7) as usize];
            let compare = random.chance(4).then(|| {
                let cas = match random.below(4) {
                    0 => 0,
                    1 => old_cas.saturating_sub(random.below(3)),
                    // Nobody's: more than values grow here.
                    2 => old_cas.saturating_add(1 << 40),
                    _ => old_cas,
                };
                if random.chance(2) { Compare::Equal(cas) } else { Compare::EqualOrStale(cas) }
            });
            let store = Store {
                key: &key,
                value: &value,
                client_flags,
                expiry: expiry(dies),
                mode,
                compare,
                cas: given,
                vivify: random.chance(3).then(|| expiry(dies)),
                binary_key: random.chance(5),
            };
            let stored = if value.len() > 3000 && random.chance(2) {
                upload(guard, hash, &store)
            } else {
                guard.store_hinted(hash, &store, hint)
            };
            let evicted = model.evicts && old.is_some() && is_evicted(&store, stored);
            model_store(model, guard, &store, old.filter(|_| !evicted), stored);
        }
        40..60 => match (guard.get_hinted(&key, hash, hint), old) {
            (Ok(item), Some(old)) => {
                assert!(item.value() == old.value);
                note_use(model.get(&key, now).unwrap(), now);
            }
            (found, old) => assert_eq!(found.is_ok(), old.is_some()),
        },
        60..70 => {
            let how = Fetch {
                touch: random.chance(3).then(|| expiry(dies)),
                vivify: random.chance(3).then(|| expiry(dies)),
                vivify_cas: given,
                recache_below_secs: random.chance(3).then(|| random.below(100) as u32),
                recache_after_touch: random.chance(2),
                binary_key: random.chance(2),
                unnoticed: random.chance(4),
                leaves_token: random.chance(4),
            };
            let fetched = guard.fetch_hinted(&key, hash, hint, &how);
            let evicted = match &fetched {
                Ok(fetched) => fetched.vivified,
                Err(fail) => matches!(fail, FetchError::Miss(_)),
            };
            match (fetched, old.filter(|_| !(evicted && model.evicts))) {
                (Ok(fetched), Some(old)) => {
                    let judged = match how.touch.filter(|_| how.recache_after_touch) {
                        Some(touch) => touch.secs().unwrap_or(0),
                        None => old.expiry,
                    };
                    let due = how
                        .recache_below_secs
                        .is_some_and(|below| judged != 0 && judged.saturating_sub(now.secs) < below);
                    let token = match (old.token, (old.stale || due) && !how.leaves_token) {
                        (true, _) => Token::Held,
                        (false, true) => Token::Won,
                        (false, false) => Token::None,
                    };
                    assert_eq!((fetched.token, fetched.stale, fetched.vivified), (token, old.stale, false));
                    assert_eq!(
                        (fetched.hit_before, fetched.expiry_before),
                        (old.fetched, expiry(old.expiry))
                    );
                    assert!(fetched.item.value() == old.value);
                    let item = model.items.get_mut(&key).unwrap();
                    item.token |= token == Token::Won;
                    if let Some(touch) = how.touch {
                        item.expiry = touch.secs().unwrap_or(0);
                    }
                    if !how.unnoticed {
                        note_use(item, now);
                    }
                }
                (Ok(fetched), None) => {
                    assert!(
                        fetched.vivified && fetched.token == Token::Won && fetched.item.value().is_empty()
                    );
                    let expiry = how.touch.or(how.vivify).unwrap();
                    model.items.insert(
                        key.clone(),
                        Modelled {
                            value: Vec::new(),
                            client_flags: 0,
                            expiry: expiry.secs().unwrap_or(0),
                            cas: model.given.check(fetched.item.cas(), given),
                            fetched: !how.unnoticed,
                            stale: false,
                            token: true,
                            binary_key: how.binary_key,
                            used_secs: now.secs,
                        },
                    );
                }
                (Err(FetchError::Miss(_)), None) => assert!(how.vivify.is_none()),
                (Err(FetchError::TryAgain | FetchError::OutOfMemory), old)
                    if model.may_refuse_touch(old.as_ref()) =>
                {
                    accept_use(model, guard, &key)
                }
                (got, old) => panic!("fetch gave {got:?} for {old:?}"),
            }
        }
        70..78 => {
            let compare = random.chance(3).then(|| old_cas.saturating_add(random.below(2)));
            let deleted = guard.delete(&key, hash, compare);
            match old {
                None => assert!(matches!(deleted, Deleted::NotFound(_))),
                Some(old) if compare.is_some_and(|cas| cas != old.cas) => {
                    assert_eq!(deleted, Deleted::Exists)
                }
                Some(_) => {
                    assert_eq!(deleted, Deleted::Deleted);
                    model.items.remove(&key);
                }
            }
        }
        78..84 => match (guard.touch(&key, hash, expiry(dies)), old) {
            (Ok(item), Some(old)) => {
                assert!(item.cas() == old.cas && item.value() == old.value);
                let item = model.items.get_mut(&key).unwrap();
                item.expiry = dies;
                note_use(item, now);
            }
            (Err(FetchError::Miss(_)), None) => {}
            (Err(FetchError::Miss(_)), Some(_)) if model.evicts => {}
            (Err(FetchError::TryAgain | FetchError::OutOfMemory), old)
                if model.may_refuse_touch(old.as_ref()) =>
            {
                accept_use(model, guard, &key)
            }
            (got, old) => panic!("touch gave {got:?} for {old:?}"),
        },
        84..90 => {
            let how = Invalidate {
                compare: random.chance(4).then(|| old_cas.saturating_add(random.below(2))),
                stale: random.chance(2),
                blank: random.chance(2).then_some(client_flags),
                expiry: random.chance(2).then(|| expiry(dies)),
                cas: given,
            };
            match (guard.invalidate(&key, hash, &how), old) {
                (Ok(Deleted::NotFound(_)), None) => {}
                (Ok(Deleted::NotFound(_)), Some(_)) if model.evicts => {}
                (Ok(Deleted::Exists), Some(old)) => assert!(how.compare.is_some_and(|cas| cas != old.cas)),
                (Ok(Deleted::Deleted), Some(_)) => {
                    let cas = guard.peek(&key, hash).map(|lookup| lookup.item.cas());
                    let item = model.items.get_mut(&key).unwrap();
                    if let Some(client_flags) = how.blank {
                        (item.value, item.client_flags) = (Vec::new(), client_flags);
                        (item.expiry, item.used_secs) = (0, now.secs);
                        (item.fetched, item.stale, item.token) = (false, false, false);
                    }
                    if how.stale {
                        item.stale = true;
                        item.token = false;
                    }
                    if let Some(expiry) = how.expiry {
                        item.expiry = expiry.secs().unwrap_or(0);
                    }
                    if let Ok(cas) = cas {
                        let changes = how.stale || given.is_some_and(|cas| cas != 0);
                        item.cas = if changes { model.given.check(cas, given) } else { item.cas };
                    }
                }
                (Err(_), _) if model.evicts || model.refuses && how.blank.is_some() => {}
                (got, old) => panic!("invalidate gave {got:?} for {old:?}"),
            }
        }
        90..97 => {
            let how = Arith {
                delta: random.next() >> random.below(64),
                decrement: random.chance(2),
                compare: random.chance(4).then(|| old_cas.saturating_add(random.below(2)) * random.below(2)),
                initial: random.chance(3).then(|| (random.next(), expiry(dies))),
                expiry: random.chance(4).then(|| expiry(dies)),
                cas: given,
                binary_key: false,
            };
            let counted = guard.arith(&key, hash, &how);
            let evicted = model.evicts
                && matches!(counted, Counted::NotFound(_) | Counted::Number { created: true, .. });
            model_arith(model, guard, &key, &how, old.filter(|_| !evicted), counted);
        }
        _ => {}
    }
    agree_on_presence(model, guard, &key);
    check(model, guard, &key);
}

/// Stores through `reserve` and `commit`, in pieces.
fn upload(guard: &Guard<'_>, hash: larder_engine::Hash, store: &Store<'_>) -> Stored {
    use larder_engine::WriteError::*;
    let refuse = |no_room| match no_room {
        TooLarge => Stored::TooLarge,
        OutOfMemory => Stored::OutOfMemory,
        TryAgain => Stored::TryAgain,
    };
    let mut upload = match guard.reserve(store, store.value.len() as u32) {
        Ok(upload) => upload,
        Err(no_room) => return refuse(no_room),
    };
    let mut rest = store.value;
    while upload.missing_bytes() > 0 {
        let window = match guard.window(&mut upload) {
            Ok(window) => window,
            Err(no_room) => return refuse(no_room),
        };
        let n = window.len().min(rest.len()).min(7777);
        window[..n].copy_from_slice(&rest[..n]);
        upload.advance(n);
        rest = &rest[n..];
    }
    guard.commit(hash, store, &mut Some(upload))
}

/// Making room may have evicted the very item that was to be changed: then the answer is that for an absent one.
fn is_evicted(store: &Store<'_>, stored: Stored) -> bool {
    match (store.mode, stored) {
        (_, Stored::NotFound) | (Mode::Replace, Stored::NotStored) => true,
        (_, Stored::Stored { is_new, .. }) => is_new,
        _ => false,
    }
}

fn model_store(
    model: &mut Model,
    guard: &Guard<'_>,
    store: &Store<'_>,
    old: Option<Modelled>,
    stored: Stored,
) {
    if matches!(stored, Stored::TryAgain | Stored::OutOfMemory) {
        assert!(model.refuses, "no memory although there is plenty");
        return;
    }
    let extends = matches!(store.mode, Mode::Append | Mode::Prepend);
    if !model.fits(store.key, store.value.len(), store.client_flags) {
        assert_eq!(stored, Stored::TooLarge);
        return;
    }
    let now = guard.now();
    let cas = guard.peek(store.key, guard.prepare(store.key)).map_or(0, |lookup| lookup.item.cas());
    let expected = match (&old, store.mode, store.compare) {
        (None, Mode::Set, None) | (None, Mode::Add, _) => None,
        (None, Mode::Set | Mode::Replace, Some(_)) => Some(Stored::NotFound),
        (None, Mode::Append | Mode::Prepend, _) if store.vivify.is_some() => None,
        (None, ..) => Some(Stored::NotStored),
        (Some(_), Mode::Add, _) => Some(Stored::NotStored),
        (Some(_), _, None) => None,
        (Some(old), _, Some(Compare::Equal(given))) => {
            (given == 0 || given != old.cas).then_some(Stored::Exists)
        }
        (Some(old), _, Some(Compare::EqualOrStale(given))) => {
            let allowed = given == old.cas || (given < old.cas && !extends);
            (given == 0 || !allowed).then_some(Stored::Exists)
        }
    };
    if let Some(expected) = expected {
        assert_eq!(stored, expected);
        return;
    }
    let stale = old.as_ref().filter(|old| {
        matches!(store.compare, Some(Compare::EqualOrStale(given)) if given < old.cas)
            && store.mode != Mode::Add
    });
    let mut new = Modelled {
        value: store.value.to_vec(),
        client_flags: store.client_flags,
        expiry: store.expiry.secs().unwrap_or(0),
        cas: 0,
        fetched: false,
        stale: stale.is_some(),
        token: stale.is_some_and(|old| old.token),
        binary_key: store.binary_key,
        used_secs: now.secs,
    };
    if let Some(old) = stale {
        new.expiry = old.expiry;
    }
    match (&old, store.mode) {
        (Some(old), Mode::Append | Mode::Prepend) => {
            new.value = if store.mode == Mode::Append {
                [&old.value[..], store.value].concat()
            } else {
                [store.value, &old.value[..]].concat()
            };
            (new.client_flags, new.expiry, new.binary_key) = (old.client_flags, old.expiry, old.binary_key);
            if !model.fits(store.key, new.value.len(), new.client_flags) {
                assert_eq!(stored, Stored::NotExtended(WriteError::TooLarge));
                return;
            }
            // Without memory, or with the old item evicted for it.
            if matches!(stored, Stored::NotExtended(WriteError::OutOfMemory) | Stored::NotStored)
                && model.refuses
            {
                return;
            }
        }
        (None, Mode::Append | Mode::Prepend) => {
            new.expiry = store.vivify.unwrap().secs().unwrap_or(0);
            // Without memory, or with the old item evicted for it.
            if matches!(stored, Stored::NotExtended(WriteError::OutOfMemory) | Stored::NotStored)
                && model.refuses
            {
                return;
            }
        }
        _ => {}
    }
    let Stored::Stored { cas: told, value_bytes, expiry, is_new } = stored else {
        panic!("{stored:?} instead of stored")
    };
    assert_eq!((value_bytes as usize, expiry.secs().unwrap_or(0)), (new.value.len(), new.expiry));
    assert_eq!(is_new, old.is_none());
    if cas != 0 {
        assert_eq!(told, cas);
    }
    new.cas = model.given.check(told, store.cas);
    model.items.insert(store.key.to_vec(), new);
}

/// A number as C's `strtoull` reads it, if white space or the end follows.
fn c_number(text: &str) -> Option<u64> {
    let is_space = |c: char| " \t\n\u{b}\u{c}\r".contains(c);
    let text = text.trim_start_matches(is_space);
    let digits = text.strip_prefix('+').unwrap_or(text).split(is_space).next()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// A use that came before a change found no memory counts all the same.
fn accept_use(model: &mut Model, guard: &Guard<'_>, key: &[u8]) {
    if let (Ok(lookup), Some(item)) = (guard.peek(key, guard.prepare(key)), model.items.get_mut(key)) {
        item.fetched = lookup.hit_before;
        item.used_secs = guard.now().secs - lookup.idle_secs;
        item.token = lookup.token == Token::Held;
    }
}

fn model_arith(
    model: &mut Model,
    guard: &Guard<'_>,
    key: &[u8],
    how: &Arith,
    old: Option<Modelled>,
    counted: Counted,
) {
    if matches!(counted, Counted::TryAgain | Counted::OutOfMemory) {
        assert!(model.refuses);
        return;
    }
    let now = guard.now();
    let Some(old) = old else {
        let Some((number, expiry)) = how.initial else {
            assert!(matches!(counted, Counted::NotFound(_)));
            return;
        };
        let Counted::Number { number: told, cas, created: true, .. } = counted else { panic!("{counted:?}") };
        assert_eq!(told, number);
        model.items.insert(
            key.to_vec(),
            Modelled {
                value: number.to_string().into_bytes(),
                client_flags: 0,
                expiry: expiry.secs().unwrap_or(0),
                cas: model.given.check(cas, how.cas),
                fetched: false,
                stale: false,
                token: false,
                binary_key: false,
                used_secs: now.secs,
            },
        );
        return;
    };
    if how.compare.is_some_and(|cas| cas != 0 && cas != old.cas) {
        // An empty or a large value is told first; no large one here is a number.
        let is_told_first =
            old.value.is_empty() || (old.value.len() > 1000 && counted == Counted::NonNumeric);
        assert_eq!(counted, if is_told_first { Counted::NonNumeric } else { Counted::Exists });
        return;
    }
    let text = String::from_utf8_lossy(&old.value).into_owned();
    let Some(number) = c_number(&text) else {
        assert_eq!(counted, Counted::NonNumeric, "for {text:?}");
        return;
    };
    let number =
        if how.decrement { number.saturating_sub(how.delta) } else { number.wrapping_add(how.delta) };
    let Counted::Number { number: told, cas, created: false, .. } = counted else {
        panic!("{counted:?} for {text:?}")
    };
    assert_eq!(told, number);
    let mut value = number.to_string();
    let grows = value.len() > old.value.len();
    value += &" ".repeat(old.value.len().saturating_sub(value.len()));
    let expiry = how.expiry.map_or(old.expiry, |expiry| expiry.secs().unwrap_or(0));
    let keeps = |mark: bool| mark && !grows;
    model.items.insert(
        key.to_vec(),
        Modelled {
            value: value.into_bytes(),
            expiry,
            cas: model.given.check(cas, how.cas),
            fetched: keeps(old.fetched),
            stale: keeps(old.stale),
            token: keeps(old.token),
            used_secs: if grows { now.secs } else { old.used_secs },
            ..old
        },
    );
}

const HANDLES: usize = 2;

fn config(memory_bytes: u64) -> Config {
    Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
        evict: true,
        handles_max: HANDLES,
        index_power: Some(6),
        large_pages: LargePages::FromTheStart,
        hash_key: [3, 4],
    }
}

fn run(mut model: Model, config: Config, seed: u64, keys: u64, value_bytes_max: u64) -> (Model, Handle) {
    model.item_bytes_max = config.item_bytes_max as usize;
    let engine = Engine::new(config.clone()).unwrap();
    let mut handle = engine.handle().unwrap();
    let mut background = engine.handle().unwrap();
    let mut random = Random(seed);
    let mut now = Now { secs: 2, micros: 1_000_000 };
    for at in 0..steps() {
        if random.chance(20) {
            now.micros += random.below(3_000_000);
            now.secs = (now.micros / 1_000_000) as u32 + 1;
        }
        if model.flush_at != 0 && model.flush_at <= now.secs {
            model.items.clear();
            model.flush_at = 0;
        }
        if random.chance(50) {
            background.maintain(now, 100);
        }
        let guard = handle.pin(now);
        let hinted = hint(&guard, &mut random, keys);
        for _ in 0..1 + random.below(4) {
            step(&mut model, &guard, &hinted, &mut random, keys, value_bytes_max);
        }
        drop(guard);
        if random.chance(20_000) {
            let at = random.chance(2).then(|| now.secs + 1 + random.below(5) as u32);
            engine.flush(now, at);
            model.flush_at = at.unwrap_or(0);
            if at.is_none() {
                model.items.clear();
            }
        }
        if at % 1000 == 0 {
            let stats = engine.stats();
            assert!(stats.memory_used_bytes <= config.memory_bytes + (64 << 10), "{stats:?}");
        }
    }
    (model, handle)
}

fn model(evicts: bool, refuses: bool) -> Model {
    Model { items: HashMap::new(), evicts, refuses, flush_at: 0, item_bytes_max: 0, given: Given::default() }
}

#[test]
fn equals_a_map_while_there_is_room() {
    let (model, mut handle) = run(
        model(false, false),
        config(if cfg!(miri) { 4 << 20 } else { 512 << 20 }),
        1,
        if cfg!(miri) { 50 } else { 4000 },
        40_000,
    );
    let engine = handle.engine().clone();
    // At the end all that the model has is there.
    let now = Now { secs: u32::MAX >> 5, micros: u64::MAX >> 5 };
    let guard = handle.pin(now);
    for (key, item) in &model.items {
        let there = guard.get(key, guard.prepare(key)).is_ok();
        assert_eq!(there, item.expiry == 0 && model.flush_at == 0, "{:?}", key.escape_ascii().to_string());
    }
    drop(guard);
    assert_eq!(engine.stats().evictions, 0);
}

#[test]
fn is_right_about_what_is_left_under_eviction() {
    let (_, handle) =
        run(model(true, true), config(4 << 20), 2, if cfg!(miri) { 100 } else { 20_000 }, 100_000);
    let stats = handle.engine().stats();
    assert!(cfg!(miri) || stats.evictions > 1000, "{stats:?}");
    assert!(cfg!(miri) || stats.moves_to_main > 100, "{stats:?}");
    assert!(cfg!(miri) || stats.refilled > 20, "{stats:?}");
}

#[test]
fn is_right_in_the_smallest_memory() {
    let (_, handle) =
        run(model(true, true), config(1 << 20), 3, if cfg!(miri) { 100 } else { 5_000 }, 300_000);
    assert!(cfg!(miri) || handle.engine().stats().evictions > 1000);
}

#[test]
fn without_eviction_nothing_is_lost() {
    let config = Config { evict: false, ..config(4 << 20) };
    let (_, handle) = run(model(false, true), config, 4, if cfg!(miri) { 100 } else { 30_000 }, 50_000);
    let stats = handle.engine().stats();
    assert_eq!(stats.evictions, 0);
    assert!(cfg!(miri) || stats.out_of_memory > 0, "{stats:?}");
    assert!(cfg!(miri) || stats.compacted > 0, "{stats:?}");
}
