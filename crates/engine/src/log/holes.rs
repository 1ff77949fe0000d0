//! Holes: the dead items of a segment, between live ones, to be overwritten in place.
//!
//! A segment with holes need not be emptied before it takes new items: these fill the holes, and live items stay where
//! they are. Rosenblum and Ousterhout call that threading the log (SOSP 1991), but copy instead, since a disk seeks
//! from hole to hole; F2FS threads where clean segments are few (Lee et al., FAST 2015). Memory does not seek: the cost
//! is examining the live items between the holes.
//!
//! No item that can be found changes. The holes are mapped in a segment that was taken out of its queue, and filled
//! once every guard has ended that may read what was dead by then, as with limbo. Items that die later are left for
//! another time.
//!
//! Unsafe code lives here because dead items are written over what a hole leaves.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::crash_points::crash_point;
use crate::log::arena::Arena;
use crate::log::item::{DEAD, FILLER_BYTES_MIN, ItemRef};
use crate::log::segment::{HeldSegment, Segments};
use crate::log::walk::{Bookmark, Walk};

/// The holes of a segment, in ascending order.
#[derive(Default)]
pub(crate) struct Holes {
    /// The start of the segment in the log.
    start: usize,
    list: Vec<Hole>,
    /// The first hole that was not entered yet.
    next: usize,
    /// How far memory was prefetched: the hole, and the position in it.
    fetched: (usize, u32),
    /// The total size of the holes.
    bytes: usize,
    /// ... of which passed over, or left empty at the end of a hole.
    left_bytes: usize,
}

/// From where to where, relative to the start of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    start: u32,
    end: u32,
}

impl Hole {
    fn bytes(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// The holes of a claimed segment, as they are being mapped.
#[derive(Default)]
pub(crate) struct HoleMap {
    pub(super) holes: Holes,
    /// Live items between the holes.
    pub(crate) live_items: u32,
    /// Where the walk is.
    reached: Option<Bookmark>,
}

impl HoleMap {
    /// Adds the next item of a walk, which goes on where the last one ended or begins anew.
    pub(crate) fn note_next(&mut self, walk: &mut Walk<'_>, is_first: bool) -> Option<usize> {
        let here = walk.bookmark();
        if is_first {
            *self = Self { holes: Holes { start: here.at().bytes(), ..Holes::default() }, ..Self::default() };
        } else {
            assert!(self.reached == Some(here), "the map of another segment");
        }
        let located = walk.next()?;
        let bytes = located.raw().size();
        if located.raw().marks() & DEAD != 0 {
            self.holes.add(located.offset().bytes(), bytes);
        } else {
            self.live_items += 1;
        }
        self.reached = Some(walk.bookmark());
        Some(bytes)
    }

    /// True if all holes of this segment are mapped, as they were in this generation.
    pub(super) fn is_of(&self, segments: &Segments, held: &HeldSegment) -> bool {
        self.reached.is_some_and(|reached| reached.is_end_of(segments, held.id()))
    }

    /// True if one of the first holes has room for `bytes` bytes.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.holes.has_room(bytes)
    }
}

impl Holes {
    /// Adds the next dead item: a new hole, or more of the last one.
    fn add(&mut self, at: usize, bytes: usize) {
        let start = (at - self.start) as u32;
        let end = start + bytes as u32;
        self.bytes += bytes;
        match self.list.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.list.push(Hole { start, end }),
        }
    }

    /// The total size of the holes, filled or not.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if no hole was entered yet.
    pub(crate) fn is_new(&self) -> bool {
        self.next == 0
    }

