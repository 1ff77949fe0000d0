//! Servers that a list has replaced, as long as they have values that the new ones have not.
//!
//! A key that has moved is read at its old place if its new one has nothing, and its value moves along, by `add`, so
//! that nothing newer is overwritten. Changes delete at the old place first, so that nothing old comes back. Of one key
//! only one of these happens at a time in this client. Other processes are guarded against by the CAS value at the old
//! place: what has been changed there while it was copied is deleted again at the new one.
//!
//! Other processes may have got the list later, and move values when this one does no more. So changes delete at the
//! old place for twice the time: what is old there is gone before another process, which is late by up to the time,
//! could bring it back. Then, with the first request that comes, the old servers are let go.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::key::WireKey;
use super::recache::MetaItem;
use super::reply::{Answer, Reply};
use super::request::{Recache, Request};
use super::topology::Topology;
use crate::Error;
use crate::error::Interruption;

/// Servers that a list has replaced, as long as they are read.
#[derive(Debug)]
pub(super) struct WarmUp {
    /// `None`: the warm-up has been taken down.
    old: RwLock<Option<Arc<Topology>>>,
    /// Values move until then.
    until: Instant,
    /// Changes delete at the old place until then.
    deletes_until: Instant,
    /// For each list that was replaced: closed as soon as no request over its servers is under way. Till then one may
    /// still change or move values there.
    drained: Vec<watch::Receiver<()>>,
    /// Old servers that are asked no more: a request to them has failed.
    is_cold: Vec<AtomicBool>,
    /// No value moves any more, since all were flushed.
    is_flushed: AtomicBool,
    /// See `old`.
    is_down: AtomicBool,
    locks: Vec<Arc<Mutex<()>>>,
    /// Values that are being moved, perhaps beyond the end.
    moving: AtomicUsize,
}

impl WarmUp {
    pub(super) fn new(old: Arc<Topology>, time: Duration, drained: Vec<watch::Receiver<()>>) -> Self {
        let now = Instant::now();
        let time = time.min(super::TIMEOUT_MAX);
        Self {
            until: now.checked_add(time).unwrap_or(now),
            deletes_until: now.checked_add(time * 2).unwrap_or(now),
            is_cold: old.pools.iter().map(|_| AtomicBool::new(false)).collect(),
            is_flushed: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            old: RwLock::new(Some(old)),
            drained,
            locks: (0..LOCKS).map(|_| Arc::default()).collect(),
            moving: AtomicUsize::new(0),
        }
    }

    /// The old server of a key that has moved.
    fn old_server_of(&self, key: &[u8], new: &Topology) -> Option<usize> {
        let old = self.old()?;
        let server = old.router.locator().server_of(key)?;
        let place = new.router.locator().server_of(key)?;
        (new.pools[place].address != old.pools[server].address).then_some(server)
    }

    fn old(&self) -> Option<Arc<Topology>> {
        // Nothing under the lock panics.
        self.old.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if it is over, and taken down.
    fn is_down(&self) -> bool {
        if self.is_down.load(Ordering::SeqCst) {
            return true;
        }
        // A value that begins to move from now on finds the time over. One that moves already keeps the key locked.
        let is_over = Instant::now() >= self.deletes_until && self.moving.load(Ordering::SeqCst) == 0;
        if !is_over || self.undrained().next().is_some() {
            return false;
        }
        let old = self.old.write().unwrap_or_else(PoisonError::into_inner).take();
        self.is_down.store(true, Ordering::SeqCst);
        // Outside of the lock: connections to servers that have left are closed.
        drop(old);
        true
    }

    /// True if values may be moved from there.
    fn is_readable(&self, server: usize) -> bool {
        Instant::now() < self.until && !self.is_flushed.load(Ordering::SeqCst) && !self.is_cold(server)
    }

    fn is_cold(&self, server: usize) -> bool {
        self.is_cold[server].load(Ordering::SeqCst)
    }

    /// True if such a request may be sent there.
    fn may_ask(&self, server: usize, request: &Request) -> bool {
        let is_time = Instant::now() < self.deletes_until && request.is_delete();
        self.is_readable(server) || is_time && !self.is_cold(server)
    }

    /// Of the lists that were replaced, those over whose servers requests are under way.
    pub(super) fn undrained(&self) -> impl Iterator<Item = watch::Receiver<()>> {
        self.drained.iter().filter(|drained| drained.has_changed().is_ok()).cloned()
    }

    /// Waits until no request over servers of earlier lists is under way.
    async fn drained(&self, deadline: Instant) -> Result<(), Error> {
        for mut drained in self.undrained() {
            let drained = async { while drained.changed().await.is_ok() {} };
            timeout_at(deadline, drained).await.map_err(|_| Error::Timeout)?;
        }
        Ok(())
    }

    /// Waits until nobody else moves or changes such a key.
    async fn lock(&self, key: &[u8], deadline: Instant) -> Result<OwnedMutexGuard<()>, Error> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let lock = Arc::clone(&self.locks[hasher.finish() as usize % LOCKS]);
        timeout_at(deadline, lock.lock_owned()).await.map_err(|_| Error::Timeout)
    }

