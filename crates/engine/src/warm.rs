//! Warm restart: a cache that is kept in a file, where the next process finds it.
//!
//! The log, its metadata and the counters of CAS values lie in the file, which is mapped; the index and all else is in
//! memory, and made anew by walking the log (`warm/restore.rs`). So nothing has to be written when the process ends,
//! and it may end at any moment. Whatever happens to it, the stores that its threads have executed are in the file, for
//! a mapped file is the system's memory. (That the machine fails, and with it a tmpfs, is another matter.) These rules
//! make sure that what is walked then is what was acknowledged:
//!
//! - The metadata of a segment covers only bytes that hold items without a gap, dead or alive: space that is handed out
//!   becomes a dead item before it is covered, and before an item is written there.
//! - An item is dead until it is complete, and carries a checksum. It is completed in the moment before it is linked.
//! - An item that is unlinked is marked dead before that is acknowledged. One that is about to be replaced is marked as
//!   superseded before the new one is completed; so if both are found, the newer is known. A copy that compaction made
//!   is the same item.
//! - Flush marks are in the metadata of segments, and the engine's in the superblock, before a flush is acknowledged.
//! - Metadata says that a segment is free once all in it is dead.
//!
//! An item that is found therefore was stored, as it is, and neither deleted, replaced, evicted nor flushed by anything
//! that was acknowledged. What was not yet acknowledged may or may not have happened.

mod restore;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::engine::{Config, Engine, Reservation};
use crate::log::superblock::{CAS_COUNTERS_MAX, Constants, Contents, Geometry, Owner, Superblock, Unusable};
use crate::mem::file::BackingFile;
use crate::request::Now;

/// What a cache is kept in.
#[derive(Debug)]
pub struct CacheFile {
    /// Open for reading and writing: empty, or left by an earlier process. It is locked, and changed through a mapping:
    /// whoever else writes to it or truncates it ends this process, at best.
    pub file: File,
    /// The Unix time.
    pub unix_secs: u64,
    /// The first second of a cache that is empty, on the scale of [`Now::secs`].
    pub first_secs: u32,
    /// Files that are used together have a number in common, which is not 0 and says which of them may be removed
    /// together. The file notes it.
    pub family: u64,
}

impl CacheFile {
    /// Whose a file is. It may be anybody's, and in use.
    pub fn owner(file: &File) -> io::Result<Owner> {
        Superblock::owner(file)
    }
}

/// Whether a cache has the item of a key.
pub type Owns<'a> = dyn Fn(&[u8]) -> bool + Sync + 'a;

/// A cache that was opened in a file.
pub struct Opened {
    /// The cache. Its limit is [`Config::memory_bytes`], whatever it was before.
    pub engine: Arc<Engine>,
    /// [`Now::secs`] of the present moment: time has passed while no process had the file.
    pub now_secs: u32,
    /// What it begins with.
    pub start: Start,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine: _, now_secs, start } = self;
        f.debug_struct("Opened").field("now_secs", now_secs).field("start", start).finish_non_exhaustive()
    }
}

/// What a cache in a file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: the file was empty.
    New,
    /// What an earlier process left.
    Warm(Restored),
    /// Nothing: what an earlier process left is lost, and why.
    Cold(ColdReason),
}

/// What was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Live items.
    pub items: u64,
    /// The earlier process called [`Engine::keep`]. Otherwise it was killed, and each item was compared with its
    /// checksum.
    pub is_clean: bool,
    /// Items that are lost since they differ from their checksum.
    pub torn: u64,
    /// Items that have expired meanwhile.
    pub expired: u64,
    /// Items that were dropped, since their keys are not of this cache any more ([`Engine::open_for`]).
    pub foreign: u64,
}

/// Why what an earlier process left cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColdReason {
    /// By the file itself.
    Unusable(Unusable),
    /// It has addresses for a smaller limit; for how many bytes.
    Limit(u64),
    /// This process has too few addresses for it, or too little memory for its metadata.
    Addresses,
    /// Its file system has no memory left for what it should have.
    Memory,
}

