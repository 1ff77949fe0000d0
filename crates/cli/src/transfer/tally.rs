//! What `larder dump` and `larder load` say at their end: how much they read, how long it took, how fast it was.

use std::fmt;
use std::time::{Duration, Instant};

use larder_bench::report::units::{count, duration, memory, short};

/// Items that were read since it was created.
pub(crate) struct Tally {
    begun: Instant,
    items: u64,
    value_bytes: u64,
}

/// A tally at its end, as a sentence.
pub(crate) struct Summary {
    items: u64,
    value_bytes: u64,
    elapsed: Duration,
}

impl Tally {
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), items: 0, value_bytes: 0 }
    }

    pub(crate) fn add(&mut self, value: &[u8]) {
        self.items += 1;
        self.value_bytes += value.len() as u64;
    }

    pub(crate) fn end(&self) -> Summary {
        Summary { items: self.items, value_bytes: self.value_bytes, elapsed: self.begun.elapsed() }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.elapsed.as_secs_f64();
        let (items, bytes) = (count(self.items), memory(self.value_bytes as f64));
        let noun = if self.items == 1 { "item" } else { "items" };
        write!(f, "{items} {noun}, {bytes} of values in {}", duration(secs))?;
        if self.items > 0 && secs > 0.0 {
            let (items, bytes) = (self.items as f64 / secs, self.value_bytes as f64 / secs);
            write!(f, ": {} items/s, {}/s", short(items), memory(bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_amount_time_and_speed() {
        let elapsed = Duration::from_secs(2);
        let many = Summary { items: 12_000, value_bytes: 3 << 20, elapsed };
        assert_eq!(many.to_string(), "12,000 items, 3.00 MiB of values in 2 s: 6.00 k items/s, 1.50 MiB/s");
        let one = Summary { items: 1, value_bytes: 10, elapsed };
        assert_eq!(one.to_string(), "1 item, 10 B of values in 2 s: 0.50 items/s, 5 B/s");
        let few = Summary { items: 500, value_bytes: 100_000, elapsed: Duration::from_millis(17) };
        assert_eq!(few.to_string(), "500 items, 97.7 KiB of values in 17.0 ms: 29.4 k items/s, 5.61 MiB/s");
        let none = Summary { items: 0, value_bytes: 0, elapsed };
        assert_eq!(none.to_string(), "0 items, 0 B of values in 2 s");
    }
}
