//! A run of `set <key> <flags> <exptime> <bytes>` lines with their values: taken in with one look at each, fetched ahead together,
//! and carried out in order, as [`crate::gets`] does with gets. It does what [`crate::session`] would do with each of them as a
//! request of any kind, and leaves the first that is something else, or not there whole, to it.

use arrayvec::ArrayVec;
use larder_engine::Guesses;
use larder_protocol::command::Store;
use larder_protocol::{Key, text};

use crate::execute::{Done, Executor};
use crate::measure::Class;
use crate::session::{BATCH_REQUESTS_MAX, OUTPUT_BYTES_MAX, PLAIN, Step, Verdict};

/// A set of the run.
struct Set<'i> {
    key: Key<'i>,
    client_flags: u32,
    exptime: i64,
    value: &'i [u8],
    /// Where the next request starts.
    end: usize,
}

/// Carries out the run at the head of `input`, if there is one worth it: at most `sets_max` of it.
pub(crate) fn serve(executor: &mut Executor<'_, '_, '_, '_>, input: &[u8], sets_max: usize) -> Option<Step> {
    let run = run(input, sets_max)?;
    let hashes: ArrayVec<_, BATCH_REQUESTS_MAX> =
        run.iter().map(|set| executor.prepare_once(set.key.written())).collect();
    let guesses = if run.len() > 1 { executor.turn.guess_changes(&hashes) } else { Guesses::default() };
    let mut step = Step { consumed: 0, requests: 0, verdict: None };
    for ((set, &hash), &guess) in run.iter().zip(&hashes).zip(&guesses) {
        let store = Store::set(set.key, set.client_flags, set.exptime, set.value.len() as u32);
        let done = executor.set(store, hash, guess, set.value, &PLAIN);
        if done == Done::TryAgain {
            step.verdict = Some(Verdict::TryAgain);
            break;
        }
        executor.cx.recorder.key(set.key.written());
        step.consumed = set.end;
        step.requests += 1;
        executor.gives_up = false;
        if let Done::Close(reason) = done {
            step.verdict = Some(Verdict::Close(reason));
            break;
        }
        if executor.out.len_bytes() >= OUTPUT_BYTES_MAX {
            step.verdict = Some(Verdict::Yield);
            break;
        }
    }
    executor.cx.recorder.count(Class::Store, step.requests);
    Some(step)
}

/// The run of plain sets at the head of `input`, unless there is more to be fetched ahead together in a batch of all kinds.
fn run(input: &[u8], sets_max: usize) -> Option<ArrayVec<Set<'_>, BATCH_REQUESTS_MAX>> {
    let mut run = ArrayVec::new();
    let mut end = 0;
    while run.len() < sets_max
        && let Some((store, head_bytes)) = text::parse_plain_set(&input[end..])
        && let Some(block) = input[end + head_bytes..].get(..PLAIN.block_bytes(store.value_bytes))
        && let Some(value) = PLAIN.split_value(block)
    {
        end += head_bytes + block.len();
        let Store { key, client_flags, exptime, .. } = store;
        run.push(Set { key, client_flags, exptime, value, end });
    }
    let is_worth_it = run.len() >= RUN_MIN || !run.is_empty() && end == input.len();
    is_worth_it.then_some(run)
}

/// Shorter ones are, if something else is behind them.
const RUN_MIN: usize = 8;
