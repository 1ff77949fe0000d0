//! Backups: the files of a state, copied while the store serves.

use std::io::IoSlice;

use crate::error::{Error, Result};
use crate::files::{File, Files};
use crate::log::manifest::{MANIFEST, ManifestImage, sync_dir};
use crate::log::segment::{NUMBER_MAX, segment_name};

/// How much is copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What a backup consists of. Sealed segments never change, so a later backup copies only those that this one has not.
///
/// It stands in the backup itself, in the file `MANIFEST`.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub(crate) image: ManifestImage,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// It never changes.
    pub is_sealed: bool,
}

impl Manifest {
    /// Of the backup in this directory; `None` if there is none, or one that did not end.
    pub fn read(files: &dyn Files) -> Result<Option<Self>> {
        Ok(ManifestImage::read(files)?.map(|image| Self { image }))
    }

    /// The files of the state, whether this backup copied them or an earlier one has them.
    pub fn files(&self) -> impl Iterator<Item = BackupFile> + '_ {
        self.image.segments.iter().map(|segment| BackupFile {
            name: segment_name(segment.number),
            bytes: if segment.sealed { segment.file_bytes } else { segment.data_bytes },
            is_sealed: segment.sealed,
        })
    }

    /// Up to which sequence number the state goes.
    pub fn last_sequence(&self) -> u64 {
        self.image.last_sequence
    }

    /// Has this backup, or the ones that it follows, the sealed file?
    pub(crate) fn has(&self, other: &ManifestImage, file: &BackupFile) -> bool {
        self.image.secret == other.secret && file.is_sealed && self.files().any(|known| known == *file)
    }
}

/// Makes a store of a backup in an empty directory. `backups`: the one to restore first, then those that it follows.
///
/// Errors: `Corrupt` if a file is in none of them; `Invalid` if the directory has a store.
pub fn restore(backups: &[&dyn Files], target: &dyn Files) -> Result<Manifest> {
    let missing = |name: &str| Error::corrupt(name, 0, "the file is missing from the backups");
    let first = backups.first().ok_or_else(|| missing(MANIFEST))?;
    let mut manifest = Manifest::read(*first)?.ok_or_else(|| missing(MANIFEST))?;
    if Manifest::read(target)?.is_some() {
        return Err(Error::Invalid { what: "the directory to restore to has a store already" });
    }
    for file in manifest.files() {
        let found = backups.iter().find_map(|backup| {
            let opened = backup.open_to_read(&file.name).ok()?;
            (opened.len().ok()? == file.bytes).then_some(opened)
        });
        copy(&*found.ok_or_else(|| missing(&file.name))?, file.bytes, target, &file.name)?;
    }
    // The store and the one that it was copied from go different ways now: no file of one may pass for the other's.
    manifest.image.next_number =
        (manifest.image.next_number + fastrand::u64(1 << 20..1 << 40)).min(NUMBER_MAX + 1);
    finish(&manifest.image, target)?;
    Ok(manifest)
}

/// Makes the copied files a state.
pub(crate) fn finish(image: &ManifestImage, target: &dyn Files) -> Result<()> {
    sync_dir(target).map_err(|error| Error::io("fsync of the target directory", error))?;
    image.write(target).map_err(|failure| failure.error)
}

/// Copies the first bytes of a file, durably.
pub(crate) fn copy(from: &dyn File, bytes: u64, target: &dyn Files, name: &str) -> Result<()> {
    let failed = |error| Error::io(format!("copying {name}"), error);
    let file = target.create(name).map_err(failed)?;
    let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
    let mut at = 0;
    while at < bytes {
        let length = piece.len().min((bytes - at) as usize);
        let count = from.read_at(&mut piece[..length], at).map_err(failed)?;
        if count < length {
            return Err(Error::corrupt(name, at + count as u64, "the file is too short"));
        }
        file.write_at(&[IoSlice::new(&piece[..length])], at).map_err(failed)?;
        at += length as u64;
    }
    file.sync().map_err(failed)
}
