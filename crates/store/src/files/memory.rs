//! A file in memory alone, for data that the disk no longer takes.

use std::io::{self, IoSlice};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::File;

/// A file that nobody else sees, and that ends with the process.
#[derive(Default)]
pub(crate) struct MemoryFile {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryFile {
    fn read(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<u8>> {
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File for MemoryFile {
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut bytes = self.write();
        let mut at = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = at + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        for piece in pieces {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.read();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let count = buffer.len().min(bytes.len() - from);
        buffer[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.write().truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.read().len() as u64)
    }
}
