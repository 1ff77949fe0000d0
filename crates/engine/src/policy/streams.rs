//! Write streams: which items share segments.
//!
//! Items of one queue that expire at about the same time, and have a similar priority, share segments: so whole
//! segments expire at once, and choosing a victim means comparing segments instead of items.

use std::sync::atomic::Ordering::Relaxed;

use crate::log::allocator::WriteStream;
use crate::log::segment::{CLASSES, GROUPS, Segment};
use crate::policy::priority::class_of;
use crate::request::{Expiry, Now};

/// The longest TTL of each TTL group. Group 0 never expires; the last has no limit.
pub(crate) const GROUP_SECS: [u32; GROUPS] = [u32::MAX, 60, 480, 3600, 8 * 3600, u32::MAX];

/// How finely items are separated: every handle may keep one segment open for each stream.
pub(crate) struct Streams {
    /// TTL groups in use.
    pub(crate) groups: usize,
    /// Priority classes in use.
    classes: usize,
}

impl Streams {
    /// For a cache with so many segments per handle. Without eviction there is no order to choose, and one class is
    /// enough.
    pub(crate) fn new(segments_per_handle: usize, evict: bool) -> Self {
        Self {
            groups: if segments_per_handle >= 48 { GROUPS } else { 2 },
            classes: match segments_per_handle {
                _ if !evict => 1,
                0..48 => 2,
                _ => CLASSES,
            },
        }
    }

    #[inline(always)]
    pub(crate) fn of_item(
        &self,
        queue: usize,
        bytes: usize,
        weight: u32,
        expiry: Expiry,
        now: Now,
    ) -> WriteStream {
        WriteStream { queue, group: self.group_of(expiry, now), class: self.class_of(bytes as u64, weight) }
    }

    /// The stream of a sealed segment's items.
    pub(crate) fn of_segment(&self, segment: &Segment) -> WriteStream {
        let (filled_bytes, weight) = (segment.usage.filled_bytes(), segment.weight.load(Relaxed));
        WriteStream {
            queue: segment.queue(),
            group: segment.group.load(Relaxed).into(),
            class: self.class_of(filled_bytes, weight),
        }
    }

    /// The group of an item that expires at `expiry`.
    pub(crate) fn group_of(&self, expiry: Expiry, now: Now) -> usize {
        let Some(at) = expiry.secs() else { return 0 };
        let ttl_secs = at.saturating_sub(now.secs);
        let group = (1..GROUPS).find(|&group| ttl_secs <= GROUP_SECS[group]).unwrap_or(GROUPS - 1);
        // A small cache cannot afford many open segments.
        group.min(self.groups - 1)
    }

    fn class_of(&self, bytes: u64, weight: u32) -> usize {
        class_of(bytes, weight) * self.classes / CLASSES
    }
}

/// The last second in which a segment of a group that is opened now may be appended to, so that its items are of
/// similar age.
pub(crate) fn closes_secs(group: usize, now: Now) -> u32 {
    now.secs.saturating_add(GROUP_SECS[group] / 2)
}
