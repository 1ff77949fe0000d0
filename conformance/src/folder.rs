//! A directory of a test's own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

/// A directory that is gone when dropped. Anybody may write to it, so that a server can that gave up root.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one, empty. Panics if the temporary directory cannot be written.
    #[track_caller]
    pub fn create() -> Self {
        Self::create_in(&env::temp_dir())
    }

    /// The same in memory, where an fsync costs nothing, if the system has a place for that.
    #[track_caller]
    pub fn create_in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::create_in(memory) } else { Self::create() }
    }

    #[track_caller]
    fn create_in(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Self(parent.join(format!("larder-folder-{}-{n}", std::process::id())));
        fs::create_dir(&folder.0).expect("the temporary directory can be written");
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).expect("it is ours");
        folder
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves it where it is: for whoever looks into a failure.
    pub fn keep(self) -> PathBuf {
        let path = self.0.clone();
        std::mem::forget(self);
        path
    }

    /// Writes a file that anybody may read. It takes the place of an older one at once: whoever reads meanwhile sees
    /// either of them whole.
    #[track_caller]
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let (unfinished, path) = (self.file(&format!("{name}.unfinished")), self.file(name));
        fs::write(&unfinished, content).expect("it is ours");
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o644)).expect("it is ours");
        fs::rename(unfinished, &path).expect("it is ours");
        path
    }

    /// Where a file of this name is, or would be.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same, as an argument of a command line.
    pub fn arg(&self, name: &str) -> String {
        self.file(name).into_os_string().into_string().expect("the temporary directory has a name in UTF-8")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
