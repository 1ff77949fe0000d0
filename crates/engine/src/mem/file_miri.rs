//! In Miri: what stands for the file of a cache, since Miri maps none. A map of it is memory of its own, with what the
//! last one left there. So nothing is shared by two maps, and a process ends when all of them are gone; what another
//! finds then, and how it takes that over, is the same.
//!
//! Each thread that opens files has one, whatever they are.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Contents {
    bytes: u64,
    /// By offset: what was mapped or written there.
    parts: BTreeMap<u64, Vec<u8>>,
}

/// A file that this process alone has.
pub(crate) struct BackingFile {
    contents: Arc<Mutex<Contents>>,
}

impl BackingFile {
    pub(crate) fn lock(_: File) -> io::Result<Self> {
        thread_local!(static CONTENTS: RefCell<Arc<Mutex<Contents>>> = RefCell::default());
        Ok(Self { contents: CONTENTS.with_borrow(Arc::clone) })
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.contents().bytes)
    }

    pub(crate) fn set_len_bytes(&self, bytes: u64) -> io::Result<()> {
        let mut contents = self.contents();
        contents.bytes = bytes;
        contents.parts.retain(|offset, _| *offset < bytes);
        Ok(())
    }

    pub(crate) fn available_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        if let Some(part) = self.contents().parts.get(&offset) {
            let bytes = part.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&part[..bytes]);
        }
        Ok(())
    }

    pub(crate) fn write(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let mut contents = self.contents();
        contents.bytes = contents.bytes.max(offset + buffer.len() as u64);
        contents.parts.insert(offset, buffer.to_vec());
        Ok(())
    }

    pub(crate) fn allocate(&self, _: u64, _: u64) -> bool {
        true
    }

    pub(crate) fn punch(&self, _: u64, _: u64) -> bool {
        true
    }

    pub(crate) fn fill_gaps(&self, _: u64, _: u64) -> bool {
        true
    }
}
