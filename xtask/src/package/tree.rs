//! A folder that stands for the root of a system: what a package installs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use larder_conformance::Result;

/// Paths are relative to it. Modes are as given, whatever the umask.
pub(super) struct Tree(PathBuf);

impl Tree {
    /// An empty one.
    pub(super) fn create(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        set_mode(&folder, 0o755)?;
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let path = self.make_way(path.as_ref())?;
        fs::write(&path, text)?;
        set_mode(&path, mode)
    }

    pub(super) fn copy(&self, source: &Path, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let content = fs::read(source).map_err(|error| format!("{}: {error}", source.display()))?;
        self.write(path, content, mode)
    }

    pub(super) fn link(&self, target: &str, path: impl AsRef<Path>) -> Result<()> {
        Ok(symlink(target, self.make_way(path.as_ref())?)?)
    }

    /// Makes the folders of a path, and returns the full path.
    fn make_way(&self, path: &Path) -> Result<PathBuf> {
        let mut folder = self.0.clone();
        for part in path.parent().into_iter().flatten() {
            folder.push(part);
            if !folder.exists() {
                fs::create_dir(&folder)?;
                set_mode(&folder, 0o755)?;
            }
        }
        Ok(self.0.join(path))
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}
