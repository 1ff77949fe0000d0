//! Backups, taken while the server serves, by a thread of their own: into directories below `--backup-dir`, so that no
//! client says where the server writes; or as a stream to a client that shows the token of `--backup-token-file`.
//!
//! What a backup writes, and thereby what it reads, is paced, and made durable in small steps: the log's own fsync
//! waits for what the disk has to do at that moment.

mod stream;

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_protocol::Error;
use larder_store::commit::Journal;
use larder_store::files::{DiskFiles, File, Files, Lock};
use larder_store::{Manifest, Store, backup_stream};

use self::stream::{ClientLoss, STALL_MAX, StreamSender, StreamWriter};
pub(crate) use self::stream::{Producer, StreamReceiver};
use crate::conn::client::Peer;

/// The backups of a server.
pub(crate) struct Backups {
    /// `--backup-dir`; `None`: there are none.
    directory: Option<PathBuf>,
    state: Mutex<State>,
    wake: Condvar,
    is_stopping: Arc<AtomicBool>,
    /// Of the latest.
    copied_bytes: Arc<AtomicU64>,
    /// How long the client of a stream may take nothing.
    stall_max: Duration,
    space_of: SpaceOf,
}

#[derive(Default)]
struct State {
    wanted: Option<Wanted>,
    latest: Option<Report>,
    completed_unix_secs: Option<i64>,
}

/// A backup that is to be taken.
enum Wanted {
    Directory {
        name: String,
        /// The earlier backup that it follows.
        since: Option<String>,
    },
    Stream {
        sender: StreamSender,
        client: Peer,
    },
}

impl Wanted {
    fn name(&self) -> &str {
        match self {
            Self::Directory { name, .. } => name,
            Self::Stream { .. } => STREAM_NAME,
        }
    }

    /// Who takes a stream.
    fn client(&self) -> Option<Peer> {
        match self {
            Self::Directory { .. } => None,
            Self::Stream { client, .. } => Some(*client),
        }
    }
}

/// What became of the latest backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) phase: Phase,
    /// Copied so far: what an earlier backup has is not copied again.
    pub(crate) copied_bytes: u64,
}

/// How far a backup is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// The last sequence number in it.
    Done {
        last_sequence: u64,
    },
    /// A sentence.
    Failed(String),
}

impl Phase {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done { .. } => "done",
            Self::Failed(_) => "failed",
        }
    }
}

