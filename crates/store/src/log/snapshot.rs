//! The snapshot of the index, which a clean stop writes so that the next start need not build it.
//!
//! It only saves time. The manifest names it as long as nothing has changed since; a damaged one is ignored, for the
//! footers of the segments say the same.

use std::io::IoSlice;
use std::sync::atomic::Ordering::Relaxed;

use super::LogStore;
use super::append;
use super::bytes::Bytes;
use super::clean;
use super::index::{Index, Shard};
use super::manifest::{FORMAT, SnapshotImage, sync_dir};
use super::record::u32_at;
use crate::error::{Error, Result};
use crate::files::Files;

pub(super) const MAGIC: &[u8; 8] = b"LARDRIDX";
const PREFIX: &str = "index-";

/// A segment as the snapshot knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotSegment {
    pub(super) number: u64,
    pub(super) slot: u32,
    pub(super) all_class_bytes: u64,
    pub(super) live_class_bytes: i64,
}

const SEGMENT_BYTES: usize = 28;

/// The name of a snapshot's file.
pub(super) fn snapshot_name(number: u64) -> String {
    format!("{PREFIX}{number:016}")
}

/// True for names of snapshots.
pub(super) fn is_snapshot(name: &str) -> bool {
    name.starts_with(PREFIX)
}

pub(super) fn close(store: &LogStore) -> Result<()> {
    let mut cleaner = clean::lock(store);
    let mut appender = store.appender();
    store.writable()?;
    append::seal(store, &mut appender)?;
    clean::seal_all(store, &mut cleaner)?;
    let mut manifest = store.manifest();
    let mut image = store.capture(&appender);
    let number = manifest.next_number;
    manifest.next_number += 1;
    // Without a snapshot the next start takes longer, and that is all.
    match write(store, number) {
        Ok(snapshot) => image.snapshot = Some(snapshot),
        Err(_) => {
            let _ = store.files.remove(&snapshot_name(number));
        }
    }
    store.publish(&mut manifest, image)?;
    store.become_read_only("it was closed".to_owned());
    Ok(())
}

fn write(store: &LogStore, number: u64) -> Result<SnapshotImage> {
    let name = snapshot_name(number);
    let failed = |error| Error::io(format!("writing {name}"), error);
    let file = store.files.create(&name).map_err(failed)?;
    let segments = store.segments.all();
    let mut block = MAGIC.to_vec();
    block.extend_from_slice(&FORMAT.0.to_le_bytes());
    block.extend_from_slice(&FORMAT.1.to_le_bytes());
    block.extend_from_slice(&(segments.len() as u32).to_le_bytes());
    for segment in segments {
        block.extend_from_slice(&segment.number.to_le_bytes());
        block.extend_from_slice(&segment.slot.to_le_bytes());
        block.extend_from_slice(&segment.all_class_bytes.load(Relaxed).to_le_bytes());
        block.extend_from_slice(&segment.live_class_bytes.load(Relaxed).to_le_bytes());
    }
    let (mut at, mut checksum) = (0, 0);
    let mut put = |block: &[u8]| {
        file.write_at(&[IoSlice::new(block)], at)?;
        at += block.len() as u64;
        checksum = crc32c::crc32c_append(checksum, block);
        Ok(())
    };
    let result = put(&block).and_then(|()| {
        // Small shards share a block.
        block.clear();
        for shard in store.index.shards() {
            let start = block.len();
            block.extend_from_slice(&[0; 4]);
            shard.encode(&mut block);
            let length = (block.len() - start - 4) as u32;
            block[start..start + 4].copy_from_slice(&length.to_le_bytes());
            if block.len() > 256 << 10 {
                put(&block)?;
                block.clear();
            }
        }
        put(&block)
    });
    result.and_then(|()| file.sync()).map_err(failed)?;
    sync_dir(&*store.files).map_err(failed)?;
    Ok(SnapshotImage { number, file_bytes: at, checksum })
}

/// Reads a snapshot. `None` if it is damaged or of another format.
pub(super) fn read(files: &dyn Files, image: &SnapshotImage) -> Option<(Vec<SnapshotSegment>, Index)> {
    let file = files.open_to_read(&snapshot_name(image.number)).ok()?;
    if file.len().ok()? != image.file_bytes {
        return None;
    }
    let mut at = 0;
    let mut checksum = 0;
    let mut take = |length: usize| {
        // A damaged length must not ask for more memory than the file has bytes.
        if length as u64 > image.file_bytes - at {
            return None;
        }
        let mut block = vec![0; length];
        if file.read_at(&mut block, at).ok()? != length {
            return None;
        }
        at += length as u64;
        checksum = crc32c::crc32c_append(checksum, &block);
        Some(block)
    };
    let head = take(16)?;
    if head[..8] != *MAGIC || head[8..12] != [FORMAT.0.to_le_bytes(), FORMAT.1.to_le_bytes()].concat() {
        return None;
    }
    let block = take((u32_at(&head, 12) as usize).checked_mul(SEGMENT_BYTES)?)?;
    let mut bytes = Bytes(&block);
    let mut segments = Vec::new();
    while !bytes.0.is_empty() {
        segments.push(SnapshotSegment {
            number: bytes.u64()?,
            slot: bytes.u32()?,
            all_class_bytes: bytes.u64()?,
            live_class_bytes: bytes.u64()? as i64,
        });
    }
    let mut shards = Vec::new();
    for _ in 0..1 << super::digest::SHARD_BITS {
        let length = u32_at(&take(4)?, 0) as usize;
        let block = take(length)?;
        let (shard, used) = Shard::decode(&block)?;
        if used != length {
            return None;
        }
        shards.push(shard);
    }
    if at != image.file_bytes || checksum != image.checksum {
        return None;
    }
    Some((segments, Index::from_shards(shards)?))
}
