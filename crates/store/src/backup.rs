//! Backups: the files of a state, copied while the store serves.

mod stream;

use std::cell::RefCell;
use std::io::IoSlice;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::files::{File, Files};
use crate::log::manifest::{MANIFEST, ManifestImage, RESTORING, sync_dir};
use crate::log::segment::{NUMBER_MAX, segment_name};

pub use stream::{StreamReport, backup_stream, restore_stream, verify_stream};

/// How much is copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What a backup consists of. Sealed files never change, so a later backup copies only those that this one has not.
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

    fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(Self { image: ManifestImage::decode(bytes)? })
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

    /// Of a restored store: it and the one that it was copied from go different ways now, and no file of one may pass
    /// for the other's.
    fn begin_new_line(&mut self) {
        let ManifestImage { next_number, incarnation, .. } = &mut self.image;
        *next_number = (*next_number + fastrand::u64(1 << 20..1 << 40)).min(NUMBER_MAX + 1);
        *incarnation = fastrand::u64(1..);
    }

    /// Has this backup, or the ones that it follows, the sealed file of the other?
    pub(crate) fn has(&self, other: &Self, file: &BackupFile) -> bool {
        let is_of_one_store = self.image.secret == other.image.secret;
        is_of_one_store && file.is_sealed && self.files().any(|known| known == *file)
    }
}

/// Makes a store of a backup in an empty directory. `backups`: the one to restore first, then those that it follows.
///
/// After an error none of its files is left. Until it has ended, nobody can open the directory.
///
/// Errors: `Corrupt` if a file is in none of them; `Invalid` if the directory has a store, `NotEmpty` if it has other
/// files.
pub fn restore(backups: &[&dyn Files], target: &dyn Files) -> Result<Manifest> {
    let missing = |name: &str| Error::corrupt(name, 0, "the file is missing from the backups");
    let first = backups.first().ok_or_else(|| missing(MANIFEST))?;
    let mut manifest = Manifest::read(*first)?.ok_or_else(|| missing(MANIFEST))?;
    let restoring = Restoring::begin(target)?;
    for file in manifest.files() {
        let found = backups.iter().find_map(|backup| {
            let opened = backup.open_to_read(&file.name).ok()?;
            (opened.len().ok()? == file.bytes).then_some(opened)
        });
        let copied = restoring.create(&file.name)?;
        copy(&*found.ok_or_else(|| missing(&file.name))?, file.bytes, &*copied, &file.name)?;
    }
    manifest.begin_new_line();
    finish(&manifest, target)?;
    restoring.end();
    Ok(manifest)
}

/// A restore that has not ended. Meanwhile the directory has a manifest that nobody can open; if the restore fails,
/// what it has made goes.
struct Restoring<'t> {
    target: &'t dyn Files,
    /// Names of its files; empty once it has ended.
    created: RefCell<Vec<String>>,
}

impl<'t> Restoring<'t> {
    fn begin(target: &'t dyn Files) -> Result<Self> {
        if Manifest::read(target)?.is_some() {
            return Err(Error::Invalid { what: "the directory to restore to has a store already" });
        }
        // What the manifest does not name would go when the store is opened.
        let found = target.any_name().map_err(|error| Error::io("listing the target directory", error))?;
        if let Some(file) = found {
            return Err(Error::NotEmpty { file });
        }
        let restoring = Self { target, created: RefCell::default() };
        let marker = restoring.create(MANIFEST)?;
        let failed = |error| Error::io("writing MANIFEST", error);
        marker.write_at(&[IoSlice::new(RESTORING)], 0).and_then(|()| marker.sync()).map_err(failed)?;
        sync_dir(target).map_err(|error| Error::io("fsync of the target directory", error))?;
        Ok(restoring)
    }

    /// Makes a file; an error if it is there already.
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let file = self.target.create(name).map_err(|error| Error::io(format!("creating {name}"), error))?;
        self.created.borrow_mut().push(name.to_owned());
        Ok(file)
    }

    fn end(self) {
        self.created.borrow_mut().clear();
    }
}

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        // The manifest, which is the first, last: until then nobody can open what is left.
        for name in self.created.get_mut().iter().rev() {
            let _ = self.target.remove(name);
        }
    }
}

/// Makes the copied files a state.
pub(crate) fn finish(manifest: &Manifest, target: &dyn Files) -> Result<()> {
    sync_dir(target).map_err(|error| Error::io("fsync of the target directory", error))?;
    manifest.image.write(target).map_err(|failure| failure.error)
}

/// Copies the first bytes of a file to a new one, durably.
pub(crate) fn copy(from: &dyn File, bytes: u64, to: &dyn File, name: &str) -> Result<()> {
    let failed = |error| Error::io(format!("copying {name}"), error);
    // A disk without room is found out now, and a stream has to know the length.
    to.allocate(bytes).map_err(failed)?;
    let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
    let mut at = 0;
    while at < bytes {
        let length = piece.len().min((bytes - at) as usize);
        let count = from.read_at(&mut piece[..length], at).map_err(failed)?;
        if count < length {
            return Err(Error::corrupt(name, at + count as u64, "the file is too short"));
        }
        to.write_at(&[IoSlice::new(&piece[..length])], at).map_err(failed)?;
        at += length as u64;
    }
    to.sync().map_err(failed)
}
