//! The side of a comparison that answers: the publisher's. It does a bounded step of work for each question.

use std::sync::Arc;

use super::ScanRead;
use super::message::{Answer, Ask, LISTED_BYTES_MAX, Listed};
use super::tree::{Leaves, Tree};

/// What the caller has to do for a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareStep {
    /// Scan the own states: about [`STEP_BYTES`](super::STEP_BYTES). Answer: `Publisher::compare_scanned`.
    Scan {
        /// States are left out that are not [compared](super::is_compared) at it.
        horizon: u64,
        /// Where the step begins; empty: at the start.
        position: Vec<u8>,
    },
    /// The same, of the states in some leaves. Answer: `Publisher::compare_listed`. It is sent before anything of the
    /// log that is read later.
    List {
        /// As above.
        horizon: u64,
        /// As above.
        position: Vec<u8>,
        /// The others are left out.
        leaves: Arc<Leaves>,
    },
    /// Read the states of these keys: of the first so many that are sent at once. Those that are not
    /// [compared](super::is_compared) any more are left out. Answer: `Publisher::compare_read`.
    Read {
        /// As above.
        horizon: u64,
        /// Not empty.
        keys: Vec<Vec<u8>>,
        /// End when the entries have so many bytes.
        bytes_max: usize,
    },
}

/// The answer to [`CompareStep::Read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareRead {
    /// Keys that were looked at, from the first on: at least one.
    pub count: u16,
    /// What [`Entry::of_state`](crate::entry::Entry::of_state) makes of each state.
    pub body: Vec<u8>,
}

/// The answering side. Keeps a tree, and a set of leaves.
#[derive(Debug, Default)]
pub(crate) struct Answering {
    phase: Phase,
    horizon: u64,
    /// The caller has a step: the next question comes after its answer.
    is_busy: bool,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Scanning {
        tree: Tree,
        position: Vec<u8>,
    },
    Scanned(Tree),
    Listing {
        leaves: Arc<Leaves>,
        /// `None`: all are listed.
        position: Option<Vec<u8>>,
    },
}

/// What a question asks of the connection.
#[derive(Debug)]
pub(crate) enum Reply {
    Send(Answer<'static>),
    Act(CompareStep),
}

impl Answering {
    /// `None`: the question comes at the wrong time, or is none.
    pub(crate) fn receive(&mut self, ask: &Ask<'_>, bytes_max: usize) -> Option<Reply> {
        if self.is_busy {
            return None;
        }
        let horizon = self.horizon;
        let step = match (ask, &mut self.phase) {
            (&Ask::Begin { horizon }, phase) => {
                self.horizon = horizon;
                *phase = Phase::Scanning { tree: Tree::new(), position: Vec::new() };
                CompareStep::Scan { horizon, position: Vec::new() }
            }
            (Ask::GoOn, Phase::Scanning { position, .. }) => {
                CompareStep::Scan { horizon, position: std::mem::take(position) }
            }
            (Ask::Ranges { level, numbers }, Phase::Scanned(tree)) => {
                let children = numbers.iter().map(|number| tree.children(*level, *number).copied());
                let digests = children.collect::<Option<Vec<_>>>()?.concat();
                return Some(Reply::Send(Answer::Digests(digests)));
            }
            (Ask::List(leaves), Phase::Scanned(_)) => {
                let leaves = Arc::new(Leaves::new(leaves));
                self.phase = Phase::Listing { leaves: Arc::clone(&leaves), position: None };
                CompareStep::List { horizon, position: Vec::new(), leaves }
            }
            (Ask::GoOn, Phase::Listing { leaves, position }) => {
                CompareStep::List { horizon, position: position.take()?, leaves: Arc::clone(leaves) }
            }
            (Ask::Keys(keys), Phase::Listing { .. }) if !keys.is_empty() => {
                let keys = keys.iter().map(|key| key.to_vec()).collect();
                CompareStep::Read { horizon, keys, bytes_max }
            }
            _ => return None,
        };
        self.is_busy = true;
        Some(Reply::Act(step))
    }

    /// The answer to [`CompareStep::Scan`].
    pub(crate) fn scanned(&mut self, read: ScanRead) -> Option<Answer<'static>> {
        let Phase::Scanning { tree, position } = &mut self.phase else { return None };
        self.is_busy = false;
        read.states.into_iter().for_each(|(leaf, fingerprint)| tree.add(leaf, fingerprint));
        let is_last = read.position.is_none();
        match read.position {
            Some(next) => *position = next,
            None => self.phase = Phase::Scanned(std::mem::take(tree)),
        }
        Some(Answer::Scanned { is_last })
    }

    /// The answer to [`CompareStep::List`].
    pub(crate) fn listed<'a>(&mut self, keys: Vec<Listed<'a>>, next: Option<Vec<u8>>) -> Option<Answer<'a>> {
        let Phase::Listing { position, .. } = &mut self.phase else { return None };
        self.is_busy = false;
        *position = next;
        debug_assert!(
            keys.iter().rev().skip(1).map(|listed| listed.key.len() + 50).sum::<usize>() <= LISTED_BYTES_MAX
        );
        Some(Answer::Listed { is_last: position.is_none(), keys })
    }

    /// The answer to [`CompareStep::Read`].
    pub(crate) fn read(&mut self, count: u16) -> Option<Answer<'static>> {
        self.is_busy = false;
        matches!(self.phase, Phase::Listing { .. }).then_some(Answer::States { count })
    }
}
