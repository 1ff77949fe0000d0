//! The answers that are due, and the keys they may show.

use std::collections::VecDeque;

use super::{Event, Mode, Outcome};

/// Answers in the order in which they have to come.
#[derive(Debug)]
pub(super) struct Queue<T> {
    due: VecDeque<Due<T>>,
    keys: KeyLog,
    /// With less input than this there is no use in looking again.
    pub needed_bytes: usize,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Due<T> {
    pub kind: Kind,
    /// Keys that have neither been seen nor passed over.
    pub keys_left: u32,
    /// All keys asked for.
    pub keys: u32,
    pub hits: u32,
    /// `None`: the answer is of no interest.
    pub tag: Option<T>,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    MultiGet,
    Store {
        /// See [`super::Store`].
        mode: Mode,
        compares: bool,
    },
    Delete,
    Arith,
    Touch,
    Flush,
    Version,
    Noop,
    Stats,
}

impl<T> Due<T> {
    pub(super) fn new(kind: Kind, tag: Option<T>) -> Self {
        Self { kind, keys_left: 0, keys: 0, hits: 0, tag }
    }
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { due: VecDeque::new(), keys: KeyLog::default(), needed_bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    pub(super) fn front_tag(&self) -> Option<&T> {
        self.due.front()?.tag.as_ref()
    }

    #[inline]
    pub(super) fn front(&mut self) -> Option<&mut Due<T>> {
        self.due.front_mut()
    }

    /// The last of its keys has been pushed.
    #[inline]
    pub(super) fn push(&mut self, due: Due<T>) {
        self.due.push_back(Due { keys_left: due.keys, ..due });
    }

    /// A key of the answer that is pushed next.
    #[inline]
    pub(super) fn push_key(&mut self, key: &[u8]) {
        self.keys.push(key);
    }

    /// The answer at the front shows `key`: it is the next of its keys, or one behind that. `false`: it is none of them.
    #[inline]
    pub(super) fn find_key(&mut self, key: &[u8]) -> bool {
        let Some(front) = self.due.front_mut() else { return false };
        while front.keys_left > 0 {
            front.keys_left -= 1;
            if self.keys.pop() == key {
                front.hits += 1;
                return true;
            }
        }
        false
    }

    /// How the get at the front ends.
    #[inline]
    pub(super) fn found(&mut self) -> Option<Outcome<'static>> {
        self.front().map(|get| Outcome::Found { hits: get.hits, keys: get.keys })
    }

    /// The answer at the front is complete. `None`: and of no interest.
    #[inline]
    pub(super) fn done<'i>(&mut self, outcome: Outcome<'i>) -> Option<Event<'i, T>> {
        match (self.pop()?.tag, outcome) {
            (Some(tag), outcome) => Some(Event::Done(tag, outcome)),
            (None, Outcome::Error(_)) => Some(Event::QuietFailed(outcome)),
            (None, _) => None,
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Due<T>> {
        let due = self.due.pop_front()?;
        for _ in 0..due.keys_left {
            self.keys.pop();
        }
        if self.due.is_empty() {
            self.keys.clear();
        }
        Some(due)
    }

    pub(super) fn into_tags(self) -> impl Iterator<Item = T> {
        self.due.into_iter().filter_map(|due| due.tag)
    }
}

/// Keys, each after a byte that tells its length, in the order of the requests.
#[derive(Debug, Default)]
struct KeyLog {
    bytes: Vec<u8>,
    /// Where the first one that is still of interest begins.
    start: usize,
}

impl KeyLog {
    #[inline]
    fn push(&mut self, key: &[u8]) {
        if self.start >= COMPACT_BYTES && self.start * 2 >= self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        // A key has at most 250 bytes, or no server takes it.
        let key = &key[..key.len().min(u8::MAX.into())];
        self.bytes.push(key.len() as u8);
        self.bytes.extend_from_slice(key);
    }

    #[inline]
    fn pop(&mut self) -> &[u8] {
        let Some((&length, rest)) = self.bytes.get(self.start..).and_then(|bytes| bytes.split_first()) else {
            return b"";
        };
        self.start += 1 + usize::from(length);
        rest.get(..length.into()).unwrap_or_default()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }
}

/// Keys that are done are cut off when there are so many bytes of them, and no less than of the others.
const COMPACT_BYTES: usize = 64 << 10;