impl fmt::Display for ColdReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(Unusable::Version(version)) => {
                write!(f, "it has format {version} of another version of larder")
            }
            Self::Unusable(Unusable::Unfinished) => write!(f, "it was never finished"),
            Self::Unusable(Unusable::Corrupt) => write!(f, "its first page is damaged"),
            Self::Unusable(Unusable::Truncated) => write!(f, "it was truncated"),
            Self::Limit(bytes) => write!(f, "it was made for at most {} MiB", bytes >> 20),
            Self::Addresses => write!(f, "this process has too few addresses for it (ulimit -v)"),
            Self::Memory => write!(f, "its file system has no memory left"),
        }
    }
}

impl Engine {
    /// A cache in a file: with all that an earlier process left there, if that can be had, else empty. The hash key of
    /// the configuration counts for an empty one only; all else may change from process to process.
    ///
    /// After an orderly end (see [`Engine::keep`]) and any other, what was stored is there, and what was deleted is
    /// not; not so after a failure of the machine.
    ///
    /// Errors: as of [`Engine::new_within`]; also if the file is not regular, not larder's (`InvalidData`), in use
    /// (`ResourceBusy`), or on a file system that cannot keep memory (`Unsupported`) or has too little of it
    /// (`StorageFull`). Then the file is as it was.
    pub fn open(config: Config, reservation: Reservation, backing: CacheFile) -> io::Result<Opened> {
        Self::open_for(config, reservation, backing, &|_| true)
    }

