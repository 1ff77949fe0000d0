//! Walks: the items of a segment, one after another, under a guard.
//!
//! Unsafe code lives here because items are read where they lie. The invariant: from its start to its filled end a
//! segment that is sealed or claimed holds items without a gap, none of which moves, and a guard that was pinned when
//! that was seen may read them until it ends, as with an entry of the index. What is kept beyond a guard is a number,
//! which counts only while the segment is claimed, or of the same generation.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use crate::epoch::epochs::Pinned;
use crate::log::arena::Arena;
use crate::log::item::ItemRef;
use crate::log::offset::Offset;
use crate::log::segment::{Claim, SegmentId, Segments};
use crate::mem::region::Region;

/// An item that a walk met, and its place.
#[derive(Clone, Copy)]
pub(crate) struct Located<'g> {
    offset: Offset,
    raw: ItemRef<'g>,
}

impl<'g> Located<'g> {
    pub(crate) fn offset(&self) -> Offset {
        self.offset
    }

    pub(crate) fn raw(&self) -> ItemRef<'g> {
        self.raw
    }
}

/// The rest of a segment's items.
pub(crate) struct Walk<'g> {
    log: &'g Region,
    id: SegmentId,
    generation: u32,
    at: Offset,
    end: Offset,
}

impl<'g> Walk<'g> {
    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    /// Where it is, to go on from under another guard.
    pub(crate) fn bookmark(&self) -> Bookmark {
        Bookmark { id: self.id, generation: self.generation, at: self.at }
    }
}

impl<'g> Iterator for Walk<'g> {
    type Item = Located<'g>;

    #[inline]
    fn next(&mut self) -> Option<Located<'g>> {
        if self.is_at_end() {
            return None;
        }
        let offset = self.at;
        // SAFETY: before the end another item begins where the last one ended; see the module's documentation.
        let raw = unsafe { ItemRef::at(self.log, offset.bytes()) };
        self.at = Offset::new(offset.bytes() + raw.size());
        Some(Located { offset, raw })
    }
}

/// A claimed segment or run, and how far it was walked.
pub(crate) struct ClaimedWalk {
    claim: Claim,
    generation: u32,
    next: Offset,
    end: Offset,
}

impl ClaimedWalk {
    pub(crate) fn new(segments: &Segments, claim: Claim) -> Self {
        let generation = segments.get(claim.id()).generation.load(Relaxed);
        let (next, end) = segments.items(claim.id());
        Self { claim, generation, next, end }
    }

    pub(crate) fn id(&self) -> SegmentId {
        self.claim.id()
    }

    /// Where the next item lies.
    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.next >= self.end
    }

    /// The items that were not passed yet.
    pub(crate) fn walk<'g>(&self, _: Pinned<'g>, log: &'g Region) -> Walk<'g> {
        Walk { log, id: self.id(), generation: self.generation, at: self.next, end: self.end }
    }

    /// The next item is this one, which a walk of this segment has met.
    pub(crate) fn seek(&mut self, located: &Located<'_>) {
        self.seek_to(located.offset);
    }

    /// The next item is that of a walk of this segment.
    pub(crate) fn seek_after(&mut self, walk: &Walk<'_>) {
        self.seek_to(walk.at);
    }

    fn seek_to(&mut self, offset: Offset) {
        assert!((self.next..=self.end).contains(&offset), "a walk of the same segment");
        self.next = offset;
    }

    pub(crate) fn into_claim(self) -> Claim {
        self.claim
    }
}

/// The place of an item in a segment, or the end of its items.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bookmark {
    id: SegmentId,
    generation: u32,
    at: Offset,
}

impl Bookmark {
    pub(crate) fn at(&self) -> Offset {
        self.at
    }

    /// True if it is the end of this segment's items, in its present generation.
    pub(super) fn is_end_of(&self, segments: &Segments, id: SegmentId) -> bool {
        self.id == id
            && self.generation == segments.get(id).generation.load(Relaxed)
            && self.at == segments.items(id).1
    }
}

impl Arena {
    /// The items of a sealed or claimed segment; of a run only if it is sealed, since a claimed one may be in limbo and
    /// be freed at any moment. From the bookmark, if that is of the same generation. `None`: it cannot be walked now.
    pub(crate) fn walk<'g>(
        &'g self,
        _: Pinned<'g>,
        id: SegmentId,
        from: Option<Bookmark>,
    ) -> Option<Walk<'g>> {
        let segment = self.segments.get(id);
        let is_walkable = if self.segments.is_run(id) { segment.is_sealed() } else { segment.is_walkable() };
        if !is_walkable {
            return None;
        }
        // Read after the state, which was seen under this guard: the items do not move in this generation.
        let generation = segment.generation.load(Relaxed);
        let (first, end) = self.segments.items(id);
        let reached = from.filter(|from| from.id == id && from.generation == generation);
        let at = reached.map_or(first, |from| from.at);
        Some(Walk { log: &self.region, id, generation, at, end })
    }
}
