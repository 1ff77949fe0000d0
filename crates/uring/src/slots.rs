//! Which operation of a descriptor is the current one. A descriptor has one slot and one operation at most; the
//! generation of a slot tells a completion of that operation from those of earlier ones, of the same socket or of one
//! that had the same number.

use std::collections::TryReserveError;

use crate::ring::Exclusive;

/// The slots of a ring, by descriptor.
#[derive(Default)]
pub(crate) struct Slots(Vec<Slot>);

/// The operation of a descriptor.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The caller's tag.
    tag: u64,
    /// At most [`GENERATION_MAX`].
    generation: u32,
    kind: Kind,
    state: State,
}

/// How far the operation of a descriptor is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// There is none.
    #[default]
    Idle,
    /// The kernel has it, or will have it with the next submission.
    Armed,
    /// It has completed, and was not reported yet.
    Completed,
    /// It is armed again with the next wait.
    Resting,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Poll,
    /// A poll that is armed again until it is cancelled; whether one ring is woken of those that watch.
    Watch(Exclusive),
}

/// An operation, as a word that travels through the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) fd: u32,
    pub(crate) generation: u32,
}

impl Slots {
    /// Notes that an operation is armed on `fd`, whose completion is reported as `tag`. There must be none. Errors: no
    /// memory.
    pub(crate) fn arm(&mut self, fd: u32, kind: Kind, tag: u64) -> Result<Operation, TryReserveError> {
        let index = fd as usize;
        if self.0.len() <= index {
            self.0.try_reserve(index + 1 - self.0.len())?;
            self.0.resize(index + 1, Slot::default());
        }
        let slot = &mut self.0[index];
        debug_assert!(matches!(slot.state, State::Idle | State::Resting));
        let generation = (slot.generation + 1) & GENERATION_MAX;
        *slot = Slot { tag, generation, kind, state: State::Armed };
        Ok(Operation { fd, generation })
    }

    /// Notes that an operation has completed. False if it is not the current one: its completion is stale.
    pub(crate) fn complete(&mut self, operation: Operation) -> bool {
        match self.current(operation) {
            Some(slot) if slot.state == State::Armed => {
                slot.state = State::Completed;
                true
            }
            _ => false,
        }
    }

    /// The tag of a completed operation, which is reported now. `None` if it was cancelled.
    pub(crate) fn deliver(&mut self, operation: Operation) -> Option<u64> {
        let slot = self.current(operation).filter(|slot| slot.state == State::Completed)?;
        slot.state = if let Kind::Watch(_) = slot.kind { State::Resting } else { State::Idle };
        Some(slot.tag)
    }

    /// The tag of the watch of `fd`, and its exclusivity, if it is to be armed again.
    pub(crate) fn resting(&self, fd: u32) -> Option<(u64, Exclusive)> {
        match self.0.get(fd as usize) {
            Some(Slot { state: State::Resting, kind: Kind::Watch(exclusive), tag, .. }) => {
                Some((*tag, *exclusive))
            }
            _ => None,
        }
    }

    /// Forgets the operation of `fd`. Returns it if the kernel has it still.
    pub(crate) fn cancel(&mut self, fd: u32) -> Option<Operation> {
        let slot = self.0.get_mut(fd as usize)?;
        let was = std::mem::take(&mut slot.state);
        (was == State::Armed).then_some(Operation { fd, generation: slot.generation })
    }

    pub(crate) fn state(&self, fd: u32) -> State {
        self.0.get(fd as usize).map_or(State::Idle, |slot| slot.state)
    }

    fn current(&mut self, Operation { fd, generation }: Operation) -> Option<&mut Slot> {
        self.0.get_mut(fd as usize).filter(|slot| slot.generation == generation)
    }
}

impl Operation {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.fd)
    }

    pub(crate) fn of_word(word: u64) -> Self {
        Self { fd: word as u32, generation: (word >> 32) as u32 }
    }
}

/// A billion operations of one descriptor before a generation comes again: none is in flight for that long.
/// Leaves a bit of the word that no operation has.
const GENERATION_MAX: u32 = (1 << 31) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_of_an_earlier_operation_is_stale() {
        let mut slots = Slots::default();
        let first = slots.arm(7, Kind::Poll, 1).expect("memory");
        assert_eq!(slots.cancel(7), Some(first));
        let second = slots.arm(7, Kind::Poll, 2).expect("memory");
        assert!(!slots.complete(first), "it was cancelled");
        assert!(slots.complete(second));
        assert!(!slots.complete(second), "once");
        assert_eq!(
            (slots.deliver(first), slots.deliver(second), slots.deliver(second)),
            (None, Some(2), None)
        );
    }

    #[test]
    fn a_completion_that_was_not_reported_can_be_cancelled() {
        let mut slots = Slots::default();
        let operation = slots.arm(3, Kind::Poll, 9).expect("memory");
        assert!(slots.complete(operation));
        assert_eq!(slots.cancel(3), None, "the kernel does not have it");
        slots.arm(3, Kind::Poll, 10).expect("memory");
        assert_eq!(slots.deliver(operation), None);
        assert_eq!(slots.cancel(99), None);
    }

    #[test]
    fn words_name_operations() {
        let operation = Operation { fd: u32::MAX, generation: GENERATION_MAX };
        assert_eq!(Operation::of_word(operation.word()), operation);
        assert!(operation.word() < 1 << 63);
    }
}
