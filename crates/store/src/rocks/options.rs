//! How RocksDB is set up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rocksdb::compaction_filter::Decision;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, LogLevel, Options,
};

use super::ROCKS_FILES_OPEN_MAX;
use super::record::{ITEM, decode_item};
use crate::error::Result;

/// How RocksDB keeps a store. What a store was written with, it can be opened without.
#[derive(Clone, Debug)]
pub struct RocksOptions {
    /// About how long a file becomes, and how much is collected in memory before one is written: up to three times so
    /// much. 64 KiB to 64 MiB.
    pub file_bytes: u64,
    /// Memory for blocks, filters and indexes of files that were read.
    pub cache_bytes: usize,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self { file_bytes: 32 << 20, cache_bytes: 64 << 20 }
    }
}

/// The smallest and the largest size of a file, in bytes.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;

impl RocksOptions {
    pub(super) fn clamped(mut self) -> Self {
        self.file_bytes = self.file_bytes.clamp(*FILE_BYTES.start(), *FILE_BYTES.end());
        self
    }

    /// With less room on the disk than this nothing is put: what RocksDB has in memory must find room when it is
    /// written, and compaction beside it. Deletions and flushes may use half of it.
    pub(super) fn room_bytes(&self) -> u64 {
        self.file_bytes * 4
    }

    /// `now_unix_secs`: the latest time that a caller has told. What had expired by then, compaction drops.
    pub(super) fn for_rocksdb(&self, is_made: bool, now_unix_secs: Arc<AtomicU64>) -> Result<Options> {
        let mut options = Options::default();
        options.create_if_missing(!is_made);
        // A torn end, as a crash leaves it, is cut off at the first batch that is not whole.
        options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        options.set_write_buffer_size(self.file_bytes as usize);
        options.set_max_write_buffer_number(2);
        options.set_target_file_size_base(self.file_bytes);
        options.set_max_bytes_for_level_base(self.file_bytes * 4);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_max_background_jobs(2);
        options.set_max_open_files(ROCKS_FILES_OPEN_MAX as i32);
        options.set_bytes_per_sync(1 << 20);
        // What is compressed can be opened only by a RocksDB that has the same library.
        options.set_compression_type(DBCompressionType::None);
        options.set_compaction_filter("larder.expiry", move |_, key: &[u8], value: &[u8]| match decode_item(
            value,
        ) {
            Ok((meta, _)) if key.first() == Some(&ITEM) && meta.is_expired(now_unix_secs.load(Relaxed)) => {
                Decision::Remove
            }
            _ => Decision::Keep,
        });
        // Its own log, and what it keeps of its metadata, stay small.
        options.set_log_level(LogLevel::Warn);
        options.set_max_log_file_size(1 << 20);
        options.set_keep_log_file_num(4);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options.set_max_manifest_file_size(8 << 20);

        // Filters and indexes are cut in pieces, and read when they are needed: memory does not grow with the data.
        let mut blocks = BlockBasedOptions::default();
        let cache =
            Cache::new_lru_cache(self.cache_bytes).map_err(|error| super::store::failed("", &error))?;
        blocks.set_block_cache(&cache);
        blocks.set_bloom_filter(10.0, false);
        blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        blocks.set_partition_filters(true);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        blocks.set_format_version(5);
        options.set_block_based_table_factory(&blocks);
        Ok(options)
    }
}
