//! A list of keys to get: hashed and fetched ahead some at a time, then answered in order.

use arrayvec::ArrayVec;
use larder_engine::BATCH_MAX;
use larder_protocol::command::Get;
use larder_protocol::{Form, Reply};

use crate::conn::session::{FeedStatus, OUTPUT_BYTES_MAX};
use crate::exec::{Executor, GetFailed};
use crate::observe::trace;

/// How far a list of keys was looked up.
pub(crate) enum LookedUp {
    /// To its end.
    All,
    /// The last `rest_bytes` of it are still to be looked up.
    Stopped { rest_bytes: usize, status: FeedStatus },
}

/// Looks up the keys until their replies are enough for one turn.
pub(crate) fn look_up(executor: &mut Executor<'_, '_, '_, '_>, get: Get<'_>, form: &Form<'_>) -> LookedUp {
    let Get { mut keys, exptime } = get;
    for _ in 0..RUNS_MAX {
        let run_start = keys;
        let mut run = ArrayVec::<_, BATCH_MAX>::new();
        let mut hashes = ArrayVec::<_, BATCH_MAX>::new();
        while !run.is_full() {
            let Some(key) = keys.next() else { break };
            hashes.push(executor.guard.prepare(key.written()));
            run.push(key);
        }
        let hintes = executor.guard.hint_gets(&hashes);
        for (at, ((&key, &hash), &hint)) in run.iter().zip(&hashes).zip(&hintes).enumerate() {
            let stop = |status| LookedUp::Stopped { rest_bytes: run_start.rest_after(at).len(), status };
            if executor.out.len_bytes() >= OUTPUT_BYTES_MAX {
                return stop(FeedStatus::Yield);
            }
            match executor.get_or_touch(key, hash, hint, exptime, form) {
                Ok(()) => executor.cx.recorder.key(key.written()),
                Err(GetFailed::TryAgain) => return stop(FeedStatus::TryAgain),
                Err(GetFailed::OutOfMemory) => return LookedUp::All,
            }
        }
        if keys.rest().is_empty() {
            if executor.cx.shared.observers.is_verbose() {
                trace::reply(executor.cx.client.fd, form, &Reply::End);
            }
            form.encode(&Reply::End, executor.out);
            return LookedUp::All;
        }
    }
    LookedUp::Stopped { rest_bytes: keys.rest().len(), status: FeedStatus::Yield }
}

/// Runs of keys before others have their turn.
const RUNS_MAX: usize = 64;
