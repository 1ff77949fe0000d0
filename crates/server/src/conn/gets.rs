//! A run of `get <key>` lines, which is most of what caches are asked: taken in with one look at each, fetched ahead together,
//! and answered in order. It does what [`crate::conn::session`] would do with each of them as a request of any kind, and leaves the
//! first that is something else to it.

use arrayvec::ArrayVec;
use larder_engine::LookupHint;
use larder_protocol::{Reply, text};

use crate::conn::session::{BATCH_REQUESTS_MAX, FeedStatus, OUTPUT_BYTES_MAX, PLAIN, Step};
use crate::exec::Executor;
use crate::observe::measure::Class;

/// Answers the run at the head of `input`, if there is one: at most `gets_max` of it.
pub(crate) fn serve(executor: &mut Executor<'_, '_, '_, '_>, input: &[u8], gets_max: usize) -> Option<Step> {
    let mut run = ArrayVec::<_, BATCH_REQUESTS_MAX>::new();
    let mut hashes = ArrayVec::<_, BATCH_REQUESTS_MAX>::new();
    let mut end = 0;
    while run.len() < gets_max
        && let Some((key, line_bytes)) = text::parse_plain_get(&input[end..])
    {
        end += line_bytes;
        run.push((key, end));
        hashes.push(executor.prepare_once(key.written()));
    }
    if run.is_empty() {
        return None;
    }
    let hintes = (run.len() > 1).then(|| executor.guard.hint_gets(&hashes));
    let mut step = Step { consumed: 0, requests: 0, status: None };
    for (at, (&(key, end), &hash)) in run.iter().zip(&hashes).enumerate() {
        let hint = hintes.as_ref().map_or_else(LookupHint::default, |hintes| hintes[at]);
        executor.cx.recorder.key(key.written());
        executor.get(key, hash, hint, &PLAIN);
        PLAIN.encode(&Reply::End, executor.out);
        step.consumed = end;
        step.requests += 1;
        if executor.out.len_bytes() >= OUTPUT_BYTES_MAX {
            step.status = Some(FeedStatus::Yield);
            break;
        }
    }
    executor.cx.recorder.count(Class::Get, step.requests);
    Some(step)
}
