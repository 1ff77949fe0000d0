//! A value that has not arrived whole.

use std::sync::Arc;

use arrayvec::ArrayVec;
use larder_engine::{Item, UPLOAD_BYTES_MIN, Upload, WriteError};
use larder_protocol::{Command, Dialect, Error, Parsed, Reply, Request};

use crate::conn::buffer_budget::{BufferBudget, BufferCharge, FREE_BYTES};
use crate::conn::waiter::Waiting;
use crate::exec::{Done, Executor, Refused, Value};
use crate::heap;
use crate::namespaces::Guards;

/// A store whose value is still arriving.
pub(crate) struct Arrival {
    /// The request before the value. Parsing it again at the end is cheaper than keeping all its fields.
    head: Vec<u8>,
    dialect: Dialect,
    terminator: &'static [u8],
    place: Place,
}

/// Where the value waits.
enum Place {
    /// On the heap, with the terminator: a small value, or the first bytes of a large one.
    Buffered(Buffered),
    /// The rest of a large value, in its final place in the cache; the terminator is kept here.
    Cache {
        upload: Option<Upload>,
        /// The number of its namespace.
        number: u8,
        end: ArrayVec<u8, 2>,
    },
}

/// A value, or its first bytes, on the heap. The buffer grows as they arrive.
struct Buffered {
    block: Vec<u8>,
    charge: BufferCharge,
    value_bytes: usize,
    /// Including the terminator.
    whole_bytes: usize,
}

/// How much of a value has arrived.
pub(crate) enum Arrived {
    NotYet,
    Whole,
    /// The next piece gets no memory under this guard ...
    TryAgain,
    /// ... or none at all. `missing_bytes` are still to come.
    OutOfMemory {
        missing_bytes: usize,
    },
}

/// How the arrival of a value begins.
pub(crate) enum Begun<'t> {
    Arriving(Arrival),
    /// The value is not taken under this guard: begin again after this wait.
    Wait(Waiting),
    /// The next `bytes` bytes of input, which belong to the value, are to be skipped.
    Refused {
        reply: Reply<'t, Item<'t>>,
        bytes: usize,
    },
}

impl<'t> Begun<'t> {
    fn refused(refused: Refused<'t>, bytes: usize) -> Self {
        match refused {
            Ok(reply) => Self::Refused { reply, bytes },
            Err(waiting) => Self::Wait(waiting),
        }
    }
}

