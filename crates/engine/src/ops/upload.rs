//! Large items: each is a run of segments, filled while the value arrives, and pinned for slow readers.
//!
//! Unsafe code lives here because a value is written where it will lie, and read beyond the guard under which it was
//! found. The invariant: until an upload is committed nobody else knows its run; once committed nobody writes to it. A
//! run is revoked from an upload, or from pins, only through the limbo (`leases.rs`): a thread that saw under a guard
//! that it was not revoked may use it until that guard ends.
//! Firm pins are never revoked.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::engine::Engine;
use crate::handle::Guard;
use crate::log::allocator::WriteStream;
use crate::log::fresh::FreshItem;
use crate::log::item::{ItemRef, Shape, UnboundItem};
use crate::log::leases::RunPin;
use crate::log::runs::Run;
use crate::log::segment::OpenSegment;
use crate::request::Expiry;

/// Bytes of a large value that should have arrived before [`Guard::reserve`]: fewer are better kept elsewhere.
pub const UPLOAD_BYTES_MIN: usize = 4 << 10;
/// An upload takes so much memory at first, ...
const FIRST_STEP_BYTES: usize = 64 << 10;
/// ... then steps of half as much as has arrived, within these bounds.
const STEP_BYTES_MIN: usize = 32 << 10;
const STEP_BYTES_MAX: usize = 256 << 10;
/// An upload that received so much since it was last noted counts as arriving. With less, a byte a second would do.
pub(crate) const ARRIVING_BYTES: usize = 32 << 10;

/// Memory for a large value that is still arriving. Invisible until committed; dropping it frees the memory. It does
/// not borrow a guard: it belongs to a connection. It may be revoked when others need its memory: [`Guard::window`].
pub struct Upload {
    engine: Arc<Engine>,
    /// Until it is committed.
    run: Option<Run>,
    /// In the run.
    raw: UnboundItem,
    shape: Shape,
    /// Bytes of the value that have arrived.
    filled_bytes: usize,
    /// How many of them have counted as arriving.
    noted_bytes: usize,
    /// The second in which the lease last noted that.
    noted_secs: u32,
    /// When the last window was given.
    window_secs: u32,
    /// See [`crate::log::segment::Segment::revocations`].
    revocations: u32,
    /// Registered as a lease, so that it may be revoked.
    is_leased: bool,
    /// Of an item that has a checksum: that of the bytes up to here, and how many of the value they are.
    checksum: Option<(crc32fast::Hasher, usize)>,
}

// SAFETY: only the upload uses its run.
unsafe impl Send for Upload {}

impl Upload {
    /// An upload of this shape in a run that is long enough for it.
    pub(crate) fn new(engine: &Arc<Engine>, run: Run, shape: Shape, key: &[u8], now_secs: u32) -> Self {
        let arena = &engine.arena;
        let revocations = arena.begin_run(&run);
        let start = arena.segments.start(run.id());
        let run_bytes = arena.segments.bytes_of(run.units()) as usize;
        assert!(shape.size() <= run_bytes, "the run is long enough");
        arena.region.unpoison(start..start + run_bytes);
        // SAFETY: only this upload uses the run, and the run is long enough.
        let item = unsafe { ItemRef::write(&arena.region, start, &shape, key, Expiry::NEVER, now_secs) };
        let begin = |seed| (item.begin_checksum(seed), 0);
        Self {
            checksum: arena.checksum_seed().map(begin),
            engine: Arc::clone(engine),
            run: Some(run),
            raw: item.unbound(),
            shape,
            filled_bytes: 0,
            noted_bytes: 0,
            noted_secs: now_secs,
            window_secs: now_secs,
            revocations,
            is_leased: false,
        }
    }

    /// The run that it takes until it is committed.
    pub(crate) fn run(&self) -> &Run {
        self.run.as_ref().expect("only `link` takes it, with the upload")
    }

