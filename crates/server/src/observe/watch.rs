//! What `watch` tells: lines about what happens, from the workers to those who watch.
//!
//! A worker that has something to tell writes the line into a ring of its own, or drops it if that is full. The control
//! thread collects the lines and sends them (`watchers`): so whoever does not read holds up nobody, and loses lines
//! himself.

mod event;
mod watchers;

use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use larder_protocol::admin::Streams;

pub(crate) use self::event::Event;
pub(crate) use self::watchers::{Watcher, Watchers};
use crate::net::wake::Wake;
use crate::observe::observer_flags::ObserverFlags;

/// The lines on their way, and who is to get them.
pub struct Log {
    /// One for each worker, and one for the control thread.
    rings: Box<[Ring]>,
    ring_bytes_max: usize,
    /// Number of the next line.
    next_id: AtomicU64,
    accepted: Mutex<Vec<Watcher>>,
    watchers: AtomicUsize,
    counts: Counts,
}

/// Lines of one thread that were not collected yet.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ring(Mutex<Vec<u8>>);

/// What `stats` tells of the lines.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Dropped for want of room in a worker's ring.
    pub(crate) dropped: AtomicU64,
    /// Written to a ring.
    pub(crate) written: AtomicU64,
    /// Not sent to a watcher for want of room in its buffer.
    pub(crate) skipped: AtomicU64,
    /// Sent to a watcher.
    pub(crate) sent: AtomicU64,
}

/// A line in a ring.
struct Line<'l> {
    stream: Streams,
    id: u64,
    /// With its line feed.
    text: &'l [u8],
}

impl Log {
    /// For so many threads, with so many bytes for the lines of each.
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

    /// Tells those who watch. To be asked first whether there are any: [`ObserverFlags::wants`].
    #[cold]
    pub(crate) fn tell(&self, thread: usize, event: &Event<'_>, control: &Wake) {
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

    /// Is there room for one more who watches?
    pub(crate) fn has_room(&self) -> bool {
        self.watchers() < WATCHERS_MAX
    }

    /// Who watch.
    pub(crate) fn watchers(&self) -> usize {
        self.watchers.load(Relaxed)
    }

    /// One more watches, from now on. To be told to the control thread.
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
    /// Counts anew.
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
        let (bytes, rest) = rest.split_first_chunk::<2>()?;
        let (text, rest) = rest.split_at_checked(u16::from_ne_bytes(*bytes).into())?;
        let stream = Streams::from_bits(u16::from_ne_bytes(*stream));
        Some((Self { stream, id: u64::from_ne_bytes(*id), text }, rest))
    }
}

/// What precedes a line in a ring: its number, its stream, its length.
const HEAD_BYTES: usize = 8 + 2 + 2;
/// memcached: as many may watch at once.
const WATCHERS_MAX: usize = 20;