    /// True if one of the next holes has room for `bytes` bytes.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.find(bytes).is_some()
    }

    fn find(&self, bytes: usize) -> Option<usize> {
        let mut near = self.list.iter().skip(self.next).take(LOOKS_MAX);
        near.position(|hole| fits(hole.bytes(), bytes)).map(|found| self.next + found)
    }

    /// Leaves the current hole, of which `rest_bytes` stay empty, for the next one with room for `bytes` bytes. Returns
    /// where in the log that is. `None`: none is near, and nothing has changed.
    pub(crate) fn enter(&mut self, bytes: usize, rest_bytes: usize) -> Option<Range<usize>> {
        let found = self.find(bytes)?;
        self.left_bytes +=
            rest_bytes + self.list[self.next..found].iter().map(|hole| hole.bytes()).sum::<usize>();
        self.next = found + 1;
        let hole = self.list[found];
        Some(self.start + hole.start as usize..self.start + hole.end as usize)
    }

    /// What stays empty if nothing more is written, and `rest_bytes` of the current hole stay empty.
    pub(crate) fn left_bytes(&self, rest_bytes: usize) -> usize {
        let unentered = self.list[self.next..].iter().map(|hole| hole.bytes());
        self.left_bytes + rest_bytes + unentered.sum::<usize>()
    }

    /// Where an item of so many bytes would be written after all that were asked for before. `None`: not in this
    /// segment.
    pub(crate) fn fetch_next(&mut self, bytes: usize) -> Option<usize> {
        loop {
            let (number, mut at) = self.fetched;
            let hole = self.list.get(number)?;
            at = at.max(hole.start);
            if fits((hole.end - at) as usize, bytes) {
                self.fetched.1 = at + bytes as u32;
                return Some(self.start + at as usize);
            }
            self.fetched = (number + 1, 0);
        }
    }
}

/// True if an item of `bytes` fits into `room_bytes`. The rest must be zero, or long enough for a header with its
/// length.
#[inline]
pub(crate) fn fits(room_bytes: usize, bytes: usize) -> bool {
    room_bytes == bytes || room_bytes >= bytes + FILLER_BYTES_MIN
}

/// Writes a dead item over the empty rest of a hole, so that a walk of the segment skips it.
///
/// # Safety
/// The rest of the hole belongs to the caller: nothing in it can be found, and the guards that had found what was there
/// have ended.
pub(super) unsafe fn close(arena: &Arena, rest: Range<usize>) {
    if !rest.is_empty() {
        arena.region.unpoison(rest.clone());
        // SAFETY: by the caller's promise; what fits leaves nothing shorter than a header (`fits`).
        unsafe { ItemRef::write_filler(&arena.region, rest.start, rest.len()) }
    }
}

/// Makes one dead item of a hole that is about to be filled, and poisons it.
///
/// # Safety
/// As of [`close`], for the hole.
pub(super) unsafe fn begin(arena: &Arena, hole: Range<usize>) {
    let mut unused = hole.clone();
    if arena.has_checksums() {
        // SAFETY: by the caller's promise; no hole is shorter than an item.
        unsafe { ItemRef::write_filler(&arena.region, hole.start, hole.len()) }
        unused.start = (hole.start + DEAD_HEADER_BYTES).min(hole.end);
    }
    // SAFETY: by the caller's promise.
    unsafe { arena.region.poison(unused) }
    crash_point();
}

/// Makes dead items of space that is handed out, and of the rest of its hole: so a walk of the file passes them,
/// whenever the process ends.
///
/// # Safety
/// As of [`close`], for both.
#[cold]
pub(super) unsafe fn fence_off(arena: &Arena, space: Range<usize>, rest: Range<usize>) {
    arena.region.unpoison(rest.start..(rest.start + DEAD_HEADER_BYTES).min(rest.end));
    // The rest first: until then it is a part of the dead item that begins before it.
    for dead in [rest, space].into_iter().filter(|dead| !dead.is_empty()) {
        // SAFETY: by the caller's promise; what fits leaves nothing shorter than a header (`fits`).
        unsafe { ItemRef::write_filler(&arena.region, dead.start, dead.len()) }
    }
}

/// At most so many bytes of a dead item are looked at.
const DEAD_HEADER_BYTES: usize = 24;

