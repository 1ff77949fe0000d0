//! A directory of the system.
//!
//! Every change goes through a function of the C library, of `std` or `nix`: so a preloaded library sees all of them,
//! which records what power loss may leave (`conformance/powerloss`). `rustix` would call the kernel directly.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::uio::pwritev;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{ReadWriteFlags, preadv2};

use super::{File, Files, Lock};

/// Values are for the owner alone, whatever the umask is.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// A directory of the system.
#[derive(Debug)]
pub struct DiskFiles {
    dir: PathBuf,
    /// Open as long as this lives: making names durable must not depend on a free descriptor.
    opened: fs::File,
}

impl DiskFiles {
    /// Of this directory, which is made if it is missing (and its own name made durable), for its owner alone.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let dir = dir.into();
        if !dir.is_dir() {
            if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                // Whoever serves may be another user than who makes them, and has to get through.
                fs::create_dir_all(parent)?;
            }
            match fs::DirBuilder::new().mode(DIR_MODE).create(&dir) {
                // Another process was quicker.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                made => made?,
            }
            // Every ancestor whose entry may be new. One that may not be read needs no sync: we could not make it.
            for ancestor in dir.ancestors().skip(1) {
                let ancestor = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
                match fs::File::open(ancestor) {
                    Ok(opened) => opened.sync_all()?,
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
                    Err(error) => return Err(error),
                }
            }
        }
        let opened = fs::File::open(&dir)?;
        Ok(Self { dir, opened })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Opens a file that is there. Errors: also if it is none: to open a FIFO would wait for its writer, and a device
    /// may never end.
    fn open_regular(&self, name: &str, options: &mut fs::OpenOptions) -> io::Result<fs::File> {
        let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(self.path(name))?;
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
        }
    }
}

impl Files for DiskFiles {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut options = fs::File::options();
        let file = options.read(true).write(true).create_new(true).mode(FILE_MODE).open(self.path(name))?;
        Ok(Arc::new(DiskFile { file }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.open_regular(name, fs::File::options().read(true).write(true))?;
        Ok(Arc::new(DiskFile { file }))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.open_regular(name, fs::File::options().read(true))?;
        Ok(Arc::new(DiskFile { file }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn any_name(&self) -> io::Result<Option<String>> {
        let first = fs::read_dir(&self.dir)?.next().transpose()?;
        Ok(first.map(|entry| entry.file_name().to_string_lossy().into_owned()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.opened.sync_all()
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn Lock>> {
        let mut options = fs::File::options();
        let file = self.open_regular(
            name,
            options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE),
        )?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(DiskLock { _file: file }))
    }

    fn describe(&self) -> String {
        self.dir.display().to_string()
    }
}

struct DiskFile {
    file: fs::File,
}

impl File for DiskFile {
    fn write_at(&self, pieces: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        // A call takes at most 1,024 pieces (IOV_MAX), and may write a part.
        let mut pieces = pieces;
        let mut written_of_first = 0;
        while let Some(first) = pieces.first() {
            if written_of_first == first.len() {
                pieces = &pieces[1..];
                written_of_first = 0;
                continue;
            }
            let result = if written_of_first > 0 {
                self.file.write_at(&first[written_of_first..], offset)
            } else {
                let at = i64::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
                pwritev(&self.file, &pieces[..pieces.len().min(1024)], at).map_err(io::Error::from)
            };
            let mut written = match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            offset += written as u64;
            written += written_of_first;
            written_of_first = 0;
            while let Some(first) = pieces.first() {
                if written < first.len() {
                    written_of_first = written;
                    break;
                }
                written -= first.len();
                pieces = &pieces[1..];
            }
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let mut rest = [IoSliceMut::new(&mut buffer[filled..])];
            match preadv2(&self.file, &mut rest, offset + filled as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(rustix::io::Errno::INTR) => {}
                // Not every file system can (`OPNOTSUPP`), nor every kernel.
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let length = i64::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if length == 0 {
            return Ok(());
        }
        let mut result = Err(Errno::EINTR);
        while result == Err(Errno::EINTR) {
            result = fallocate(&self.file, FallocateFlags::empty(), 0, length);
        }
        match result {
            // Some file systems reserve nothing in advance; then a write may find the disk full.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) if self.len()? < bytes => self.file.set_len(bytes),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// An advisory lock of the whole file (flock): ends with the process, however it ends.
struct DiskLock {
    _file: fs::File,
}

impl Lock for DiskLock {}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// The process has no descriptor left, and a sync that was never tried does not count as failed.
    #[test]
    fn names_are_made_durable_without_another_descriptor() {
        let folder = std::env::temp_dir().join(format!("larder-disk-names-{}", std::process::id()));
        let files = DiskFiles::open(&folder).expect("a directory");
        files.create("made").expect("creates");
        // The directory's name is not even looked up again.
        fs::rename(&folder, folder.with_extension("moved")).expect("renames");
        let synced = files.sync_dir();
        fs::remove_dir_all(folder.with_extension("moved")).expect("removes");
        synced.expect("syncs");
    }

    #[test]
    fn what_is_made_is_for_its_owner_alone() {
        let folder = std::env::temp_dir().join(format!("larder-disk-{}", std::process::id()));
        let dir = folder.join("store");
        let files = DiskFiles::open(&dir).expect("a directory");
        files.create("made").expect("creates");
        let _lock = files.lock("locked").expect("locks");
        let mode = |path: &Path| fs::metadata(path).expect("is there").mode() & 0o777;
        let modes = [mode(&dir), mode(&dir.join("made")), mode(&dir.join("locked"))];
        fs::remove_dir_all(&folder).expect("removes");
        assert_eq!(modes, [0o700, 0o600, 0o600]);
    }
}
