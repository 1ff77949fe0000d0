//! Large items: each is a run of segments, filled while the value arrives, and pinned for slow readers.
//!
//! Unsafe code lives here because a value is written where it will lie, and read beyond the guard under which it was
//! found. The invariant: until an upload is committed nobody else knows its run; once committed nobody writes to it. A
//! run is revoked from an upload, or from pins, only through the limbo (`leases.rs`): a thread that saw under a guard
//! that it was not revoked may use it until that guard ends.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::item::{ItemRef, Shape};
use crate::log::runs::Run;
use crate::log::segment::SegmentId;
use crate::mem::region::PAGE_BYTES;
use crate::request::Expiry;

/// How much of a value should have arrived before [`Guard::reserve`]: less is better kept elsewhere.
pub const UPLOAD_BYTES_MIN: usize = 64 << 10;
/// An upload takes memory in steps of half as much as has arrived, within these bounds.
const STEP_BYTES_MIN: usize = 32 << 10;
const STEP_BYTES_MAX: usize = 256 << 10;

/// Memory for a large value that is still arriving. Invisible until committed; dropping it frees the memory. It does
/// not borrow a guard: it belongs to a connection. It may be revoked when others need its memory: [`Guard::window`].
pub struct Upload {
    engine: Arc<Engine>,
    pub(crate) id: SegmentId,
    /// In a run that only this upload uses.
    pub(crate) raw: ItemRef<'static>,
    shape: Shape,
    /// Bytes of the value that have arrived.
    filled_bytes: usize,
    /// See [`crate::log::segment::Segment::revocations`].
    revocations: u32,
    /// Registered as a lease, so that it may be revoked.
    pub(crate) is_leased: bool,
    committed: bool,
}

// SAFETY: only the upload uses its run.
unsafe impl Send for Upload {}

impl Upload {
    /// An upload of this shape in a run that is long enough for it.
    pub(crate) fn new(engine: &Arc<Engine>, run: Run, shape: Shape, key: &[u8], now_secs: u32) -> Self {
        let segment = engine.arena.segments.get(run.id);
        segment.run_segments.store(run.segments, Relaxed);
        segment.usage.filled_bytes.store(run.memory_bytes, Relaxed);
        segment.pins.store(0, Relaxed);
        let start = engine.arena.segments.start(run.id);
        engine.arena.region.lend(start..start + run.segments as usize * engine.arena.segments.segment_bytes);
        // SAFETY: only this upload uses the run, and the run is long enough.
        let raw =
            unsafe { ItemRef::write(&engine.arena.region, start, &shape, key, Expiry::NEVER, now_secs) };
        Self {
            engine: Arc::clone(engine),
            id: run.id,
            raw,
            shape,
            filled_bytes: 0,
            revocations: segment.revocations.load(Relaxed),
            is_leased: false,
            committed: false,
        }
    }

    /// Memory that the first step of an item of this shape takes.
    pub(crate) fn first_step_bytes(shape: &Shape) -> usize {
        shape.size().min(UPLOAD_BYTES_MIN).next_multiple_of(PAGE_BYTES)
    }

    /// Memory that must be charged before the value can grow further; 0 if some is left.
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

    /// True if it was revoked. If not, the run stays the upload's until the current guard ends.
    pub(crate) fn is_revoked(&self) -> bool {
        self.engine.arena.is_revoked(self.id, self.revocations)
    }

    /// Ends the lease: the upload is not revoked from here on. False: it was revoked already.
    pub(crate) fn keep(&mut self) -> bool {
        if self.is_leased {
            self.is_leased = !self.engine.arena.release_upload(self.id, self.revocations);
        }
        !self.is_leased
    }

    /// Notes that another step was charged. False: the upload was revoked meanwhile.
    pub(crate) fn note_step(&self, bytes: usize, now_secs: u32) -> bool {
        self.engine.arena.note_step(self.id, self.revocations, bytes as u64, now_secs)
    }

    /// What may be filled now: the charged memory. Call under a guard under which it was not revoked.
    pub(crate) fn window(&mut self) -> &mut [u8] {
        let end = self.window_end();
        // SAFETY: not committed yet, so only the upload uses the run.
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

    /// True if the item would be a large one, had its value arrived at once.
    pub(crate) fn is_large(&self) -> bool {
        Shape { large: false, ..self.shape }.size() > self.engine.large_item_bytes()
    }

    /// Leaves the run to the index.
    pub(crate) fn release(mut self) {
        self.committed = true;
    }

    pub(crate) fn charged_bytes(&self) -> usize {
        self.engine.arena.segments.get(self.id).usage.filled_bytes.load(Relaxed) as usize
    }

    /// Where in the run the value begins.
    fn value_start(&self) -> usize {
        let header = Shape { value_bytes: 0, ..self.shape };
        header.size_unpadded()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.committed && self.keep() {
            self.engine.arena.free_run(self.id);
        }
    }
}

/// Keeps one large value readable beyond the guard, for a client that reads slowly. Its memory stays in the budget. It
/// may be revoked if too much is pinned that is no longer in the cache: [`ValueRef::value`].
pub struct ValueRef {
    engine: Arc<Engine>,
    id: SegmentId,
    raw: ItemRef<'static>,
    value_bytes: usize,
    revocations: u32,
}

// SAFETY: a pinned run is immutable.
unsafe impl Send for ValueRef {}

impl ValueRef {
    /// Call under the guard in which the item was found.
    pub(crate) fn new(engine: Arc<Engine>, id: SegmentId, raw: ItemRef<'_>) -> Self {
        let segment = engine.arena.segments.get(id);
        segment.pins.fetch_add(1, Relaxed);
        let revocations = segment.revocations.load(Relaxed);
        // SAFETY: dropping `self` gives back the pin that was just taken. Every read first checks that the pin was not
        // revoked; a revoked run is reused only after the guard of that check has ended.
        let raw = unsafe { raw.beyond_guard() };
        Self { engine, id, raw, value_bytes: raw.value_bytes(), revocations }
    }

    /// The value. `None`: it was revoked, and is gone for good. Panics if the guard belongs to another engine.
    pub fn value<'t>(&self, guard: &'t Guard<'_>) -> Option<&'t [u8]> {
        assert!(Arc::ptr_eq(&self.engine, &guard.handle.engine), "a pin is read where it was made");
        (!self.engine.arena.is_revoked(self.id, self.revocations)).then(|| self.raw.value())
    }

    /// Size of the value.
    pub fn len_bytes(&self) -> usize {
        self.value_bytes
    }
}

impl Drop for ValueRef {
    fn drop(&mut self) {
        self.engine.arena.unpin_run(self.id, self.revocations);
    }
}
