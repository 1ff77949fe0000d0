//! Backups: RocksDB's checkpoint, whose files are copied while the store serves.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use rocksdb::checkpoint::Checkpoint;

use super::manifest::RocksImage;
use super::store::{RocksStore, failed};
use crate::backup::{self, BackupFile, Image, Manifest};
use crate::error::{Error, Result};
use crate::files::{DiskFiles, Files};

pub(super) fn backup(store: &RocksStore, target: &dyn Files, since: Option<&Manifest>) -> Result<Manifest> {
    let _backup = store.backup.lock().unwrap_or_else(PoisonError::into_inner);
    remove_left(&store.directory)?;
    let path = checkpoint_path(&store.directory);
    let copied = check_point(store, &path).and_then(|last_sequence| {
        let doing = || format!("reading {}", path.display());
        let files = DiskFiles::open(&path).map_err(|error| Error::io(doing(), error))?;
        copy(store, &files, last_sequence, target, since)
    });
    let removed = remove_left(&store.directory);
    let manifest = copied?;
    removed.map(|()| manifest)
}

/// Makes the checkpoint. Returns the last sequence in it.
fn check_point(store: &RocksStore, path: &Path) -> Result<u64> {
    // Most of what is in memory is written before the appender has to wait.
    if !store.read_only.is_set() {
        store.db.flush().map_err(|error| store.write_failed("taking a backup", &error))?;
    }
    let _appender = store.appender();
    let checkpoint = Checkpoint::new(&store.db).map_err(|error| failed("taking a backup", &error))?;
    checkpoint.create_checkpoint(path).map_err(|error| failed("taking a backup", &error))?;
    Ok(store.last_sequence.load(Relaxed))
}

fn copy(
    store: &RocksStore,
    from: &DiskFiles,
    last_sequence: u64,
    target: &dyn Files,
    since: Option<&Manifest>,
) -> Result<Manifest> {
    let reading = |error| Error::io(format!("reading {}", from.describe()), error);
    let mut opened = Vec::new();
    let mut image = RocksImage { last_sequence, ..store.image.clone() };
    for name in from.list().map_err(reading)? {
        let file = from.open_to_read(&name).map_err(reading)?;
        let bytes = file.len().map_err(reading)?;
        image.files.push(BackupFile { is_sealed: name.ends_with(".sst"), name, bytes });
        opened.push(file);
    }
    let manifest = Manifest { image: Image::Rocks(image) };
    for (file, from) in manifest.files().zip(opened) {
        if !since.is_some_and(|since| since.has(&manifest, &file)) {
            let failed = |error| Error::io(format!("creating {}", file.name), error);
            let copied = target.create(&file.name).map_err(failed)?;
            backup::copy(&*from, file.bytes, &*copied, &file.name)?;
        }
    }
    backup::finish(&manifest, target)?;
    Ok(manifest)
}

/// Its tables are links to those of the store.
fn checkpoint_path(directory: &Path) -> PathBuf {
    directory.join("checkpoint")
}

/// Removes what a backup left that did not end.
pub(super) fn remove_left(directory: &Path) -> Result<()> {
    for path in [checkpoint_path(directory), directory.join("checkpoint.tmp")] {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format!("removing {}", path.display()), error));
            }
            _ => {}
        }
    }
    Ok(())
}
