//! The few operations on one directory that a store needs, and who does them: the system ([`DiskFiles`]) or a simulated
//! disk that fails as disks do ([`sim`]).

pub mod disk;
pub(crate) mod memory;
pub mod sim;

use std::io::{self, IoSlice};
use std::sync::Arc;

pub use disk::DiskFiles;

/// One directory.
///
/// What survives power loss: the bytes of a file after its `sync`, and a name (created, renamed, removed) after
/// `sync_dir`. Nothing else is certain.
pub trait Files: Send + Sync {
    /// Makes an empty file. An error if it is there already.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Opens a file to read and write.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Opens a file to read only.
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// The names of all files, in order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// The name of something in the directory, also if it is no file; `None`: it is empty.
    fn any_name(&self) -> io::Result<Option<String>> {
        Ok(self.list()?.into_iter().next())
    }

    /// Gives a file a new name, in place of a file that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Who has the file open can go on reading.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// Takes the lock of this name, until the returned guard is dropped or the process ends. `WouldBlock` if another
    /// has it.
    fn lock(&self, name: &str) -> io::Result<Box<dyn Lock>>;

    /// The directory, for messages.
    fn describe(&self) -> String;
}

/// One file.
pub trait File: Send + Sync {
    /// Writes all pieces, one after the other, from `offset` on.
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Reads until the buffer is full or the file ends. Returns how many bytes were read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The same without waiting for the disk. An error of the kind `WouldBlock` if some of it would have to be read
    /// from there, or if nobody can tell.
    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let _ = (buffer, offset);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Makes the bytes and the length durable.
    fn sync(&self) -> io::Result<()>;

    /// Reserves room for the first `bytes` bytes, and makes the file at least so long.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Cuts the file to this length.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// The file's length.
    fn len(&self) -> io::Result<u64>;

    /// True if the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Reserves room for the first `bytes` bytes of a file, or leaves it as it was: ext4 takes the room that there is
/// before fallocate(2) fails, and nobody else would have any.
pub(crate) fn allocate(file: &dyn File, bytes: u64) -> io::Result<()> {
    let length = file.len()?;
    file.allocate(bytes).inspect_err(|_| {
        let _ = file.truncate(length);
    })
}

/// A held lock.
pub trait Lock: Send + Sync {}
