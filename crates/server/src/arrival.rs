//! A value that has not arrived whole.

use arrayvec::ArrayVec;
use larder_engine::{Item, NoRoom, Turn, Upload};
use larder_protocol::{Command, Dialect, Error, Form, Parsed, Reply, Request};

use crate::execute::{Done, Executor, Value};

/// A store whose value is still arriving.
pub(crate) struct Arrival {
    /// What came before the value, to be parsed once more in the end: cheaper than to keep all that it said.
    head: Vec<u8>,
    dialect: Dialect,
    terminator: &'static [u8],
    place: Place,
}

/// Where the value waits.
enum Place {
    /// A small one here, and the terminator after it.
    Here { block: Vec<u8>, filled_bytes: usize },
    /// A large one where it will stay in the cache; the terminator after it does not.
    Cache { upload: Option<Upload>, end: ArrayVec<u8, 2> },
}

/// How far a value has come.
pub(crate) enum Arrived {
    NotYet,
    Whole,
    /// The place for the next piece is not to be had in this turn ...
    TryAgain,
    /// ... or not at all; so many bytes are still to come.
    OutOfMemory {
        missing_bytes: usize,
    },
}

/// How the arrival of a value begins.
pub(crate) enum Begun<'t> {
    Arriving(Arrival),
    /// Its place is not to be had in this turn.
    TryAgain,
    /// So many bytes of the value are to be passed over.
    Refused {
        reply: Reply<'t, Item<'t>>,
        bytes: usize,
    },
}

impl Arrival {
    /// Takes in the value that follows `head`, which is all that came of `request`.
    pub(crate) fn begin<'t>(
        executor: &mut Executor<'_, '_, '_, 't>,
        dialect: Dialect,
        head: &[u8],
        request: &Request<'_>,
    ) -> Begun<'t> {
        let Request { command, form } = request;
        match *command {
            Command::Store(store) if store.value_bytes < executor.cx.shared.engine.large_value_bytes() => {
                Begun::Arriving(Self::here(dialect, head, form, store.value_bytes))
            }
            Command::Store(store) => match executor.reserve(store) {
                Ok(Some(upload)) => Begun::Arriving(Self::in_cache(dialect, head, form, upload)),
                Ok(None) => Begun::TryAgain,
                Err(reply) => Begun::Refused { reply, bytes: form.block_bytes(store.value_bytes) },
            },
            Command::Malformed(malformed) => Begun::Refused {
                reply: Reply::Error(malformed.error),
                bytes: malformed.swallow_bytes as usize,
            },
            // Nothing else has a value.
            _ => Begun::Refused { reply: Reply::Error(Error::BadChunk), bytes: 0 },
        }
    }

    /// A value that waits here until it is whole.
    fn here(dialect: Dialect, head: &[u8], form: &Form<'_>, value_bytes: u32) -> Self {
        let block = vec![0; form.block_bytes(value_bytes)];
        Self::of(dialect, head, form, Place::Here { block, filled_bytes: 0 })
    }

    /// A value whose place in the cache is reserved.
    fn in_cache(dialect: Dialect, head: &[u8], form: &Form<'_>, upload: Upload) -> Self {
        Self::of(dialect, head, form, Place::Cache { upload: Some(upload), end: ArrayVec::new() })
    }

    fn of(dialect: Dialect, head: &[u8], form: &Form<'_>, place: Place) -> Self {
        Self { head: head.to_vec(), dialect, terminator: form.terminator(), place }
    }

    /// Copies what belongs to the value from the head of `input`, and says how much that was.
    pub(crate) fn receive(&mut self, turn: &Turn<'_>, input: &[u8], gives_up: bool) -> (usize, Arrived) {
        let (upload, end) = match &mut self.place {
            Place::Here { block, filled_bytes } => {
                let consumed = fill(&mut block[*filled_bytes..], input);
                *filled_bytes += consumed;
                let is_whole = *filled_bytes == block.len();
                return (consumed, if is_whole { Arrived::Whole } else { Arrived::NotYet });
            }
            Place::Cache { upload, end } => (upload, end),
        };
        let mut consumed = 0;
        while let Some(upload) = upload.as_mut().filter(|upload| upload.missing_bytes() > 0) {
            if consumed == input.len() {
                return (consumed, Arrived::NotYet);
            }
            match turn.window(upload) {
                Ok(window) => {
                    let n = fill(window, &input[consumed..]);
                    upload.advance(n);
                    consumed += n;
                }
                Err(NoRoom::TryAgain) if !gives_up => return (consumed, Arrived::TryAgain),
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

    /// Executes the command of a value that is whole.
    pub(crate) fn execute(&mut self, executor: &mut Executor<'_, '_, '_, '_>) -> Done {
        let Some(request) = parse(self.dialect, &self.head) else { return Done::Answered };
        let value = match &mut self.place {
            Place::Here { block, .. } => request.form.split_value(block).map(Value::Whole),
            Place::Cache { upload, end } => {
                (end.as_slice() == self.terminator).then_some(Value::Uploaded(upload))
            }
        };
        let done = match value {
            Some(value) => executor.execute(&request, None, value),
            None => executor.answer(&request.form, &Reply::Error(Error::BadChunk)),
        };
        if done != Done::TryAgain {
            executor.cx.recorder.answered(&request.command);
        }
        done
    }

    /// Refuses a value for which memory ran out: as if it had come at once, for how its bytes were cut into packets
    /// must make no difference.
    pub(crate) fn refuse(&mut self, executor: &mut Executor<'_, '_, '_, '_>) -> Done {
        if let Place::Cache { upload, .. } = &mut self.place {
            *upload = None;
        }
        let Some(request) = parse(self.dialect, &self.head) else { return Done::Answered };
        executor.cx.recorder.answered(&request.command);
        executor.refuse_for_memory(&request)
    }

    /// The place for what comes next. Not for the last few bytes: read into a buffer, they bring the next request along,
    /// and the value becomes whole only there.
    pub(crate) fn window(&mut self, turn: &Turn<'_>) -> Result<Option<&mut [u8]>, NoRoom> {
        match &mut self.place {
            Place::Here { block, filled_bytes } => {
                let window_end = block.len() - self.terminator.len().max(1);
                let window = block.get_mut(*filled_bytes..window_end);
                Ok(window.filter(|window| window.len() >= WINDOW_BYTES_MIN))
            }
            Place::Cache { upload: Some(upload), .. }
                if upload.missing_bytes() >= WINDOW_BYTES_MIN as u32 =>
            {
                let missing_bytes = upload.missing_bytes() as usize;
                let window_bytes_max = missing_bytes + self.terminator.len() - self.terminator.len().max(1);
                let window = turn.window(upload)?;
                let window_bytes = window.len().min(window_bytes_max);
                Ok(Some(&mut window[..window_bytes]))
            }
            Place::Cache { .. } => Ok(None),
        }
    }

    /// The first `n` bytes of the window were filled.
    pub(crate) fn filled(&mut self, n: usize) {
        match &mut self.place {
            Place::Here { filled_bytes, .. } => *filled_bytes += n,
            Place::Cache { upload: Some(upload), .. } => upload.advance(n),
            Place::Cache { upload: None, .. } => {}
        }
    }
}

/// The request of an arrival. It was parsed before, so it is one.
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

/// Smaller windows are not worth a read of their own.
const WINDOW_BYTES_MIN: usize = 16 << 10;
