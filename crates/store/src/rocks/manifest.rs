//! The file `MANIFEST` of a store that RocksDB keeps: that it is one, and which files a backup has.
//!
//! The log has a file of the same name, so that each engine refuses the other's directory. RocksDB's own files have
//! other names (`MANIFEST-000001`).

use std::collections::BTreeSet;

use crate::backup::BackupFile;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::log::bytes::Bytes;
use crate::log::digest::Secret;
use crate::log::manifest::{MANIFEST, WriteFailure, write_bytes};

pub(crate) const MAGIC: &[u8; 8] = b"LARDRRKS";
/// What only RocksDB makes: a directory that has it and no `MANIFEST` is a damaged store.
pub(crate) const CURRENT: &str = "CURRENT";
/// A store with another major number, or a higher minor one, is refused.
const FORMAT: (u16, u16) = (1, 0);

/// What the file says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RocksImage {
    /// Of the store and its backups: only files of one store can stand for each other.
    pub(crate) id: Secret,
    /// RocksDB has made its files: if they are missing, something was lost.
    pub(crate) is_made: bool,
    /// Of a backup: the last entry in it.
    pub(crate) last_sequence: u64,
    /// Of a backup: all files of RocksDB. Each name is that of a file in the directory itself, and there once.
    pub(crate) files: Vec<BackupFile>,
}

impl RocksImage {
    /// Of a store that is to be made.
    #[cfg(feature = "rocksdb")]
    pub(super) fn new() -> Self {
        Self { id: random_id(), is_made: false, last_sequence: 0, files: Vec::new() }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.0.to_le_bytes());
        out.extend_from_slice(&FORMAT.1.to_le_bytes());
        out.extend_from_slice(&self.id.0);
        out.push(u8::from(self.is_made));
        out.extend_from_slice(&self.last_sequence.to_le_bytes());
        out.extend_from_slice(&(self.files.len() as u32).to_le_bytes());
        for file in &self.files {
            out.extend_from_slice(&(file.name.len() as u16).to_le_bytes());
            out.extend_from_slice(file.name.as_bytes());
            out.extend_from_slice(&file.bytes.to_le_bytes());
            out.push(u8::from(file.is_sealed));
        }
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Error::corrupt(MANIFEST, 0, what);
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged("it is too short"))?;
        let mut body = Bytes(body);
        match body.take(8) {
            Some(magic) if magic == MAGIC => {}
            Some(magic) if magic == crate::log::manifest::MAGIC => {
                return Err(Error::OtherEngine { found: "log", wanted: "rocksdb" });
            }
            _ => return Err(damaged("it does not begin as a manifest does")),
        }
        let (Some(major), Some(minor)) = (body.u16(), body.u16()) else {
            return Err(damaged("it is too short"));
        };
        if crc32c::crc32c(&bytes[..bytes.len() - 4]) != u32::from_le_bytes(*checksum) {
            return Err(damaged("its checksum does not match"));
        }
        if major != FORMAT.0 || minor > FORMAT.1 {
            let format = format!("{major}.{minor}");
            return Err(Error::NewerFormat { file: MANIFEST.to_owned(), format });
        }
        Self::decode_body(&mut body).ok_or_else(|| damaged("it is cut short, or says too much"))
    }

    fn decode_body(body: &mut Bytes<'_>) -> Option<Self> {
        let mut id = [0; 16];
        id.copy_from_slice(body.take(16)?);
        let (is_made, last_sequence) = (body.u8()? == 1, body.u64()?);
        let mut files = Vec::new();
        let mut names = BTreeSet::new();
        for _ in 0..body.u32()? {
            let length = usize::from(body.u16()?);
            let name = std::str::from_utf8(body.take(length)?).ok()?.to_owned();
            if !is_plain(&name) || !names.insert(name.clone()) {
                return None;
            }
            files.push(BackupFile { name, bytes: body.u64()?, is_sealed: body.u8()? == 1 });
        }
        body.0.is_empty().then_some(Self { id: Secret(id), is_made, last_sequence, files })
    }

    pub(crate) fn write(&self, files: &dyn Files) -> std::result::Result<(), WriteFailure> {
        write_bytes(files, &self.encode())
    }
}

/// Of another store than any before.
pub(crate) fn random_id() -> Secret {
    Secret::random()
}

/// A manifest may come from anywhere: a name must not lead out of the directory, nor to what the store itself makes.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.bytes().all(is_plain) && !name.starts_with('.') && !["", MANIFEST, "LOCK"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str) -> RocksImage {
        let file = |name: &str| BackupFile { name: name.to_owned(), bytes: 9, is_sealed: true };
        RocksImage {
            id: Secret([3; 16]),
            is_made: true,
            last_sequence: 77,
            files: vec![file("a"), file(name)],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let image = image("000012.sst");
        let bytes = image.encode();
        assert_eq!(RocksImage::decode(&bytes).expect("decodes"), image);
        for length in 0..bytes.len() {
            assert!(RocksImage::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for name in ["", ".", "..", "../etc", "/etc/passwd", "a/b", "MANIFEST", "LOCK", "a\0b"] {
            let error = RocksImage::decode(&image(name).encode()).expect_err("a name that must not be");
            assert!(matches!(error, Error::Corrupt { .. }), "{name:?}: {error}");
        }
    }
}
