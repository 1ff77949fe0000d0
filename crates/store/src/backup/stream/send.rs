//! Writing a stream.

use std::collections::HashMap;
use std::io::{self, IoSlice, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::{BLOCK_BYTES, SUMS, StreamFile, padding_bytes, sums};
use crate::files::{File, Files, Lock};

/// A directory whose files go into a stream, one after the other. A file whose length is announced (`allocate`) goes
/// there as it is written, forward; another, which is short, when it is renamed.
pub(super) struct StreamFiles<W> {
    archive: Arc<Mutex<Archive<W>>>,
}

struct Archive<W> {
    output: W,
    unix_secs: u64,
    sent: Vec<StreamFile>,
    /// The file of which not all was sent.
    current: Option<Current>,
    /// Files whose length nobody announced.
    short: HashMap<String, Vec<u8>>,
}

struct Current {
    name: String,
    bytes: u64,
    sent_bytes: u64,
    digest: Sha256,
}

impl<W: Write + Send + 'static> StreamFiles<W> {
    pub(super) fn new(output: W, unix_secs: u64) -> Self {
        let (sent, short) = (Vec::new(), HashMap::new());
        let archive = Archive { output, unix_secs, sent, current: None, short };
        Self { archive: Arc::new(Mutex::new(archive)) }
    }

    /// Writes the checksums, and the end.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut archive = lock(&self.archive);
        let sums = sums(&archive.sent);
        archive.send(SUMS, sums.as_bytes())?;
        archive.output.write_all(&[0; 2 * BLOCK_BYTES])?;
        archive.output.flush()
    }
}

fn lock<W>(archive: &Mutex<Archive<W>>) -> MutexGuard<'_, Archive<W>> {
    archive.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W: Write> Archive<W> {
    fn begin(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        if self.current.is_some() {
            return Err(not_forward());
        }
        let mut header = Header::new_ustar();
        header.set_path(name)?;
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.unix_secs);
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        self.output.write_all(header.as_bytes())?;
        let digest = Sha256::new();
        self.current = Some(Current { name: name.to_owned(), bytes, sent_bytes: 0, digest });
        self.end_file_if_sent()
    }

    fn write(&mut self, name: &str, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        if let Some(content) = self.short.get_mut(name) {
            if offset != content.len() as u64 {
                return Err(not_forward());
            }
            pieces.iter().for_each(|piece| content.extend_from_slice(piece));
            return Ok(());
        }
        let current = self.current.as_mut().filter(|current| current.name == name).ok_or_else(not_forward)?;
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if offset != current.sent_bytes || bytes > current.bytes - current.sent_bytes {
            return Err(not_forward());
        }
        for piece in pieces {
            current.digest.update(&**piece);
            self.output.write_all(piece)?;
        }
        current.sent_bytes += bytes;
        self.end_file_if_sent()
    }

    fn end_file_if_sent(&mut self) -> io::Result<()> {
        let Some(file) = self.current.take_if(|current| current.sent_bytes == current.bytes) else {
            return Ok(());
        };
        self.output.write_all(&[0; BLOCK_BYTES][..padding_bytes(file.bytes)])?;
        let sha256 = file.digest.finalize().into();
        self.sent.push(StreamFile { name: file.name, bytes: file.bytes, sha256 });
        Ok(())
    }

    fn send(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.begin(name, content.len() as u64)?;
        if content.is_empty() { Ok(()) } else { self.write(name, &[IoSlice::new(content)], 0) }
    }
}

fn not_forward() -> io::Error {
    io::Error::other("a stream takes one file after the other, each written forward and as long as announced")
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a stream is only written")
}

impl<W: Write + Send + 'static> Files for StreamFiles<W> {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        lock(&self.archive).short.insert(name.to_owned(), Vec::new());
        Ok(Arc::new(FileOfStream { name: name.to_owned(), archive: Arc::clone(&self.archive) }))
    }

    fn open(&self, _: &str) -> io::Result<Arc<dyn File>> {
        Err(unsupported())
    }

    fn open_to_read(&self, _: &str) -> io::Result<Arc<dyn File>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.archive).sent.iter().map(|file| file.name.clone()).collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut archive = lock(&self.archive);
        let content = archive.short.remove(from).ok_or(io::ErrorKind::NotFound)?;
        archive.send(to, &content)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.archive).short.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _: &str) -> io::Result<Box<dyn Lock>> {
        Err(unsupported())
    }

    fn describe(&self) -> String {
        super::STREAM.to_owned()
    }
}

struct FileOfStream<W> {
    name: String,
    archive: Arc<Mutex<Archive<W>>>,
}

impl<W: Write + Send> File for FileOfStream<W> {
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        lock(&self.archive).write(&self.name, pieces, offset)
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(unsupported())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut archive = lock(&self.archive);
        // Announced once, before anything is written.
        archive.short.remove(&self.name).filter(Vec::is_empty).ok_or_else(not_forward)?;
        archive.begin(&self.name, bytes)
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn len(&self) -> io::Result<u64> {
        Err(unsupported())
    }
}
