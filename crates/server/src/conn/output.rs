//! Replies on their way to the client. Small values are copied into one buffer; large values are sent from where they
//! lie in the cache.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use larder_engine::{Item, ValueRef};
use larder_protocol::Sink;
use larder_protocol::reply::SHORT_BYTES;

use crate::conn::buffer_budget::{BufferBudget, BufferCharge};
use crate::conn::dependents::Dependents;
use crate::heap;
use crate::namespaces::Guards;

/// Bytes to be sent, in one or more pieces.
pub trait Pieces {
    /// Total size.
    fn len_bytes(&self) -> usize;

    /// All bytes, if they are in one piece.
    fn plain(&self) -> Option<&[u8]>;

    /// Fills `slices` with what follows the first `sent` bytes. Returns how many slices it filled: fewer than there are
    /// if the rest fits. `None`: one of the values is gone ([`ValueRef::value`]).
    fn slices<'s>(&'s self, sent: usize, slices: &mut [IoSlice<'s>]) -> Option<usize>;
}

/// Replies that are borrowed, and have to be copied if they cannot be sent.
pub trait Replies: Pieces {
    /// What follows the first `sent` bytes, to be kept until the client reads on. `None`: there is no memory for it.
    fn unsent(&self, sent: usize) -> Option<Unsent>;
}

/// Replies written under one guard: bytes, and large values between them.
#[derive(Debug, Default)]
pub struct Output<'t> {
    bytes: Vec<u8>,
    /// Where these replies begin in `bytes`. Other connections' replies may precede them.
    begin: usize,
    gathered: Vec<Gathered<Item<'t>>>,
    gathered_bytes: usize,
    /// Parts of the output that wait for changes to become durable.
    pub(crate) dependents: Dependents,
}

/// Replies that the socket did not take at once. Owns the bytes, and pins large values.
#[derive(Default)]
pub struct Unsent {
    bytes: Vec<u8>,
    gathered: Vec<Gathered<ValueRef>>,
    len_bytes: usize,
    written: usize,
    charge: BufferCharge,
}

/// Unsent replies under a guard, which keeps their values in place.
pub struct GuardedUnsent<'u, 'h> {
    unsent: &'u Unsent,
    guards: &'u Guards<'h>,
}

/// A value that belongs before byte `at` of the bytes.
#[derive(Debug)]
struct Gathered<V> {
    at: usize,
    value: V,
}

impl<'t> Output<'t> {
    /// Empty output, appended to the buffer's contents.
    pub fn new(buffer: Vec<u8>) -> Self {
        Self { begin: buffer.len(), bytes: buffer, ..Self::default() }
    }

    /// Output that begins with what the buffer holds from byte `begin` on.
    pub fn of(buffer: Vec<u8>, begin: usize) -> Self {
        Self { begin: begin.min(buffer.len()), bytes: buffer, ..Self::default() }
    }

    /// Takes the buffer back, as it was before these replies.
    pub fn into_buffer(mut self) -> Vec<u8> {
        self.bytes.truncate(self.begin);
        self.bytes
    }

    /// The buffer with these replies at its end, and their range in it. Gathered values are left out: see
    /// [`Output::plain`].
    pub fn into_filled_buffer(self) -> (Vec<u8>, Range<usize>) {
        let range = self.begin..self.bytes.len();
        (self.bytes, range)
    }

    /// The buffer with these replies at its end, gathered values included.
    pub fn into_whole_buffer(self) -> Vec<u8> {
        if self.gathered.is_empty() {
            return self.bytes;
        }
        let mut whole = Vec::with_capacity(self.whole_bytes());
        whole.extend_from_slice(&self.bytes[..self.begin]);
        let mut from = 0;
        for Gathered { at, value } in &self.gathered {
            whole.extend_from_slice(&self.own_bytes()[from..*at]);
            whole.extend_from_slice(value.value());
            from = *at;
        }
        whole.extend_from_slice(&self.own_bytes()[from..]);
        whole
    }

    /// True if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// Size of all that is to be sent.
    pub fn len_bytes(&self) -> usize {
        self.own_bytes().len() + self.gathered_bytes
    }

    /// The same with what stands before it in the buffer.
    pub(crate) fn whole_bytes(&self) -> usize {
        self.begin + self.len_bytes()
    }