    /// The item as far as it is written, unless the upload was revoked.
    pub(crate) fn item<'t>(&'t self, guard: &'t Guard<'_>) -> Option<ItemRef<'t>> {
        assert!(self.is_of(&guard.handle.engine), "an upload is used where it was reserved");
        // SAFETY: the run is the upload's until the guard ends, and nobody writes to it while `self` is borrowed.
        (!self.is_revoked()).then(|| unsafe { self.raw.bind() })
    }

    /// Lets others revoke it.
    pub(crate) fn lease(&mut self, now_secs: u32) {
        self.engine.arena.lease_upload(self.run(), self.shape.size(), now_secs);
        self.noted_secs = now_secs;
        self.is_leased = true;
    }

    /// Memory that the first step of an item of this shape takes.
    pub(crate) fn first_step_bytes(shape: &Shape) -> usize {
        shape.size().min(FIRST_STEP_BYTES)
    }

    /// Memory that must be charged before the value can grow further; 0 if some is left.
    pub(crate) fn next_step_bytes(&self) -> usize {
        let charged = self.charged_bytes();
        if self.value_start() + self.filled_bytes < charged || self.missing_bytes() == 0 {
            return 0;
        }
        let step = (self.filled_bytes / 2).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
        self.engine.arena.segments.whole_units((self.shape.size() - charged).min(step))
    }

    pub(crate) fn is_of(&self, engine: &Arc<Engine>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// True if it was revoked. If not, the run stays the upload's until the current guard ends.
    pub(crate) fn is_revoked(&self) -> bool {
        self.engine.arena.is_revoked(self.run().id(), self.revocations)
    }

    /// Ends the lease: the upload is not revoked from here on. False: it was revoked already.
    pub(crate) fn keep(&mut self) -> bool {
        if self.is_leased {
            self.is_leased = !self.engine.arena.release_upload(self.run(), self.revocations);
        }
        !self.is_leased
    }

    /// Notes that another step was charged. False: the upload was revoked meanwhile, and the step went back.
    pub(crate) fn note_step(&self, bytes: usize) -> bool {
        self.engine.arena.note_step(self.run(), self.revocations, bytes as u64)
    }

    /// What may be filled now: the charged memory. `None`: the upload was revoked.
    pub(crate) fn window<'t>(&'t mut self, guard: &'t Guard<'_>) -> Option<&'t mut [u8]> {
        assert!(self.is_of(&guard.handle.engine), "an upload is filled where it was reserved");
        if self.is_revoked() {
            return None;
        }
        self.protect(guard);
        self.window_secs = guard.now().secs;
        let end = self.window_end();
        // SAFETY: not committed yet, so only the upload uses the run; and it was not revoked, so the run stays the
        // upload's until the guard ends.
        let value = unsafe { self.raw.bind::<'t>().value_mut(&self.shape) };
        Some(&mut value[self.filled_bytes..end])
    }

    /// Adds what has arrived to the checksum, if the item has one; once all has, the checksum is entered. Done piece by
    /// piece, while the bytes are in the processor's cache and no bucket is locked.
    pub(crate) fn protect(&mut self, guard: &Guard<'_>) {
        let Some((mut checksum, done_bytes)) = self.checksum.take() else { return };
        let Some(item) = self.item(guard) else { return };
        checksum.update(&item.value()[done_bytes..self.filled_bytes]);
        if self.missing_bytes() == 0 {
            item.set_checksum(checksum.clone().finalize());
        }
        self.checksum = Some((checksum, self.filled_bytes));
    }

    fn window_end(&self) -> usize {
        self.shape.value_bytes.min(self.charged_bytes().saturating_sub(self.value_start()))
    }

    /// `n` bytes of the window were filled. Panics if the window was shorter.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.shape.value_bytes - self.filled_bytes, "more bytes than the window has");
        self.filled_bytes += n;
        if self.is_leased && self.filled_bytes - self.noted_bytes >= ARRIVING_BYTES {
            self.noted_bytes = self.filled_bytes;
            if self.noted_secs != self.window_secs {
                self.noted_secs = self.window_secs;
                self.engine.arena.note_arriving(self.run(), self.revocations, self.window_secs);
            }
        }
    }

    /// Bytes still to come.
    pub fn missing_bytes(&self) -> u32 {
        (self.shape.value_bytes - self.filled_bytes) as u32
    }

    /// True if the item would be a large one, had its value arrived at once.
    pub(crate) fn is_large(&self) -> bool {
        Shape { large: false, ..self.shape }.size() > self.engine.large_item_bytes()
    }

    /// Leaves the run, which is complete and whose lease has ended, to the log. Returns it, to be sealed, and its item.
    pub(crate) fn link<'t>(
        mut self,
        guard: &'t Guard<'_>,
        stream: WriteStream,
        flush_mark: u32,
    ) -> (OpenSegment, FreshItem<'t>) {
        assert!(self.is_of(&guard.handle.engine) && !self.is_leased && self.missing_bytes() == 0);
        let run = self.run.take().expect("it is taken once");
        // SAFETY: the item is the run's, and complete. From here on the run is the log's, so it is retired before it is
        // reused.
        unsafe {
            let item = self.raw.bind::<'t>();
            self.engine.arena.open_run(run, item, stream, flush_mark, guard.now())
        }
    }

    pub(crate) fn charged_bytes(&self) -> usize {
        self.engine.arena.segments.get(self.run().id()).usage.filled_bytes() as usize
    }

    /// Where in the run the value begins.
    fn value_start(&self) -> usize {
        let header = Shape { value_bytes: 0, ..self.shape };
        header.size_unpadded()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.run.is_some()
            && self.keep()
            && let Some(run) = self.run.take()
        {
            self.engine.arena.free_run(run);
        }
    }
}

