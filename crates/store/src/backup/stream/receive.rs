//! Reading a stream that nobody vouches for.

use std::io::{self, IoSlice, Read};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::{BLOCK_BYTES, STREAM, SUMS, StreamFile, padding_bytes, sums};
use crate::backup::PIECE_BYTES;
use crate::error::{Error, Result};
use crate::files::File;
use crate::log::manifest::{FILE_BYTES_MAX as MANIFEST_BYTES_MAX, MANIFEST};

/// A whole stream.
pub(super) struct Received {
    /// The manifest is the last one.
    pub(super) files: Vec<StreamFile>,
    pub(super) manifest: Vec<u8>,
}

/// Makes the file of this name, or says that its bytes are not needed.
type Create<'c> = dyn FnMut(&str) -> Result<Option<Arc<dyn File>>> + 'c;

/// Reads a stream to its end. Each file but the manifest is written to what `create` returns, if anything, and made
/// durable.
pub(super) fn receive(input: &mut dyn Read, create: &mut Create<'_>) -> Result<Received> {
    let mut input = Input { input, at: 0, piece: vec![0; PIECE_BYTES] };
    let mut files = Vec::new();
    loop {
        let began_at = input.at;
        let damaged = |what: &str| Error::corrupt(STREAM, began_at, what);
        let (name, bytes) = input.header()?;
        match &name[..] {
            MANIFEST if bytes > MANIFEST_BYTES_MAX => return Err(damaged("its MANIFEST is too long")),
            MANIFEST => {
                let mut manifest = Vec::new();
                files.push(input.file(name, bytes, &mut |piece, _| {
                    manifest.extend_from_slice(piece);
                    Ok(())
                })?);
                input.sums(&files)?;
                input.end()?;
                return Ok(Received { files, manifest });
            }
            SUMS => return Err(damaged("its MANIFEST is missing")),
            _ if files.len() == FILES_MAX => return Err(damaged("it has too many files")),
            _ => {}
        }
        let file = create(&name)?;
        let failed = |error| Error::io(format!("writing {name}"), error);
        let received = input.file(name.clone(), bytes, &mut |piece, at| {
            file.as_ref().map_or(Ok(()), |file| file.write_at(&[IoSlice::new(piece)], at)).map_err(failed)
        })?;
        file.map_or(Ok(()), |file| file.sync()).map_err(failed)?;
        files.push(received);
    }
}

struct Input<'i> {
    input: &'i mut dyn Read,
    /// Bytes that were read.
    at: u64,
    piece: Vec<u8>,
}

impl Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.input.read(buffer) {
                Ok(count) => {
                    self.at += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("reading the stream", error)),
            }
        }
    }

    fn fill(&mut self, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer)? {
                0 => return Err(Error::corrupt(STREAM, self.at, "it is cut: it ends here")),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(())
    }

    /// Name and length of the next file.
    fn header(&mut self) -> Result<(String, u64)> {
        let at = self.at;
        let damaged = |what: &str| Error::corrupt(STREAM, at, what);
        let mut header = Header::new_ustar();
        self.fill(header.as_mut_bytes())?;
        let mut summed = header.clone();
        summed.set_cksum();
        if header.as_ustar().is_none() || header.cksum().ok() != summed.cksum().ok() {
            return Err(damaged("this is no backup of larder, or it is damaged"));
        }
        if header.entry_type() != EntryType::Regular {
            return Err(damaged("it has something that is no plain file"));
        }
        let bytes = header.size().ok().filter(|bytes| *bytes <= FILE_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| damaged("it has a file of a length that no backup has"))?;
        let name = header.path_bytes();
        let name = std::str::from_utf8(&name).ok().filter(|name| is_plain(name));
        let name = name.ok_or_else(|| damaged("it has a file whose name no backup has"))?;
        Ok((name.to_owned(), bytes))
    }

    /// The bytes of a file; `take` is given them with their place.
    fn file(
        &mut self,
        name: String,
        bytes: u64,
        take: &mut dyn FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<StreamFile> {
        let mut digest = Sha256::new();
        let mut piece = std::mem::take(&mut self.piece);
        let mut at = 0;
        while at < bytes {
            let length = piece.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
            self.fill(&mut piece[..length])?;
            digest.update(&piece[..length]);
            take(&piece[..length], at)?;
            at += length as u64;
        }
        self.piece = piece;
        let padding = &mut [0; BLOCK_BYTES][..padding_bytes(bytes)];
        let at = self.at;
        self.fill(padding)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt(STREAM, at, "zeros should be here: it is damaged"));
        }
        Ok(StreamFile { name, bytes, sha256: digest.finalize().into() })
    }

    /// The checksums of these files.
    fn sums(&mut self, files: &[StreamFile]) -> Result<()> {
        let expected = sums(files);
        let at = self.at;
        let differs = |what: &str| Error::corrupt(STREAM, at, what);
        let (name, bytes) = self.header()?;
        if (&name[..], bytes) != (SUMS, expected.len() as u64) {
            return Err(differs("the checksums of its files should be here"));
        }
        let mut is_equal = true;
        self.file(name, bytes, &mut |piece, at| {
            let at = at as usize;
            is_equal &= expected.as_bytes().get(at..at + piece.len()) == Some(piece);
            Ok(())
        })?;
        if is_equal { Ok(()) } else { Err(differs("its files do not have its checksums: it is damaged")) }
    }

    /// Two empty blocks, and more of them perhaps.
    fn end(&mut self) -> Result<()> {
        let mut blocks = [0; 2 * BLOCK_BYTES];
        self.fill(&mut blocks)?;
        let mut count = blocks.len();
        while count > 0 {
            if blocks[..count].iter().any(|byte| *byte != 0) {
                return Err(Error::corrupt(STREAM, self.at, "something follows its end"));
            }
            count = self.read(&mut blocks)?;
        }
        Ok(())
    }
}

/// The name of a file that a backup may have: nothing of a path, and nothing hidden.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// As long as a value may be, and more.
const FILE_BYTES_MAX: u64 = 1 << 40;
/// 16 TiB of segments of 64 MiB.
const FILES_MAX: usize = 1 << 18;