impl Backups {
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        Self {
            directory,
            state: Mutex::default(),
            wake: Condvar::new(),
            is_stopping: Arc::default(),
            copied_bytes: Arc::default(),
            stall_max: STALL_MAX,
            space_of: Space::of,
        }
    }

    /// Begins a backup of this name; `since` is that of an earlier one. Errors: what to answer.
    pub(crate) fn begin(&self, name: &[u8], since: Option<&[u8]>) -> Result<(), Error> {
        if self.directory.is_none() {
            return Err(Error::BackupNotAllowed);
        }
        let name_of = |bytes| backup_name(bytes).map(str::to_owned).ok_or(Error::BadBackupName);
        self.want(Wanted::Directory { name: name_of(name)?, since: since.map(name_of).transpose()? })
    }

    /// Begins a backup whose bytes the caller takes for a client. Errors: another one is taken.
    pub(crate) fn begin_stream(&self, client: Peer) -> Result<StreamReceiver, Error> {
        let (sender, receiver) = stream::stream(self.stall_max);
        self.want(Wanted::Stream { sender, client }).map(|()| receiver)
    }

    fn want(&self, wanted: Wanted) -> Result<(), Error> {
        let mut state = self.lock();
        if state.latest.as_ref().is_some_and(|latest| latest.phase == Phase::Running) {
            return Err(Error::BackupRunning);
        }
        self.copied_bytes.store(0, Relaxed);
        state.latest =
            Some(Report { name: wanted.name().to_owned(), phase: Phase::Running, copied_bytes: 0 });
        state.wanted = Some(wanted);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// The latest backup since the start.
    pub(crate) fn latest(&self) -> Option<Report> {
        let latest = self.lock().latest.clone()?;
        Some(Report { copied_bytes: self.copied_bytes.load(Relaxed), ..latest })
    }

    /// When the last backup was complete, in Unix time.
    pub(crate) fn completed_unix_secs(&self) -> Option<i64> {
        self.lock().completed_unix_secs
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, SeqCst);
        drop(self.lock());
        self.wake.notify_all();
    }

    /// Takes backups until the server stops. `unix_secs` tells the time.
    pub(super) fn serve(&self, store: &dyn Store, journal: &Journal, unix_secs: impl Fn() -> i64) {
        while let Some(wanted) = self.next() {
            self.wait_for_acknowledged(journal);
            let (name, client) = (wanted.name().to_owned(), wanted.client().map(tracing::field::display));
            let taken = match wanted {
                Wanted::Directory { name, since } => self.back_up(store, &name, since.as_deref()),
                Wanted::Stream { sender, .. } => self.stream(store, sender, unix_secs()),
            };
            match &taken {
                Ok(_) => tracing::info!(name, client, "the backup is complete"),
                // No fault of the store, nor of the disk.
                Err(Failure::Client(loss)) => {
                    tracing::warn!(name, client, "the backup was broken off: {loss}")
                }
                Err(error) => tracing::error!(name, client, "the backup failed: {error}"),
            }
            let phase = match taken {
                Ok(manifest) => Phase::Done { last_sequence: manifest.last_sequence() },
                Err(error) => Phase::Failed(error.to_string()),
            };
            let mut state = self.lock();
            if let Phase::Done { .. } = phase {
                state.completed_unix_secs = Some(unix_secs());
            }
            if let Some(latest) = &mut state.latest {
                latest.phase = phase;
            }
        }
    }

    /// Until the store has all that was acknowledged before; with `interval` a reply comes ahead of the append. A store
    /// that takes no changes is backed up as it is.
    fn wait_for_acknowledged(&self, journal: &Journal) {
        let acknowledged = journal.last_given();
        while !journal.is_applied(acknowledged) && journal.refusal().is_none() {
            if self.is_stopping.load(SeqCst) {
                return;
            }
            std::thread::sleep(JOURNAL_PAUSE);
        }
    }

    fn next(&self) -> Option<Wanted> {
        let idle = |state: &mut State| state.wanted.is_none() && !self.is_stopping.load(SeqCst);
        let mut state = self.wake.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if self.is_stopping.load(SeqCst) { None } else { state.wanted.take() }
    }

    fn back_up(&self, store: &dyn Store, name: &str, since: Option<&str>) -> Result<Manifest, Failure> {
        let directory = self.directory.as_deref().unwrap_or_else(|| Path::new("."));
        let since = match since {
            None => None,
            Some(name) => {
                let path = directory.join(name);
                // Without making it.
                let files = path.is_dir().then(|| DiskFiles::open(&path)).transpose()?;
                let manifest = files.map(|files| Manifest::read(&files)).transpose()?.flatten();
                Some(manifest.ok_or_else(|| Failure::NoEarlier(name.to_owned()))?)
            }
        };
        let path = directory.join(name);
        if path.exists() {
            return Err(Failure::Exists(name.to_owned()));
        }
        if count_directories(directory)? >= DIRECTORIES_MAX {
            return Err(Failure::TooMany);
        }
        let taken = DiskFiles::open(&path).map_err(Failure::Io).and_then(|files| {
            let (path, space_of) = (path.clone(), self.space_of);
            let target = PacedFiles { files, path, space_of, pace: self.pace() };
            Ok(store.backup(&target, since.as_ref())?)
        });
        if taken.is_err() {
            // An incomplete backup is useless and takes up space. Looking into its directory takes a descriptor, and
            // there may be none left; removing it while it is empty takes none.
            let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_dir(&path));
        }
        taken
    }

    fn stream(&self, store: &dyn Store, sender: StreamSender, unix_secs: i64) -> Result<Manifest, Failure> {
        let sender = Arc::new(sender);
        let writer = StreamWriter::new(Arc::clone(&sender), self.pace());
        let streamed = backup_stream(store, writer, u64::try_from(unix_secs).unwrap_or(0));
        let drained = streamed.map_err(Failure::Store).and_then(|manifest| {
            sender.drain(&self.pace())?;
            Ok(manifest)
        });
        drained.map_err(|failure| sender.loss().map_or(failure, Failure::Client))
    }

    fn pace(&self) -> Arc<Pace> {
        Arc::new(Pace {
            began: Instant::now(),
            copied_bytes: Arc::clone(&self.copied_bytes),
            is_stopping: Arc::clone(&self.is_stopping),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a backup failed, as a sentence.
#[derive(Debug)]
enum Failure {
    Exists(String),
    NoEarlier(String),
    TooMany,
    Store(larder_store::Error),
    Io(io::Error),
    /// The client of a stream did not take it.
    Client(ClientLoss),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exists(name) => write!(f, "{name} exists already"),
            Self::NoEarlier(name) => write!(f, "{name} is no complete backup to follow"),
            Self::TooMany => {
                write!(f, "there are {DIRECTORIES_MAX} backups below --backup-dir already: remove some")
            }
            Self::Store(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Client(loss) => loss.fmt(f),
        }
    }
}

impl From<larder_store::Error> for Failure {
    fn from(error: larder_store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The name of a backup: letters, digits, `-`, `_` and `.`, which does not begin it.
fn backup_name(bytes: &[u8]) -> Option<&str> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_name = bytes != STREAM_NAME.as_bytes()
        && (1..=NAME_BYTES_MAX).contains(&bytes.len())
        && bytes[0] != b'.'
        && bytes.iter().all(is_plain);
    std::str::from_utf8(bytes).ok().filter(|_| is_name)
}

/// Number of backups below a directory, unfinished ones included. Errors: it cannot be read.
fn count_directories(directory: &Path) -> io::Result<usize> {
    let entries = match std::fs::read_dir(directory) {
        // The directory is created by the first backup.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    Ok(entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count())
}

/// The space of a file system.
#[derive(Clone, Copy, Debug)]
struct Space {
    free_bytes: u64,
    all_bytes: u64,
}

/// Tells the space of the file system of a directory; `None`: it is not known.
type SpaceOf = fn(&Path) -> Option<Space>;

impl Space {
    fn of(path: &Path) -> Option<Self> {
        let system = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
        Some(Self { free_bytes: bytes(system.f_bavail), all_bytes: bytes(system.f_blocks) })
    }

    /// Checks that some free space remains for others, above all for the store itself, after so many bytes have been
    /// written. Errors: there is too little.
    fn check(self, written_bytes: u64) -> io::Result<()> {
        let needed_bytes = FREE_BYTES_MIN.min(self.all_bytes / FREE_SHARE_MIN);
        if self.free_bytes < needed_bytes.saturating_add(written_bytes) {
            let text = format!("less than {} MiB are free below --backup-dir", needed_bytes >> 20);
            // Not `StorageFull`: the store would take it for its own disk that is full.
            return Err(io::Error::other(text));
        }
        Ok(())
    }
}

/// How fast a backup goes.
struct Pace {
    began: Instant,
    copied_bytes: Arc<AtomicU64>,
    is_stopping: Arc<AtomicBool>,
}

impl Pace {
    /// Counts written bytes, and waits until they may have been written. Errors: the server stops.
    fn spend(&self, bytes: u64) -> io::Result<()> {
        let copied_bytes = self.copied_bytes.fetch_add(bytes, Relaxed) + bytes;
        let due = Duration::from_secs_f64(copied_bytes as f64 / BYTES_PER_SEC as f64);
        loop {
            let left = due.saturating_sub(self.began.elapsed());
            self.pause(left.min(PAUSE_MAX))?;
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Waits. Errors: the server stops.
    fn pause(&self, time: Duration) -> io::Result<()> {
        if self.is_stopping.load(SeqCst) {
            return Err(io::Error::other("the server stops"));
        }
        std::thread::sleep(time);
        Ok(())
    }
}

/// A directory that is written to at a pace.
struct PacedFiles {
    files: DiskFiles,
    path: PathBuf,
    space_of: SpaceOf,
    pace: Arc<Pace>,
}

struct PacedFile {
    file: Arc<dyn File>,
    /// Path of its directory.
    path: PathBuf,
    space_of: SpaceOf,
    pace: Arc<Pace>,
}

impl Files for PacedFiles {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let (file, path, space_of) = (self.files.create(name)?, self.path.clone(), self.space_of);
        Ok(Arc::new(PacedFile { file, path, space_of, pace: Arc::clone(&self.pace) }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.files.open(name)
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.files.open_to_read(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.files.sync_dir()
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn Lock>> {
        self.files.lock(name)
    }

    fn describe(&self) -> String {
        self.files.describe()
    }
}

impl File for PacedFile {
    fn write_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        // A file system that does not report its free space does not prevent backups.
        (self.space_of)(&self.path).map_or(Ok(()), |space| space.check(bytes))?;
        self.file.write_at(pieces, offset)?;
        // Otherwise the system would collect it, and write it all at once.
        self.file.sync()?;
        self.pace.spend(bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Nothing: some file systems would write all of it now, and not at a pace.
    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

const NAME_BYTES_MAX: usize = 100;
/// More backups than this serve no purpose.
const DIRECTORIES_MAX: usize = 100;
/// Minimum free space that a backup leaves on a file system: this, or a twentieth of a small one.
const FREE_BYTES_MIN: u64 = 1 << 30;
const FREE_SHARE_MIN: u64 = 20;
/// What a stream is called where backups have names.
const STREAM_NAME: &str = "-";
/// A gigabyte takes half a minute.
const BYTES_PER_SEC: u64 = 32 << 20;
const JOURNAL_PAUSE: Duration = Duration::from_millis(1);
/// A stop is noticed within this time.
const PAUSE_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
impl Default for Pace {
    fn default() -> Self {
        Self { began: Instant::now(), copied_bytes: Arc::default(), is_stopping: Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use larder_store::files::sim::SimDisk;
    use larder_store::{Entry, LogOptions, LogStore, Marks, Put};

    use super::*;

    #[test]
    fn names_stay_below_the_directory() {
        for name in ["monday", "2026-11-24", "a.b_c"] {
            assert_eq!(backup_name(name.as_bytes()), Some(name));
        }
        for name in ["", "-", ".", "..", ".hidden", "a/b", "/etc", "a\0b", "ä", &"x".repeat(101)] {
            assert_eq!(backup_name(name.as_bytes()), None, "{name:?}");
        }
    }

    #[test]
    fn more_than_a_hundred_are_not_kept_and_what_failed_leaves_nothing() {
        let directory = std::env::temp_dir().join(format!("larder-backups-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("makes it");
        let backups = Backups::new(Some(directory.clone()));
        let store = store(1);
        let taken: Vec<_> = (0..DIRECTORIES_MAX + 1)
            .map(|nth| {
                // Most of them are only an empty directory.
                if (1..DIRECTORIES_MAX).contains(&nth) {
                    return std::fs::create_dir(directory.join(format!("{nth}"))).map_err(Failure::Io);
                }
                backups.back_up(&store, &format!("{nth}"), None).map(drop)
            })
            .collect();
        let failures: Vec<_> = taken.iter().filter_map(|taken| taken.as_ref().err()).collect();
        let [Failure::TooMany] = failures[..] else { panic!("{failures:?}") };
        std::fs::remove_dir_all(directory.join("1")).expect("removes");
        // The server stops in the middle of a backup.
        backups.stop();
        assert!(backups.back_up(&store, "later", None).is_err());
        let is_left = directory.join("later").exists();
        std::fs::remove_dir_all(&directory).expect("removes");
        assert!(!is_left);
    }

    #[test]
    fn a_backup_leaves_a_gibibyte_of_the_file_system_free() {
        let directory = std::env::temp_dir().join(format!("larder-backup-space-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("makes it");
        let mut backups = Backups::new(Some(directory.clone()));
        let store = store(3 << 20);
        // What the files of the backup take is no longer free.
        const NEEDED_BYTES: u64 = 1 << 30;
        fn space(path: &Path, more_bytes: u64) -> Option<Space> {
            let files = std::fs::read_dir(path).into_iter().flatten().flatten();
            let taken_bytes = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum::<u64>();
            let free_bytes = (NEEDED_BYTES + more_bytes).saturating_sub(taken_bytes);
            Some(Space { free_bytes, all_bytes: 100 * NEEDED_BYTES })
        }
        let too_little = "less than 1024 MiB are free below --backup-dir";
        let cases: [(SpaceOf, bool, Option<&str>); 4] = [
            (|path| space(path, 0), false, Some(too_little)),
            (|path| space(path, 2 << 20), true, Some(too_little)),
            (|path| space(path, 4 << 20), true, None),
            // A twentieth of a small file system is enough.
            (|path| space(path, 0).map(|space| Space { all_bytes: 2 * NEEDED_BYTES, ..space }), true, None),
        ];
        for (nth, (space_of, has_begun, error)) in cases.into_iter().enumerate() {
            backups.space_of = space_of;
            backups.copied_bytes.store(0, Relaxed);
            let name = format!("{nth}");
            let taken = backups.back_up(&store, &name, None);
            let told = taken.err().map(|failure| failure.to_string());
            let has_reason = told.as_ref().zip(error).is_none_or(|(told, error)| told.contains(error));
            assert!(told.is_some() == error.is_some() && has_reason, "{nth}: {told:?}");
            assert_eq!(backups.copied_bytes.load(Relaxed) > 0, has_begun, "{nth}");
            assert_eq!(directory.join(&name).exists(), error.is_none(), "{nth}: what failed leaves nothing");
        }
        std::fs::remove_dir_all(&directory).expect("removes");
    }

    /// The store is in order then, and the log must not say otherwise.
    #[test]
    fn a_client_that_goes_away_is_no_failure_of_the_store() {
        let (sender, receiver) = stream::stream(STALL_MAX);
        drop(receiver);
        let failure = Backups::new(None).stream(&store(0), sender, 0).expect_err("nobody takes it");
        assert!(matches!(failure, Failure::Client(ClientLoss::Gone)), "{failure}");
        assert_eq!(failure.to_string(), "the client has gone");
    }

    /// It would keep all others from a backup. One of a byte is stuck at its end, where all of it is in the queue.
    #[test]
    fn a_client_that_takes_nothing_is_given_up() {
        for value_bytes in [1, 4 << 20] {
            let (sender, _receiver) = stream::stream(Duration::from_millis(20));
            let failure =
                Backups::new(None).stream(&store(value_bytes), sender, 0).expect_err("nobody takes it");
            assert!(matches!(failure, Failure::Client(ClientLoss::Slow)), "{failure}");
        }
    }

    /// With one value of this length.
    fn store(value_bytes: usize) -> LogStore {
        let store =
            LogStore::open_files(Arc::new(SimDisk::new()), LogOptions::default()).expect("a new store");
        let value = vec![b'v'; value_bytes];
        let put = Put {
            key: b"key",
            value: &[&value],
            client_flags: 0,
            exptime_secs: 0,
            version: 1,
            marks: Marks::NONE,
            origin: 0,
            base_version: 0,
            expiry_value_version: 0,
            expiry_version: 0,
        };
        store.append(&[Entry::Put(put)]).expect("there is room");
        store
    }

    #[test]
    fn only_one_is_taken_at_a_time_and_none_without_a_directory() {
        assert_eq!(Backups::new(None).begin(b"a", None), Err(Error::BackupNotAllowed));
        let backups = Backups::new(Some("/nowhere".into()));
        assert_eq!(backups.begin(b"../a", None), Err(Error::BadBackupName));
        assert_eq!(backups.begin(b"b", Some(b"../a")), Err(Error::BadBackupName));
        assert_eq!(backups.begin(b"a", None), Ok(()));
        assert_eq!(backups.begin(b"b", None), Err(Error::BackupRunning));
        assert_eq!(backups.begin_stream(Peer::Unix).map(drop), Err(Error::BackupRunning));
        let latest = backups.latest().expect("it runs");
        assert_eq!((&latest.name[..], latest.phase.name()), ("a", "running"));
    }
}
