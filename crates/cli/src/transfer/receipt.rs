//! The file of `larder dump --to` with the keys moved so far, to continue after an interruption.
//!
//! `larder-progress 1 SERVERS`, then a line for each key that was stored there, in the format of a dump.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::record::{read_key, write_key};
use super::resume::Kept;
use crate::Failure;

/// The file while items are being moved.
pub(crate) struct Receipt {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Receipt {
    /// Opens the file with its keys, or creates it. `servers` are the new servers. Errors: it is for other servers, or
    /// is another kind of file.
    pub(crate) fn open(path: &Path, servers: &str) -> Result<(Self, Kept), Failure> {
        let refuse = |error: io::Error| Failure::Failed(format!("{}: {error}", path.display()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(refuse)?;
        let mut receipt = Self { path: path.to_owned(), out: BufWriter::new(file) };
        let kept = receipt.read(servers)?;
        Ok((receipt, kept))
    }

    /// Records keys that have been stored. They are in the file when this returns.
    pub(crate) fn note<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> Result<(), Failure> {
        for key in keys {
            let written = write_key(&mut self.out, key).and_then(|()| self.out.write_all(b"\n"));
            written.map_err(|error| self.refuse(&error))?;
        }
        self.out.flush().map_err(|error| self.refuse(&error))
    }

    /// Removes the file: all items have been moved.
    pub(crate) fn discard(self) -> Result<(), Failure> {
        fs::remove_file(&self.path).map_err(|error| self.refuse(&error))
    }

    /// Reads the file, removes an incomplete line, and begins an empty file.
    fn read(&mut self, servers: &str) -> Result<Kept, Failure> {
        let mut kept = Kept::nothing();
        let heading = format!("{HEADING}{servers}");
        let mut whole_bytes = 0;
        let mut lines = BufReader::new(self.out.get_ref());
        let mut line = Vec::new();
        loop {
            line.clear();
            let bytes = lines.read_until(b'\n', &mut line).map_err(|error| self.refuse(&error))?;
            let Some((b'\n', text)) = line.split_last() else { break };
            match std::str::from_utf8(text) {
                Ok(text) if whole_bytes == 0 && text == heading => {}
                Ok(text) if whole_bytes == 0 && text.starts_with(HEADING) => {
                    let others = &text[HEADING.len()..];
                    let why = format!("{}: this is of a dump to {others}", self.path.display());
                    return Err(Failure::Usage(why));
                }
                Ok(text) if whole_bytes > 0 => kept.add(&read_key(text).ok_or_else(|| self.malformed())?),
                _ => return Err(self.malformed()),
            }
            whole_bytes += bytes as u64;
        }
        // A file with an incomplete heading may be something else, so it is not overwritten.
        if whole_bytes == 0 && !heading.as_bytes().starts_with(&line) {
            return Err(self.malformed());
        }
        let file = self.out.get_mut();
        let cut = file.set_len(whole_bytes).and_then(|()| file.seek(SeekFrom::Start(whole_bytes)));
        cut.map_err(|error| self.refuse(&error))?;
        if whole_bytes == 0 {
            writeln!(self.out, "{heading}")
                .and_then(|()| self.out.flush())
                .map_err(|error| self.refuse(&error))?;
        }
        Ok(kept)
    }

    fn refuse(&self, error: &io::Error) -> Failure {
        Failure::Failed(format!("{}: {error}", self.path.display()))
    }

    fn malformed(&self) -> Failure {
        Failure::Data(format!("{}: this is not the progress of a dump", self.path.display()))
    }
}

const HEADING: &str = "larder-progress 1 ";
