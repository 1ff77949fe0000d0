//! What every piece of the memory holds: for those who want to see it, and never on the path of a request.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::log::segment::{CLAIMED, GROUP_SECS, Id, OPEN, SMALL, WAITING};

/// The memory at a moment, read without locks: the pieces are each true, their sum only nearly.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Memory of a segment.
    pub segment_bytes: u64,
    /// Segments that hold nothing and have memory already.
    pub segments_free: u64,
    /// What the items of a TTL group have in common, by [`Piece::group`].
    pub groups: Vec<Lifetime>,
    /// Segments that hold something, and large items; in no particular order.
    pub pieces: Vec<Piece>,
}

/// How long items of a group had to live when they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// They never expire.
    Endless,
    /// At most so many seconds, and more than the group before.
    UpTo(u32),
    /// More than the group before.
    Longer,
}

/// A segment, or a large item with its memory.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Where it waits.
    pub queue: Queue,
    /// Which of [`Survey::groups`].
    pub group: u8,
    /// Items are still being appended to it.
    pub is_open: bool,
    /// It is a large item, alone in memory of its own.
    pub is_large: bool,
    /// Memory it takes.
    pub memory_bytes: u64,
    /// ... of which by items that can be found. Counted by whoever writes them, so it may lag.
    pub live_bytes: u64,
    /// The second in which it was opened, on the scale of [`crate::Now::secs`].
    pub opened_secs: u32,
    /// The second from which all in it has expired; `None`: something in it never does.
    pub expired_secs: Option<u32>,
}

/// A queue of the eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// New items.
    Small,
    /// Items that were read again.
    Main,
}

impl Engine {
    /// Looks at all segments that were ever in use: some nanoseconds each, which for a large cache are milliseconds.
    pub fn survey(&self) -> Survey {
        let pieces = self.segments.ids().filter_map(|id| self.piece(id));
        Survey {
            segment_bytes: self.segments.segment_bytes as u64,
            segments_free: u64::from(self.segments.ready_count.load(Relaxed)),
            groups: (0..self.groups).map(|group| self.lifetime(group)).collect(),
            pieces: pieces.collect(),
        }
    }

    fn lifetime(&self, group: usize) -> Lifetime {
        match group {
            0 => Lifetime::Endless,
            _ if group + 1 == self.groups => Lifetime::Longer,
            _ => Lifetime::UpTo(GROUP_SECS[group]),
        }
    }

    fn piece(&self, id: Id) -> Option<Piece> {
        let segment = self.segments.get(id);
        let state = segment.state.load(Relaxed);
        let expiry_max = segment.expiry_max.load(Relaxed);
        [OPEN, WAITING, CLAIMED].contains(&state).then(|| Piece {
            queue: if usize::from(segment.queue.load(Relaxed)) == SMALL { Queue::Small } else { Queue::Main },
            group: segment.group.load(Relaxed),
            is_open: state == OPEN,
            is_large: self.segments.is_run(id),
            memory_bytes: self.segments.memory_bytes(id),
            live_bytes: segment.books.live_bytes(),
            opened_secs: segment.opened_secs.load(Relaxed),
            expired_secs: (expiry_max < u32::MAX).then_some(expiry_max),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Engine, Expiry, LargePages, Lifetime, Now, Queue, Store};

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
        assert!(engine.survey().pieces.is_empty());
        let mut handle = engine.handle().expect("none is out");
        let turn = handle.enter(Now { secs: 5, micros: 5 });
        let value = vec![b'v'; 1000];
        for number in 0..200u32 {
            let key = number.to_be_bytes();
            let expiry = if number % 2 == 0 { Expiry::at(35) } else { Expiry::NEVER };
            let _ = turn.store(turn.prepare(&key), &Store { expiry, ..Store::set(&key, &value) });
        }
        let survey = engine.survey();
        let live: u64 = survey.pieces.iter().map(|piece| piece.live_bytes).sum();
        assert_eq!(live, engine.stats().queues.iter().map(|queue| queue.live_bytes).sum());
        assert!(live >= 200 * 1000);
        assert!(survey.pieces.iter().all(|piece| piece.queue == Queue::Small && piece.opened_secs == 5));
        assert!(survey.pieces.iter().all(|piece| piece.memory_bytes == survey.segment_bytes));
        for piece in &survey.pieces {
            let dies = survey.groups[usize::from(piece.group)] != Lifetime::Endless;
            assert_eq!(piece.expired_secs, dies.then_some(35));
        }
        assert_eq!(survey.groups.first(), Some(&Lifetime::Endless));
        assert_eq!(survey.groups.last(), Some(&Lifetime::Longer));
    }
}
