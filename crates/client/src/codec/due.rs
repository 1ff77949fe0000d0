//! Expected replies, and the keys that they may contain.

use std::collections::{TryReserveError, VecDeque};

use super::binary::Sent;
use super::{Event, Mode, Outcome};

/// Expected replies, in order.
#[derive(Debug)]
pub(super) struct Queue<T> {
    due: VecDeque<Due<T>>,
    keys: KeyLog,
    /// With less input there is nothing to parse.
    pub needed_bytes: usize,
    /// The get at the front has returned its value and is complete.
    pub is_answered: bool,
    /// Meta: quiet requests after the last expected reply.
    quiets: Quiets,
    /// Meta and binary: every request that is answered has its own opaque, and every key of a multi-get is answered.
    pub has_opaques: bool,
    /// Binary, and meta with opaques: the number of the next request, and (binary) the lowest that a reply may still
    /// have.
    next_opaque: u32,
    lowest_opaque: u32,
}

/// An expected reply.
#[derive(Debug)]
pub(super) struct Due<T> {
    pub kind: Kind,
    /// Keys that have neither been returned nor skipped.
    pub keys_left: u32,
    /// All requested keys.
    pub keys: u32,
    pub hits: u32,
    /// Binary. For a multi-get: the opcode of its keys, and the number of its final no-op; its keys' numbers come right
    /// before. With opaques: of a multi-get those of its last key.
    pub sent: Sent,
    /// Meta: quiet requests right before this one that may still fail.
    pub quiets: Quiets,
    /// `None`: the reply makes no event, unless it is an error.
    pub tag: Option<T>,
}

/// Meta: quiet requests that may still be answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quiets {
    pub all: u32,
    /// Deletes of these, at most: an error line does not say whose it is.
    pub deletes: u32,
}

impl Quiets {
    /// One of them is answered; `is_delete`: it is known to be a delete.
    pub(super) fn answered(&mut self, is_delete: bool) {
        self.all = self.all.saturating_sub(1);
        self.deletes = self.deletes.saturating_sub(u32::from(is_delete)).min(self.all);
    }
}

/// The kind of request.
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
    /// Of a whole server; also how much it logs.
    Flush,
    FlushPrefix,
    Version,
    Noop,
    Stats,
    Login,
}

impl<T> Due<T> {
    pub(super) fn new(kind: Kind, tag: Option<T>) -> Self {
        Self { kind, keys_left: 0, keys: 0, hits: 0, sent: Sent::default(), quiets: Quiets::default(), tag }
    }
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self {
            due: VecDeque::new(),
            keys: KeyLog::default(),
            needed_bytes: 0,
            is_answered: false,
            quiets: Quiets::default(),
            has_opaques: false,
            next_opaque: 0,
            lowest_opaque: 0,
        }
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

    /// Adds an expected reply. All its keys have been pushed.
    #[inline]
    pub(super) fn push(&mut self, due: Due<T>) {
        self.due.push_back(Due { keys_left: due.keys, quiets: std::mem::take(&mut self.quiets), ..due });
    }

    /// Adds a key to the reply that is pushed next.
    #[inline]
    pub(super) fn push_key(&mut self, key: &[u8]) {
        self.keys.push(key);
    }

    /// Takes memory for so many bytes of keys and their lengths.
    pub(super) fn try_reserve(&mut self, bytes: usize) -> Result<(), TryReserveError> {
        self.keys.bytes.try_reserve(bytes)
    }

    /// The next key of the get at the front.
    #[inline]
    pub(super) fn awaited_key(&self) -> Option<&[u8]> {
        let front = self.due.front()?;
        let is_get = matches!(front.kind, Kind::Get | Kind::MultiGet);
        (is_get && front.keys_left > 0).then(|| self.keys.peek())
    }

    /// Matches a `key` of the reply at the front with its next key, or one after that. `false`: it is none of them.
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

    /// Matches the reply at the front with the key at this distance from its end, the last being 1. `false`: `shown` is
    /// another key.
    #[inline]
    pub(super) fn find_key_from_end(&mut self, place: u32, shown: Option<&[u8]>) -> bool {
        let Some(front) = self.due.front_mut() else { return false };
        while front.keys_left > place {
            front.keys_left -= 1;
            self.keys.pop();
        }
        front.keys_left -= 1;
        let key = self.keys.pop();
        front.hits += u32::from(shown.is_some());
        shown.is_none_or(|shown| shown == key)
    }

    /// With opaques: the number that the reply at the front, or to the next key of its multi-get, must have.
    #[inline]
    pub(super) fn awaited_opaque(&self) -> Option<u32> {
        self.due.front().map(|front| front.sent.opaque.wrapping_sub(front.keys_left.saturating_sub(1)))
    }

    /// With opaques: the next key of the multi-get at the front is answered, but not found.
    pub(super) fn miss_key(&mut self) {
        if let Some(front) = self.due.front_mut().filter(|front| front.keys_left > 0) {
            front.keys_left -= 1;
            self.keys.pop();
        }
    }

