//! The side of a comparison that asks: the subscriber's.

use std::collections::{HashSet, VecDeque};

use super::message::{ASKED_BYTES_MAX, Answer, Ask, KEYS_MAX, Listed, RANGES_MAX};
use super::tree::{CHILDREN, LEVELS, Tree};
use super::{STEP_BYTES, ScanRead};
use crate::entry::{Entries, Entry};
use crate::wire::Message;

/// What the caller has to do for a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskingStep {
    /// Scan the own states: about [`STEP_BYTES`]. Answer: `Subscriber::compare_scanned`.
    Scan {
        /// States are left out that are not [compared](super::is_compared) at it.
        horizon: u64,
        /// Where the step begins; empty: at the start.
        position: Vec<u8>,
    },
    /// [Judge](super::judge()) each state of this list. Answer: `Subscriber::compare_judged`, with the keys of those to
    /// ask for.
    Judge {
        /// Of the comparison.
        horizon: u64,
        /// For [`AskingStep::listed`].
        list: Vec<u8>,
    },
    /// [Mend](super::mend()) these states. Answer: `Subscriber::compare_mended`.
    Mend {
        /// For [`Entries`], which are known to be well-formed.
        body: Vec<u8>,
    },
    /// The comparison has ended, and all of it is mended that can be.
    Ended(Comparison),
}

/// What a comparison looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// See [`Ask::Begin`].
    pub horizon: u64,
    /// States of this site.
    pub states: u64,
    /// Leaves whose digests differ.
    pub ranges: u64,
}

impl AskingStep {
    /// The states of a list.
    pub fn listed(list: &[u8]) -> Vec<Listed<'_>> {
        match Answer::decode(&mut crate::bytes::Reader::new(list)) {
            Some(Answer::Listed { keys, .. }) => keys,
            _ => Vec::new(),
        }
    }
}

/// What the asking side wants of the connection.
#[derive(Debug)]
pub(crate) enum Output {
    Send(Vec<u8>),
    Act(AskingStep),
}

/// What has arrived and has to wait for the log before it.
#[derive(Debug)]
pub(crate) enum Arrived {
    Nothing,
    List(Vec<u8>),
    /// Of these keys, or some of them.
    States(Vec<Vec<u8>>),
}

/// The asking side. Keeps a tree, a list and a few keys at most.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    phase: Phase,
    /// No step of a scan begins before this time: the rate is bounded.
    due_micros: u64,
    outputs: VecDeque<Output>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Scanning(Scanning),
    Descending(Descending),
    Listing {
        comparison: Comparison,
        /// The first list is asked for by its leaves.
        leaves: Vec<u16>,
        state: Listing,
    },
}

#[derive(Debug)]
struct Scanning {
    comparison: Comparison,
    tree: Tree,
    /// Where the own scan goes on; `None`: it is complete, or a step is under way.
    position: Option<Vec<u8>>,
    is_scanning: bool,
    is_awaiting: bool,
    has_begun: bool,
    is_theirs_complete: bool,
}

#[derive(Debug)]
struct Descending {
    comparison: Comparison,
    tree: Tree,
    level: u8,
    /// Ranges of this level whose children are still to be asked for.
    ranges: VecDeque<u16>,
    awaited: Vec<u16>,
    /// Children that differ.
    differing: Vec<u16>,
}

#[derive(Debug)]
enum Listing {
    /// A list is to be asked for.
    Due,
    Awaiting,
    /// The caller has a list, or it waits for the log.
    Judging {
        is_last: bool,
    },
    /// These states are asked for.
    Fetching {
        is_last: bool,
        keys: VecDeque<Vec<u8>>,
        asked: usize,
    },
    /// The caller has states, or they wait for the log.
    Mending {
        is_last: bool,
        keys: VecDeque<Vec<u8>>,
    },
}

/// The other side does not keep to the protocol.
#[derive(Debug)]
pub(crate) struct Unasked;