    /// Before all is flushed: reads no old server any more, and waits for what is under way. Changes delete there
    /// still, for the sake of other processes.
    pub(super) async fn flush(&self, deadline: Instant) {
        self.is_flushed.store(true, Ordering::SeqCst);
        for lock in &self.locks {
            let _ = timeout_at(deadline, lock.lock()).await;
        }
    }

    /// Asks an old server, which is not asked again if that fails.
    async fn ask_old(&self, server: usize, request: Request, deadline: Instant) -> Option<Reply> {
        if !self.may_ask(server, &request) {
            return None;
        }
        // The new place needs time as well.
        let now = Instant::now();
        let deadline = now + deadline.saturating_duration_since(now) / 2;
        let asked = self.old()?.ask_directly(server, request, deadline).await;
        if asked.is_err() {
            self.is_cold[server].store(true, Ordering::SeqCst);
        }
        asked.ok()
    }
}

impl Topology {
    /// Servers that have left the list, and that a process may still read: the list that had them, and their positions
    /// in it.
    pub(super) fn left(&self) -> Option<(Arc<Self>, Vec<usize>)> {
        let old = self.warming()?.old()?;
        let has_left = |position: &usize| {
            let address = &old.pools[*position].address;
            self.pools.iter().all(|pool| pool.address != *address)
        };
        let left = (0..old.pools.len()).filter(has_left).collect();
        Some((old, left))
    }

    /// The warm-up, unless it is over.
    pub(super) fn warming(&self) -> Option<&WarmUp> {
        self.warm_up.as_ref().filter(|warm_up| !warm_up.is_down())
    }

    /// True if the value of a key may still be at an old place.
    pub(super) fn may_be_at_old_place(&self, key: &[u8]) -> bool {
        let warm_up = self.warming();
        warm_up.is_some_and(|warm_up| {
            warm_up.old_server_of(key, self).is_some_and(|server| warm_up.is_readable(server))
        })
    }

    /// [`Topology::ask`], and what a warm-up needs besides. `stay`: kept as long as something is under way.
    pub(super) async fn ask_and_warm(
        self: &Arc<Self>,
        key: &[u8],
        request: &Arc<Request>,
        is_quiet: bool,
        stay: &Arc<watch::Sender<()>>,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        let Some(warm_up) = self.warming() else { return self.ask(key, request, is_quiet, deadline).await };
        if !request.is_read() {
            // Or one of them could move an old value here, later.
            warm_up.drained(deadline).await?;
        }
        let (Some(old), Some(wire_key)) = (warm_up.old_server_of(key, self), request.key()) else {
            return self.ask(key, request, is_quiet, deadline).await;
        };
        if request.is_plain_get() {
            let reply = self.ask(key, request, is_quiet, deadline).await?;
            if reply.found.is_some() || !warm_up.is_readable(old) {
                return Ok(reply);
            }
        }
        warm_up.drained(deadline).await?;
        let mut guard = warm_up.lock(key, deadline).await?;
        let is_readable = warm_up.is_readable(old);
        if request.needs_item() && is_readable {
            guard = self.move_here(old, key, wire_key, guard, stay, deadline).await?;
        }
        let (mut was_deleted, mut may_be_deleted) = (false, false);
        if !request.is_read() {
            let delete = Request::Delete { key: wire_key.clone(), compare: None, invalidate: None };
            let reply = warm_up.ask_old(old, delete, deadline).await;
            // Later nobody here finds it any more.
            was_deleted = is_readable && matches!(reply, Some(Reply { answer: Answer::Deleted, .. }));
            may_be_deleted = is_readable && (was_deleted || reply.is_none());
        }
        let asked = self.ask(key, request, is_quiet, deadline).await;
        let mut reply = asked.map_err(|error| match may_be_deleted && !error.is_unknown() {
            true => Error::Unknown(Box::new(error)),
            false => error,
        })?;
        drop(guard);
        if was_deleted && request.is_delete() && matches!(reply.answer, Answer::NotFound) {
            reply.answer = Answer::Deleted;
        }
        Ok(reply)
    }

