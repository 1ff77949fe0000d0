//! A run of `set <key> <flags> <exptime> <bytes>` lines with their values: taken in with one look at each, fetched ahead together,
//! and carried out in order, as [`crate::conn::gets`] does with gets. It does what [`crate::conn::session`] would do with each of them as a
//! request of any kind, and leaves the first that is something else, or not there whole, to it.

use arrayvec::ArrayVec;
use larder_engine::LookupHint;
use larder_protocol::command::Store;
use larder_protocol::{Key, text};

use crate::conn::session::{BATCH_REQUESTS_MAX, FeedStatus, PLAIN, Step};
use crate::exec::{Done, Executor};
use crate::observe::measure::Class;

/// A set of the run.
struct Set<'i> {
    key: Key<'i>,
    client_flags: u32,
    exptime: i64,
    value: &'i [u8],
    /// Where the next request starts.
    end: usize,
}

type Run<'i> = ArrayVec<Set<'i>, BATCH_REQUESTS_MAX>;

/// Carries out the run at the head of `input`, if there is one worth it: at most `sets_max` of it.
pub(crate) fn serve(executor: &mut Executor<'_, '_, '_, '_>, input: &[u8], sets_max: usize) -> Option<Step> {
    let mut run = Run::new();
    take_in(&mut run, input, sets_max);
    let is_worth_it = run.len() >= RUN_MIN || run.last().is_some_and(|last| last.end == input.len());
    if !is_worth_it {
        return None;
    }
    let hashes: ArrayVec<_, BATCH_REQUESTS_MAX> =
        run.iter().map(|set| executor.prepare_once(set.key.written())).collect();
    let hintes = (run.len() > 1).then(|| executor.guard.hint_changes(&hashes));
    let mut step = Step { consumed: 0, requests: 0, status: None };
    for (at, (set, &hash)) in run.iter().zip(&hashes).enumerate() {
        let hint = hintes.as_ref().map_or_else(LookupHint::default, |hintes| hintes[at]);
        let store = Store::set(set.key, set.client_flags, set.exptime, set.value.len() as u32);
        let done = executor.set(store, hash, hint, set.value, &PLAIN);
        if done == Done::TryAgain {
            step.status = Some(FeedStatus::TryAgain);
            break;
        }
        executor.cx.recorder.key(set.key.written());
        step.consumed = set.end;
        step.requests += 1;
        executor.gives_up = false;
        if let Done::Close(reason) = done {
            step.status = Some(FeedStatus::Close(reason));
            break;
        }
        if executor.is_sated() {
            step.status = Some(FeedStatus::Yield);
            break;
        }
    }
    executor.cx.recorder.count(Class::Store, step.requests);
    Some(step)
}

/// Adds the plain sets at the head of `input` that are there whole.
fn take_in<'i>(run: &mut Run<'i>, input: &'i [u8], sets_max: usize) {
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
}

/// Shorter ones are left to a batch of all kinds, if something else is behind them to be fetched ahead with them.
const RUN_MIN: usize = 8;
