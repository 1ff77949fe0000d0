//! A file that a cache is kept in (`-e`): its name, and how it is opened with the rights of who will serve.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_engine::{CacheFile, Owner};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::Uid;
use siphasher::{sip, sip128};

use crate::startup::file_lock;
use crate::startup::privileges::{self, Rights, Target};

/// An open file, locked by this process.
pub(crate) struct MemoryFile {
    path: PathBuf,
    file: File,
}

/// What an earlier process may have left in a file.
pub(crate) enum Left {
    /// Nothing: it is empty, or not there.
    Nothing,
    /// A cache of the family, now locked by this process.
    Ours(MemoryFile),
    /// A cache of another family.
    Others,
    /// A cache of an earlier version of larder, which did not note the family.
    Unknown,
    /// Something else than larder made it.
    NotLarders,
}

impl MemoryFile {
    /// Opens or creates the file. Errors: nobody but the user who serves may own it, or write to it, since what it says
    /// is what clients get; or another process has it.
    pub(crate) fn open(path: &Path, user: Option<&Target>) -> io::Result<Self> {
        let opened = Self::open_unlocked(path, user, true)?;
        // What is no file the engine refuses.
        if opened.file.metadata()?.is_file() {
            file_lock::take(&opened.file, LOCK_WAIT_MAX)?;
        }
        Ok(opened)
    }

    /// Opens what an earlier process of a family left of a cache, and only that: others may be using theirs. Errors: as
    /// above.
    pub(crate) fn open_left(path: &Path, family: u64, user: Option<&Target>) -> io::Result<Left> {
        let found = match Self::open_unlocked(path, user, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Left::Nothing),
            found => found?,
        };
        if let Some(left) = found.left_of(family)? {
            return Ok(left);
        }
        file_lock::take(&found.file, LOCK_WAIT_MAX)?;
        // Another may have taken it meanwhile.
        Ok(found.left_of(family)?.unwrap_or(Left::Ours(found)))
    }

    /// `None`: the family's.
    fn left_of(&self, family: u64) -> io::Result<Option<Left>> {
        Ok(match CacheFile::owner(&self.file)? {
            Owner::Nobody => Some(Left::Nothing),
            Owner::Other => Some(Left::NotLarders),
            Owner::Larder { family: 0 } => Some(Left::Unknown),
            Owner::Larder { family: found } => (found != family).then_some(Left::Others),
        })
    }

    /// The family that the file belongs to by what it says itself, if it says it.
    pub(crate) fn family(&self) -> io::Result<Option<u64>> {
        Ok(match CacheFile::owner(&self.file)? {
            Owner::Larder { family } if family != 0 => Some(family),
            _ => None,
        })
    }

    fn open_unlocked(path: &Path, user: Option<&Target>, is_created: bool) -> io::Result<Self> {
        let mut options = File::options();
        // No link, which others might have planted, and no wait for the other end of a FIFO.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        options.read(true).write(true).create(is_created).truncate(false).mode(0o600);
        options.custom_flags(flags.bits());
        let file = privileges::at_path(user, path, |path, rights| {
            let file = options.open(path)?;
            let found = file.metadata()?;
            // Root has just created it.
            if let (Rights::Roots, Some(user)) = (rights, user)
                && is_created
                && found.uid() == 0
                && found.len() == 0
            {
                user.own(path)?;
            }
            Ok(file)
        });
        let file = file.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ELOOP) => io::Error::other("it is a symbolic link"),
            Some(Errno::EISDIR) => io::Error::other("it is a directory"),
            _ => error,
        })?;
        let found = file.metadata()?;
        let own = user.map_or_else(Uid::effective, Target::uid);
        // What is no file the engine refuses.
        if found.is_file() && found.uid() != own.as_raw() {
            let (owner, own) = (found.uid(), own.as_raw());
            return Err(io::Error::other(format!(
                "it belongs to user {owner}, and larderd runs as user {own}"
            )));
        }
        if found.is_file() && found.mode() & 0o022 != 0 {
            let mode = found.mode() & 0o777;
            return Err(io::Error::other(format!("others may write to it (mode {mode:o})")));
        }
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, for an engine. The lock lasts until all copies are closed.
    pub(crate) fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Memory that it has.
    pub(crate) fn memory_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks().saturating_mul(512))
    }

    /// Memory that its file system could give, beside what its files have. `u64::MAX`: it does not say.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let system = rustix::fs::fstatvfs(&self.file)?;
        // A tmpfs without a limit has no blocks.
        Ok(if system.f_blocks == 0 { u64::MAX } else { system.f_bavail.saturating_mul(system.f_frsize) })
    }

    /// Drops what is in it.
    pub(crate) fn empty(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Removes it, with what is in it.
    pub(crate) fn remove(self, user: Option<&Target>) -> io::Result<()> {
        self.empty()?;
        // Empty it is as good as gone.
        let _ = privileges::at_path(user, &self.path, |path, _| fs::remove_file(path));
        Ok(())
    }
}

