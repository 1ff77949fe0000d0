//! The watchers, on the control thread.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::admin::Streams;
use rustix::event::{PollFd, PollFlags};

use super::{Event, Line};
use crate::conn::client::Client;
use crate::conn::session::CloseReason;
use crate::heap;
use crate::namespaces::Rights;
use crate::net::socket::{Received, SCRATCH_BYTES, Wire};
use crate::net::tls::Buffers;
use crate::net::worker_pool::WorkerPool;
use crate::observe::counters::Counters;
use crate::shared::Shared;

/// A client that watches.
pub(crate) struct Watcher {
    wire: Wire,
    client: Arc<Client>,
    /// The user that has logged in, if any.
    user: Option<Box<[u8]>>,
    pub(super) streams: Streams,
    /// The number of the first line that it gets.
    pub(super) first_id: u64,
    unsent: Vec<u8>,
    /// Bytes of `unsent` that are sent already.
    sent: usize,
    /// Lines lost since the last one that was taken.
    skipped: u64,
    gone: Option<CloseReason>,
}

/// All watchers, and the state to serve them.
pub(crate) struct Watchers {
    all: Vec<Watcher>,
    scratch: Vec<u8>,
    tls: Buffers,
    /// Counters of TLS; no worker's.
    counters: Counters,
}

impl Watcher {
    /// A watcher from when it joins. `unsent` is sent before the first line.
    pub(crate) fn new(
        wire: Wire,
        client: Arc<Client>,
        user: Option<Box<[u8]>>,
        streams: Streams,
        unsent: Vec<u8>,
    ) -> Self {
        Self { wire, client, user, streams, first_id: 0, unsent, sent: 0, skipped: 0, gone: None }
    }

    /// Takes a line, or counts it as lost if there is no room. True if it was taken.
    fn take(&mut self, line: &Line<'_>, bytes_max: usize) -> bool {
        let waiting = self.unsent.len() - self.sent;
        if waiting + SKIPPED_BYTES_MAX + line.text.len() > bytes_max {
            self.skipped += 1;
            return false;
        }
        if self.sent > 0 && self.unsent.len() + line.text.len() > bytes_max {
            self.unsent.drain(..std::mem::take(&mut self.sent));
        }
        if !heap::reserve(&mut self.unsent, SKIPPED_BYTES_MAX + line.text.len()) {
            self.skipped += 1;
            return false;
        }
        if self.skipped > 0 {
            super::event::number(&mut self.unsent, "skipped=", self.skipped);
            self.unsent.push(b'\n');
            self.skipped = 0;
        }
        self.unsent.extend_from_slice(line.text);
        true
    }

    /// Sends until the socket is full, and discards what the client sends.
    fn serve(&mut self, scratch: &mut [u8], tls: &mut Buffers, counters: &Counters) {
        for _ in 0..READS_MAX {
            match self.wire.receive(scratch, tls, counters) {
                Received::Bytes(_) => {}
                Received::Nothing | Received::Busy => break,
                Received::End(reason) => {
                    self.gone = Some(reason);
                    return;
                }
            }
        }
        while self.sent < self.unsent.len() {
            match self.wire.write(&[IoSlice::new(&self.unsent[self.sent..])], tls) {
                Ok(0) => break,
                Ok(n) => self.sent += n,
                Err(_) => {
                    self.gone = Some(CloseReason::Error);
                    return;
                }
            }
        }
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        }
        if self.wire.flush().is_err() {
            self.gone = Some(CloseReason::Error);
        }
    }

    fn is_blocked(&self) -> bool {
        self.sent < self.unsent.len() || self.wire.is_holding()
    }
}

impl Watchers {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            all: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            tls: Buffers::new(shared.tls.is_some()),
            counters: Counters::default(),
        }
    }

    /// True if there is no watcher.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The descriptors to poll.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.all.iter().map(|watcher| {
            let wanted = if watcher.is_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(watcher.wire.as_fd(), wanted)
        })
    }

    /// Adds new watchers, sends lines, and removes watchers that have left.
    pub(crate) fn serve(&mut self, shared: &Shared, pool: &WorkerPool) {
        let log = &shared.log;
        self.all.append(&mut log.accepted());
        if self.all.is_empty() {
            return;
        }
        let bytes_max = shared.settings.watcher_logbuf_bytes as usize;
        // Rights are looked up each time, since the policies may have been reloaded.
        let rights = |watcher: &Watcher| shared.namespaces.rights(watcher.user.as_deref());
        let rights: Vec<_> = self.all.iter().map(rights).collect();
        log.collect(|line| {
            let wanted = |(watcher, rights): &(&mut Watcher, &Rights)| {
                watcher.gone.is_none()
                    && watcher.streams.meets(line.stream)
                    && line.id >= watcher.first_id
                    && line.namespace.is_none_or(|number| rights.may_read(number))
            };
            for (watcher, _) in self.all.iter_mut().zip(&rights).filter(wanted) {
                let count =
                    if watcher.take(line, bytes_max) { &log.counts.sent } else { &log.counts.skipped };
                count.fetch_add(1, Relaxed);
            }
        });
        let Self { all, scratch, tls, counters } = self;
        for watcher in all.iter_mut() {
            watcher.serve(scratch, tls, counters);
        }
        if self.all.iter().any(|watcher| watcher.gone.is_some()) {
            self.let_go(shared, pool);
        }
    }

    fn let_go(&mut self, shared: &Shared, pool: &WorkerPool) {
        let mut left = Vec::new();
        for mut watcher in self.all.extract_if(.., |watcher| watcher.gone.is_some()) {
            watcher.wire.close_notify();
            shared.connection_table.leave(&watcher.client);
            left.push((watcher.client, watcher.gone.unwrap_or(CloseReason::Normal)));
            shared.log.watchers.fetch_sub(1, Relaxed);
            shared.connection_limiter.leave();
        }
        // Under the lock, so that a watcher that joins meanwhile is not lost.
        let accepted = shared.log.accepted();
        let watched = self.all.iter().chain(accepted.iter());
        let streams = watched.fold(Streams::NONE, |streams, watcher| streams.and(watcher.streams));
        shared.observers.set_streams(streams);
        drop(accepted);
        for (client, reason) in &left {
            shared.tell(shared.settings.threads, &Event::Departure { client, reason: *reason });
        }
        if shared.connection_limiter.reopen() {
            pool.wake_all();
        }
    }
}

/// The line with the number of lost lines.
const SKIPPED_BYTES_MAX: usize = 32;
/// Reads from one watcher before others have their turn.
const READS_MAX: u32 = 4;
