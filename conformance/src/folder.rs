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
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Self(env::temp_dir().join(format!("larder-folder-{}-{n}", std::process::id())));
        fs::create_dir(&folder.0).expect("the temporary directory can be written");
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).expect("it is ours");
        folder
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file.
    #[track_caller]
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, text).expect("it is ours");
        path
    }

    /// Where a file of this name is, or would be.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
