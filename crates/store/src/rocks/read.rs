//! Reading one item; a scan of all.

use std::sync::atomic::Ordering::Relaxed;

use super::open::within;
use super::record::{ITEM, decode_item, key_of};
use super::store::{RocksStore, failed};
use crate::entry::{Meta, Sink, fill};
use crate::error::Result;
use crate::store::{Cursor, Position};

/// By the filters that are in memory.
pub(super) fn may_contain(store: &RocksStore, key: &[u8]) -> bool {
    store.db.key_may_exist(key_of(ITEM, key))
}

pub(super) fn get(
    store: &RocksStore,
    key: &[u8],
    now_unix_secs: u64,
    sink: &mut dyn Sink,
) -> Result<Option<Meta>> {
    // Before the read: a sweep forgets a flush once it has removed what that covers.
    let flushed_up_to = if store.flushes.newest() == 0 { 0 } else { store.flushes.read().newest(key) };
    store.counters.reads.fetch_add(1, Relaxed);
    let found = store.db.get_pinned(key_of(ITEM, key)).map_err(|error| failed("reading", &error))?;
    let Some(bytes) = found else { return Ok(None) };
    let (meta, value) = decode_item(&bytes)?;
    if meta.is_expired(now_unix_secs) || meta.sequence < flushed_up_to {
        return Ok(None);
    }
    if sink.start(&meta) {
        fill(sink, value)?;
    }
    Ok(Some(meta))
}

pub(super) fn for_each_key(
    store: &RocksStore,
    cursor: &mut Cursor,
    limit: usize,
    now_unix_secs: u64,
    visit: &mut dyn FnMut(&[u8], &Meta),
) -> Result<bool> {
    let start = match &cursor.position {
        Position::AfterKey(key) => {
            let mut next = key_of(ITEM, key);
            next.push(0);
            next
        }
        Position::Start | Position::At { .. } => vec![ITEM],
        Position::End => return Ok(false),
    };
    let flushes = store.flushes.read().clone();
    let mut items = store.db.raw_iterator_opt(within(ITEM));
    items.seek(start);
    let mut last = None;
    for _ in 0..limit.max(1) {
        let Some((key, value)) = items.item() else { break };
        let key = key.get(1..).unwrap_or_default();
        let (meta, _) = decode_item(value)?;
        if !meta.is_expired(now_unix_secs) && meta.sequence >= flushes.newest(key) {
            visit(key, &meta);
        }
        last = Some(key.to_vec());
        items.next();
    }
    let is_at_end = items.item().is_none();
    items.status().map_err(|error| failed("reading keys", &error))?;
    cursor.position = match last {
        Some(key) if !is_at_end => Position::AfterKey(key),
        _ => Position::End,
    };
    Ok(cursor.position != Position::End)
}
