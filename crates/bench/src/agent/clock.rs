//! Whose clock is how far ahead.

use std::time::Instant;

use super::message::{Order, Report};
use super::wire::{Receiver, Sender};
use crate::Error;

/// A clock that only goes forward. It shows nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    zero: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { zero: Instant::now() }
    }

    pub(super) fn nanos(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// How another clock relates to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    /// What it shows more than ours.
    ahead_nanos: i64,
    /// The quickest there and back. The offset is wrong by half of it at most.
    pub round_trip_nanos: u64,
}

impl Offset {
    /// Asks some times. The quickest exchange tells most: it waited least on either way.
    pub(super) fn measure(
        clock: &Clock,
        sender: &mut Sender,
        receiver: &mut Receiver,
    ) -> Result<Self, Error> {
        let mut best: Option<Self> = None;
        for _ in 0..EXCHANGES {
            let sent_nanos = clock.nanos();
            sender.send(&Order::Clock)?;
            let shown_nanos = loop {
                match receiver.receive()? {
                    Report::Clock { nanos } => break nanos,
                    Report::Beat => {}
                    Report::Failed { reason } => return Err(reason.into()),
                    _ => return Err("it was asked for its clock, and sent another report".into()),
                }
            };
            let offset = Self::of_exchange(sent_nanos, shown_nanos, clock.nanos());
            if best.is_none_or(|best| offset.round_trip_nanos < best.round_trip_nanos) {
                best = Some(offset);
            }
        }
        best.ok_or_else(|| "no clock".into())
    }

    /// Its clock was read halfway between sending and receiving, give or take half of the time between.
    fn of_exchange(sent_nanos: u64, shown_nanos: u64, received_nanos: u64) -> Self {
        let round_trip_nanos = received_nanos.saturating_sub(sent_nanos);
        let middle_nanos = sent_nanos.saturating_add(round_trip_nanos / 2);
        Self { ahead_nanos: shown_nanos.wrapping_sub(middle_nanos).cast_signed(), round_trip_nanos }
    }

    /// What it shows when ours shows `nanos`.
    pub(super) fn to_theirs(self, nanos: u64) -> u64 {
        nanos.saturating_add_signed(self.ahead_nanos)
    }
}

const EXCHANGES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_round_trip_is_one_way() {
        let offset = Offset::of_exchange(1_000, 5_100, 1_200);
        assert_eq!((offset.ahead_nanos, offset.round_trip_nanos), (4_000, 200));
        assert_eq!(offset.to_theirs(2_000), 6_000);
        let offset = Offset::of_exchange(5_000, 1_100, 5_200);
        assert_eq!(offset.ahead_nanos, -4_000);
        assert_eq!(offset.to_theirs(6_000), 2_000);
    }

    #[test]
    fn no_clock_is_too_strange() {
        assert_eq!(Offset::of_exchange(0, u64::MAX, 0).to_theirs(0), 0);
        assert_eq!(Offset::of_exchange(10, 0, 0).round_trip_nanos, 0);
    }
}
