//! Counts the changes that another site has not confirmed.

use larder_replication::entry::Entry;
use larder_replication::version::site_of;
use larder_store::{Entry as StoreEntry, FlushBy};

use super::state::{is_told, state_of_entry};
use crate::replication::Site;
use crate::shared::Shared;

/// Counts changes of this site's clients in its log.
pub(in crate::replication) struct Behind<'s> {
    pub(in crate::replication) shared: &'s Shared,
    pub(in crate::replication) site: &'s Site,
}

impl Behind<'_> {
    /// Number of changes after a sequence, and of those that are not durable yet. 0 is exact. If the log is too long to
    /// read, the unread rest counts as changes, the sites' own notes in it included.
    pub(in crate::replication) fn after(&self, sequence: u64) -> u64 {
        // The order matters: a change that becomes durable meanwhile is counted twice rather than not at all.
        let undurable = self.site.journal.undurable_followed();
        let (store, table) = (&self.site.store, self.shared.namespaces.table());
        let number = self.site.number();
        let is_change = |entry: &StoreEntry<'_>| match entry {
            StoreEntry::Flush { version, by: FlushBy::Version, .. } => site_of(*version) == number,
            entry => state_of_entry(entry).is_some_and(|(key, state)| {
                is_told(table.as_deref(), key) && Entry::own_of_state(key, &state, number).next().is_some()
            }),
        };
        let mut count = 0;
        let read = store.read_log(sequence, READ_BYTES_MAX, &mut |entry| {
            count += u64::from(is_change(&entry.entry));
        });
        let through = read.map_or(sequence, |read| read.through_sequence);
        undurable + count + store.durable_sequence().saturating_sub(through)
    }
}

/// Maximum bytes of the log that are read at once.
const READ_BYTES_MAX: usize = 256 << 10;
