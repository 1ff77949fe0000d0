//! The policy: what is kept, and for how long.
//!
//! It reads what the log knows of its segments, and decides; it moves and frees nothing. It knows `log` and hashes, but
//! no items, reclaiming or handles.

use std::cell::RefCell;
use std::io;

pub(crate) mod ghost;
pub(crate) mod priority;
pub(crate) mod queues;
pub(crate) mod streams;

use crate::index::hash::Hash;
use crate::log::segment::{MAIN, SMALL};
use crate::policy::ghost::Ghost;
use crate::policy::priority::{Adaptation, InsertPriority};
use crate::policy::queues::Queues;
use crate::policy::streams::Streams;

/// The policy's state, shared by all handles.
pub(crate) struct Policy {
    pub(crate) streams: Streams,
    pub(crate) insert_priority: InsertPriority,
    pub(crate) ghost: Ghost,
    queues: Queues,
}

impl Policy {
    /// With `ghost_bytes` of fingerprints of evicted keys. Errors: the system refuses the address space.
    pub(crate) fn new(streams: Streams, ghost_bytes: usize) -> io::Result<Self> {
        Ok(Self {
            streams,
            insert_priority: InsertPriority::default(),
            ghost: Ghost::new(ghost_bytes)?,
            queues: Queues::default(),
        })
    }

    /// The queue of a new key: small, unless the ghost knows it.
    pub(crate) fn queue_of_new(&self, hash: Hash, adaptation: &RefCell<Adaptation>) -> usize {
        match self.ghost.recall(hash) {
            Some(from) => {
                adaptation.borrow_mut().note_return(from);
                MAIN
            }
            None => SMALL,
        }
    }
}