impl Asking {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`work`](Self::work) has something to do.
    pub(crate) fn deadline_micros(&self) -> u64 {
        let is_waiting = match &self.phase {
            Phase::Scanning(scan) => !scan.is_scanning && !scan.is_awaiting,
            Phase::Listing { state, .. } => matches!(state, Listing::Due),
            _ => false,
        };
        if is_waiting { self.due_micros } else { u64::MAX }
    }

    pub(crate) fn begin(&mut self, horizon: u64) {
        self.phase = Phase::Scanning(Scanning {
            comparison: Comparison { horizon, ..Comparison::default() },
            tree: Tree::new(),
            position: Some(Vec::new()),
            is_scanning: false,
            is_awaiting: false,
            has_begun: false,
            is_theirs_complete: false,
        });
    }

    /// Begins the next step of a scan, if it is time to.
    pub(crate) fn work(&mut self, now_micros: u64, bytes_per_sec: u64) {
        if self.deadline_micros() > now_micros {
            return;
        }
        let step_micros = (STEP_BYTES as u64 * 1_000_000) / bytes_per_sec.max(1);
        self.due_micros = now_micros.saturating_add(step_micros);
        match &mut self.phase {
            Phase::Scanning(scan) => {
                let horizon = scan.comparison.horizon;
                if !scan.is_theirs_complete {
                    scan.is_awaiting = true;
                    let ask = if scan.has_begun { Ask::GoOn } else { Ask::Begin { horizon } };
                    scan.has_begun = true;
                    send(&mut self.outputs, ask);
                }
                if let Some(position) = scan.position.take() {
                    scan.is_scanning = true;
                    self.outputs.push_back(Output::Act(AskingStep::Scan { horizon, position }));
                }
            }
            Phase::Listing { leaves, state, .. } => {
                let leaves = std::mem::take(leaves);
                *state = Listing::Awaiting;
                send(&mut self.outputs, if leaves.is_empty() { Ask::GoOn } else { Ask::List(leaves) });
            }
            _ => {}
        }
    }

    /// The answer to [`AskingStep::Scan`].
    pub(crate) fn scanned(&mut self, read: ScanRead) {
        let Phase::Scanning(scan) = &mut self.phase else { return };
        read.states.into_iter().for_each(|(leaf, fingerprint)| scan.tree.add(leaf, fingerprint));
        scan.is_scanning = false;
        scan.position = read.position;
        self.descend_when_scanned();
    }

    /// The answer to [`AskingStep::Judge`].
    pub(crate) fn judged(&mut self, keys: Vec<Vec<u8>>) {
        let Phase::Listing { state, .. } = &mut self.phase else { return };
        let Listing::Judging { is_last } = *state else { return };
        self.fetch(is_last, keys.into());
    }

    /// The answer to [`AskingStep::Mend`].
    pub(crate) fn mended(&mut self) {
        let Phase::Listing { state, .. } = &mut self.phase else { return };
        let Listing::Mending { is_last, keys } = state else { return };
        let (is_last, keys) = (*is_last, std::mem::take(keys));
        self.fetch(is_last, keys);
    }

    /// An answer has arrived.
    pub(crate) fn receive(&mut self, answer: &Answer<'_>) -> Result<Arrived, Unasked> {
        match (answer, &mut self.phase) {
            (Answer::Scanned { is_last }, Phase::Scanning(scan)) if scan.is_awaiting => {
                (scan.is_awaiting, scan.is_theirs_complete) = (false, *is_last);
                self.descend_when_scanned();
            }
            (Answer::Digests(digests), Phase::Descending(descending))
                if digests.len() == descending.awaited.len() * CHILDREN && !digests.is_empty() =>
            {
                descending.compare(digests);
                self.descend();
            }
            (Answer::Listed { is_last, keys }, Phase::Listing { state: state @ Listing::Awaiting, .. }) => {
                let is_last = *is_last;
                *state = Listing::Judging { is_last };
                if !keys.is_empty() {
                    let mut list = Vec::new();
                    answer.encode(&mut list);
                    return Ok(Arrived::List(list));
                }
                self.fetch(is_last, VecDeque::new());
            }
            (Answer::States { count }, Phase::Listing { state, .. }) => {
                let Listing::Fetching { is_last, keys, asked } = state else { return Err(Unasked) };
                let count = usize::from(*count);
                if count == 0 || count > *asked {
                    return Err(Unasked);
                }
                let asked = keys.drain(..count).collect();
                *state = Listing::Mending { is_last: *is_last, keys: std::mem::take(keys) };
                return Ok(Arrived::States(asked));
            }
            _ => return Err(Unasked),
        }
        Ok(Arrived::Nothing)
    }

    /// What the caller does with a list that has waited for the log before it.
    pub(crate) fn judge(&self, list: Vec<u8>) -> AskingStep {
        let horizon = match &self.phase {
            Phase::Listing { comparison, .. } => comparison.horizon,
            _ => 0,
        };
        AskingStep::Judge { horizon, list }
    }

    /// Asks for the states of these keys, then for the next list.
    fn fetch(&mut self, is_last: bool, keys: VecDeque<Vec<u8>>) {
        let Phase::Listing { state, comparison, .. } = &mut self.phase else { return };
        if keys.is_empty() {
            *state = Listing::Due;
            if is_last {
                self.outputs.push_back(Output::Act(AskingStep::Ended(*comparison)));
                self.phase = Phase::Idle;
            }
            return;
        }
        let mut bytes = 0;
        let asked = keys
            .iter()
            .take(KEYS_MAX)
            .take_while(|key| {
                let is_within = bytes < ASKED_BYTES_MAX;
                bytes += key.len();
                is_within
            })
            .count();
        send(&mut self.outputs, Ask::Keys(keys.iter().take(asked).map(Vec::as_slice).collect()));
        *state = Listing::Fetching { is_last, keys, asked };
    }

    fn descend_when_scanned(&mut self) {
        let Phase::Scanning(scan) = &mut self.phase else { return };
        let is_complete = scan.position.is_none() && !scan.is_scanning && scan.is_theirs_complete;
        if !is_complete || scan.is_awaiting {
            return;
        }
        let tree = std::mem::take(&mut scan.tree);
        let comparison = Comparison { states: tree.states(), ..scan.comparison };
        self.phase = Phase::Descending(Descending {
            comparison,
            tree,
            level: 0,
            ranges: VecDeque::from([0]),
            awaited: Vec::new(),
            differing: Vec::new(),
        });
        self.descend();
    }

    /// Asks for the next digests; when there are none, for the list of the leaves that differ.
    fn descend(&mut self) {
        let Phase::Descending(descending) = &mut self.phase else { return };
        if descending.ranges.is_empty() {
            descending.level += 1;
            descending.ranges = std::mem::take(&mut descending.differing).into();
        }
        let mut comparison = descending.comparison;
        if descending.ranges.is_empty() {
            self.outputs.push_back(Output::Act(AskingStep::Ended(comparison)));
            self.phase = Phase::Idle;
        } else if u32::from(descending.level) == LEVELS {
            let leaves: Vec<u16> = std::mem::take(&mut descending.ranges).into();
            comparison.ranges = leaves.len() as u64;
            self.phase = Phase::Listing { comparison, leaves, state: Listing::Due };
        } else {
            let count = descending.ranges.len().min(RANGES_MAX);
            descending.awaited = descending.ranges.drain(..count).collect();
            let ask = Ask::Ranges { level: descending.level, numbers: descending.awaited.clone() };
            send(&mut self.outputs, ask);
        }
    }
}

