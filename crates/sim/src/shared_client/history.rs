//! What keys may hold: each value is written once, so what is read tells which change it comes from.

use std::collections::HashSet;

/// A moment, counted.
pub(super) type Tick = u64;

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has no reply, or may be made at any time.
    Open,
    /// Before this moment.
    Made(Tick),
    NotMade,
}

/// A change of a key: to this value, or to none.
#[derive(Debug)]
struct Change {
    key: usize,
    value: Option<Vec<u8>>,
    begin: Tick,
    fate: Fate,
    was_read: bool,
}

/// A number that is only counted up, by one.
#[derive(Clone, Debug, Default)]
struct Counter {
    begun: u64,
    made: u64,
    not_made: u64,
    shown: HashSet<u64>,
}

/// All changes, and what was read.
#[derive(Debug)]
pub(super) struct History {
    tick: Tick,
    changes: Vec<Change>,
    counters: Vec<Counter>,
    /// Successful `cas`, by key and what they compared with.
    compared: HashSet<(usize, u64)>,
    /// Keys may be at several places, or may be told as missing.
    moves_keys: bool,
    hides_values: bool,
}

impl History {
    pub(super) fn new(keys: usize, moves_keys: bool, hides_values: bool) -> Self {
        let missing = |key| Change { key, value: None, begin: 0, fate: Fate::Made(0), was_read: false };
        Self {
            tick: 0,
            changes: (0..keys).map(missing).collect(),
            counters: vec![Counter::default(); keys],
            compared: HashSet::new(),
            moves_keys,
            hides_values,
        }
    }

    pub(super) fn now(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// A change begins. Returns its number, and the value that it is to write.
    pub(super) fn begin(&mut self, key: usize, value_bytes: Option<usize>) -> (usize, Vec<u8>) {
        let number = self.changes.len();
        let head = format!("{}:{number} ", key_name(key));
        let value =
            value_bytes.map(|bytes| head.bytes().cycle().take(bytes.max(head.len())).collect::<Vec<_>>());
        let begin = self.now();
        self.changes.push(Change { key, value: value.clone(), begin, fate: Fate::Open, was_read: false });
        (number, value.unwrap_or_default())
    }

    /// A change has ended. Errors: it is told as not made, and was read.
    pub(super) fn end(&mut self, change: usize, is_made: bool) -> Result<(), String> {
        let now = self.now();
        let Change { key, fate, was_read, .. } = &mut self.changes[change];
        *fate = if is_made { Fate::Made(now) } else { Fate::NotMade };
        if *was_read && !is_made {
            return Err(format!("change {change} of {} is told as not made, and was read", key_name(*key)));
        }
        Ok(())
    }

    /// A `cas` has succeeded. Errors: another one that compared with the same has, too.
    pub(super) fn compared(&mut self, key: usize, unique: u64) -> Result<(), String> {
        // Each server has its own numbers.
        if self.moves_keys || self.hides_values || self.compared.insert((key, unique)) {
            return Ok(());
        }
        Err(format!("two changes of {} compared with {unique}, and both succeeded", key_name(key)))
    }

    /// A read that began then has an answer. Errors: the key has not held it since.
    pub(super) fn read(&mut self, key: usize, begin: Tick, found: Option<&[u8]>) -> Result<(), String> {
        if found.is_none() && self.hides_values {
            return Ok(());
        }
        let is_it = |change: &Change| {
            change.key == key && change.value.as_deref() == found && change.fate != Fate::NotMade
        };
        let found_at = (0..self.changes.len()).find(|at| {
            is_it(&self.changes[*at]) && (self.moves_keys || !self.is_overwritten(&self.changes[*at], begin))
        });
        match found_at {
            Some(at) => {
                self.changes[at].was_read |= found.is_some();
                Ok(())
            }
            None => {
                let found = found.map(|value| value[..value.len().min(40)].escape_ascii().to_string());
                Err(format!("{} has {found:?}, which is wrong or overwritten", key_name(key)))
            }
        }
    }

    /// True if another change was made between this one and that moment.
    fn is_overwritten(&self, change: &Change, begin: Tick) -> bool {
        let Fate::Made(end) = change.fate else { return false };
        let comes_between = |other: &Change| {
            let is_before = matches!(other.fate, Fate::Made(end) if end < begin);
            other.key == change.key && other.begin > end && is_before
        };
        self.changes.iter().any(comes_between)
    }

    /// A counter is about to be counted up. Returns how often it was, for certain.
    pub(super) fn begin_count(&mut self, key: usize) -> u64 {
        self.counters[key].begun += 1;
        self.counters[key].made
    }

    /// It was, or was not. `made_before`: what [`History::begin_count`] told. Errors: it shows what it cannot have.
    pub(super) fn count(&mut self, key: usize, made_before: u64, shown: Option<u64>) -> Result<(), String> {
        let counter = &mut self.counters[key];
        let Some(shown) = shown else {
            counter.not_made += 1;
            return Ok(());
        };
        counter.made += 1;
        let is_possible = shown > made_before && shown <= counter.begun - counter.not_made;
        let is_new = counter.shown.insert(shown);
        if self.moves_keys || is_possible && is_new {
            return Ok(());
        }
        Err(format!("the counter of {} shows {shown}: {counter:?}", key_name(key)))
    }

    /// Errors: a counter that nobody counts any more cannot show this.
    pub(super) fn check_counter(&self, key: usize, shown: u64) -> Result<(), String> {
        let counter = &self.counters[key];
        if self.moves_keys || (counter.made..=counter.begun - counter.not_made).contains(&shown) {
            return Ok(());
        }
        Err(format!("the counter of {} shows {shown} in the end: {counter:?}", key_name(key)))
    }
}

pub(super) fn key_name(key: usize) -> String {
    format!("key:{key}")
}

pub(super) fn counter_name(key: usize) -> String {
    format!("number:{key}")
}
