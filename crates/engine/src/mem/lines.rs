//! Cache lines of words, by number: the memory of the index.
//!
//! Unsafe code lives here because a line is a reference into a region.
#![allow(unsafe_code)]

use std::io;

use crate::sync::AtomicU64;

pub(crate) use crate::mem::region::LINE_BYTES;

/// Words in a line. Fewer under the model checker: the same happens in fewer steps.
pub(crate) const WORDS: usize = if cfg!(all(loom, test)) { 3 } else { 8 };

/// Committed in steps of this size.
#[cfg(not(all(loom, test)))]
const COMMITTED_BYTES: usize = 1 << 20;

pub(crate) type Line = [AtomicU64; WORDS];

#[cfg(not(all(loom, test)))]
pub(crate) struct Lines {
    region: crate::mem::region::Region,
    /// How many bytes from the start are committed.
    committed_bytes: std::sync::atomic::AtomicUsize,
}

#[cfg(not(all(loom, test)))]
impl Lines {
    /// Reserves address space for so many bytes of lines, all zero. Memory is used only by lines that are touched,
    /// which must be committed first.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
        let region = crate::mem::region::Region::reserve(bytes)?;
        region.set_dumped(0..region.len_bytes(), false);
        Ok(Self { region, committed_bytes: std::sync::atomic::AtomicUsize::new(0) })
    }

    /// Commits the first `lines`, and some more, since it is called often. One caller at a time. False: the system has
    /// no memory for them.
    #[must_use]
    pub(crate) fn commit(&self, lines: usize) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let committed_bytes = self.committed_bytes.load(Relaxed);
        if lines * LINE_BYTES <= committed_bytes {
            return true;
        }
        let wanted_bytes =
            (lines * LINE_BYTES).next_multiple_of(COMMITTED_BYTES).min(self.region.len_bytes());
        let is_committed = self.region.commit(committed_bytes, wanted_bytes - committed_bytes);
        if is_committed {
            self.region.set_dumped(committed_bytes..wanted_bytes, true);
            self.committed_bytes.store(wanted_bytes, Relaxed);
        }
        is_committed
    }

    /// Moves the `page`th large page of lines to a large page, if the first `filled` lines extend beyond it. False:
    /// they do not, or the system has no large page now.
    pub(crate) fn move_to_large_page(&self, page: usize, filled: usize) -> bool {
        let range = self.region.large_page(page).filter(|range| range.end <= filled * LINE_BYTES);
        range.is_some_and(|range| self.region.move_to_large_page(range))
    }

    /// As [`crate::mem::numa::interleave`].
    pub(crate) fn interleave(&self, nodes: &[u32]) -> io::Result<()> {
        crate::mem::numa::interleave(&self.region, nodes)
    }

    pub(crate) fn count(&self) -> usize {
        self.region.len_bytes() / LINE_BYTES
    }

    /// Panics beyond the end.
    #[inline]
    pub(crate) fn get(&self, line: usize) -> &Line {
        // SAFETY: the region is ours, and nothing else is made of it.
        unsafe { self.region.line(line) }
    }

    #[inline]
    pub(crate) fn prefetch(&self, line: usize) {
        self.region.prefetch(line * LINE_BYTES);
    }
}

#[cfg(all(loom, test))]
pub(crate) struct Lines(Vec<Line>);

#[cfg(all(loom, test))]
impl Lines {
    pub(crate) fn reserve(_bytes: usize) -> io::Result<Self> {
        Ok(Self((0..4).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect()))
    }

    pub(crate) fn commit(&self, _lines: usize) -> bool {
        true
    }

    pub(crate) fn move_to_large_page(&self, _page: usize, _filled: usize) -> bool {
        false
    }

    pub(crate) fn interleave(&self, _nodes: &[u32]) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn get(&self, line: usize) -> &Line {
        &self.0[line]
    }

    #[inline]
    pub(crate) fn prefetch(&self, _line: usize) {}
}