/// Holes examined for one item. Those passed over stay empty until another time.
const LOOKS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Engine, Handle, LargePages, Now, Store, Stored};

    fn holes(list: &[Range<usize>]) -> Holes {
        let mut holes = Holes { start: 1000, ..Holes::default() };
        list.iter().for_each(|hole| holes.add(hole.start, hole.len()));
        holes
    }

    #[test]
    fn neighbours_are_one_hole() {
        let mut holes = holes(&[1000..1040, 1040..1100, 1200..1300]);
        assert_eq!(holes.bytes(), 200);
        assert_eq!(holes.enter(100, 0), Some(1000..1100));
        assert_eq!(holes.enter(100, 0), Some(1200..1300));
        assert_eq!(holes.enter(8, 0), None);
    }

    #[test]
    fn holes_that_are_passed_over_stay_empty() {
        let mut holes = holes(&[1000..1040, 1048..1088, 1096..1200, 1208..1248]);
        assert!(holes.is_new() && holes.has_room(100 - FILLER_BYTES_MIN));
        assert_eq!(holes.enter(80, 0), Some(1096..1200), "two are too short");
        assert!(!holes.is_new());
        assert_eq!(holes.left_bytes(24), 40 + 40 + 24 + 40);
        assert_eq!(holes.enter(80, 24), None);
        assert_eq!(holes.enter(40, 24), Some(1208..1248));
        assert_eq!(holes.left_bytes(0), 40 + 40 + 24);
    }

    #[test]
    fn the_rest_of_a_hole_has_room_for_its_header() {
        assert!(fits(40, 40) && !fits(40, 48) && !fits(48, 40), "8 bytes are no header");
        assert!(fits(56, 40));
    }

    #[test]
    fn memory_is_fetched_where_items_will_go() {
        let list = [1000..1040, 1048..1128, 1136..1160, 1200..1240];
        let (mut holes, mut open) = (holes(&list), 0..0);
        let mut written = Vec::new();
        loop {
            if !fits(open.len(), 40) {
                match holes.enter(40, open.len()) {
                    Some(hole) => open = hole,
                    None => break,
                }
            }
            written.push(open.start);
            open.start += 40;
        }
        assert_eq!(written, [1000, 1048, 1088, 1200]);
        let fetched: Vec<_> = std::iter::from_fn(|| holes.fetch_next(40)).collect();
        assert_eq!(fetched, written);
    }

    fn value(key: u64, version: u64) -> Vec<u8> {
        (key << 32 | version).to_be_bytes().repeat(75 + (key * 7 + version) as usize % 12)
    }

    /// Overwrites random keys, each under a guard of its own, as long as there is memory.
    fn overwrite(handle: &mut Handle, versions: &mut [u64], random: &mut u64, times: usize) {
        for _ in 0..times {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (*random >> 33) % versions.len() as u64;
            let (key, version) = (number.to_be_bytes(), versions[number as usize] + 1);
            let guard = handle.pin(Now { secs: 1, micros: 1 });
            match guard.store(guard.prepare(&key), &Store::set(&key, &value(number, version))) {
                Stored::TryAgain => {}
                stored => {
                    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
                    versions[number as usize] = version;
                }
            }
        }
    }

    /// What a guard has found stays unchanged until it ends, while everything around it is overwritten.
    #[test]
    fn holes_are_filled_when_nobody_reads_there_any_more() {
        let engine = Engine::new(Config {
            memory_bytes: 2 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            handles_max: 2,
            index_power: Some(4),
            large_pages: LargePages::Never,
            hash_key: [7, 9],
        })
        .unwrap();
        let (mut writer, mut reader) = (engine.handle().unwrap(), engine.handle().unwrap());
        let (keys, rounds) = if cfg!(miri) { (60, 1) } else { (600, 100) };
        let mut versions = vec![0; keys];
        let mut random = 1;
        overwrite(&mut writer, &mut versions, &mut random, 5 * keys);
        for _ in 0..rounds {
            let guard = reader.pin(Now { secs: 1, micros: 1 });
            let find = |number: usize| {
                let key = (number as u64).to_be_bytes();
                Some((number, guard.get(&key, guard.prepare(&key)).ok()?))
            };
            let found: Vec<_> = (0..keys).filter_map(find).collect();
            let before = versions.clone();
            overwrite(&mut writer, &mut versions, &mut random, 2 * keys);
            for (number, item) in found {
                assert_eq!(item.value(), value(number as u64, before[number]), "{number}");
            }
            drop(guard);
            overwrite(&mut writer, &mut versions, &mut random, 2 * keys);
        }
        let stats = engine.stats();
        assert!(stats.refilled > rounds && stats.evictions == 0, "{stats:?}");
    }
}
