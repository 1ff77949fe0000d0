//! Checks periodically whether the files that SIGHUP reads again have changed (`--reload-secs`): the program that
//! renews them may not be able to send a signal.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::shared::Shared;

/// The files, and their state at the last check.
pub(crate) struct WatchedFiles {
    files: Vec<(PathBuf, Option<Look>)>,
    interval_secs: u32,
    next_secs: u32,
}

/// Identity and state of a file, which differ if another file or other content has taken its place. `ctime` cannot be
/// set.
type Look = (u64, u64, u64, i64, i64);

impl WatchedFiles {
    /// `None`: the option was not given.
    pub(crate) fn new(shared: &Shared) -> Option<Self> {
        let interval_secs = shared.settings.reload_secs;
        if interval_secs == 0 {
            return None;
        }
        let passwords = shared.authenticator.iter().map(|authenticator| authenticator.path().to_owned());
        let tokens = shared.admin_token.iter().chain(&shared.backup_token).chain(&shared.http_token);
        let tokens = tokens.map(|token| token.path().to_owned());
        let certificates = shared.tls.iter().flat_map(|tls| tls.files());
        let store = shared.settings.store.as_ref();
        let replication = store.and_then(|store| store.replication.as_ref());
        let peers = replication.and_then(|replication| replication.peers_file.clone());
        let namespaces = shared.namespaces.file().map(Path::to_owned);
        let files = passwords.chain(tokens).chain(certificates).chain(peers).chain(namespaces);
        let files = files.map(|file| (file.clone(), look(&file))).collect();
        Some(Self { files, interval_secs, next_secs: shared.clock.now().secs.saturating_add(interval_secs) })
    }

    /// True if a check is due, and a file has changed since the last one.
    pub(crate) fn have_changed(&mut self, now_secs: u32) -> bool {
        if now_secs < self.next_secs {
            return false;
        }
        self.next_secs = now_secs.saturating_add(self.interval_secs);
        let mut have_changed = false;
        for (file, last) in &mut self.files {
            let now = look(file);
            have_changed |= now != *last;
            *last = now;
        }
        have_changed
    }
}

fn look(file: &Path) -> Option<Look> {
    let found = fs::metadata(file).ok()?;
    Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}
