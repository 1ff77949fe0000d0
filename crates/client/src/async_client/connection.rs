//! A connection as its users see it: a queue of requests, and whether it still serves them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use super::builder::Limits;
use super::end::End;
use super::reply::{Failure, Reply, Sink};
use super::request::Request;
use super::share::Delivery;
use crate::Error;
use crate::error::Interruption;

/// A connection. Its [driver](super::driver) takes the requests from the queue, in order, and answers them, in order.
/// Once it has ended it serves no request any more.
#[derive(Debug)]
pub(super) struct Connection {
    state: Mutex<State>,
    /// True soon after the state has an end.
    has_ended: AtomicBool,
    /// One of its requests has told of its end as a failure of the server.
    end_is_counted: AtomicBool,
    limits: Limits,
    /// Requests that may still be added.
    requests: Arc<Semaphore>,
    /// Bytes of requests that may still be added.
    request_bytes: Arc<Semaphore>,
    /// Bytes of values of gets of many keys that nobody has taken yet.
    untaken_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that nothing has been sent of, ids ascending.
    queue: VecDeque<Call>,
    next_id: u64,
    driver: Option<Waker>,
    end: Option<End>,
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Call {
    id: u64,
    pub request: Arc<Request>,
    pub sink: Sink,
    /// Without a reply: complete once it is sent.
    pub is_quiet: bool,
    /// Held until the request is complete.
    pub permits: Permits,
}

/// A place for a request.
#[derive(Debug)]
pub(super) struct Permits {
    _request: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Connection {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            state: Mutex::default(),
            has_ended: AtomicBool::new(false),
            end_is_counted: AtomicBool::new(false),
            limits,
            requests: Arc::new(Semaphore::new(limits.requests)),
            request_bytes: Arc::new(Semaphore::new(limits.buffered_bytes as usize)),
            untaken_bytes: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that it has.
    pub(super) fn load(&self) -> usize {
        self.limits.requests - self.requests.available_permits()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// A place for a request, if there is one now.
    pub(super) fn permits_now(&self, request: &Request) -> Option<Permits> {
        let bytes = self.bytes_of(request);
        let request = Arc::clone(&self.requests).try_acquire_owned().ok()?;
        let bytes = Arc::clone(&self.request_bytes).try_acquire_many_owned(bytes).ok()?;
        Some(Permits { _request: request, _bytes: bytes })
    }

    fn bytes_of(&self, request: &Request) -> u32 {
        u32::try_from(request.bytes()).unwrap_or(u32::MAX).min(self.limits.buffered_bytes)
    }

    /// Waits for a place for a request. `None`: it has ended.
    pub(super) async fn permits(&self, request: &Request) -> Option<Permits> {
        let bytes = self.bytes_of(request);
        let request = Arc::clone(&self.requests).acquire_owned().await.ok()?;
        let bytes = Arc::clone(&self.request_bytes).acquire_many_owned(bytes).await.ok()?;
        Some(Permits { _request: request, _bytes: bytes })
    }

    /// Adds a request to the queue. `None`: it has ended.
    pub(super) fn submit(
        self: &Arc<Self>,
        request: Arc<Request>,
        is_quiet: bool,
        values: Option<Delivery>,
        permits: Permits,
    ) -> Option<PendingReply> {
        let (done, reply) = oneshot::channel();
        let is_drainable = self.limits.has_numbers && request.key().is_some();
        let mut state = self.state();
        if state.end.is_some() {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.queue.push_back(Call { id, request, sink: Sink { done, values }, is_quiet, permits });
        let driver = state.driver.take();
        drop(state);
        wake(driver);
        let connection = Arc::clone(self);
        Some(PendingReply { connection, id, reply, is_done: false, deadline: None, is_drainable })
    }

    /// Takes requests of about so many bytes from the queue, and at least one if there is any and `bytes` is not 0.
    /// Returns whether there are more. The driver is woken when some are added, or when the connection has to end:
    /// `Err`.
    pub(super) fn take(&self, bytes: usize, driver: &Waker, calls: &mut VecDeque<Call>) -> Result<bool, End> {
        let mut state = self.state();
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        let mut room = bytes;
        while room > 0
            && let Some(call) = state.queue.pop_front()
        {
            room = room.saturating_sub(call.request.bytes());
            calls.push_back(call);
        }
        if !state.driver.as_ref().is_some_and(|known| known.will_wake(driver)) {
            state.driver = Some(driver.clone());
        }
        Ok(!state.queue.is_empty())
    }

    /// Ends it, unless it has ended for another reason, which is returned. Requests that nothing has been sent of are
    /// told at once, the others by the driver.
    pub(super) fn end(&self, end: End) -> End {
        let mut state = self.state();
        let end = state.end.get_or_insert(end).clone();
        self.has_ended.store(true, Ordering::Release);
        let queue = std::mem::take(&mut state.queue);
        let driver = state.driver.take();
        drop(state);
        self.requests.close();
        self.request_bytes.close();
        wake(driver);
        for call in queue {
            let _ = call.sink.done.send(Err(Failure::new(end.error(), false)));
        }
        end
    }

    /// Why it has ended.
    pub(super) fn end_error(&self) -> Error {
        self.state().end.as_ref().map_or(Error::Closed, End::error)
    }

    /// True for the first who asks: its end is one failure, whatever its requests were.
    pub(super) fn count_end(&self) -> bool {
        !self.end_is_counted.swap(true, Ordering::Relaxed)
    }

    /// Removes a request from the queue. `false`: it has been taken.
    fn withdraw(&self, id: u64) -> bool {
        let mut state = self.state();
        let place = state.queue.binary_search_by_key(&id, |call| call.id);
        let call = place.ok().and_then(|place| state.queue.remove(place));
        drop(state);
        call.is_some()
    }

    /// True if so many values wait to be taken that no more should be read.
    pub(super) fn is_full(&self) -> bool {
        self.untaken_bytes.load(Ordering::SeqCst) >= self.limits.buffered_bytes as usize
    }
}

/// Wakes the driver, outside of the lock.
fn wake(driver: Option<Waker>) {
    if let Some(driver) = driver {
        driver.wake();
    }
}

/// Bytes of values that wait to be taken.
#[derive(Debug)]
pub(super) struct Credit {
    connection: Arc<Connection>,
    bytes: usize,
    /// Those of them that have been taken, which the connection does not know yet.
    taken_bytes: usize,
}

impl Credit {
    pub(super) fn new(connection: &Arc<Connection>, bytes: usize) -> Self {
        connection.untaken_bytes.fetch_add(bytes, Ordering::SeqCst);
        Self { connection: Arc::clone(connection), bytes, taken_bytes: 0 }
    }

    /// So many of them have been taken. The connection is told when it is an eighth of what it may have, or 16 KiB.
    pub(super) fn release(&mut self, bytes: usize) {
        self.taken_bytes += bytes;
        let untold_bytes_max = self.connection.limits.buffered_bytes as usize / 8;
        if self.taken_bytes >= untold_bytes_max.min(UNTOLD_BYTES_MAX) {
            self.release_now(self.taken_bytes);
        }
    }

    fn release_now(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.taken_bytes = 0;
        let limit = self.connection.limits.buffered_bytes as usize;
        let before = self.connection.untaken_bytes.fetch_sub(bytes, Ordering::SeqCst);
        if before >= limit && before - bytes < limit {
            let driver = self.connection.state().driver.take();
            wake(driver);
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.release_now(self.bytes);
    }
}

/// Bytes of values that have been taken, and are still counted as waiting.
const UNTOLD_BYTES_MAX: usize = 16 << 10;

/// The right to one reply. Who drops it before the reply has come ends the connection, unless nothing of the request
/// was sent, or its reply has a number: then a task takes the reply. A late one could otherwise be taken for another's.
#[derive(Debug)]
pub(super) struct PendingReply {
    connection: Arc<Connection>,
    id: u64,
    reply: oneshot::Receiver<Result<Reply, Failure>>,
    is_done: bool,
    /// When the reply has to be there.
    deadline: Option<Instant>,
    /// It may be waited for by nobody.
    is_drainable: bool,
}

impl PendingReply {
    /// Waits for the reply until the deadline.
    pub(super) async fn wait(mut self, deadline: Instant) -> Result<Reply, Failure> {
        self.deadline = Some(deadline);
        let reply = match timeout_at(deadline, &mut self.reply).await {
            Ok(Ok(reply)) => reply,
            // The driver answers all, whatever happens to it.
            Ok(Err(_)) => Err(Failure::new(Error::Closed, true)),
            Err(_) => return self.give_up(Interruption::Timeout),
        };
        self.is_done = true;
        reply
    }

    /// Leaves the reply to a task, which waits as long as the caller would have: if it does not come, the connection
    /// ends. `false`: there is no runtime for the task.
    fn drain(&mut self) -> bool {
        let (Some(deadline), Ok(runtime)) = (self.deadline, Handle::try_current()) else { return false };
        if self.connection.withdraw(self.id) {
            self.is_done = true;
            return true;
        }
        let (connection, (_, reply)) = (Arc::clone(&self.connection), oneshot::channel());
        let reply = std::mem::replace(&mut self.reply, reply);
        self.is_done = true;
        // Not one that is drained again, if the runtime ends.
        let pending =
            Self { connection, id: self.id, reply, is_done: false, deadline: None, is_drainable: false };
        runtime.spawn(async move {
            let _ = pending.wait(deadline).await;
        });
        true
    }

    /// Gives up waiting. The reply may have come all the same.
    fn give_up(&mut self, reason: Interruption) -> Result<Reply, Failure> {
        self.is_done = true;
        self.reply.close();
        if let Ok(reply) = self.reply.try_recv() {
            return reply;
        }
        let was_sent = !self.connection.withdraw(self.id);
        if was_sent {
            self.connection.end(End::Interrupted(reason));
        }
        Err(Failure::new(Error::Timeout, was_sent))
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if self.is_drainable && self.drain() {
            return;
        }
        let _ = self.give_up(Interruption::Cancelled);
    }
}
