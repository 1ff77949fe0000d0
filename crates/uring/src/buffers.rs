//! Memory that the kernel receives into: a ring of buffers, from which it takes one when a socket has bytes.
//!
//! Each buffer is an allocation of its own with one owner. Provided, it is the kernel's; with the completion that names
//! it, it becomes a [`Buffer`], which is an ordinary value: read it, drop it, or provide it again.

#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// Bytes that were received. Give it back to its ring once they are read.
#[derive(Debug)]
pub struct Buffer {
    memory: Box<[u8]>,
    filled_bytes: usize,
}

/// The buffers that the kernel has.
pub(crate) struct BufferRing {
    /// `entries_max` entries, page-aligned; the kernel reads them, and none but us writes them.
    entries: NonNull<BufRingEntry>,
    entries_max: u16,
    /// How many buffers were ever provided, modulo 2^16.
    tail: u16,
    /// The memory of each buffer that the kernel has, by its number: boxes, taken apart since the kernel writes to them.
    provided: Box<[Option<NonNull<[u8]>>]>,
    /// Numbers of no buffer.
    free: Vec<u16>,
}

// SAFETY: `entries` and `provided` are memory of this value alone, and nothing about it is tied to a thread.
unsafe impl Send for BufferRing {}

impl BufferRing {
    /// A ring of `entries_max` buffers (a power of two, at most 2^15) of `buffer_bytes` each.
    pub(crate) fn new(entries_max: u16, buffer_bytes: usize) -> Self {
        assert!(entries_max.is_power_of_two() && entries_max <= 1 << 15);
        let layout = Self::layout(entries_max);
        // SAFETY: the layout is not empty, since `entries_max` is not 0.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        let Some(entries) = NonNull::new(memory.cast()) else { alloc::handle_alloc_error(layout) };
        let mut ring = Self {
            entries,
            entries_max,
            tail: 0,
            provided: (0..entries_max).map(|_| None).collect(),
            free: (0..entries_max).collect(),
        };
        for _ in 0..entries_max {
            ring.provide(vec![0; buffer_bytes].into_boxed_slice());
        }
        ring
    }

    /// Tells the kernel of the ring, as buffer group `group`. Errors: the kernel is older than 5.19.
    ///
    /// # Safety
    /// This value outlives every operation of the submitter's ring that selects from the group.
    pub(crate) unsafe fn register(&self, submitter: &Submitter<'_>, group: u16) -> io::Result<()> {
        let address = self.entries.as_ptr() as u64;
        // SAFETY: `entries_max` entries lie there, page-aligned. The caller keeps them as long as the kernel reads
        // them; it pins their pages besides.
        unsafe { submitter.register_buf_ring_with_flags(address, self.entries_max, group, 0) }
    }

    /// Gives memory to the kernel. Memory beyond `entries_max` is freed.
    fn provide(&mut self, memory: Box<[u8]>) {
        let Some(number) = self.free.pop() else { return };
        let bytes = memory.len();
        // From here on nothing reads or writes this memory but the kernel, until `take` makes a box of it again.
        let memory = NonNull::from(Box::leak(memory));
        self.provided[usize::from(number)] = Some(memory);
        let index = self.tail & (self.entries_max - 1);
        // SAFETY: `index` is below `entries_max`, so the entry lies in our allocation. The kernel does not read it
        // before the tail has passed it: of `entries_max` entries, fewer are provided, since there was a free number.
        // The fields are written one by one, as the tail lies in a field of the first entry that they leave alone.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(usize::from(index));
            entry.set_addr(memory.as_ptr().cast::<u8>().expose_provenance() as u64);
            entry.set_len(bytes as u32);
            entry.set_bid(number);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `entries` is the first entry, initialised and page-aligned; the tail is a `u16` in it, which the
        // kernel reads atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    /// Takes the buffer of this number back from the kernel, which has filled the first `filled_bytes`. `None` if the
    /// kernel has none of this number.
    ///
    /// # Safety
    /// A completion that was not passed here before names the buffer, if the kernel has it.
    pub(crate) unsafe fn take(&mut self, number: u16, filled_bytes: usize) -> Option<Buffer> {
        let memory = self.provided.get_mut(usize::from(number))?.take()?;
        // SAFETY: a box that `provide` took apart, and took out of the table once. By our caller's word the kernel has
        // written what it will write.
        let memory = unsafe { Box::from_raw(memory.as_ptr()) };
        self.free.push(number);
        let filled_bytes = filled_bytes.min(memory.len());
        Some(Buffer { memory, filled_bytes })
    }

    /// Gives a buffer back to the kernel.
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        self.provide(buffer.memory);
    }

    #[cfg(test)]
    pub(crate) fn provided(&self) -> usize {
        self.provided.iter().flatten().count()
    }

    fn layout(entries_max: u16) -> Layout {
        Layout::array::<BufRingEntry>(usize::from(entries_max))
            .and_then(|layout| layout.align_to(PAGE_BYTES))
            .expect("it is at most 512 KiB")
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        for memory in self.provided.iter_mut().filter_map(Option::take) {
            // SAFETY: a box that `provide` took apart. By the contract of `register` nothing writes to it any more.
            drop(unsafe { Box::from_raw(memory.as_ptr()) });
        }
        // SAFETY: allocated by `new` with this layout. By the contract of `register` no operation selects from the
        // group any more.
        unsafe { alloc::dealloc(self.entries.as_ptr().cast(), Self::layout(self.entries_max)) }
    }
}

impl Buffer {
    /// True if there was room for no more: the socket probably has more.
    pub fn is_full(&self) -> bool {
        self.filled_bytes == self.memory.len()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.filled_bytes]
    }
}

/// At least the page size of any system that has io_uring.
const PAGE_BYTES: usize = 64 << 10;
