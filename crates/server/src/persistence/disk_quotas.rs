//! Quotas of disk: what the items of each namespace use in the store, and what is on its way there.
//!
//! A store of a value asks before it is made ([`DiskQuotas::admit`]), and counts as a whole until it is. What it takes
//! more than what it replaces counts from the moment when it takes its place in the journal: first as on its way, then
//! as appended, and for a moment as both. So a store may be refused that would just have fitted, and a quota is never
//! exceeded by what several workers store at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};

use larder_policy::{NAMESPACES_MAX, Table};
use larder_protocol::Error;
use larder_store::commit::OnItsWay;
use larder_store::{PrefixUsage, Store};

/// What the namespaces of a store use on the disk, by their numbers.
pub(crate) struct DiskQuotas {
    shares: Box<[Share]>,
    /// Set once there is a quota.
    usage: OnceLock<Arc<PrefixUsage>>,
}

#[derive(Default)]
struct Share {
    has_quota: AtomicBool,
    on_its_way_bytes: Arc<AtomicU64>,
}

/// A namespace's use of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskUse {
    /// Of its items, also those on their way.
    pub(crate) bytes: u64,
    /// False: items from before the start are still being counted, and the quota refuses nothing.
    pub(crate) is_complete: bool,
}

impl Default for DiskQuotas {
    fn default() -> Self {
        let shares = (0..=NAMESPACES_MAX).map(|_| Share::default()).collect();
        Self { shares, usage: OnceLock::new() }
    }
}

impl DiskQuotas {
    /// The quotas of a table. The first one makes the store count. Errors: it cannot.
    pub(crate) fn set(&self, table: &Table, store: &dyn Store) -> larder_store::Result<()> {
        let has_quota = |number: u8| table.policy(number).disk_bytes.is_some();
        let is_needed = table.numbers().any(has_quota);
        if self.usage.get().is_none() {
            // All namespaces, so that each key counts where it belongs.
            let prefixes: Vec<_> = table.numbers().map(|number| table.prefix(number)).collect();
            let usage = store.count_prefixes(if is_needed { &prefixes } else { &[] })?;
            if is_needed {
                let _ = self.usage.set(usage);
            }
        }
        for (share, number) in self.shares.iter().zip(table.numbers()) {
            share.has_quota.store(has_quota(number), Relaxed);
        }
        Ok(())
    }

    /// Whether an item with such a key and value may be stored: to be held until that is done. Errors: what to answer.
    pub(crate) fn admit(
        &self,
        number: u8,
        limit_bytes: u64,
        key: &[u8],
        value_bytes: u64,
    ) -> Result<Option<OnItsWay>, Error> {
        let bytes = record_bytes(key, value_bytes);
        let share = self.shares.get(usize::from(number));
        // Counted before it is compared, so that of two threads one sees the other.
        let admitted =
            share.filter(|_| bytes <= limit_bytes).map(|share| OnItsWay::new(&share.on_its_way_bytes, bytes));
        let fits = |used: DiskUse| admitted.is_some() && used.bytes <= limit_bytes;
        if self.used(number).is_none_or(|used| !used.is_complete || fits(used)) {
            return Ok(admitted);
        }
        if let Some(usage) = self.usage.get() {
            usage.ask_for_room(usize::from(number));
        }
        Err(Error::OverDiskQuota)
    }

    /// `None`: it is not counted.
    pub(crate) fn used(&self, number: u8) -> Option<DiskUse> {
        let usage = self.usage.get()?;
        let share = self.shares.get(usize::from(number))?;
        // In this order: what is appended in between counts twice, not never.
        let on_its_way_bytes = share.on_its_way_bytes.load(Acquire);
        let bytes = usage.bytes(usize::from(number)).saturating_add(on_its_way_bytes);
        Some(DiskUse { bytes, is_complete: usage.is_complete() })
    }

    /// Counts an item on its way to the store, if its namespace has a quota: for what it takes more than the item that
    /// it replaces. What it takes less is free once the store has it. `replaced_bytes`: of the value of that item,
    /// which is in the store, or on its way there, and counts until this one replaces it; `None`: that is not known.
    pub(super) fn on_its_way(
        &self,
        number: u8,
        key: &[u8],
        value_bytes: u64,
        replaced_bytes: Option<u64>,
    ) -> Option<OnItsWay> {
        let share = self.shares.get(usize::from(number))?;
        if !share.has_quota.load(Relaxed) {
            return None;
        }
        let replaced_bytes = replaced_bytes.map_or(0, |value_bytes| record_bytes(key, value_bytes));
        let more_bytes = record_bytes(key, value_bytes).saturating_sub(replaced_bytes);
        (more_bytes > 0).then(|| OnItsWay::new(&share.on_its_way_bytes, more_bytes))
    }
}

/// What an item takes in a store: as `docs/store-format.md` says.
pub(super) fn record_bytes(key: &[u8], value_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES + key.len() as u64)
        .saturating_add(value_bytes)
        .checked_next_multiple_of(8)
        .unwrap_or(u64::MAX)
}

const RECORD_HEADER_BYTES: u64 = 48;

#[cfg(test)]
mod tests {
    use larder_store::MemoryStore;

    use super::*;

    #[test]
    fn an_item_on_its_way_counts_for_what_it_takes_more() {
        let table =
            "[namespace.\"a:\"]\nkeep = \"store\"\ndisk = \"1m\"\n[namespace.\"b:\"]\nkeep = \"store\"";
        let table = Table::parse(table).expect("two namespaces");
        let quotas = DiskQuotas::default();
        quotas.set(&table, &MemoryStore::new()).expect("counts");
        let used = || quotas.used(1).expect("it is counted").bytes;
        // 48 bytes, key and value, up to a multiple of 8.
        for (value_bytes, replaced_bytes, expected) in [
            (1_000, None, 1_056),
            (1_000, Some(0), 1_056 - 56),
            (1_000, Some(900), 1_056 - 952),
            (1_000, Some(1_000), 0),
            (1_000, Some(5_000), 0),
            (u64::MAX, None, u64::MAX),
        ] {
            let way = quotas.on_its_way(1, b"a:1", value_bytes, replaced_bytes);
            assert_eq!(used(), expected, "{value_bytes} in place of {replaced_bytes:?}");
            drop(way);
            assert_eq!(used(), 0);
        }
        assert!(quotas.on_its_way(2, b"b:1", 1_000, None).is_none(), "there is no quota");
    }

    #[test]
    fn what_was_admitted_counts_until_it_is_stored() {
        let table = Table::parse("[namespace.\"a:\"]\nkeep = \"store\"\ndisk = \"1m\"").expect("a namespace");
        let quotas = DiskQuotas::default();
        quotas.set(&table, &MemoryStore::new()).expect("counts");
        let admit = |value_bytes| quotas.admit(1, 2_000, b"a:1", value_bytes);
        let first = admit(1_000).expect("there is room");
        assert!(matches!(admit(1_000), Err(Error::OverDiskQuota)), "of another worker, at once");
        let small = admit(800).expect("this fits beside it");
        drop((first, small));
        assert_eq!(quotas.used(1).expect("it is counted").bytes, 0);
        assert!(admit(1_000).is_ok());
        assert!(matches!(admit(u64::MAX), Err(Error::OverDiskQuota)));
        assert_eq!(quotas.used(1).expect("it is counted").bytes, 0);
    }
}
