//! Cache lines of words, by number: where the index keeps its buckets.

use std::io;

use crate::sync::AtomicU64;

pub(crate) use crate::memory::LINE_BYTES;

/// Words in a line. The model checker gets shorter ones: as much happens, in fewer steps.
pub(crate) const WORDS: usize = if cfg!(all(loom, test)) { 3 } else { 8 };

pub(crate) type Line = [AtomicU64; WORDS];

#[cfg(not(all(loom, test)))]
pub(crate) struct Lines(crate::memory::Region);

#[cfg(not(all(loom, test)))]
impl Lines {
    /// Address space for so many bytes of lines, all zero; memory only for those that are touched.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
        crate::memory::Region::reserve(bytes).map(Self)
    }

    /// Moves the `page`th large page's worth of lines to a large page, if the first `filled` lines reach beyond it. False: they do not, or
    /// the system has none now.
    pub(crate) fn move_to_large_page(&self, page: usize, filled: usize) -> bool {
        let range = self.0.large_page(page).filter(|range| range.end <= filled * LINE_BYTES);
        range.is_some_and(|range| self.0.move_to_large_page(range))
    }

    /// As [`crate::numa::interleave`].
    pub(crate) fn interleave(&self, nodes: &[u32]) -> io::Result<()> {
        crate::numa::interleave(&self.0, nodes)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len_bytes() / LINE_BYTES
    }

    /// Panics beyond the end.
    pub(crate) fn get(&self, line: usize) -> &Line {
        self.0.line_u64(line)
    }

    pub(crate) fn prefetch(&self, line: usize) {
        self.0.prefetch(line * LINE_BYTES);
    }
}

#[cfg(all(loom, test))]
pub(crate) struct Lines(Vec<Line>);

#[cfg(all(loom, test))]
impl Lines {
    pub(crate) fn reserve(_bytes: usize) -> io::Result<Self> {
        Ok(Self((0..4).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect()))
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

    pub(crate) fn get(&self, line: usize) -> &Line {
        &self.0[line]
    }

    pub(crate) fn prefetch(&self, _line: usize) {}
}
