//! Address space: reserved once, committed and touched as needed, given back to the system page by page.
//!
//! A system that does not overcommit (`vm.overcommit_memory=2`) counts all writable memory, touched or not. There,
//! memory that was not committed is inaccessible; and so it is in debug builds, which thereby detect accesses to memory
//! that is not committed or was given back.
//!
//! A region may be a part of a file (`file.rs`), which another process finds later. Then its memory is the file's: it
//! is committed by allocating the file's pages, and given back by punching a hole.
//!
//! Unsafe code lives here because this module hands out memory that the compiler does not know. What accesses it is
//! unsafe: `lines.rs` and `table.rs` make atomics of a region of their own, `item.rs` items of the log's.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

use crate::mem::file::BackingFile;
use crate::mem::poison::Poisoned;

/// The unit in which memory is charged and given back. Kernels with larger pages merely give back less often.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// A large page.
pub(crate) const LARGE_PAGE_BYTES: usize = 2 << 20;

/// A reservation of zeroed memory that lives as long as the value.
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// Only committed memory can be accessed.
    is_strict: bool,
    /// The file that the memory is of, and where in it the region begins.
    backing: Option<(Arc<BackingFile>, u64)>,
    pub(super) poisoned: Poisoned,
}

/// True if memory becomes writable only when it is committed, in mappings of its own: where the system counts all
/// writable memory (`vm.overcommit_memory=2`), and in debug builds. Such a system would refuse a writable reservation,
/// or take from other processes memory that nobody uses.
pub fn commits_memory() -> bool {
    static COMMITS_MEMORY: LazyLock<bool> = LazyLock::new(|| {
        cfg!(debug_assertions)
            || std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|setting| setting.starts_with(b"2"))
    });
    *COMMITS_MEMORY
}