    /// All that is to be sent, if it is in one piece.
    pub fn plain(&self) -> Option<&[u8]> {
        self.gathered.is_empty().then(|| self.own_bytes())
    }

    /// A copy of everything. `None`: there is no memory for it.
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut copy = heap::with_capacity(self.len_bytes())?;
        let mut from = 0;
        for Gathered { at, value } in &self.gathered {
            copy.extend_from_slice(&self.own_bytes()[from..*at]);
            copy.extend_from_slice(value.value());
            from = *at;
        }
        copy.extend_from_slice(&self.own_bytes()[from..]);
        Some(copy)
    }

    fn own_bytes(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

impl Pieces for Output<'_> {
    #[inline]
    fn len_bytes(&self) -> usize {
        Self::len_bytes(self)
    }

    #[inline]
    fn plain(&self) -> Option<&[u8]> {
        Self::plain(self)
    }

    fn slices<'s>(&'s self, sent: usize, slices: &mut [IoSlice<'s>]) -> Option<usize> {
        let values = self.gathered.iter().map(|gathered| (gathered.at, Some(gathered.value.value())));
        gather(self.own_bytes(), values, sent, slices)
    }
}

impl Replies for Output<'_> {
    fn unsent(&self, sent: usize) -> Option<Unsent> {
        // At most as many as are copied: a value that cannot be pinned is copied.
        let pinned = self.gathered.iter().filter(|gathered| gathered.value.is_pinnable());
        let pinned_bytes: usize = pinned.map(|gathered| gathered.value.value().len()).sum();
        let mut unsent = Unsent {
            bytes: heap::with_capacity((self.len_bytes() - pinned_bytes).min(self.len_bytes() - sent))?,
            gathered: heap::with_capacity(self.gathered.len())?,
            ..Unsent::default()
        };
        let mut skip = sent;
        let mut from = 0;
        for Gathered { at, value } in &self.gathered {
            unsent.push(&self.own_bytes()[from..*at], &mut skip);
            from = *at;
            let is_unsent = skip < value.value().len();
            match is_unsent.then(|| value.value_ref()).flatten() {
                Some(pin) => {
                    // The first value alone can have been sent in part: the rest starts within it.
                    unsent.written += skip;
                    skip = 0;
                    unsent.len_bytes += value.value().len();
                    unsent.gathered.push(Gathered { at: unsent.bytes.len(), value: pin });
                }
                None => unsent.push(value.value(), &mut skip),
            }
        }
        unsent.push(&self.own_bytes()[from..], &mut skip);
        Some(unsent)
    }
}

impl Pieces for [u8] {
    #[inline]
    fn len_bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn plain(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn slices<'s>(&'s self, sent: usize, slices: &mut [IoSlice<'s>]) -> Option<usize> {
        gather(self, std::iter::empty(), sent, slices)
    }
}

impl Replies for [u8] {
    fn unsent(&self, sent: usize) -> Option<Unsent> {
        let bytes = heap::with_capacity(self.len() - sent)?;
        let mut unsent = Unsent { bytes, ..Unsent::default() };
        unsent.push(self, &mut { sent });
        Some(unsent)
    }
}

impl<'t> Sink for Output<'t> {
    type Value = Item<'t>;

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    #[inline]
    fn short(&mut self, bytes: [u8; SHORT_BYTES], len_bytes: usize) {
        let end = self.bytes.len() + len_bytes;
        self.bytes.extend_from_slice(&bytes);
        self.bytes.truncate(end);
    }

    #[inline]
    fn value(&mut self, item: &Item<'t>) {
        let value = item.value();
        if value.len() < GATHERED_BYTES_MIN {
            self.bytes.extend_from_slice(value);
        } else {
            self.gathered_bytes += value.len();
            self.gathered.push(Gathered { at: self.own_bytes().len(), value: *item });
        }
    }
}

impl Unsent {
    /// True if everything is sent.
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// Bytes still to be sent.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes - self.written
    }

    /// The unsent replies under this guard, to be sent while it lives.
    pub fn guarded<'u, 'h>(&'u self, guards: &'u Guards<'h>) -> GuardedUnsent<'u, 'h> {
        GuardedUnsent { unsent: self, guards }
    }