impl Arrival {
    /// Begins to receive the value that follows `head`, which is all of `request` that has arrived.
    pub(crate) fn begin<'t>(
        executor: &mut Executor<'_, '_, '_, 't>,
        dialect: Dialect,
        head: &[u8],
        request: &Request<'_>,
    ) -> Begun<'t> {
        let Request { command, form } = request;
        match *command {
            Command::Store(store) => {
                let bytes = form.block_bytes(store.value_bytes);
                if store.value_bytes as usize > BUFFERED_BYTES_MAX
                    || store.value_bytes >= executor.large_value_bytes(store.key)
                {
                    match executor.admit_value(store) {
                        Ok(()) => {}
                        Err(refused) => return Begun::refused(refused, bytes),
                    }
                }
                let buffered = Buffered {
                    block: Vec::new(),
                    charge: BufferCharge::default(),
                    value_bytes: store.value_bytes as usize,
                    whole_bytes: bytes,
                };
                let Some(head) = heap::copy(head) else {
                    return Begun::refused(executor.refusal_for_memory(store), bytes);
                };
                Begun::Arriving(Self {
                    head,
                    dialect,
                    terminator: form.terminator(),
                    place: Place::Buffered(buffered),
                })
            }
            Command::Malformed(malformed) => Begun::Refused {
                reply: Reply::Error(malformed.error),
                bytes: malformed.swallow_bytes as usize,
            },
            // No other command has a value.
            _ => Begun::Refused { reply: Reply::Error(Error::BadChunk), bytes: 0 },
        }
    }

    /// Copies what belongs to the value from the head of `input`. Returns how much that was.
    pub(crate) fn receive(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        input: &[u8],
    ) -> (usize, Arrived) {
        let mut consumed = 0;
        if let Place::Buffered(buffered) = &mut self.place {
            if !buffered.goes_to_cache(input) {
                consumed = buffered.receive(&executor.cx.shared.buffers, input);
            }
            if buffered.is_whole() {
                return (consumed, Arrived::Whole);
            }
            if consumed == input.len() {
                return (consumed, Arrived::NotYet);
            }
            match buffered.move_to_cache(executor, self.dialect, &self.head) {
                Ok(place) => self.place = place,
                Err(WriteError::TryAgain) if !executor.deadline_passed => {
                    return (consumed, Arrived::TryAgain);
                }
                Err(_) => {
                    let missing_bytes = buffered.whole_bytes - buffered.block.len();
                    return (consumed, Arrived::OutOfMemory { missing_bytes });
                }
            }
        }
        let Place::Cache { upload, number, end } = &mut self.place else {
            return (consumed, Arrived::NotYet);
        };
        while let Some(upload) = upload.as_mut().filter(|upload| upload.missing_bytes() > 0) {
            if consumed == input.len() {
                return (consumed, Arrived::NotYet);
            }
            match executor.guards.guard(*number).window(upload) {
                Ok(window) => {
                    let n = fill(window, &input[consumed..]);
                    upload.advance(n);
                    consumed += n;
                }
                Err(WriteError::TryAgain) if !executor.deadline_passed => {
                    return (consumed, Arrived::TryAgain);
                }
                Err(_) => {
                    let missing_bytes = upload.missing_bytes() as usize + self.terminator.len();
                    return (consumed, Arrived::OutOfMemory { missing_bytes });
                }
            }
        }
        let rest = &input[consumed..];
        let n = rest.len().min(self.terminator.len() - end.len());
        end.extend(rest[..n].iter().copied());
        (consumed + n, if end.len() == self.terminator.len() { Arrived::Whole } else { Arrived::NotYet })
    }

    /// Executes the command of a whole value.
    pub(crate) fn execute(&mut self, executor: &mut Executor<'_, '_, '_, '_>) -> Done {
        let Some(request) = parse(self.dialect, &self.head) else { return Done::Answered };
        let value = match &mut self.place {
            Place::Buffered(buffered) => request.form.split_value(&buffered.block).map(Value::Whole),
            Place::Cache { upload, end, .. } => {
                (end.as_slice() == self.terminator).then_some(Value::Uploaded(upload))
            }
        };
        let begin = executor.out.len_bytes();
        let done = match value {
            Some(value) => executor.execute(&request, None, value),
            None => executor.answer(&request.form, &Reply::Error(Error::BadChunk)),
        };
        if !matches!(done, Done::Wait(_)) {
            executor.depend(begin, &request.form, false);
            executor.end_request();
            executor.cx.recorder.answered(&request.command);
        }
        done
    }

    /// Refuses a value for which memory ran out, with the same reply as if it had arrived at once: how its bytes were
    /// cut into packets must make no difference.
    pub(crate) fn refuse(&mut self, executor: &mut Executor<'_, '_, '_, '_>) -> Done {
        let Some(request) = parse(self.dialect, &self.head) else { return Done::Answered };
        let begin = executor.out.len_bytes();
        let done = executor.refuse_for_memory(&request);
        if !matches!(done, Done::Wait(_)) {
            executor.depend(begin, &request.form, true);
            executor.end_request();
            if let Place::Cache { upload, .. } = &mut self.place {
                *upload = None;
            }
            executor.cx.recorder.answered(&request.command);
        }
        done
    }

    /// The place for what comes next, if a large value has one. The last few bytes are not received there: read into a
    /// buffer they bring the next request along, and only [`Arrival::receive`] completes a value.
    pub(crate) fn window<'u>(
        &'u mut self,
        guards: &'u Guards<'_>,
    ) -> Result<Option<&'u mut [u8]>, WriteError> {
        let Place::Cache { upload: Some(upload), number, .. } = &mut self.place else { return Ok(None) };
        let missing_bytes = upload.missing_bytes() as usize;
        if missing_bytes < WINDOW_BYTES_MIN {
            return Ok(None);
        }
        let window_bytes_max = missing_bytes + self.terminator.len() - self.terminator.len().max(1);
        let window = guards.guard(*number).window(upload)?;
        let window_bytes = window.len().min(window_bytes_max);
        Ok(Some(&mut window[..window_bytes]))
    }

    /// Bytes of a value in the cache that are still to come.
    pub(crate) fn missing_bytes(&self) -> usize {
        let Place::Cache { upload: Some(upload), .. } = &self.place else { return 0 };
        upload.missing_bytes() as usize
    }

    /// The first `n` bytes of the window were filled.
    pub(crate) fn filled(&mut self, n: usize) {
        if let Place::Cache { upload: Some(upload), .. } = &mut self.place {
            upload.advance(n);
        }
    }
}