// SAFETY: the region is plain memory. All access goes through atomics or through the unsafe functions below, whose
// contracts forbid data races.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes` of address space, rounded up to pages. Memory is used only once it is touched, which it may be
    /// once it is committed.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let is_strict = commits_memory();
        let base = os::reserve(bytes, is_strict)?;
        Ok(Self { base, bytes, is_strict, backing: None, poisoned: Poisoned::default() })
    }

    /// The same over a part of a file, which is as long. `offset` is a multiple of the page size. Pages that the file
    /// has are zeros, or what was written there.
    pub(crate) fn map(file: &Arc<BackingFile>, offset: u64, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        // A system that counts writable memory does not count a file's.
        let is_strict = cfg!(debug_assertions);
        let base = os::map(file, offset, bytes, is_strict)?;
        let backing = Some((Arc::clone(file), offset));
        Ok(Self { base, bytes, is_strict, backing, poisoned: Poisoned::default() })
    }

    /// The same for a part of a file.
    pub(crate) fn map_part(part: &crate::mem::table::FilePart, bytes: usize) -> io::Result<Self> {
        Self::map(&part.file, part.offset, bytes)
    }

    /// True if its memory is a file's.
    pub(crate) fn is_backed(&self) -> bool {
        self.backing.is_some()
    }

    /// Gives memory to all pages of a range of a file that should have it, and makes them accessible. False: there is
    /// none.
    #[must_use]
    pub(crate) fn recommit(&self, pages: Range<usize>) -> bool {
        assert!(pages.start <= pages.end && pages.end <= self.bytes);
        let Some((file, start)) = &self.backing else { return self.commit(pages.start, pages.len()) };
        // SAFETY: in bounds (checked).
        file.fill_gaps(start + pages.start as u64, start + pages.end as u64)
            && (!self.is_strict || os::commit(unsafe { self.base.add(pages.start) }, pages.len()))
    }

    /// The same, all of it committed.
    pub(crate) fn reserve_committed(bytes: usize) -> io::Result<Self> {
        let region = Self::reserve(bytes)?;
        if region.commit(0, region.bytes) { Ok(region) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// Commits whole pages. False: the system has no memory for them. Committed pages stay as they are.
    #[must_use]
    pub(crate) fn commit(&self, offset: usize, bytes: usize) -> bool {
        assert!(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES));
        assert!(offset + bytes <= self.bytes);
        if let Some((file, start)) = &self.backing
            && !file.allocate(start + offset as u64, bytes as u64)
        {
            return false;
        }
        // SAFETY: in bounds (checked).
        !self.is_strict || os::commit(unsafe { self.base.add(offset) }, bytes)
    }

    /// Touches committed pages that will be written at once: all together cost less than one by one. Those of a file
    /// are there already.
    pub(crate) fn populate(&self, pages: Range<usize>) {
        assert!(pages.start <= pages.end && pages.end <= self.bytes);
        if !self.is_backed() {
            // SAFETY: in bounds (checked).
            os::populate(unsafe { self.base.add(pages.start) }, pages.len());
        }
    }

    /// Whether core dumps contain these pages (they do by default). A dump has every address of memory of which some
    /// was touched, as zeros that have to be written wherever it does not go to a file.
    pub(crate) fn set_dumped(&self, pages: Range<usize>, is_dumped: bool) {
        assert!(pages.start <= pages.end && pages.end <= self.bytes);
        // SAFETY: in bounds (checked).
        os::set_dumped(unsafe { self.base.add(pages.start) }, pages.len(), is_dumped);
    }

    /// Asks for pages of 2 MiB where the system has some (transparent huge pages, `madvise` or `always`). They come as
    /// memory is touched; without any, small pages are used.
    /// The pages of a file are its file system's to choose.
    pub(crate) fn prefer_large_pages(&self) {
        if !self.is_backed() {
            os::prefer_large_pages(self.base, self.bytes);
        }
    }

    /// The range of the `number`th large page of the region.
    pub(crate) fn large_page(&self, number: usize) -> Option<Range<usize>> {
        let first = self.base.addr().get().next_multiple_of(LARGE_PAGE_BYTES) - self.base.addr().get();
        let start = first + number * LARGE_PAGE_BYTES;
        (start + LARGE_PAGE_BYTES <= self.bytes).then_some(start..start + LARGE_PAGE_BYTES)
    }

    /// Moves the contents of such a range to a large page, if the system has one. Parts that were never touched will
    /// take memory. A thread that accesses the range meanwhile waits for some hundred microseconds. (With
    /// [`Region::prefer_large_pages`] the thread that touches a page first waits until the system has found a large
    /// one, which may take many milliseconds.) False: not now.
    pub(crate) fn move_to_large_page(&self, range: Range<usize>) -> bool {
        assert!(range.end <= self.bytes);
        if self.is_backed() {
            return false;
        }
        make_large_page_ready();
        // SAFETY: in bounds (checked).
        os::move_to_large_pages(unsafe { self.base.add(range.start) }, range.len())
    }

    /// Size in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// A cache line of eight words. Panics beyond the end.
    ///
    /// # Safety
    /// Nothing else than such lines is made of the region.
    #[cfg(not(all(loom, test)))]
    #[inline]
    pub(super) unsafe fn line(&self, index: usize) -> &[AtomicU64; 8] {
        assert!(index < self.bytes / LINE_BYTES, "line {index} is outside the region");
        // SAFETY: in bounds (checked), aligned (the base is page-aligned), initialised (zeroed by the system), and only
        // ever accessed as atomics, by the caller's promise.
        unsafe { &*self.base.as_ptr().add(index * LINE_BYTES).cast::<[AtomicU64; 8]>() }
    }

    /// The address of the first byte, at the border of a page.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The address of a byte. Panics beyond the end.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes, "offset {offset} is outside the region");
        // SAFETY: in bounds (checked).
        unsafe { self.base.add(offset) }
    }

    /// Gives the pages of a range back to the system; they read as zero once they are committed again.
    ///
    /// # Safety
    /// Nobody holds a reference into the range or reads it concurrently.
    pub(crate) unsafe fn decommit(&self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(PAGE_BYTES) && offset + bytes <= self.bytes);
        if let Some((file, start)) = &self.backing {
            file.punch(start + offset as u64, bytes as u64);
            crate::crash_points::crash_point();
            if self.is_strict {
                // SAFETY: in bounds (checked); exclusive by the caller's promise.
                unsafe { os::close(self.base.add(offset), bytes) }
            }
            return;
        }
        // SAFETY: in bounds (checked); exclusive by the caller's promise.
        unsafe { os::decommit(self.base.add(offset), bytes, self.is_strict) }
    }

    /// Hints that these bytes, or some of them, will be read or written soon.
    pub(crate) fn prefetch_range(&self, offset: usize, bytes: usize) {
        let end = (offset + bytes.min(PREFETCHED_LINES_MAX * LINE_BYTES)).min(self.bytes);
        for line in (offset / LINE_BYTES * LINE_BYTES..end).step_by(LINE_BYTES) {
            // SAFETY: in bounds; a prefetch has no other requirement.
            prefetch(unsafe { self.base.as_ptr().add(line) });
        }
    }

    /// The same for the lines from where `line` begins to `end`, where there are few if any: the loop above takes fewer
    /// steps for many, but more to begin.
    #[inline]
    pub(crate) fn prefetch_lines(&self, mut line: usize, end: usize) {
        let end = end.min(self.bytes);
        for _ in 0..PREFETCHED_LINES_MAX {
            if line >= end {
                break;
            }
            // SAFETY: in bounds; a prefetch has no other requirement.
            prefetch(unsafe { self.base.as_ptr().add(line) });
            line += LINE_BYTES;
        }
    }

    /// Hints that the line holding `offset` will be read soon.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        if offset < self.bytes {
            // SAFETY: in bounds (checked); a prefetch has no other requirement.
            prefetch(unsafe { self.base.as_ptr().add(offset) });
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Other memory may come to lie here.
        self.unpoison(self.poisoned.bounds());
        #[cfg(miri)]
        if let Some((file, offset)) = &self.backing {
            // SAFETY: all of it is initialised, and nothing borrowed from `self` is alive.
            let left = unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) };
            let _ = file.write(left, *offset);
        }
        // SAFETY: `base` and `bytes` are what `os::reserve` returned, and nothing borrowed from `self` is alive.
        unsafe { os::release(self.base, self.bytes) }
    }
}