    /// Moves the value of a key here, if there is none. Who waits for it may vanish: it is done to its end all the
    /// same, so that nobody changes the key meanwhile.
    async fn move_here(
        self: &Arc<Self>,
        old: usize,
        key: &[u8],
        wire_key: &WireKey,
        guard: OwnedMutexGuard<()>,
        stay: &Arc<watch::Sender<()>>,
        deadline: Instant,
    ) -> Result<OwnedMutexGuard<()>, Error> {
        let (this, key, wire_key) = (Arc::clone(self), key.to_vec(), wire_key.clone());
        let stay = Arc::clone(stay);
        let moved = tokio::spawn(async move {
            let _stay = stay;
            if let Some(warm_up) = &this.warm_up {
                // Counted before the time is looked at: who finds the time over and nothing counted need not wait.
                let _moving = Moving::new(&warm_up.moving);
                this.copy(warm_up, old, &key, wire_key, deadline).await;
            }
            guard
        });
        joined(moved).await
    }

    async fn copy(
        self: &Arc<Self>,
        warm_up: &WarmUp,
        old: usize,
        key: &[u8],
        wire_key: WireKey,
        deadline: Instant,
    ) -> Option<()> {
        let item = warm_up.read(old, &wire_key, deadline).await?;
        let compare = Some(item.item.cas?);
        let add = item.into_add(wire_key.clone());
        let added = self.ask(key, &Arc::new(add), false, deadline).await;
        if matches!(
            added,
            Ok(Reply { answer: Answer::NotStored, .. }) | Err(Error::Connect(_) | Error::Ejected(_))
        ) {
            return None;
        }
        let delete = Request::Delete { key: wire_key.clone(), compare, invalidate: None };
        let is_same = warm_up.ask_old(old, delete, deadline).await;
        if !matches!(is_same, Some(Reply { answer: Answer::Deleted, .. })) {
            // Not what somebody has made of it since, as far as that is told.
            let compare = added.as_ref().ok().and_then(|reply| reply.answer.stored_cas());
            let delete = Request::Delete { key: wire_key, compare, invalidate: None };
            let _ = self.ask(key, &Arc::new(delete), false, deadline).await;
        }
        Some(())
    }
}

impl WarmUp {
    /// The item at the old place, if it can be moved as it is.
    async fn read(&self, old: usize, key: &WireKey, deadline: Instant) -> Option<MetaItem> {
        let ttl = Some(Recache::TTL_ONLY);
        let get = Request::Get { key: key.clone(), with_cas: true, exptime: None, recache: ttl };
        let found = self.ask_old(old, get, deadline).await?.found?;
        let item = MetaItem::new(found.item, &found.meta_flags);
        item.is_whole().then_some(item)
    }
}

/// Counts a value that is being moved, however that ends.
struct Moving<'a>(&'a AtomicUsize);

impl<'a> Moving<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits for a task. Its panic becomes the caller's.
pub(super) async fn joined<T>(task: JoinHandle<T>) -> Result<T, Error> {
    task.await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => Error::Interrupted(Interruption::RuntimeEnded),
    })
}

/// Keys share them.
const LOCKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_leaves_nobody_waiting() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let panics = tokio::spawn(async move {
            let _moving = Moving::new(&counted);
            panic!("on purpose");
        });
        let waits = tokio::spawn(joined::<()>(panics));
        assert!(waits.await.is_err_and(|error| error.is_panic()));
        assert_eq!(count.load(Ordering::SeqCst), 0);
        let pending = tokio::spawn(std::future::pending::<()>());
        pending.abort();
        assert!(matches!(joined(pending).await, Err(Error::Interrupted(Interruption::RuntimeEnded))));
    }
}