/// Keeps one large value readable beyond the guard, for a client that reads slowly. Its memory stays in the budget. It
/// may be revoked if too much is pinned that is no longer in the cache: [`ValueRef::value`].
pub struct ValueRef {
    engine: Arc<Engine>,
    /// Until it is dropped.
    pin: Option<RunPin>,
    raw: UnboundItem,
    value_bytes: usize,
}

// SAFETY: a pinned run is immutable.
unsafe impl Send for ValueRef {}

impl ValueRef {
    /// `None`: the item is not large, or such values hold too much of the memory already.
    pub(crate) fn new(engine: &Arc<Engine>, item: ItemRef<'_>) -> Option<Self> {
        let pin = engine.arena.pin_run(item)?;
        let value_bytes = item.value_bytes();
        Some(Self { engine: Arc::clone(engine), pin: Some(pin), raw: item.unbound(), value_bytes })
    }

    /// The value. `None`: it was revoked, and is gone for good. Panics if the guard belongs to another engine.
    pub fn value<'t>(&self, guard: &'t Guard<'_>) -> Option<&'t [u8]> {
        assert!(Arc::ptr_eq(&self.engine, &guard.handle.engine), "a pin is read where it was made");
        let pin = self.pin.as_ref()?;
        // SAFETY: the pin was not revoked; if it is from here on, or dropped, the run is reused after this guard has
        // ended.
        (!self.engine.arena.is_pin_revoked(pin)).then(|| unsafe { self.raw.bind::<'t>() }.value())
    }

    /// The engine whose guards [`ValueRef::value`] takes.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Size of the value.
    pub fn len_bytes(&self) -> usize {
        self.value_bytes
    }
}

/// Keeps one large value readable until it is dropped, for a store that is to keep it. Its memory stays in the budget.
pub struct FirmValue {
    engine: Arc<Engine>,
    /// Until it is dropped.
    pin: Option<RunPin>,
    raw: UnboundItem,
}

// SAFETY: a pinned run is immutable.
unsafe impl Send for FirmValue {}
// SAFETY: as above.
unsafe impl Sync for FirmValue {}

impl FirmValue {
    /// `None`: the item is not large.
    pub(crate) fn new(engine: &Arc<Engine>, item: ItemRef<'_>) -> Option<Self> {
        let pin = engine.arena.pin_run_firmly(item)?;
        Some(Self { engine: Arc::clone(engine), pin: Some(pin), raw: item.unbound() })
    }
}

impl AsRef<[u8]> for FirmValue {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the pin is not revoked, and the run is not reused before it is given back, which takes `self`.
        unsafe { self.raw.bind() }.value()
    }
}

impl Drop for FirmValue {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.engine.arena.unpin_firm_run(pin);
        }
    }
}

impl Drop for ValueRef {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.engine.arena.unpin_run(pin);
        }
    }
}