/// Allocates a large page, touches it, and gives it back: the system hands out next what was freed last. So the time
/// that the system, and in a virtual machine its host, needs to find a page is spent here, where nobody waits, and not
/// while the page is copied to.
fn make_large_page_ready() {
    let Ok(scratch) = Region::reserve_committed(2 * LARGE_PAGE_BYTES) else { return };
    scratch.prefer_large_pages();
    if let Some(range) = scratch.large_page(0) {
        // SAFETY: in bounds.
        os::populate(unsafe { scratch.base.add(range.start) }, range.len());
    }
}

/// The number of cache lines that a core can fetch at once.
const PREFETCHED_LINES_MAX: usize = 32;

/// Hints that a cache line will be read soon.
#[inline]
pub(crate) fn prefetch(pointer: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(pointer.cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = pointer;
}

#[cfg(not(miri))]
mod os {
    use super::{NonNull, io};
    use rustix::mm::{
        Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
    };

    pub(super) fn reserve(bytes: usize, is_strict: bool) -> io::Result<NonNull<u8>> {
        let access = if is_strict { ProtFlags::empty() } else { ProtFlags::READ | ProtFlags::WRITE };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh private mapping at an address of the system's choice aliases nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }?;
        NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    pub(super) fn map(
        file: &super::BackingFile,
        offset: u64,
        bytes: usize,
        is_strict: bool,
    ) -> io::Result<NonNull<u8>> {
        let access = if is_strict { ProtFlags::empty() } else { ProtFlags::READ | ProtFlags::WRITE };
        // SAFETY: a fresh mapping at an address of the system's choice. The file is locked, so other processes that
        // respect that leave it alone; what is read from it is not trusted (`warm.rs`).
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file.file(), offset) }?;
        NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    /// Makes a part of a file inaccessible.
    ///
    /// # Safety
    /// Nobody uses it.
    pub(super) unsafe fn close(base: NonNull<u8>, bytes: usize) {
        // SAFETY: by the caller's promise. If it is refused, it stays accessible.
        let _ = unsafe { mprotect(base.as_ptr().cast(), bytes, MprotectFlags::empty()) };
    }

    pub(super) fn commit(base: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: changes no byte that can be read, and takes no access away.
        unsafe { mprotect(base.as_ptr().cast(), bytes, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok()
    }

    pub(super) fn prefer_large_pages(base: NonNull<u8>, bytes: usize) {
        // SAFETY: changes no byte that can be read, only how pages are allocated. A kernel without large pages refuses.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    }

    pub(super) fn set_dumped(base: NonNull<u8>, bytes: usize, is_dumped: bool) {
        let advice = if is_dumped { Advice::LinuxDoDump } else { Advice::LinuxDontDump };
        // SAFETY: changes no byte that can be read. If it is refused, dumps are larger.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, advice) };
    }

    pub(super) fn populate(base: NonNull<u8>, bytes: usize) {
        // SAFETY: changes no byte that can be read. A kernel before 5.14 does not know it, and does nothing.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    pub(super) fn move_to_large_pages(base: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: changes no byte that can be read. A kernel before 6.1 does not know it, and says so.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_COLLAPSE) == 0 }
    }

    /// # Safety
    /// The range is part of a reservation and nobody uses it.
    pub(super) unsafe fn decommit(base: NonNull<u8>, bytes: usize, is_strict: bool) {
        if is_strict {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            // Replaced by a new reservation, since memory that was writable counts until it is unmapped.
            // SAFETY: by the caller's promise. If it is refused the old one stays.
            if unsafe { mmap_anonymous(base.as_ptr().cast(), bytes, ProtFlags::empty(), flags) }.is_ok() {
                return;
            }
        }
        let advise = |advice| {
            // SAFETY: by the caller's promise.
            unsafe { madvise(base.as_ptr().cast(), bytes, advice) }
        };
        // Locked memory needs other advice, which kernels before 5.18 do not have: there the pages stay.
        let _ = advise(Advice::LinuxDontNeed).or_else(|_| advise(Advice::LinuxDontneedLocked));
    }

    /// # Safety
    /// `base` and `bytes` are a whole reservation that nobody uses any more.
    pub(super) unsafe fn release(base: NonNull<u8>, bytes: usize) {
        // SAFETY: by the caller's promise.
        let _ = unsafe { munmap(base.as_ptr().cast(), bytes) };
    }
}

/// Miri knows no `mmap` through raw system calls: the same promises, kept by the allocator. What is mapped of a file
/// (`file_miri.rs`) is a copy, which its region gives back.
#[cfg(miri)]
mod os {
    use super::{NonNull, PAGE_BYTES, io};
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, PAGE_BYTES).expect("a region is smaller than the address space")
    }

    pub(super) fn reserve(bytes: usize, _is_strict: bool) -> io::Result<NonNull<u8>> {
        // SAFETY: the layout's size is not zero (`Region::reserve` rounds up).
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)) })
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    pub(super) fn map(
        file: &super::BackingFile,
        offset: u64,
        bytes: usize,
        is_strict: bool,
    ) -> io::Result<NonNull<u8>> {
        let base = reserve(bytes, is_strict)?;
        // SAFETY: nobody else knows of it.
        file.read(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), bytes) }, offset)?;
        Ok(base)
    }

    pub(super) unsafe fn close(base: NonNull<u8>, bytes: usize) {
        // A hole reads as zeros.
        // SAFETY: by the caller's promise.
        unsafe { base.as_ptr().write_bytes(0, bytes) }
    }

    pub(super) fn set_dumped(_base: NonNull<u8>, _bytes: usize, _is_dumped: bool) {}

    pub(super) fn prefer_large_pages(_base: NonNull<u8>, _bytes: usize) {}

    pub(super) fn populate(_base: NonNull<u8>, _bytes: usize) {}

    pub(super) fn move_to_large_pages(_base: NonNull<u8>, _bytes: usize) -> bool {
        false
    }

    pub(super) fn commit(_base: NonNull<u8>, _bytes: usize) -> bool {
        true
    }

    pub(super) unsafe fn decommit(base: NonNull<u8>, bytes: usize, _is_strict: bool) {
        // SAFETY: by the caller's promise.
        unsafe { base.as_ptr().write_bytes(0, bytes) }
    }

    pub(super) unsafe fn release(base: NonNull<u8>, bytes: usize) {
        // SAFETY: by the caller's promise.
        unsafe { dealloc(base.as_ptr(), layout(bytes)) }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::mm::{Advice, madvise};

    use super::*;

    #[test]
    fn memory_goes_back_also_if_it_is_locked() {
        let region = Region::reserve_committed(4 * PAGE_BYTES).expect("address space");
        // SAFETY: nobody has written to it yet.
        let advised =
            unsafe { madvise(region.base().as_ptr().cast(), PAGE_BYTES, Advice::LinuxDontneedLocked) };
        if let Err(error) = advised {
            println!("not tested, this kernel keeps what is locked: {error}");
            return;
        }
        // SAFETY: nothing else is made of it.
        let word = unsafe { &region.line(PAGE_BYTES / 64)[0] };
        // SAFETY: locking changes no byte.
        let locked = unsafe { rustix::mm::mlock(region.base().as_ptr().cast(), region.len_bytes()) };
        println!("locked: {locked:?}");
        word.store(1, Relaxed);
        // SAFETY: nobody else knows of the region; `word` is an atomic that is not read meanwhile.
        unsafe { region.decommit(PAGE_BYTES, PAGE_BYTES) };
        assert!(region.commit(PAGE_BYTES, PAGE_BYTES));
        assert_eq!(word.load(Relaxed), 0);
    }
}