/// The family of the files that belong to one `-e FILE`, which lie in one directory: so the name of FILE alone says it,
/// and they can move together. Never 0.
pub(crate) fn family(file: &Path) -> u64 {
    let name = file.file_name().unwrap_or_default();
    sip::SipHasher24::new().hash(name.as_bytes()).max(1)
}

/// The file of a namespace beside that of the default: `FILE.ns-PREFIX`, with `%` and two digits for each byte that is
/// not plain. Where that is too long for a name, `FILE.ns-~DIGEST`. `None`: `file` has no name.
pub(crate) fn of_namespace(file: &Path, prefix: &[u8]) -> Option<PathBuf> {
    let name = |words: &[u8]| {
        let mut name = OsString::from(file.file_name()?);
        name.push(std::ffi::OsStr::from_bytes(&[NAMESPACE_INFIX, words].concat()));
        Some(name)
    };
    let mut words = Vec::new();
    for &byte in prefix {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'.' | b':' => words.push(byte),
            _ => words.extend(format!("%{byte:02x}").bytes()),
        }
    }
    let mut chosen = name(&words)?;
    if chosen.len() > NAME_BYTES_MAX {
        chosen = name(format!("~{:032x}", sip128::SipHasher24::new().hash(prefix).as_u128()).as_bytes())?;
    }
    Some(file.with_file_name(chosen))
}

/// The files of namespaces beside `file`, whatever is in them. With a user's rights, as that of [`MemoryFile::open`].
/// Errors: the directory cannot be read.
pub(crate) fn of_namespaces(file: &Path, user: Option<&Target>) -> io::Result<Vec<PathBuf>> {
    let Some(name) = file.file_name() else { return Ok(Vec::new()) };
    let start = [name.as_bytes(), NAMESPACE_INFIX].concat();
    privileges::at_path(user, file, |file, _| {
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            if name.as_bytes().starts_with(&start) {
                found.push(file.with_file_name(name));
            }
        }
        found.sort();
        Ok(found)
    })
}

/// Between the name of the file and that of a namespace.
const NAMESPACE_INFIX: &[u8] = b".ns-";
/// Of a name in a directory: NAME_MAX of limits.h.
const NAME_BYTES_MAX: usize = 255;
/// Longest wait for another process that holds the file, since it may just be ending.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_name_says_the_family() {
        assert_eq!(family(Path::new("/dev/shm/cache")), family(Path::new("moved/cache")));
        assert_ne!(family(Path::new("/dev/shm/cache")), family(Path::new("/dev/shm/cache.ns-a")));
    }

    fn name(prefix: &[u8]) -> String {
        let path = of_namespace(Path::new("/dev/shm/cache"), prefix).expect("it has a name");
        assert_eq!(path.parent(), Some(Path::new("/dev/shm")), "it stays in its directory");
        path.file_name().and_then(|name| name.to_str()).expect("ASCII").to_owned()
    }

    #[test]
    fn no_prefix_leaves_the_directory() {
        assert_eq!(name(b"session:"), "cache.ns-session:");
        assert_eq!(name(b"../x/"), "cache.ns-..%2fx%2f");
        assert_eq!(name(b"a/b"), "cache.ns-a%2fb");
        assert_eq!(name(b"/"), "cache.ns-%2f");
        assert_eq!(name(b"."), "cache.ns-.");
        assert_eq!(name("é%~".as_bytes()), "cache.ns-%c3%a9%25%7e");
        assert_eq!(of_namespace(Path::new("cache"), b"a"), Some(PathBuf::from("cache.ns-a")));
        assert_eq!(of_namespace(Path::new("/"), b"a"), None);
    }

    #[test]
    fn each_prefix_has_a_name_of_its_own_that_is_short_enough() {
        let mut names = BTreeSet::new();
        for byte in 0..=255 {
            for bytes in [1, 2, 81, 82, 83, 245, 246, 247, 250] {
                let name = name(&vec![byte; bytes]);
                assert!(name.len() <= 255, "{name}");
                assert!(names.insert(name.clone()), "{name}");
            }
        }
        assert_eq!(name(&[b'x'; 246]).len(), 255);
        // What a long name is shortened to is no name of a short prefix.
        let short = name(&[b'x'; 247]);
        assert_eq!(short.len(), "cache.ns-~".len() + 32);
        assert_ne!(name(short.trim_start_matches("cache.ns-").as_bytes()), short);
    }
}