    /// The same for a cache of certain keys: of others nothing is restored. What an earlier process left of them is
    /// dropped from the file as well, so it does not come back if these keys are this cache's again later.
    pub fn open_for(
        config: Config,
        reservation: Reservation,
        backing: CacheFile,
        owns: &Owns<'_>,
    ) -> io::Result<Opened> {
        let CacheFile { file, unix_secs, first_secs, family } = backing;
        if config.handles_max > CAS_COUNTERS_MAX {
            let reason = format!("a cache in a file has at most {CAS_COUNTERS_MAX} handles");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let file = Arc::new(BackingFile::lock(file)?);
        let contents = Superblock::examine(&file)?;
        if contents == Contents::Foreign {
            let reason = "it is not larder's, and is left as it is; name a new file, or remove it";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        // Errors of the configuration are found before anything is changed.
        Self::plan(&config, config.memory_bytes)?;
        let available_bytes = file.available_bytes()?;
        if available_bytes < config.memory_bytes {
            let (available_mib, wanted_mib) = (available_bytes >> 20, config.memory_bytes >> 20);
            let reason = format!(
                "its file system has {available_mib} MiB of the {wanted_mib} MiB that are to be cached"
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, reason));
        }
        let reason = match contents {
            Contents::Nothing | Contents::Foreign => None,
            Contents::Unusable(unusable) => Some(ColdReason::Unusable(unusable)),
            Contents::Cache(constants) => {
                match Self::open_warm(&config, reservation, &file, constants, unix_secs, owns)? {
                    Ok(opened) => {
                        opened.engine.note_family(family);
                        return Ok(opened);
                    }
                    Err(reason) => Some(reason),
                }
            }
        };
        let engine =
            Self::open_cold(&config, reservation, &file, unix_secs.saturating_sub(first_secs.into()))?;
        engine.note_family(family);
        let start = reason.map_or(Start::New, Start::Cold);
        Ok(Opened { engine, now_secs: first_secs.max(1), start })
    }

    fn open_warm(
        config: &Config,
        reservation: Reservation,
        file: &Arc<BackingFile>,
        constants: Constants,
        unix_secs: u64,
        owns: &Owns<'_>,
    ) -> io::Result<Result<Opened, ColdReason>> {
        let Geometry { segment_bytes, segments, .. } = constants.geometry;
        let limit_max = u64::from(segments) * segment_bytes as u64;
        if config.memory_bytes > limit_max {
            return Ok(Err(ColdReason::Limit(limit_max)));
        }
        let superblock = Arc::new(Superblock::map(file, constants)?);
        let left = superblock.left();
        // As many items as were there get an index that need not grow; but a file that names more than the memory
        // could hold is not believed.
        let buckets_max = config.memory_bytes as usize / 4 / crate::mem::lines::LINE_BYTES;
        let buckets = (crate::index::buckets::buckets_for(left.items)).min(buckets_max);
        let buckets = buckets.max(Self::buckets_at_first(config));
        let built = Self::build(
            config,
            constants.geometry,
            buckets,
            Some(Arc::clone(&superblock)),
            reservation.address_space_bytes,
            None,
        );
        let engine = match built {
            Ok(engine) => engine,
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                return Ok(Err(ColdReason::Addresses));
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(Err(ColdReason::Memory)),
            Err(error) => return Err(error),
        };
        // It may be smaller than the layout was made for.
        engine.set_memory_limit(config.memory_bytes);
        // Time goes on as the system's clock says, and stands still where that was set back.
        let elapsed = u32::try_from(unix_secs.saturating_sub(left.zero_unix_secs)).unwrap_or(u32::MAX);
        let now_secs = elapsed.max(left.used_secs).max(1);
        superblock.set_in_use();
        superblock.set_zero(unix_secs.saturating_sub(now_secs.into()));
        superblock.tick(now_secs, left.items);
        let now = Now { secs: now_secs, micros: 1 };
        Ok(engine.restore(&left, now, owns).map(|restored| Opened {
            engine,
            now_secs,
            start: Start::Warm(restored),
        }))
    }

    fn open_cold(
        config: &Config,
        reservation: Reservation,
        file: &Arc<BackingFile>,
        zero_unix_secs: u64,
    ) -> io::Result<Arc<Self>> {
        let checksum_seed = crate::index::hash::checksum_seed(config.hash_key);
        let mut memory_bytes_max = reservation.memory_bytes_max.max(config.memory_bytes);
        loop {
            let geometry = Self::plan(config, memory_bytes_max)?;
            let constants = Constants { geometry, hash_key: config.hash_key, checksum_seed };
            let superblock = Arc::new(Superblock::format(file, constants, zero_unix_secs)?);
            superblock.set_in_use();
            let buckets = Self::buckets_at_first(config);
            let addresses = reservation.address_space_bytes;
            match Self::build(config, geometry, buckets, Some(superblock), addresses, None) {
                Err(error)
                    if error.kind() == io::ErrorKind::OutOfMemory
                        && memory_bytes_max > config.memory_bytes =>
                {
                    memory_bytes_max = (memory_bytes_max / 2).max(config.memory_bytes);
                }
                built => return built,
            }
        }
    }

    fn note_family(&self, family: u64) {
        if let Some(superblock) = &self.arena.superblock {
            superblock.set_family(family);
        }
    }

    /// Goes on in a later second than that of [`Opened::now_secs`], because other caches of this process are there
    /// already. Call it before the cache is used. Without a file it does nothing.
    pub fn resume_at(&self, now_secs: u32, unix_secs: u64) {
        if let Some(superblock) = &self.arena.superblock {
            superblock.set_zero(unix_secs.saturating_sub(now_secs.into()));
            superblock.tick(now_secs, self.stats().items);
        }
    }

    /// Marks the file as left in order, so that the next process need not compare each item with its checksum. Call it
    /// last, when all handles are dropped; no handle can be had from then on. False: some are out, or the cache is not
    /// in a file, and nothing is marked.
    pub fn keep(&self) -> bool {
        let Some(superblock) = &self.arena.superblock else { return false };
        if !self.close_handles() {
            return false;
        }
        superblock.set_clean(self.stats().items);
        true
    }

    /// True if the cache is kept in a file.
    pub fn is_kept(&self) -> bool {
        self.arena.superblock.is_some()
    }
}
