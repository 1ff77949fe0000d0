//! Gaps: what is dead in a segment, between what lives, to be written again where it lies.
//!
//! A segment that has gaps need not be emptied before it takes new items: they go into the gaps, and what lives stays where it is. Rosenblum
//! and Ousterhout call that to thread the log (SOSP 1991), and copy instead, since a disk has to seek from gap to gap; F2FS does it where clean
//! segments are few (Lee et al., FAST 2015). Memory does not seek: all that it costs is to look at what lives between two gaps.
//!
//! No item that can be found ever changes for that. Gaps are made out first, in a segment that was taken out of its queue; then whoever may
//! still read what was dead by then must have ended their turn, as with segments in limbo; what dies later is left for another time.

use crate::engine::Engine;
use crate::item::{FILLER_BYTES_MIN, Raw};
use crate::segment::Id;

/// The gaps of a segment, from its start to its end.
#[derive(Default)]
pub(crate) struct Gaps {
    list: Vec<Gap>,
    /// The one being filled; `None`: none yet.
    entered: Option<usize>,
    /// How far memory was fetched.
    fetched: Place,
    /// What they take together.
    bytes: usize,
    /// ... of which nothing was found for.
    left_bytes: usize,
}

/// Bytes of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: usize,
    end: usize,
}

/// Somewhere in a gap.
#[derive(Clone, Copy, Default)]
struct Place {
    gap: usize,
    at: usize,
}

/// A segment with gaps that its handle will write to, once nobody reads there any more.
pub(crate) struct Threadable {
    pub(crate) id: Id,
    /// Not before every turn has ended that entered up to this epoch.
    pub(crate) tag: u64,
    pub(crate) found: Survey,
}

/// What was found in a segment.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) gaps: Gaps,
    /// Items between them.
    pub(crate) live_items: u32,
}

impl Survey {
    /// Takes in the next item of the segment.
    pub(crate) fn note(&mut self, at: usize, raw: Raw, is_dead: bool) {
        if is_dead {
            self.gaps.add(at, raw.size());
        } else {
            self.live_items += 1;
        }
    }
}

impl Gaps {
    /// The next dead item: a gap, or more of the last one.
    fn add(&mut self, at: usize, bytes: usize) {
        self.bytes += bytes;
        match self.list.last_mut() {
            Some(last) if last.end == at => last.end += bytes,
            _ => self.list.push(Gap { start: at, end: at + bytes }),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// None was entered.
    pub(crate) fn is_new(&self) -> bool {
        self.entered.is_none()
    }

    /// Is there a gap for so many bytes, not far on?
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.find(bytes).is_some()
    }

    fn find(&self, bytes: usize) -> Option<usize> {
        let first = self.entered.map_or(0, |entered| entered + 1);
        let near = self.list.iter().enumerate().skip(first).take(LOOKS_MAX);
        near.filter(|(_, gap)| fits(gap.end - gap.start, bytes)).map(|(at, _)| at).next()
    }

    /// Leaves the present gap, of which `left_bytes` stay empty, for one with room for so many bytes. Returns where it starts and ends.
    pub(crate) fn enter(&mut self, bytes: usize, left_bytes: usize) -> Option<(usize, usize)> {
        let found = self.find(bytes)?;
        let skipped = self.entered.map_or(0, |entered| entered + 1)..found;
        self.left_bytes +=
            left_bytes + self.list[skipped].iter().map(|gap| gap.end - gap.start).sum::<usize>();
        self.entered = Some(found);
        let gap = self.list[found];
        Some((gap.start, gap.end))
    }

    /// What nothing was found for, with `left_bytes` of the present gap and all that come after it.
    pub(crate) fn left_bytes(&self, left_bytes: usize) -> usize {
        let rest = &self.list[self.entered.map_or(0, |entered| entered + 1)..];
        self.left_bytes + left_bytes + rest.iter().map(|gap| gap.end - gap.start).sum::<usize>()
    }

    /// Where so many bytes will be written, beyond all that was asked for before. `None`: not in this segment.
    pub(crate) fn next_to_fetch(&mut self, bytes: usize) -> Option<usize> {
        loop {
            let gap = self.list.get(self.fetched.gap)?;
            let at = self.fetched.at.max(gap.start);
            if at < gap.end && fits(gap.end - at, bytes) {
                self.fetched.at = at + bytes;
                return Some(at);
            }
            self.fetched = Place { gap: self.fetched.gap + 1, at: 0 };
        }
    }
}

/// Can an item of so many bytes go where there is this much room? What stays empty behind it must be long enough to say how long it is.
#[inline]
pub(crate) fn fits(room_bytes: usize, bytes: usize) -> bool {
    room_bytes == bytes || room_bytes >= bytes + FILLER_BYTES_MIN
}

/// Marks what stays empty of a gap, so that whoever walks the segment passes over it.
#[allow(unsafe_code)]
pub(crate) fn fill(engine: &Engine, start: usize, end: usize) {
    if start < end {
        // SAFETY: the rest of a gap is its handle's alone: nobody can find it, and who could has ended their turn.
        unsafe { Raw::write_filler(&engine.log, start, end - start) }
    }
}

/// Gaps looked at for one item: those that are passed over stay empty until another time.
const LOOKS_MAX: usize = 8;