    /// Charges what it holds outside of the cache. False: the budget does not allow it.
    pub(crate) fn charge(&mut self, buffers: &Arc<BufferBudget>) -> bool {
        self.charge.resize(buffers, self.bytes.capacity())
    }

    /// A copy of what is still to be sent; only where no values of the cache are in it.
    pub fn to_bytes(&self) -> Vec<u8> {
        debug_assert!(self.gathered.is_empty(), "values lie elsewhere");
        self.bytes[self.written..].to_vec()
    }

    /// Another `n` bytes were sent.
    pub fn advance(&mut self, n: usize) {
        self.written = (self.written + n).min(self.len_bytes);
        // Frees values that are sent: others may need their memory.
        while let Some(first) = self.gathered.first()
            && first.at + first.value.len_bytes() <= self.written
        {
            let Gathered { at, value } = self.gathered.remove(0);
            self.bytes.drain(..at);
            self.gathered.iter_mut().for_each(|next| next.at -= at);
            self.len_bytes -= at + value.len_bytes();
            self.written -= at + value.len_bytes();
        }
    }

    /// Replaces these bytes, which hold only whole values. Nothing may have been sent yet.
    pub(crate) fn replace(&mut self, range: Range<usize>, bytes: &[u8]) {
        // Values that begin before a given byte all come before it.
        let split = |at: usize| {
            let mut values_bytes = 0;
            let before = |gathered: &&Gathered<ValueRef>| {
                let is_before = gathered.at + values_bytes < at;
                values_bytes += if is_before { gathered.value.len_bytes() } else { 0 };
                is_before
            };
            let count = self.gathered.iter().take_while(before).count();
            (count, at - values_bytes)
        };
        let (end, begin) = (range.end.min(self.len_bytes), range.start.min(self.len_bytes));
        let ((first, from), (last, to)) = (split(begin), split(end));
        self.gathered.drain(first..last);
        for gathered in &mut self.gathered[first..] {
            gathered.at = gathered.at - to + from + bytes.len();
        }
        self.bytes.splice(from..to, bytes.iter().copied());
        self.len_bytes = self.len_bytes - (end - begin) + bytes.len();
    }

    fn push(&mut self, bytes: &[u8], skip: &mut usize) {
        let skipped = bytes.len().min(*skip);
        *skip -= skipped;
        self.bytes.extend_from_slice(&bytes[skipped..]);
        self.len_bytes += bytes.len() - skipped;
    }
}

impl Pieces for GuardedUnsent<'_, '_> {
    fn len_bytes(&self) -> usize {
        self.unsent.len_bytes()
    }

    fn plain(&self) -> Option<&[u8]> {
        let Unsent { bytes, gathered, written, .. } = self.unsent;
        gathered.is_empty().then(|| &bytes[*written..])
    }

    fn slices<'s>(&'s self, sent: usize, slices: &mut [IoSlice<'s>]) -> Option<usize> {
        let Unsent { bytes, gathered, written, .. } = self.unsent;
        let values = gathered.iter().map(|gathered| {
            (gathered.at, gathered.value.value(self.guards.guard_of(gathered.value.engine())))
        });
        gather(bytes, values, written + sent, slices)
    }
}

fn gather<'s>(
    bytes: &'s [u8],
    values: impl Iterator<Item = (usize, Option<&'s [u8]>)>,
    mut skip: usize,
    slices: &mut [IoSlice<'s>],
) -> Option<usize> {
    let mut filled = 0;
    let mut push = |part: &'s [u8]| {
        let skipped = part.len().min(skip);
        skip -= skipped;
        if skipped == part.len() {
            return true;
        }
        let Some(slice) = slices.get_mut(filled) else { return false };
        *slice = IoSlice::new(&part[skipped..]);
        filled += 1;
        true
    };
    let mut from = 0;
    for (at, value) in values {
        if !push(&bytes[from..at]) || !push(value?) {
            return Some(filled);
        }
        from = at;
    }
    push(&bytes[from..]);
    Some(filled)
}

/// A connection yields once this many bytes of values were written; one value may exceed it.
pub(crate) const COPIED_BYTES_MAX: usize = 256 << 10;
/// Replies are sent once there are this many bytes of them; one reply may exceed it.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Values from this size on are gathered: below it, copying costs less than one more part in a write.
pub const GATHERED_BYTES_MIN: usize = 4096;
