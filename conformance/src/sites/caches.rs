//! What clients know of a key that is kept in memory. Nobody promises that its item is there; but what was stored
//! before a deletion began is at no site once all have heard all.

use std::collections::HashMap;

use super::ledger::{Micros, SLACK_MICROS};

/// What is known of one key. A value is written once.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheLedger {
    /// By value: when it was stored, at the latest.
    stored: HashMap<Vec<u8>, Micros>,
    /// From when on the last deletion that was answered was on its way.
    removed: Micros,
}

impl CacheLedger {
    pub(super) fn store(&mut self, value: &[u8], done: Micros) {
        self.stored.insert(value.to_vec(), done);
    }

    pub(super) fn remove(&mut self, sent: Micros) {
        self.removed = self.removed.max(sent);
    }

    /// Compares with what a site has. Errors: what is wrong with it.
    pub(super) fn check(&self, value: &[u8]) -> Result<(), String> {
        match self.stored.get(value) {
            None => Err("nobody has stored that".into()),
            Some(done) if done + SLACK_MICROS < self.removed => {
                Err(format!("it was deleted {} us after it was stored, and is back", self.removed - done))
            }
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_deleted_stays_away() {
        let mut ledger = CacheLedger::default();
        ledger.store(b"old", 1_000_000);
        ledger.remove(900_000);
        assert_eq!(ledger.check(b"old"), Ok(()));
        assert!(ledger.check(b"other").is_err());
        ledger.remove(1_500_000);
        ledger.store(b"new", 1_600_000);
        assert!(ledger.check(b"old").is_err());
        assert_eq!(ledger.check(b"new"), Ok(()));
    }
}
