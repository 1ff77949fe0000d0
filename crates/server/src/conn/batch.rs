//! Whole requests of any kind that arrived together: framed one after the other, and their memory fetched ahead for all of them.

use arrayvec::ArrayVec;
use larder_engine::{Guard, LookupHint};
use larder_protocol::{Command, Dialect, Request};

use crate::conn::frame::{Frame, single_key};
use crate::conn::session::BATCH_REQUESTS_MAX;
use crate::exec::{Executor, Prepared};

/// What stands at the head of the input.
pub(crate) struct Batch<'i, 't> {
    pub(crate) requests: ArrayVec<Framed<'i, 't>, BATCH_REQUESTS_MAX>,
    /// Where they end.
    pub(crate) bytes: usize,
    /// What stands there, if it is not whole.
    pub(crate) tail: Option<Frame<'i>>,
}

/// A request of a batch.
pub(crate) struct Framed<'i, 't> {
    pub(crate) request: Request<'i>,
    /// Its value with the terminator after it, if it has one.
    pub(crate) value: &'i [u8],
    /// Of its key, if it has exactly one.
    pub(crate) prepared: Option<Prepared<'t>>,
    /// Where the next request starts.
    pub(crate) end: usize,
}

impl<'i, 't> Batch<'i, 't> {
    /// At most `requests_max` requests, the first of which has no line feed in its first `scanned_bytes`.
    #[inline]
    pub(crate) fn of(
        executor: &mut Executor<'_, '_, '_, 't>,
        dialect: Dialect,
        input: &'i [u8],
        requests_max: usize,
        mut scanned_bytes: usize,
    ) -> Self {
        let mut batch = Self { requests: ArrayVec::new(), bytes: 0, tail: None };
        while batch.requests.len() < requests_max && batch.bytes < input.len() {
            let frame = Frame::of(dialect, &input[batch.bytes..], std::mem::take(&mut scanned_bytes));
            let Frame::Whole { request, value, bytes } = frame else {
                batch.tail = Some(frame);
                break;
            };
            batch.bytes += bytes;
            let prepared =
                single_key(&request.command).map(|key| (executor.prepare_once(key), LookupHint::default()));
            batch.requests.push(Framed { request, value, prepared, end: batch.bytes });
        }
        if batch.requests.len() > 1 {
            batch.fetch_ahead(executor.guard);
        }
        batch
    }

    fn fetch_ahead(&mut self, guard: &'t Guard<'_>) {
        let prepared = self.requests.iter().filter_map(|framed| framed.prepared);
        let hashes: ArrayVec<_, BATCH_REQUESTS_MAX> = prepared.map(|(hash, _)| hash).collect();
        let is_store = |framed: &Framed<'_, '_>| matches!(framed.request.command, Command::Store(_));
        let hintes = if self.requests.iter().all(is_store) {
            guard.hint_changes(&hashes)
        } else {
            guard.hint_gets(&hashes)
        };
        let prepared = self.requests.iter_mut().filter_map(|framed| framed.prepared.as_mut());
        for ((_, hint), hinted) in prepared.zip(hintes) {
            *hint = hinted;
        }
    }
}