    /// With opaques: completes the multi-get at the front, if all its keys are answered.
    pub(super) fn end_multi_get<'i>(&mut self) -> Option<Event<'i, T>> {
        if self.front().is_some_and(|front| front.keys_left > 0) { None } else { self.end_get() }
    }

    /// Matches the reply at the front, which contains no key, with its next key.
    #[inline]
    pub(super) fn pass_key(&mut self) {
        if let Some(front) = self.due.front_mut().filter(|front| front.keys_left > 0) {
            front.keys_left -= 1;
            front.hits += 1;
            self.keys.pop();
        }
    }

    /// Position of the key that was found last among those of the reply at the front.
    #[inline]
    pub(super) fn key_index(&mut self) -> u32 {
        self.front().map_or(0, |get| get.keys - get.keys_left - 1)
    }

    /// The outcome of the get at the front.
    #[inline]
    pub(super) fn found(&mut self) -> Option<Outcome<'static>> {
        self.front().map(|get| Outcome::Found { hits: get.hits, keys: get.keys })
    }

    /// Completes the get at the front.
    #[inline]
    pub(super) fn end_get<'i>(&mut self) -> Option<Event<'i, T>> {
        self.found().and_then(|found| self.done(found))
    }

    /// Completes the reply at the front. `None`: there is no event.
    #[inline]
    pub(super) fn done<'i>(&mut self, outcome: Outcome<'i>) -> Option<Event<'i, T>> {
        let due = self.due.pop_front()?;
        self.is_answered = false;
        for _ in 0..due.keys_left {
            self.keys.pop();
        }
        if self.due.is_empty() {
            self.keys.clear();
        }
        self.lowest_opaque = due.sent.opaque.wrapping_add(1);
        match (due.tag, outcome) {
            (Some(tag), outcome) => Some(Event::Done(tag, outcome)),
            (None, Outcome::Error(_)) => Some(Event::QuietFailed(outcome)),
            (None, _) => None,
        }
    }

    /// Meta: adds a request that is answered only if it fails.
    pub(super) fn push_quiet(&mut self, kind: Kind) {
        self.quiets.all += 1;
        self.quiets.deletes += u32::from(kind == Kind::Delete);
    }

    /// Meta: quiet requests that may fail before the reply at the front, or at all if no reply is expected.
    pub(super) fn quiets(&mut self) -> &mut Quiets {
        match self.due.front_mut() {
            Some(front) => &mut front.quiets,
            None => &mut self.quiets,
        }
    }

    /// Binary, and meta with opaques: the number of the next request.
    #[inline]
    pub(super) fn next_opaque(&mut self) -> u32 {
        let opaque = self.next_opaque;
        self.next_opaque = opaque.wrapping_add(1);
        opaque
    }

    /// The number of the last request.
    pub(super) fn last_opaque(&self) -> u32 {
        self.next_opaque.wrapping_sub(1)
    }

    /// Binary: the quiet request with this number, before the one at the front, failed. `false`: there is no such
    /// request.
    pub(super) fn skip_to_quiet(&mut self, opaque: u32) -> bool {
        let end = match self.due.front() {
            Some(due) if due.kind == Kind::MultiGet => {
                // A final no-op has a number of its own.
                let keys = if self.has_opaques { due.keys.saturating_sub(1) } else { due.keys };
                due.sent.opaque.wrapping_sub(keys)
            }
            Some(due) => due.sent.opaque,
            None => self.next_opaque,
        };
        let is_open = opaque.wrapping_sub(self.lowest_opaque) < end.wrapping_sub(self.lowest_opaque);
        if is_open {
            self.lowest_opaque = opaque.wrapping_add(1);
        }
        is_open
    }

    pub(super) fn into_tags(self) -> impl Iterator<Item = T> {
        self.due.into_iter().filter_map(|due| due.tag)
    }
}

/// Keys, each after a byte with its length, in the order of the requests.
#[derive(Debug, Default)]
struct KeyLog {
    bytes: Vec<u8>,
    /// Start of the first key that is still needed.
    start: usize,
}

impl KeyLog {
    #[inline]
    fn push(&mut self, key: &[u8]) {
        if self.start >= COMPACT_BYTES && self.start * 2 >= self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        // Servers refuse keys of more than 250 bytes.
        let key = &key[..key.len().min(u8::MAX.into())];
        self.bytes.push(key.len() as u8);
        self.bytes.extend_from_slice(key);
    }

    #[inline]
    fn pop(&mut self) -> &[u8] {
        let begin = self.start;
        self.start = self.bytes.len().min(begin + 1 + self.peek().len());
        self.bytes.get(begin + 1..self.start).unwrap_or_default()
    }

    /// The first key that is still needed.
    #[inline]
    fn peek(&self) -> &[u8] {
        let Some((&length, rest)) = self.bytes.get(self.start..).and_then(|bytes| bytes.split_first()) else {
            return b"";
        };
        rest.get(..length.into()).unwrap_or_default()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }
}

/// Used keys are removed when they have at least so many bytes, and at least half of all.
const COMPACT_BYTES: usize = 64 << 10;
