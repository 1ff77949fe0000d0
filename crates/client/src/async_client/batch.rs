//! Values of a get of many keys that have arrived together.

use crate::client::Item;
use crate::codec::Value;

/// Values, each with the position of its key.
///
/// Small ones lie one after the other in one buffer. Each becomes a vector when it is taken, of memory that the one
/// before it has often just given back.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    values: Vec<Arrived>,
    /// How many have been taken.
    taken: usize,
}

#[derive(Debug)]
struct Arrived {
    /// Position of its key: in the request, and from [`Batch::place`] on among all keys.
    position: usize,
    client_flags: u32,
    cas: Option<u64>,
    value: Bytes,
}

#[derive(Debug)]
enum Bytes {
    /// These of the buffer.
    Shared {
        begin: usize,
        end: usize,
    },
    Own(Vec<u8>),
}

impl Batch {
    /// True if all have been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that have not been taken.
    pub(super) fn len(&self) -> usize {
        self.values.len() - self.taken
    }

    /// Adds a value of a request for so many keys, of which no more than `room_bytes` have been received.
    #[inline]
    pub(super) fn push(&mut self, value: &Value<'_>, keys: usize, room_bytes: usize) {
        let bytes = value.bytes;
        if self.values.is_empty() {
            self.values.reserve(keys);
        }
        let value_bytes = if bytes.len() > SHARED_BYTES_MAX {
            Bytes::Own(bytes.to_vec())
        } else {
            if self.bytes.is_empty() {
                // Values of one request are often of one size.
                self.bytes.reserve(bytes.len().saturating_mul(keys).min(room_bytes));
            }
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            Bytes::Shared { begin, end: self.bytes.len() }
        };
        let Value { index, client_flags, cas, .. } = *value;
        self.values.push(Arrived { position: index as usize, client_flags, cas, value: value_bytes });
    }

    /// Gives each value the position of its key among all. `place` is told the one in the request and what the value
    /// takes, and answers `None` for values that nobody wants.
    pub(super) fn place(&mut self, mut place: impl FnMut(usize, usize) -> Option<usize>) {
        self.values.retain_mut(|arrived| {
            let placed = place(arrived.position, room_of(arrived.value.len()));
            arrived.position = placed.unwrap_or_default();
            placed.is_some()
        });
    }

    /// Takes the next value: the position of its key, the value, and what it took.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(usize, Item, usize)> {
        let arrived = self.values.get_mut(self.taken)?;
        self.taken += 1;
        let Arrived { position, client_flags, cas, .. } = *arrived;
        let value = match &mut arrived.value {
            Bytes::Shared { begin, end } => self.bytes[*begin..*end].to_vec(),
            Bytes::Own(bytes) => std::mem::take(bytes),
        };
        let room = room_of(value.len());
        Some((position, Item { value, client_flags, cas }, room))
    }
}

impl Bytes {
    fn len(&self) -> usize {
        match self {
            Self::Shared { begin, end } => end - begin,
            Self::Own(bytes) => bytes.len(),
        }
    }
}

/// What a value of so many bytes takes until it is taken.
fn room_of(value_bytes: usize) -> usize {
    value_bytes + VALUE_OVERHEAD_BYTES
}

/// Larger values are not copied twice.
const SHARED_BYTES_MAX: usize = 4 << 10;
/// What a value takes besides its bytes.
const VALUE_OVERHEAD_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_they_came() {
        let large = vec![b'l'; SHARED_BYTES_MAX + 1];
        let mut batch = Batch::default();
        for (index, bytes) in [&b"a"[..], b"", &large, b"gone", b"bc"].into_iter().enumerate() {
            let index = index as u32;
            batch.push(&Value { index, bytes, client_flags: index, cas: Some(7), meta_flags: b"" }, 5, 0);
        }
        let mut rooms = Vec::new();
        batch.place(|position, room| {
            rooms.push(room - VALUE_OVERHEAD_BYTES);
            (position != 3).then_some(position + 10)
        });
        assert_eq!(rooms, [1, 0, large.len(), 4, 2]);
        assert_eq!(batch.len(), 4);
        let item = |value: &[u8], client_flags| Item { value: value.to_vec(), client_flags, cas: Some(7) };
        let taken: Vec<_> = std::iter::from_fn(|| batch.next()).collect();
        let expected = [(10, item(b"a", 0)), (11, item(b"", 1)), (12, item(&large, 2)), (14, item(b"bc", 4))];
        assert_eq!(taken, expected.map(|(place, item)| (place, item.clone(), room_of(item.value.len()))));
        assert!(batch.is_empty());
    }
}
