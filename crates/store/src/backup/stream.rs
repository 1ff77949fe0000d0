//! A backup as one stream: a tar archive (POSIX ustar) of its files.
//!
//! First the segments, then `MANIFEST`, last `SHA256SUMS`: a line of digest, two blanks and name for each file before
//! it, in their order. Two empty blocks end it. A stream without that is cut. `tar -x` makes of it the directory that a
//! backup in place would be, and `sha256sum -c SHA256SUMS` verifies it.

mod receive;
mod send;

use std::fmt::Write as _;
use std::io::{Read, Write};

use super::{Manifest, Restoring, finish};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::log::manifest::MANIFEST;
use crate::store::Store;

/// Writes a backup of the store to `output`, while others append and read.
///
/// After an error the stream is cut, and can be told from a whole one.
pub fn backup_stream(
    store: &dyn Store,
    output: impl Write + Send + 'static,
    unix_secs: u64,
) -> Result<Manifest> {
    let files = send::StreamFiles::new(output, unix_secs);
    let manifest = store.backup(&files, None)?;
    files.end().map_err(|error| Error::io("writing the stream", error))?;
    Ok(manifest)
}

/// What a stream has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// Files of the backup, its manifest among them.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Reads a stream to its end, and verifies that it is whole.
///
/// Errors: `Corrupt`, with the byte of the stream, if it is cut, damaged or no backup.
pub fn verify_stream(input: &mut dyn Read) -> Result<StreamReport> {
    let received = receive::receive(input, &mut |_| Ok(None))?;
    let bytes = received.files.iter().map(|file| file.bytes).sum();
    Ok(StreamReport { files: received.files.len() as u64, bytes })
}

/// Makes a store of a streamed backup, in an empty directory.
///
/// The stream is not trusted: it makes plain files in this directory only, replaces none, and takes bounded memory.
/// After an error none of its files is left. Until it has ended, nobody can open the directory.
///
/// Errors: `Corrupt`, with the byte of the stream, if it is cut, damaged or no backup; `Invalid` if the directory has a
/// store, `NotEmpty` if it has other files.
pub fn restore_stream(input: &mut dyn Read, target: &dyn Files) -> Result<Manifest> {
    let restoring = Restoring::begin(target)?;
    let received = receive::receive(input, &mut |name| restoring.create(name).map(Some))?;
    let mut manifest = Manifest::decode(&received.manifest)?;
    let has = |file: &super::BackupFile| {
        received.files.iter().any(|known| (&known.name, known.bytes) == (&file.name, file.bytes))
    };
    // What an incremental backup has not, and somebody has made a stream of, is elsewhere.
    if manifest.files().count() + 1 != received.files.len() || !manifest.files().all(|file| has(&file)) {
        return Err(Error::corrupt(MANIFEST, 0, "it is not about the files of this stream"));
    }
    manifest.begin_new_line();
    finish(&manifest, target)?;
    restoring.end();
    Ok(manifest)
}

/// A file of a stream.
struct StreamFile {
    name: String,
    bytes: u64,
    sha256: [u8; 32],
}

/// The content of [`SUMS`], as sha256sum writes it.
fn sums(files: &[StreamFile]) -> String {
    let mut text = String::new();
    for file in files {
        file.sha256.iter().for_each(|byte| {
            let _ = write!(text, "{byte:02x}");
        });
        text.push_str("  ");
        text.push_str(&file.name);
        text.push('\n');
    }
    text
}

/// The zeros behind a file.
fn padding_bytes(file_bytes: u64) -> usize {
    ((BLOCK_BYTES as u64 - file_bytes % BLOCK_BYTES as u64) % BLOCK_BYTES as u64) as usize
}

/// How errors call a stream.
const STREAM: &str = "the stream";
const SUMS: &str = "SHA256SUMS";
const BLOCK_BYTES: usize = 512;