impl Buffered {
    fn is_whole(&self) -> bool {
        self.block.len() == self.whole_bytes
    }

    /// True if enough of a large value has come at once: it need not wait here.
    fn goes_to_cache(&self, input: &[u8]) -> bool {
        self.value_bytes > BUFFERED_BYTES_MAX && self.block.is_empty() && input.len() > UPLOAD_BYTES_MIN
    }

    /// Copies from `input` as much as belongs here. Returns how much that was.
    fn receive(&mut self, buffers: &Arc<BufferBudget>, input: &[u8]) -> usize {
        let kept_bytes_max =
            if self.value_bytes > BUFFERED_BYTES_MAX { UPLOAD_BYTES_MIN } else { self.whole_bytes };
        let mut consumed = 0;
        while consumed < input.len() && self.block.len() < kept_bytes_max {
            if self.block.len() == self.block.capacity() {
                let capacity = (2 * self.block.len()).max(FREE_BYTES).min(kept_bytes_max);
                if !self.charge.resize(buffers, capacity) || !heap::reserve_exact(&mut self.block, capacity) {
                    break;
                }
            }
            let room = self.block.capacity().min(kept_bytes_max) - self.block.len();
            let n = room.min(input.len() - consumed);
            self.block.extend_from_slice(&input[consumed..consumed + n]);
            consumed += n;
        }
        consumed
    }

    /// Moves what has arrived to the cache.
    fn move_to_cache(
        &self,
        executor: &mut Executor<'_, '_, '_, '_>,
        dialect: Dialect,
        head: &[u8],
    ) -> Result<Place, WriteError> {
        let Some(Request { command: Command::Store(store), .. }) = parse(dialect, head) else {
            return Err(WriteError::OutOfMemory);
        };
        let (mut upload, number) = executor.reserve(store)?;
        let (mut value, end) = self.block.split_at(self.block.len().min(self.value_bytes));
        while !value.is_empty() {
            let n = fill(executor.guards.guard(number).window(&mut upload)?, value);
            upload.advance(n);
            value = &value[n..];
        }
        Ok(Place::Cache { upload: Some(upload), number, end: end.iter().copied().collect() })
    }
}

/// The request of an arrival. It was parsed before, so parsing succeeds.
fn parse(dialect: Dialect, head: &[u8]) -> Option<Request<'_>> {
    match dialect.parse(head, 0) {
        Parsed::Request { request, .. } => Some(request),
        Parsed::NeedInput | Parsed::Close => None,
    }
}

fn fill(window: &mut [u8], bytes: &[u8]) -> usize {
    let n = window.len().min(bytes.len());
    window[..n].copy_from_slice(&bytes[..n]);
    n
}

/// Larger values are received where they will lie.
const BUFFERED_BYTES_MAX: usize = 64 << 10;

/// A smaller window is not received into: a read of its own would cost more than the copy.
const WINDOW_BYTES_MIN: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_allocated_than_was_charged() {
        let buffers = Arc::new(BufferBudget::new(0, 0));
        let whole_bytes = FREE_BYTES + FREE_BYTES / 2;
        let (block, charge) = (Vec::new(), BufferCharge::default());
        let mut buffered = Buffered { block, charge, value_bytes: whole_bytes, whole_bytes };
        for _ in 0..whole_bytes {
            assert_eq!(buffered.receive(&buffers, b"x"), 1);
        }
        assert!(buffered.is_whole());
        assert_eq!(buffered.block.capacity(), whole_bytes);
    }
}
