//! The snapshot of the index, which a clean stop writes so that the next start need not build it.
//!
//! It only saves time. The manifest names it as long as nothing has changed since; a damaged one is ignored, for the
//! footers of the segments say the same.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::LogStore;
use super::bytes::Bytes;
use super::clean;
use super::index::{Index, Shard, ShardLayout};
use super::manifest::{FORMAT, SnapshotImage};
use super::next;
use super::record::{u16_at, u32_at};
use super::segment::take_number;
use crate::error::{Error, Result};
use crate::files::{File, Files};
use crate::usage::PrefixUsage;

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
    store.read_only.check()?;
    next::seal(store, &mut appender)?;
    clean::seal_all(store, &mut cleaner)?;
    let mut manifest = store.manifest();
    next::drop_prepared(store, &mut manifest);
    let mut image = store.capture(&appender);
    // Without a snapshot the next start takes longer, and that is all.
    if let Ok(number) = take_number(&mut manifest.next_number) {
        match write(store, number) {
            Ok(snapshot) => image.snapshot = Some(snapshot),
            Err(_) => {
                let _ = store.files.remove(&snapshot_name(number));
            }
        }
    }
    store.publish(&mut manifest, image)?;
    store.read_only.set("it was closed".to_owned());
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
    put_usage(&mut block, store.usage().as_deref());
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
    // Neither it nor its name is made durable: one that a power loss damages is ignored.
    result.map_err(failed)?;
    Ok(SnapshotImage { number, file_bytes: at, checksum })
}

/// Which prefixes are counted, and whether all is: the counts themselves are in the index.
fn put_usage(block: &mut Vec<u8>, usage: Option<&PrefixUsage>) {
    let is_complete = usage.is_some_and(PrefixUsage::is_complete);
    let count = usage.map_or(0, |usage| usage.prefixes().len());
    block.extend_from_slice(&[u8::from(is_complete), count as u8]);
    for prefix in usage.into_iter().flat_map(PrefixUsage::prefixes) {
        block.extend_from_slice(&(prefix.len() as u16).to_le_bytes());
        block.extend_from_slice(prefix);
    }
}

fn take_usage(reader: &mut Reader) -> Option<Option<PrefixUsage>> {
    let head = reader.take(2)?;
    let mut prefixes = Vec::new();
    for _ in 0..head[1] {
        let length = usize::from(u16_at(&reader.take(2)?, 0));
        prefixes.push(reader.take(length)?);
    }
    if prefixes.is_empty() {
        return Some(None);
    }
    let prefixes: Vec<_> = prefixes.iter().map(Vec::as_slice).collect();
    let usage = PrefixUsage::new(&prefixes).ok()?;
    usage.set_complete(head[0] == 1);
    Some(Some(usage))
}

/// What a snapshot says.
pub(super) struct Snapshot {
    pub(super) segments: Vec<SnapshotSegment>,
    pub(super) index: Index,
    /// The prefixes that are counted; the sums are to be made of the index.
    pub(super) usage: Option<PrefixUsage>,
}

/// A snapshot's file, read forward. Each method returns `None` if there are too few bytes.
struct Reader {
    file: Arc<dyn File>,
    file_bytes: u64,
    at: u64,
    checksum: u32,
}

impl Reader {
    fn open(files: &dyn Files, image: &SnapshotImage) -> Option<Self> {
        let file = files.open_to_read(&snapshot_name(image.number)).ok()?;
        let file_bytes = file.len().ok()?;
        (file_bytes == image.file_bytes).then_some(Self { file, file_bytes, at: 0, checksum: 0 })
    }

    /// Reads so many bytes behind those that are in `out`.
    fn append(&mut self, length: usize, out: &mut Vec<u8>) -> Option<()> {
        if length as u64 > self.file_bytes - self.at {
            return None;
        }
        let start = out.len();
        out.resize(start + length, 0);
        let piece = &mut out[start..];
        if self.file.read_at(piece, self.at).ok()? != length {
            return None;
        }
        self.at += length as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, piece);
        Some(())
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.append(length, &mut out)?;
        Some(out)
    }

    /// The bytes of a shard. A sparse file may pretend to have any length, and its zeros have a checksum, too: so the
    /// memory grows with entries that are there, not with lengths.
    fn take_shard(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut out = self.take(Shard::HEAD_BYTES)?;
        let layout = ShardLayout::of(&out).filter(|layout| layout.bytes() == Some(length))?;
        let mut words_left = layout.slots;
        while words_left > 0 {
            let words = words_left.min(PIECE_WORDS);
            let start = out.len();
            self.append(words * 8, &mut out)?;
            let used = out[start..].as_chunks::<8>().0.iter().filter(|&word| *word != [0; 8]).count();
            if words == PIECE_WORDS && used < PIECE_WORDS_USED_MIN {
                return None;
            }
            words_left -= words;
        }
        self.append(length - out.len(), &mut out)?;
        Some(out)
    }
}

/// A shard's words are read in pieces of so many,
const PIECE_WORDS: usize = 8 << 10;
/// of which so many are used at least. Half of the slots are in a shard that has grown; of one that has emptied the
/// snapshot may not be believed, and the footers are read, of which there are few then.
const PIECE_WORDS_USED_MIN: usize = PIECE_WORDS / 64;

/// Reads a snapshot of so many segments. `None` if it is damaged or of another format.
pub(super) fn read(files: &dyn Files, image: &SnapshotImage, segment_count: usize) -> Option<Snapshot> {
    let mut reader = Reader::open(files, image)?;
    let head = reader.take(16)?;
    if head[..8] != *MAGIC || head[8..12] != [FORMAT.0.to_le_bytes(), FORMAT.1.to_le_bytes()].concat() {
        return None;
    }
    if u32_at(&head, 12) as usize != segment_count {
        return None;
    }
    let block = reader.take(segment_count.checked_mul(SEGMENT_BYTES)?)?;
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
    let usage = take_usage(&mut reader)?;
    let mut shards = Vec::new();
    for _ in 0..1 << super::digest::SHARD_BITS {
        let length = u32_at(&reader.take(4)?, 0) as usize;
        let block = reader.take_shard(length)?;
        let (shard, used) = Shard::decode(&block)?;
        if used != length || shard.keeps_accounts() != usage.is_some() {
            return None;
        }
        shards.push(shard);
    }
    if reader.at != image.file_bytes || reader.checksum != image.checksum {
        return None;
    }
    Some(Snapshot { segments, index: Index::from_shards(shards)?, usage })
}
