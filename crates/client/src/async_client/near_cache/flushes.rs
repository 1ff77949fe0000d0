//! Flushes that take effect later, or at a time that is not known.

use std::sync::{PoisonError, RwLock};

use tokio::time::Instant;

/// Times in which a flush of this client takes effect.
#[derive(Default)]
pub(super) struct Flushes {
    /// From, to. In no order.
    spans: RwLock<Vec<(Instant, Instant)>>,
}

impl Flushes {
    /// A flush takes effect at a time from `from` to `to`.
    pub(super) fn add(&self, from: Instant, to: Instant) {
        // Nothing under the lock panics.
        let mut spans = self.spans.write().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        spans.retain(|(_, to)| now < *to);
        if spans.len() >= SPANS_MAX
            && let Some(last) = spans.last_mut()
        {
            // Nothing is kept between the two.
            *last = (last.0.min(from), last.1.max(to));
        } else {
            spans.push((from, to));
        }
    }

    /// When the first flush begins that is not over at a moment. What was read at that moment is not valid after.
    pub(super) fn next(&self, moment: Instant) -> Option<Instant> {
        let spans = self.spans.read().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|(_, to)| moment < *to).map(|(from, _)| *from).min()
    }
}

/// More are few and long ones.
const SPANS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_read_before_the_end_of_a_flush_ends_with_its_beginning() {
        let (flushes, now) = (Flushes::default(), Instant::now());
        let at = |secs: u64| now + Duration::from_secs(secs);
        assert_eq!(flushes.next(now), None);
        flushes.add(at(100), at(110));
        flushes.add(at(50), at(60));
        assert_eq!(flushes.next(now), Some(at(50)));
        assert_eq!(flushes.next(at(59)), Some(at(50)));
        assert_eq!(flushes.next(at(60)), Some(at(100)));
        assert_eq!(flushes.next(at(110)), None);
        for n in 0..1000 {
            flushes.add(at(200 + n), at(210 + n));
        }
        let spans = flushes.spans.read().expect("no panic").len();
        assert_eq!(spans, SPANS_MAX);
        assert!(flushes.next(at(1208)).is_some());
        assert_eq!(flushes.next(at(1209)), None);
    }
}