/// Whether a body, whose entries are known to be well-formed, is of states of these keys alone: what is mended is not
/// judged again.
pub(crate) fn check_asked(keys: &[Vec<u8>], body: &[u8]) -> Result<(), Unasked> {
    let keys: HashSet<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let is_asked = |entry: Entry<'_>| entry.state().is_some_and(|(key, _)| keys.contains(key));
    if Entries::new(body).map_while(Result::ok).all(is_asked) { Ok(()) } else { Err(Unasked) }
}

impl Descending {
    fn compare(&mut self, digests: &[u128]) {
        for (number, theirs) in std::mem::take(&mut self.awaited).into_iter().zip(digests.chunks(CHILDREN)) {
            let Some(ours) = self.tree.children(self.level, number) else { continue };
            let differing = (0..).zip(ours.iter().zip(theirs)).filter(|(_, (ours, theirs))| ours != theirs);
            // Below the root a number has four bits for each level, so a child's fits.
            self.differing.extend(differing.map(|(child, _): (u16, _)| (number << 4) | child));
        }
    }
}

fn send(outputs: &mut VecDeque<Output>, ask: Ask<'_>) {
    let mut out = Vec::new();
    Message::Compare(ask).encode(&mut out);
    outputs.push_back(Output::Send(out));
}
