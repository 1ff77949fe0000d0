//! Files that options name and that are read whole. No file is read without a bound, whatever its name leads to. A
//! UTF-8 byte order mark at the start, which some editors write and nobody sees, is skipped.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// [`read`] at the start, [`read_regular`] while the server runs: whoever reads then must not wait for another process,
/// because its own work and the signals wait meanwhile.
pub(crate) type Read = fn(&Path, u64) -> io::Result<Vec<u8>>;

/// The content of a file; of a FIFO, what its other end writes until it is closed. Errors: it cannot be read, or has
/// more than `bytes_max`.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(path)?, bytes_max)
}

/// The same of a regular file. It waits for nobody; what is no regular file is an error
/// ([`io::ErrorKind::InvalidInput`]).
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // Another file may have taken its name since.
    read_from(File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?, bytes_max)
}

fn read_from(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > bytes_max {
        let reason = format!("has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    if content.starts_with(BYTE_ORDER_MARK) {
        content.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(content)
}

/// The byte order mark in UTF-8.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_at_the_head_is_left_out() {
        let folder = larder_conformance::folder::Folder::create();
        for (content, expected) in [
            (&b"\xef\xbb\xbfroot:pw"[..], &b"root:pw"[..]),
            (b"\xef\xbb\xbf", b""),
            (b"a\xef\xbb\xbf", b"a\xef\xbb\xbf"),
            (b"\xef\xbb", b"\xef\xbb"),
        ] {
            let file = folder.write("file", content);
            assert_eq!(read(&file, 100).expect("it is there"), expected);
            assert_eq!(read_regular(&file, 100).expect("it is there"), expected);
        }
    }

    #[test]
    fn what_has_no_end_is_refused() {
        let refused = read(Path::new("/dev/zero"), 1000).expect_err("it has no end");
        assert_eq!(refused.to_string(), "has more than 1000 bytes");
        assert_eq!(read(Path::new("/dev/null"), 0).expect("it is empty"), b"");
        let refused = read_regular(Path::new("/dev/zero"), 1000).expect_err("it is a device");
        assert_eq!(refused.to_string(), "not a regular file");
    }
}
