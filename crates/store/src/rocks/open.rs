//! From a directory to a store.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rocksdb::{DB, ReadOptions};

use super::manifest::{CURRENT, RocksImage};
use super::record::{FLUSH, FlushRecord, PENDING, STATE, decode_flush, decode_pair, sequence_of};
use super::store::{RocksStore, failed};
use super::{RocksOptions, copy};
use crate::error::{Error, Result};
use crate::files::{DiskFiles, Files};
use crate::flushes::{FlushMark, FlushTable, PendingMark};
use crate::log::StoreLock;
use crate::log::manifest::{MANIFEST, read_bytes};
use crate::log::segment::segment_number;

/// What was found.
pub(super) struct Opened {
    pub(super) db: DB,
    pub(super) image: RocksImage,
    pub(super) lock: StoreLock,
    pub(super) last_sequence: u64,
    pub(super) highest_version: u64,
    pub(super) flushes: FlushTable,
}

pub(super) fn open(
    files: &DiskFiles,
    directory: &Path,
    options: RocksOptions,
    lock: StoreLock,
) -> Result<RocksStore> {
    let mut image = match read_bytes(files)? {
        // What a backup had is no matter of the store that was made of it.
        Some(bytes) => RocksImage { files: Vec::new(), ..RocksImage::decode(&bytes)? },
        None => create(files)?,
    };
    if image.is_made {
        files.open_to_read(CURRENT).map_err(|error| {
            Error::io(format!("opening the file {CURRENT} of RocksDB in {}", directory.display()), error)
        })?;
    } else {
        remove_unmade(files)?;
    }
    copy::remove_left(directory)?;
    let now_unix_secs = Arc::new(AtomicU64::new(0));
    let for_rocksdb = options.for_rocksdb(image.is_made, Arc::clone(&now_unix_secs))?;
    let doing = || format!("opening {}", directory.display());
    let db = DB::open(&for_rocksdb, directory).map_err(|error| failed(&doing(), &error))?;
    if !image.is_made {
        image.is_made = true;
        image.write(files).map_err(|failure| failure.error)?;
    }
    let state = db.get_pinned(STATE).map_err(|error| failed(&doing(), &error))?;
    let (last_sequence, highest_version) =
        state.map_or(Ok((0, 0)), |state| decode_pair(&state, "the state"))?;
    let flushes = read_flushes(&db)?;
    let opened = Opened { db, image, lock, last_sequence, highest_version, flushes };
    Ok(RocksStore::new(opened, directory, options, now_unix_secs))
}

/// A new store: the manifest comes first, so that files of RocksDB without one are damage.
fn create(files: &dyn Files) -> Result<RocksImage> {
    let names = files.list().map_err(|error| Error::io("listing the directory", error))?;
    if let Some(name) = names.iter().find(|name| segment_number(name).is_some() || *name == CURRENT) {
        let missing = io::Error::new(io::ErrorKind::NotFound, format!("it is missing, but there is {name}"));
        return Err(Error::io(format!("opening {MANIFEST}"), missing));
    }
    let image = RocksImage::new();
    image.write(files).map_err(|failure| failure.error)?;
    Ok(image)
}

/// Removes what RocksDB had made when the power went: it may not be whole, and nothing was ever put there.
fn remove_unmade(files: &dyn Files) -> Result<()> {
    let is_of_rocksdb = |name: &String| {
        let begins = ["MANIFEST-", "OPTIONS-", "LOG"].iter().any(|start| name.starts_with(start));
        let ends = [".log", ".sst", ".dbtmp"].iter().any(|end| name.ends_with(end));
        begins || ends || name == CURRENT || name == "IDENTITY"
    };
    for name in files.list().map_err(|error| Error::io("listing the directory", error))? {
        if is_of_rocksdb(&name) {
            files.remove(&name).map_err(|error| Error::io(format!("removing {name}"), error))?;
        }
    }
    Ok(())
}

fn read_flushes(db: &DB) -> Result<FlushTable> {
    let mut table = FlushTable::default();
    visit(db, FLUSH, |key, value| {
        let FlushRecord { prefix, except, version } = decode_flush(value)?;
        table.flush(prefix, FlushMark::by_sequence(sequence_of(key)?, version, except));
        Ok(())
    })?;
    // Those that are there now: a flush has removed its own.
    visit(db, PENDING, |key, value| {
        let (sequence, at_secs) = decode_pair(value, "a delayed flush")?;
        table.delay(key.get(1..).unwrap_or_default(), PendingMark { sequence, at_secs });
        Ok(())
    })?;
    Ok(table)
}

/// Visits all records of a kind, in the order of their keys.
fn visit(db: &DB, kind: u8, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut records = db.raw_iterator_opt(within(kind));
    records.seek([kind]);
    while let Some((key, value)) = records.item() {
        each(key, value)?;
        records.next();
    }
    records.status().map_err(|error| failed("reading flushes", &error))
}

/// Reads of records of one kind.
pub(super) fn within(kind: u8) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound([kind + 1]);
    options
}
