//! Large items: a run of segments each, filled while the value arrives, and kept for readers that are slow.
//!
//! Unsafe code lives here because a value is written where it will lie. The invariant: until an upload is committed its run is
//! known to nobody else; once committed nobody writes to it.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::engine::Engine;
use crate::item::{Raw, Shape};
use crate::memory::PAGE_BYTES;
use crate::request::Expiry;
use crate::run::Run;
use crate::segment::Id;

/// How much memory an upload takes at a time, so that who announces a large value and sends nothing holds little.
const STEP_BYTES: usize = 256 << 10;

/// Room for a large value whose bytes are still arriving. Invisible until committed; dropped, its memory is free.
/// Does not borrow a turn: lives in a connection.
pub struct Upload {
    engine: Arc<Engine>,
    pub(crate) id: Id,
    pub(crate) raw: Raw,
    shape: Shape,
    /// Bytes of the value that are there.
    filled_bytes: usize,
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
        // SAFETY: the run is ours alone, and it is long enough.
        let raw = unsafe { Raw::write(&engine.log, start, &shape, key, Expiry::NEVER, now_secs) };
        Self { engine: Arc::clone(engine), id: run.id, raw, shape, filled_bytes: 0, committed: false }
    }

    /// Memory that the first step of an item of this shape takes.
    pub(crate) fn first_step_bytes(shape: &Shape) -> usize {
        shape.size().min(STEP_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Memory that must be charged before the value can grow further; 0 if there is some left.
    pub(crate) fn next_step_bytes(&self) -> usize {
        let charged = self.charged_bytes();
        if self.value_start() + self.filled_bytes < charged || self.missing_bytes() == 0 {
            return 0;
        }
        (self.shape.size() - charged).min(STEP_BYTES).next_multiple_of(PAGE_BYTES)
    }

    pub(crate) fn is_of(&self, engine: &Arc<Engine>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// Notes that another step was charged.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.engine.segments.get(self.id).books.filled_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// What may be filled now: as far as memory is charged.
    pub(crate) fn window(&mut self) -> &mut [u8] {
        let end = self.shape.value_bytes.min(self.charged_bytes() - self.value_start());
        // SAFETY: not yet committed, so the run is ours alone.
        let value = unsafe { self.raw.value_mut(&self.shape) };
        &mut value[self.filled_bytes..end]
    }

    /// `n` bytes of the window were filled. Panics if the window was shorter.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.window().len(), "more bytes than the window has");
        self.filled_bytes += n;
    }

    /// Bytes still to come.
    pub fn missing_bytes(&self) -> u32 {
        (self.shape.value_bytes - self.filled_bytes) as u32
    }

    /// The run belongs to the index now.
    pub(crate) fn release(mut self) {
        self.committed = true;
    }

    fn charged_bytes(&self) -> usize {
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
        if !self.committed {
            self.engine.free_run(self.id);
        }
    }
}

/// Keeps one large value readable beyond the turn (for a client that reads slowly). Its memory stays in the budget.
pub struct Pin {
    engine: Arc<Engine>,
    id: Id,
    raw: Raw,
}

// SAFETY: the pinned run is immutable while it lives.
unsafe impl Send for Pin {}

impl Pin {
    /// Call within the turn in which the item was found.
    pub(crate) fn new(engine: Arc<Engine>, id: Id, raw: Raw) -> Self {
        engine.segments.get(id).pins.fetch_add(1, Relaxed);
        Self { engine, id, raw }
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        self.raw.value()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.engine.unpin_run(self.id);
    }
}
