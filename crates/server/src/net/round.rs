//! Connections that are heard one after the other, then answered, then sent their answers: what they ask for is fetched ahead for all
//! of them, so that none waits alone for memory, and each step finds its own code in the caches of the core, not the kernel's.

use std::ops::Range;

use arrayvec::ArrayVec;
use larder_engine::Hash;

use crate::conn::connection::SCRATCH_BYTES;

/// Connections heard and not answered yet.
#[derive(Default)]
pub(crate) struct Round {
    members: ArrayVec<Member, MEMBERS_MAX>,
    /// How much of the scratch buffer holds what they said.
    filled_bytes: usize,
}

/// A connection that was heard.
pub(crate) struct Member {
    /// Its descriptor.
    pub(crate) fd: usize,
    /// Where in the scratch buffer.
    pub(crate) heard: Range<usize>,
    pub(crate) ahead: Option<Ahead>,
    /// Where in the worker's output its answer lies that is still to be sent.
    pub(crate) answer: Range<usize>,
}

/// The first key that a connection asks for, where that was plain to see. Its memory is being fetched.
pub(crate) struct Ahead {
    /// Where in what was heard.
    pub(crate) key: Range<usize>,
    pub(crate) hash: Hash,
}

impl Round {
    /// Where in the scratch buffer the next one is to be heard.
    pub(crate) fn room_from(&self) -> usize {
        self.filled_bytes
    }

    pub(crate) fn join(&mut self, fd: usize, heard: Range<usize>) {
        self.filled_bytes = heard.end;
        self.members.push(Member { fd, heard, ahead: None, answer: 0..0 });
    }

    /// No room for another that says much?
    pub(crate) fn is_full(&self) -> bool {
        self.members.is_full() || SCRATCH_BYTES - self.filled_bytes < ROOM_BYTES_MIN
    }

    /// Those who are to be answered.
    pub(crate) fn members(&mut self) -> &mut [Member] {
        &mut self.members
    }

    /// All are answered.
    pub(crate) fn clear(&mut self) {
        self.members.clear();
        self.filled_bytes = 0;
    }
}

/// Room in the scratch buffer for whoever is heard last.
pub(crate) const ROOM_BYTES_MIN: usize = SCRATCH_BYTES / 2;
/// More than can be fetched from memory at once gain nothing, and the first waits for the last to be heard.
pub(crate) const MEMBERS_MAX: usize = 16;
