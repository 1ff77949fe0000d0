//! A report on every segment, for diagnostics; never on the path of a request.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::log::segment::{OPEN, RECLAIMING, SEALED, SMALL, SegmentId};
use crate::policy::streams::GROUP_SECS;

/// The memory at one moment, read without locks: each piece is consistent, their sum only approximately.
#[derive(Clone, Debug)]
pub struct SegmentReport {
    /// Memory of a segment.
    pub segment_bytes: u64,
    /// Segments that hold nothing and have memory already.
    pub segments_free: u64,
    /// The TTLs of the groups, by [`SegmentInfo::group`].
    pub groups: Vec<TtlGroup>,
    /// Segments that hold something, and large items, in no particular order.
    pub pieces: Vec<SegmentInfo>,
}

/// The TTLs of the items of a group, as of when they were stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlGroup {
    /// They never expire.
    Endless,
    /// At most so many seconds, and more than the group before.
    UpTo(u32),
    /// More than the group before.
    Longer,
}

/// A segment, or the run of a large item.
#[derive(Clone, Copy, Debug)]
pub struct SegmentInfo {
    /// Its queue.
    pub queue: Queue,
    /// Which of [`SegmentReport::groups`].
    pub group: u8,
    /// Items are still being appended to it.
    pub is_open: bool,
    /// It is a run, which holds a single large item.
    pub is_large: bool,
    /// Memory it takes.
    pub memory_bytes: u64,
    /// ... of which by items that can be found. Approximate while it is being written.
    pub live_bytes: u64,
    /// The second in which it was opened, on the scale of [`crate::Now::secs`].
    pub opened_secs: u32,
    /// The second from which all its items are expired; `None`: one never is.
    pub expired_secs: Option<u32>,
}

/// An eviction queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// New items.
    Small,
    /// Items that were read again.
    Main,
}

impl Engine {
    /// Scans all segments that were ever in use: some nanoseconds each, which for a large cache are milliseconds.
    pub fn segment_report(&self) -> SegmentReport {
        let pieces = self.arena.ids().filter_map(|id| self.piece(id));
        SegmentReport {
            segment_bytes: self.arena.segments.segment_bytes as u64,
            segments_free: u64::from(self.arena.segments.ready_count.load(Relaxed)),
            groups: (0..self.policy.streams.groups).map(|group| self.lifetime(group)).collect(),
            pieces: pieces.collect(),
        }
    }

    fn lifetime(&self, group: usize) -> TtlGroup {
        match group {
            0 => TtlGroup::Endless,
            _ if group + 1 == self.policy.streams.groups => TtlGroup::Longer,
            _ => TtlGroup::UpTo(GROUP_SECS[group]),
        }
    }

    fn piece(&self, id: SegmentId) -> Option<SegmentInfo> {
        let segment = self.arena.segments.get(id);
        let state = segment.state();
        let expiry_max = segment.expiry_max.load(Relaxed);
        [OPEN, SEALED, RECLAIMING].contains(&state).then(|| SegmentInfo {
            queue: if usize::from(segment.queue.load(Relaxed)) == SMALL { Queue::Small } else { Queue::Main },
            group: segment.group.load(Relaxed),
            is_open: state == OPEN,
            is_large: self.arena.segments.is_run(id),
            memory_bytes: self.arena.segments.memory_bytes(id),
            live_bytes: segment.usage.live_bytes(),
            opened_secs: segment.opened_secs.load(Relaxed),
            expired_secs: (expiry_max < u32::MAX).then_some(expiry_max),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Engine, Expiry, LargePages, Now, Queue, Store, TtlGroup};

    #[test]
    fn pieces_add_up_to_what_was_stored() {
        let config = Config {
            memory_bytes: 16 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            handles_max: 1,
            index_power: None,
            large_pages: LargePages::Filled,
            hash_key: [7, 9],
        };
        let engine = Engine::new(config).expect("16 MiB can be reserved");
        assert!(engine.segment_report().pieces.is_empty());
        let mut handle = engine.handle().expect("none is out");
        let guard = handle.pin(Now { secs: 5, micros: 5 });
        let value = vec![b'v'; 1000];
        for number in 0..200u32 {
            let key = number.to_be_bytes();
            let expiry = if number % 2 == 0 { Expiry::at(35) } else { Expiry::NEVER };
            let _ = guard.store(guard.prepare(&key), &Store { expiry, ..Store::set(&key, &value) });
        }
        let segment_report = engine.segment_report();
        let live: u64 = segment_report.pieces.iter().map(|piece| piece.live_bytes).sum();
        assert_eq!(live, engine.stats().queues.iter().map(|queue| queue.live_bytes).sum());
        assert!(live >= 200 * 1000);
        assert!(
            segment_report.pieces.iter().all(|piece| piece.queue == Queue::Small && piece.opened_secs == 5)
        );
        assert!(segment_report.pieces.iter().all(|piece| piece.memory_bytes == segment_report.segment_bytes));
        for piece in &segment_report.pieces {
            let dies = segment_report.groups[usize::from(piece.group)] != TtlGroup::Endless;
            assert_eq!(piece.expired_secs, dies.then_some(35));
        }
        assert_eq!(segment_report.groups.first(), Some(&TtlGroup::Endless));
        assert_eq!(segment_report.groups.last(), Some(&TtlGroup::Longer));
    }
}
