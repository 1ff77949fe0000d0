//! The file in which a cache is kept: its lock, its pages, and what it lies on.
//!
//! A page of a mapped file for which the file system finds no memory ends the process (SIGBUS). So each page is
//! allocated before it is accessed, by a call that can fail, and only file systems are taken that keep what was
//! allocated. Another process that truncates the file meanwhile cannot be stopped; its owner alone may.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, fstatfs, fstatvfs, seek};
use rustix::io::Errno;

use crate::mem::region::PAGE_BYTES;

/// A file that this process alone has.
pub(crate) struct BackingFile {
    file: File,
}

impl BackingFile {
    /// Takes a file that is open for reading and writing. Errors: it is no regular file, another process has it, or its
    /// file system does not do.
    pub(crate) fn lock(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        if !kind.is_file() {
            let kind = match () {
                () if kind.is_dir() => "a directory",
                () if kind.is_char_device() || kind.is_block_device() => "a device",
                () => "no regular file",
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {kind}")));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process is using it"));
            }
            Err(error) => return Err(error.into()),
        }
        let magic = fstatfs(&file)?.f_type as u64 & 0xffff_ffff;
        if !KEEPING.contains(&magic) {
            let known = NOT_KEEPING.iter().find(|(number, _)| *number == magic);
            let name = known.map_or_else(|| format!("of type {magic:#x}"), |(_, name)| format!("({name})"));
            let reason = format!(
                "its file system {name} does not keep memory for a mapped file; use tmpfs (/dev/shm), ext4 or XFS"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok(Self { file })
    }

    pub(crate) fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Makes the file this long, without memory for what is added.
    pub(crate) fn set_len_bytes(&self, bytes: u64) -> io::Result<()> {
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if allowed.is_some_and(|allowed| allowed < bytes) {
            // The system would end the process.
            let reason = format!("a file may not be as long as {bytes} bytes (ulimit -f)");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        self.file.set_len(bytes)
    }

    /// Memory that the file has or could get. `u64::MAX`: its file system does not say.
    pub(crate) fn available_bytes(&self) -> io::Result<u64> {
        let system = fstatvfs(&self.file)?;
        // A tmpfs without a limit has no blocks.
        if system.f_blocks == 0 {
            return Ok(u64::MAX);
        }
        let own_bytes = self.file.metadata()?.blocks().saturating_mul(512);
        Ok(system.f_bavail.saturating_mul(system.f_frsize).saturating_add(own_bytes))
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    pub(crate) fn write(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buffer, offset)
    }

    /// Gives memory to a part of the file; what has some stays as it is. False: there is none.
    #[must_use]
    pub(crate) fn allocate(&self, offset: u64, bytes: u64) -> bool {
        self.fallocate(FallocateFlags::empty(), offset, bytes)
    }

    /// Takes the memory of a part of the file, which reads as zeros from then on. False: the file system cannot.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> bool {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, bytes: u64) -> bool {
        if bytes == 0 {
            return true;
        }
        loop {
            match fallocate(&self.file, flags, offset, bytes) {
                Err(Errno::INTR) => {}
                done => return done.is_ok(),
            }
        }
    }

    /// Gives memory to all of a part of the file that should have it. Costs next to nothing where it does.
    #[must_use]
    pub(crate) fn fill_gaps(&self, mut offset: u64, end: u64) -> bool {
        while offset < end {
            let Ok(gap) = seek(&self.file, SeekFrom::Hole(offset)) else { return false };
            if gap >= end {
                return true;
            }
            let gap_end = match seek(&self.file, SeekFrom::Data(gap)) {
                Ok(data) => data.min(end),
                // Nothing follows.
                Err(Errno::NXIO) => end,
                Err(_) => return false,
            };
            if !self.allocate(gap, gap_end - gap) {
                return false;
            }
            offset = gap_end.max(gap + PAGE_BYTES as u64);
        }
        true
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

/// By `f_type` of statfs(2): allocated blocks stay the file's, and changes through a mapping go to them.
const KEEPING: [u64; 3] = [
    0x0102_1994, // tmpfs
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
];

/// Why not: what is written goes to new blocks, which may not be there; or the memory is another machine's or
/// process's.
const NOT_KEEPING: [(u64, &str); 11] = [
    (0x9123_683e, "Btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xca45_1a4e, "bcachefs"),
    (0xf2f5_2010, "F2FS"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x8584_58f6, "ramfs"),
    (0x9584_58f6, "hugetlbfs"),
];

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_of_memory_is_refused() {
        let open = |path: &str| BackingFile::lock(File::open(path).expect(path)).map(|_| ());
        let message = |path: &str| open(path).expect_err(path).to_string();
        assert_eq!(message("/"), "it is a directory");
        assert_eq!(message("/dev/null"), "it is a device");
        assert!(message("/proc/self/status").starts_with("its file system of type 0x9fa0 does not keep"));
    }
}
