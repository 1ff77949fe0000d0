//! The lines of `watch`: from the workers to the watchers.
//!
//! A worker writes a line into its own ring, or drops it if the ring is full. The control thread collects the lines and
//! sends them (`watchers`). So a watcher that does not read blocks nobody, and loses lines itself.

mod event;
mod watchers;

use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use larder_protocol::admin::Streams;

pub(crate) use self::event::{Event, SiteState};
pub(crate) use self::watchers::{Watcher, Watchers};
use crate::net::wake::Wake;
use crate::observe::observer_flags::ObserverFlags;

/// Lines on their way, and the watchers.
pub struct Log {
    /// One for each worker, one for the control thread, and one that the threads of replication share.
    rings: Box<[Ring]>,
    ring_bytes_max: usize,
    /// Number of the next line.
    next_id: AtomicU64,
    accepted: Mutex<Vec<Watcher>>,
    watchers: AtomicUsize,
    counts: Counts,
}

/// Lines of one thread that are not collected yet.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ring(Mutex<Vec<u8>>);

/// Counters of lines, for `stats`.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Dropped because a worker's ring was full.
    pub(crate) dropped: AtomicU64,
    /// Written to a ring.
    pub(crate) written: AtomicU64,
    /// Not sent to a watcher because its buffer was full.
    pub(crate) skipped: AtomicU64,
    /// Sent to a watcher.
    pub(crate) sent: AtomicU64,
}

/// A line in a ring.
struct Line<'l> {
    stream: Streams,
    id: u64,
    /// The namespace of the key in the line, if there is one: watchers that may not read it do not get the line.
    namespace: Option<u8>,
    /// Including its line feed.
    text: &'l [u8],
}

impl Log {
    /// For so many threads, with so many bytes of lines for each.
    pub fn new(threads: usize, ring_bytes_max: usize) -> Self {
        Self {
            rings: (0..threads).map(|_| Ring::default()).collect(),
            ring_bytes_max,
            next_id: AtomicU64::new(1),
            accepted: Mutex::default(),
            watchers: AtomicUsize::new(0),
            counts: Counts::default(),
        }
    }

    /// Writes a line for the watchers. Call it only if there are any: [`ObserverFlags::wants`]. `namespace`: the
    /// namespace of the event's key.
    #[cold]
    pub(crate) fn tell(&self, thread: usize, event: &Event<'_>, namespace: Option<u8>, control: &Wake) {
        let Some(ring) = self.rings.get(thread) else { return };
        let mut lines = ring.lines();
        let (before, half) = (lines.len(), self.ring_bytes_max / 2);
        if before + HEAD_BYTES + event.line_bytes_max() > self.ring_bytes_max {
            self.counts.dropped.fetch_add(1, Relaxed);
            return;
        }
        let id = self.next_id.fetch_add(1, Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        lines.extend_from_slice(&id.to_ne_bytes());
        lines.extend_from_slice(&event.stream().bits().to_ne_bytes());
        lines.push(namespace.unwrap_or(NO_NAMESPACE));
        lines.extend_from_slice(&[0; 2]);
        event::number(&mut lines, "ts=", now.as_secs());
        // memcached does not pad it either.
        event::number(&mut lines, ".", now.subsec_micros());
        event::number(&mut lines, " gid=", id);
        lines.push(b' ');
        event.write(&mut lines);
        let bytes = lines.len() - before - HEAD_BYTES;
        // At most `line_bytes_max`, which fits.
        lines[before + HEAD_BYTES - 2..before + HEAD_BYTES].copy_from_slice(&(bytes as u16).to_ne_bytes());
        let is_half_full = before < half && lines.len() >= half;
        drop(lines);
        self.counts.written.fetch_add(1, Relaxed);
        if is_half_full {
            control.notify();
        }
    }

    /// True if another watcher may join.
    pub(crate) fn has_room(&self) -> bool {
        self.watchers() < WATCHERS_MAX
    }

    /// The number of watchers.
    pub(crate) fn watchers(&self) -> usize {
        self.watchers.load(Relaxed)
    }

    /// Adds a watcher, from now on. The caller wakes the control thread.
    pub(crate) fn join(&self, mut watcher: Watcher, observers: &ObserverFlags) {
        let mut accepted = self.accepted();
        watcher.first_id = self.next_id.load(Relaxed);
        observers.add_streams(watcher.streams);
        self.watchers.fetch_add(1, Relaxed);
        accepted.push(watcher);
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn accepted(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lines of all threads, one thread after the other.
    fn collect(&self, mut deliver: impl FnMut(&Line<'_>)) {
        for ring in &self.rings {
            let lines = mem::take(&mut *ring.lines());
            let mut rest = &lines[..];
            while let Some((line, after)) = Line::split(rest) {
                deliver(&line);
                rest = after;
            }
            // So that the next lines need no new memory.
            let mut emptied = lines;
            emptied.clear();
            let mut lines = ring.lines();
            if lines.capacity() < emptied.capacity() && lines.is_empty() {
                *lines = emptied;
            }
        }
    }
}

impl Ring {
    fn lines(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Resets the counters.
    pub(crate) fn reset(&self) {
        for count in [&self.dropped, &self.written, &self.skipped, &self.sent] {
            count.store(0, Relaxed);
        }
    }
}

impl<'l> Line<'l> {
    fn split(lines: &'l [u8]) -> Option<(Self, &'l [u8])> {
        let (id, rest) = lines.split_first_chunk::<8>()?;
        let (stream, rest) = rest.split_first_chunk::<2>()?;
        let ([number], rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk::<2>()?;
        let (text, rest) = rest.split_at_checked(u16::from_ne_bytes(*bytes).into())?;
        let stream = Streams::from_bits(u16::from_ne_bytes(*stream));
        let namespace = Some(*number).filter(|number| *number != NO_NAMESPACE);
        Some((Self { stream, id: u64::from_ne_bytes(*id), namespace, text }, rest))
    }
}

/// The header of a line in a ring: number, stream, namespace, length.
const HEAD_BYTES: usize = 8 + 2 + 1 + 2;
/// Stands for a line without a namespace: no namespace has this number.
const NO_NAMESPACE: u8 = u8::MAX;
/// As in memcached.
const WATCHERS_MAX: usize = 20;
