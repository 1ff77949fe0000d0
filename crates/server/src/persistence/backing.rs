//! What stands behind the engine of a namespace: its changes go to the server's journal, in the store's terms.

use std::sync::Arc;

use larder_engine::{Backing, Change, Expiry, Hash, Issued, Kept, Position, Replaced};
use larder_store::Marks;
use larder_store::commit::{self, Journal, Kind, Registers};

use super::disk_quotas::{DiskQuotas, record_bytes};
use super::write_budgets::WriteBudgets;
use crate::clock::Clock;

/// The journal, for one namespace. Changes of items do not wake the committer: whoever makes them wakes it, once for
/// many ([`Journal::wake_if_idle`]). Flushes do.
pub(super) struct NamespaceBacking {
    pub(super) journal: Arc<Journal>,
    pub(super) clock: Arc<Clock>,
    pub(super) disk_quotas: Arc<DiskQuotas>,
    pub(super) write_budgets: Arc<WriteBudgets>,
    /// Of the namespace.
    pub(super) number: u8,
    pub(super) prefix: Box<[u8]>,
    /// What a flush leaves alone.
    pub(super) nested: Arc<[Vec<u8>]>,
    pub(super) is_sync: bool,
    /// Its changes go to other sites.
    pub(super) is_replicated: bool,
    /// This one; 0: there are no others.
    pub(super) site: u8,
}

impl Backing for NamespaceBacking {
    fn hint_changes(&self, hashes: &[Hash]) {
        hashes.iter().for_each(|hash| self.journal.hint_change(hash.bits()));
    }

    fn next_position(&self, hash: Hash) -> Position {
        self.journal.next_position(hash.bits())
    }

    fn submit(&self, position: Position, change: Change<'_>) {
        let change = match change {
            Change::Delete { key, version, base_version } => {
                self.write_budgets.spend(self.number, record_bytes(key, 0));
                commit::Change::new(Kind::Delete { version, base_version }, key, b"", self.is_sync)
            }
            Change::Put { kept, pinnable, replaced, registers } => {
                let kind = Kind::Put {
                    client_flags: kept.client_flags,
                    exptime_secs: self.clock.exptime_secs(kept.expiry),
                    version: kept.version,
                    marks: marks_of(&kept),
                    registers: Registers {
                        base_version: registers.base_version,
                        expiry_value_version: 0,
                        expiry_version: registers.expiry_version,
                        origin: self.site,
                    },
                };
                let value_bytes = kept.value.len() as u64;
                self.write_budgets.spend(self.number, record_bytes(kept.key, value_bytes));
                let replaced_bytes = replaced.filter(|old| self.outlives_its_way(*old));
                let replaced_bytes = replaced_bytes.map(|old| u64::from(old.value_bytes));
                let on_its_way =
                    self.disk_quotas.on_its_way(self.number, kept.key, value_bytes, replaced_bytes);
                let change = match pinnable.pin() {
                    Some(value) => commit::Change::with_shared(kind, kept.key, Box::new(value), self.is_sync),
                    None => commit::Change::new(kind, kept.key, kept.value, self.is_sync),
                };
                change.counted(on_its_way)
            }
        };
        self.journal.place(position, change);
    }

    fn position_of(&self, hash: Hash) -> Position {
        self.journal.position_of(hash.bits())
    }

    fn version_above(&self, replaced: u64) -> u64 {
        self.journal.version_above(replaced)
    }

    fn retire_version(&self, version: u64) {
        // The journal knows the versions of replicated keys, whether they are in memory or not.
        if !self.is_replicated {
            self.journal.retire_version(version);
        }
    }

    fn replicated_version(&self, hash: Hash, replaced: u64) -> Option<Issued> {
        let issued =
            if self.is_replicated { self.journal.replicated_version(hash.bits(), replaced) } else { None };
        issued.map(|(version, base_version)| Issued { version, base_version })
    }

    fn note_version(&self, hash: Hash, version: u64) {
        self.journal.note_version(hash.bits(), version);
    }

    fn schedule_flush(&self, at: Option<u32>) -> Position {
        let kind = at.map_or(Kind::CancelFlushAt, |at| Kind::FlushAt {
            at_secs: self.clock.exptime_secs(Expiry::at(at)),
        });
        let position = self.journal.next_position_of_none();
        self.journal.submit(position, commit::Change::new(kind, &self.prefix, b"", self.is_sync));
        position
    }

    fn flush(&self) -> Position {
        let below = if self.is_replicated { self.journal.replicated_flush_version() } else { None };
        let position = self.journal.next_position_of_all();
        if let Some(version) = below {
            let nested = Arc::clone(&self.nested);
            let change = commit::Change::flush_below(&self.prefix, nested, version, self.is_sync);
            self.journal.submit(position, change);
            return position;
        }
        let change = commit::Change::flush(&self.prefix, Arc::clone(&self.nested), self.is_sync);
        self.journal.submit(position, change);
        position
    }
}

impl NamespaceBacking {
    /// Whether the store still counts an item when its successor comes there. It may not count one that has expired.
    fn outlives_its_way(&self, old: Replaced) -> bool {
        let now_secs = self.clock.now().secs;
        self.clock.secs_of(old.expiry).is_none_or(|secs| secs > now_secs.saturating_add(WAY_SECS_MAX))
    }
}

/// A change is in the store within this time, unless the disk hangs.
const WAY_SECS_MAX: u32 = 10;

fn marks_of(kept: &Kept<'_>) -> Marks {
    let mark = |is_set: bool, mark: Marks| if is_set { mark } else { Marks::NONE };
    mark(kept.is_stale, Marks::STALE)
        | mark(kept.is_token_held, Marks::TOKEN)
        | mark(kept.is_binary_key, Marks::BINARY_KEY)
}
