//! Statistics of a server.

use crate::Error;
use crate::codec::{Violation, ViolationKind};

/// The statistics of a server, as far as they are kept.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    stats: Vec<(String, String)>,
    /// What all of them take, kept or not.
    bytes: usize,
}

impl Statistics {
    /// Adds one.
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) {
        self.bytes = self.bytes.saturating_add(name.len() + value.len() + STAT_BYTES);
        if self.bytes <= STATS_BYTES_MAX {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.stats.push((text(name), text(value)));
        }
    }

    /// Adds one if its name is wanted. `false`: they are too many for a server that has few.
    #[cfg(feature = "tokio")]
    pub(crate) fn add_wanted(&mut self, name: &[u8], value: &[u8], wanted: &[&str]) -> bool {
        if wanted.iter().any(|wanted| wanted.as_bytes() == name) {
            self.add(name, value);
        } else {
            self.bytes = self.bytes.saturating_add(name.len() + value.len() + STAT_BYTES);
        }
        self.bytes <= FEW_BYTES_MAX
    }

    /// What too many are.
    pub(crate) fn violation() -> Violation {
        Violation::new(ViolationKind::Malformed, b"statistics without an end")
    }

    /// All of them, by name, unless there were more than are kept.
    pub(crate) fn whole(self) -> Result<Vec<(String, String)>, Error> {
        match self.bytes {
            ..=STATS_BYTES_MAX => Ok(self.stats),
            _ => Err(Self::violation().into()),
        }
    }
}

/// More than `stats conns` of a million connections.
const STATS_BYTES_MAX: usize = 256 << 20;
/// Several times the general ones of a server.
#[cfg(feature = "tokio")]
const FEW_BYTES_MAX: usize = 64 << 10;
/// What a statistic takes besides its bytes: two strings, and what the allocator adds.
const STAT_BYTES: usize = 2 * size_of::<String>() + 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_kept_up_to_their_limit() {
        let mut told = Statistics::default();
        told.add(b"a", b"1");
        told.bytes = STATS_BYTES_MAX - STAT_BYTES;
        told.add(b"", b"");
        for _ in 0..2 {
            told.add(b"b", b"2");
            assert_eq!(told.stats.len(), 2);
        }
        assert!(told.bytes > STATS_BYTES_MAX);
    }
}
