//! Counting what the items of some prefixes use.
//!
//! Each entry of the index has an account: for which prefix its record counts, and how long the record is. So what a
//! change replaces, and what cleaning drops, is uncounted without a look at the disk, and the sum of all accounts is
//! the usage. What was there before counting began has no account yet: a job of the cleaner reads its keys, segment by
//! segment, before anything else is cleaned.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use super::LogStore;
use super::clean;
use super::index::Index;
use crate::error::Result;
use crate::usage::PrefixUsage;

pub(super) fn count_prefixes(store: &LogStore, prefixes: &[&[u8]]) -> Result<Arc<PrefixUsage>> {
    let fresh = Arc::new(PrefixUsage::new(prefixes)?);
    let mut cleaner = clean::lock(store);
    let _appender = store.appender();
    if let Some(usage) = store.usage()
        && usage.prefixes().eq(prefixes.iter().copied())
    {
        return Ok(usage);
    }
    let is_counting = !prefixes.is_empty();
    fresh.set_complete(store.counters.records.load(Relaxed) == 0);
    store.index.reset_accounts(is_counting);
    cleaner.count_anew();
    let mut usage = store.usage.write().unwrap_or_else(PoisonError::into_inner);
    *usage = is_counting.then(|| Arc::clone(&fresh));
    Ok(fresh)
}

/// The sums of the accounts of an index.
pub(super) fn sum(index: &Index, usage: &PrefixUsage) {
    for shard in index.shards() {
        for (_, entry) in shard.entries().filter(|(_, entry)| entry.is_live()) {
            if !entry.account.is_none() {
                usage.add(entry.account.prefix(), entry.account.bytes(entry.class));
            }
        }
    }
}
