//! Files that options name and that are read whole: none is read without a bound, whatever its name leads to.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The content of a file. Errors: it cannot be read, or has more than `bytes_max`.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > bytes_max {
        let reason = format!("has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let refused = read(Path::new("/dev/zero"), 1000).expect_err("it has no end");
        assert_eq!(refused.to_string(), "has more than 1000 bytes");
        assert_eq!(read(Path::new("/dev/null"), 0).expect("it is empty"), b"");
    }
}
