//! Large items: a run of segments each, filled while the value arrives, and kept for readers that are slow.
//!
//! Unsafe code lives here because a value is written where it will lie, and read beyond the turn in which it was
//! found. The invariant: until an upload is committed its run is known to nobody else; once committed nobody writes
//! to it. A run is taken from an upload, or from pins, only through the limbo (`held.rs`): who saw in a turn that it
//! was not cut off may use it until that turn ends.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::engine::Engine;
use crate::handle::Turn;
use crate::log::item::{Raw, Shape};
use crate::log::runs::Run;
use crate::log::segment::Id;
use crate::mem::region::PAGE_BYTES;
use crate::request::Expiry;

/// So many bytes of a value should have arrived before [`Turn::reserve`]: fewer are better kept elsewhere.
pub const UPLOAD_BYTES_MIN: usize = 64 << 10;
/// What memory an upload takes at a time: half as much as has arrived of it, within these bounds.
const STEP_BYTES_MIN: usize = 32 << 10;
const STEP_BYTES_MAX: usize = 256 << 10;

/// Room for a large value whose bytes are still arriving. Invisible until committed; dropped, its memory is free.
/// Does not borrow a turn: lives in a connection. May be cut off when others need its memory: [`Turn::window`].
pub struct Upload {
    engine: Arc<Engine>,
    pub(crate) id: Id,
    pub(crate) raw: Raw,
    shape: Shape,
    /// Bytes of the value that are there.
    filled_bytes: usize,
    /// See [`crate::log::segment::Segment::cuts`].
    cuts: u32,
    /// Among those that may be cut off.
    pub(crate) is_held: bool,
    committed: bool,
}

// SAFETY: the run belongs to the upload alone.
unsafe impl Send for Upload {}

impl Upload {
    /// An item of this shape in a run that is long enough for it.
    pub(crate) fn new(engine: &Arc<Engine>, run: Run, shape: Shape, key: &[u8], now_secs: u32) -> Self {
        let segment = engine.segments.get(run.id);
        segment.run_segments.store(run.segments, Relaxed);
        segment.books.filled_bytes.store(run.memory_bytes, Relaxed);
        segment.pins.store(0, Relaxed);
        let start = engine.segments.start(run.id);
        engine.log.lend(start..start + run.segments as usize * engine.segments.segment_bytes);
        // SAFETY: the run is ours alone, and it is long enough.
        let raw = unsafe { Raw::write(&engine.log, start, &shape, key, Expiry::NEVER, now_secs) };
        Self {
            engine: Arc::clone(engine),
            id: run.id,
            raw,
            shape,
            filled_bytes: 0,
            cuts: segment.cuts.load(Relaxed),
            is_held: false,
            committed: false,
        }
    }

    /// Memory that the first step of an item of this shape takes.
    pub(crate) fn first_step_bytes(shape: &Shape) -> usize {
        shape.size().min(UPLOAD_BYTES_MIN).next_multiple_of(PAGE_BYTES)
    }

    /// Memory that must be charged before the value can grow further; 0 if there is some left.
    pub(crate) fn next_step_bytes(&self) -> usize {
        let charged = self.charged_bytes();
        if self.value_start() + self.filled_bytes < charged || self.missing_bytes() == 0 {
            return 0;
        }
        let step = (self.filled_bytes / 2).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
        (self.shape.size() - charged).min(step).next_multiple_of(PAGE_BYTES)
    }

    pub(crate) fn is_of(&self, engine: &Arc<Engine>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// Was its run taken for others? In a turn: if not, the run stays the upload's until the turn ends.
    pub(crate) fn is_cut(&self) -> bool {
        self.engine.is_cut(self.id, self.cuts)
    }

    /// From here on it is not cut off. False: it was.
    pub(crate) fn keep(&mut self) -> bool {
        if self.is_held {
            self.is_held = !self.engine.let_go_of_upload(self.id, self.cuts);
        }
        !self.is_held
    }

    /// Notes that another step was charged. False: it was cut off meanwhile.
    pub(crate) fn note_step(&self, bytes: usize, now_secs: u32) -> bool {
        self.engine.note_step(self.id, self.cuts, bytes as u64, now_secs)
    }

    /// What may be filled now: as far as memory is charged. Only in a turn in which it was not cut off.
    pub(crate) fn window(&mut self) -> &mut [u8] {
        let end = self.window_end();
        // SAFETY: not yet committed, so the run is ours alone.
        let value = unsafe { self.raw.value_mut(&self.shape) };
        &mut value[self.filled_bytes..end]
    }

    fn window_end(&self) -> usize {
        self.shape.value_bytes.min(self.charged_bytes().saturating_sub(self.value_start()))
    }

    /// `n` bytes of the window were filled. Panics if the window was shorter.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.shape.value_bytes - self.filled_bytes, "more bytes than the window has");
        self.filled_bytes += n;
    }

    /// Bytes still to come.
    pub fn missing_bytes(&self) -> u32 {
        (self.shape.value_bytes - self.filled_bytes) as u32
    }

    /// Would the item be a large one, had its value come at once?
    pub(crate) fn is_large(&self) -> bool {
        Shape { large: false, ..self.shape }.size() > self.engine.large_item_bytes()
    }

    /// The run belongs to the index now.
    pub(crate) fn release(mut self) {
        self.committed = true;
    }

    pub(crate) fn charged_bytes(&self) -> usize {
        self.engine.segments.get(self.id).books.filled_bytes.load(Relaxed) as usize
    }

    /// Where the value begins in the run.
    fn value_start(&self) -> usize {
        let header = Shape { value_bytes: 0, ..self.shape };
        header.size_unpadded()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.committed && self.keep() {
            self.engine.free_run(self.id);
        }
    }
}

/// Keeps one large value readable beyond the turn (for a client that reads slowly). Its memory stays in the budget.
/// May be cut off when too much is kept that is no longer in the cache: [`Pin::value`].
pub struct Pin {
    engine: Arc<Engine>,
    id: Id,
    raw: Raw,
    value_bytes: usize,
    cuts: u32,
}

// SAFETY: the pinned run is immutable while it lives.
unsafe impl Send for Pin {}

impl Pin {
    /// Call within the turn in which the item was found.
    pub(crate) fn new(engine: Arc<Engine>, id: Id, raw: Raw) -> Self {
        let segment = engine.segments.get(id);
        segment.pins.fetch_add(1, Relaxed);
        let cuts = segment.cuts.load(Relaxed);
        Self { engine, id, raw, value_bytes: raw.value_bytes(), cuts }
    }

    /// The value; `None`: it was cut off, and is gone for good. Panics if the turn is another engine's.
    pub fn value<'t>(&self, turn: &'t Turn<'_>) -> Option<&'t [u8]> {
        assert!(Arc::ptr_eq(&self.engine, &turn.handle.engine), "a pin is read where it was made");
        (!self.engine.is_cut(self.id, self.cuts)).then(|| self.raw.value())
    }

    /// Size of the value.
    pub fn len_bytes(&self) -> usize {
        self.value_bytes
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.engine.unpin_run(self.id, self.cuts);
    }
}
