//! Who may use the server: the password file of `-Y` or `-S`, and what checking a password may cost.
//!
//! One guard stands at every listener. There is none without these options.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::Instant;

use larder_auth::{Secret, Table};
use larder_protocol::Dialect;

use crate::startup::options::{EXIT_FAILURE, EXIT_OS_ERROR, EXIT_USAGE, Refusal};
use crate::startup::settings::Settings;

/// The passwords, and how they are asked for.
#[derive(Debug)]
pub struct Authenticator {
    scheme: Scheme,
    path: PathBuf,
    secret: Arc<Secret>,
    table: RwLock<Arc<Table>>,
    /// When the next dear check may begin. Held while one runs.
    next_dear_check: Mutex<Instant>,
}

/// How clients log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// By a `set` whose value is user and password (`-Y`): text alone.
    Ascii,
    /// By SASL (`-S`): the binary protocol alone.
    Sasl,
}

impl Scheme {
    /// What clients speak, whatever a listener would let them: the one dialect in which they can log in.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Ascii => Dialect::Text,
            Self::Sasl => Dialect::Binary,
        }
    }
}

impl Authenticator {
    /// The guard that the settings ask for. Reads the password file, so rights to it must not be given up yet. Errors: no
    /// file, or one that cannot be read or understood.
    pub fn new(settings: &Settings) -> Result<Option<Self>, Refusal> {
        let (scheme, path) = match (&settings.auth_file, settings.sasl) {
            (Some(path), _) => (Scheme::Ascii, path.clone()),
            (None, true) => {
                let path = std::env::var_os(SASL_FILE).ok_or_else(|| {
                    Refusal::new(EXIT_USAGE, format!("larderd: -S: name a password file in {SASL_FILE}"))
                })?;
                (Scheme::Sasl, path.into())
            }
            (None, false) => return Ok(None),
        };
        let refuse = |error: &dyn Display| {
            Refusal::new(EXIT_FAILURE, format!("larderd: password file {}: {error}", path.display()))
        };
        let secret = Arc::new(Secret::new(random()?));
        let table = read(&path, scheme, &secret).map_err(|error| refuse(&error))?;
        // The directory changes when the server goes to the background.
        let path = std::path::absolute(&path).map_err(|error| refuse(&error))?;
        Ok(Some(Self {
            scheme,
            path,
            secret,
            table: RwLock::new(Arc::new(table)),
            next_dear_check: Mutex::new(Instant::now()),
        }))
    }

    /// How clients log in.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The password file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again. Who is in stays in. If the file cannot be used the passwords stay as they are, and the journal says why.
    pub fn reload(&self) {
        match read(&self.path, self.scheme, &self.secret) {
            Ok(table) => {
                *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
                tracing::info!(file = %self.path.display(), "passwords read again");
            }
            Err(error) => {
                tracing::error!("password file {}: {error}; the old passwords stay", self.path.display());
            }
        }
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this is the user's password; `None`: ask again later.
    ///
    /// What a microsecond cannot tell costs milliseconds, in which a worker serves nobody. So there is one such check at a
    /// time in the whole server, and a pause after it: whoever tries passwords can take a worker a fifth of its time, and all
    /// who would log in that way wait in turn.
    pub(crate) fn check(&self, user: &[u8], password: &[u8]) -> Option<bool> {
        let table = self.table();
        if let Some(is_right) = table.check(user, password) {
            return Some(is_right);
        }
        let mut next = match self.next_dear_check.try_lock() {
            Ok(next) => next,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let start = Instant::now();
        if start < *next {
            return None;
        }
        let is_right = table.check_dearly(user, password);
        *next = Instant::now() + start.elapsed() * PAUSE_FACTOR;
        Some(is_right)
    }
}

fn read(path: &Path, scheme: Scheme, secret: &Arc<Secret>) -> Result<Table, Box<dyn std::error::Error>> {
    let entries = larder_auth::parse(&std::fs::read(path)?)?;
    Ok(Table::new(entries, Arc::clone(secret), scheme == Scheme::Sasl))
}

fn random() -> Result<[u8; 32], Refusal> {
    let mut bytes = [0; 32];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(32) => Ok(bytes),
        _ => Err(Refusal::new(EXIT_OS_ERROR, "the system gives no random numbers")),
    }
}

/// memcached: the environment variable with the password file of SASL.
const SASL_FILE: &str = "MEMCACHED_SASL_PWDB";
/// The pause after a dear check, in times of what it took.
const PAUSE_FACTOR: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_checks_leave_time_for_others() {
        let entry = |password| larder_auth::Entry { user: b"user".to_vec(), password };
        let verifier = larder_auth::Verifier::derive(b"pencil", b"salt", 10_000);
        let secret = Arc::new(Secret::new([1; 32]));
        let table =
            Table::new(vec![entry(larder_auth::Password::Hashed(verifier))], Arc::clone(&secret), false);
        let authenticator = Authenticator {
            scheme: Scheme::Ascii,
            path: PathBuf::new(),
            secret,
            table: RwLock::new(Arc::new(table)),
            next_dear_check: Mutex::new(Instant::now()),
        };
        assert_eq!(authenticator.check(b"user", b"pen"), Some(false));
        assert_eq!(authenticator.check(b"user", b"pencil"), None);
        let is_right = loop {
            if let Some(is_right) = authenticator.check(b"user", b"pencil") {
                break is_right;
            }
        };
        assert!(is_right);
        // Known by now, so it never waits.
        assert_eq!(authenticator.check(b"user", b"pencil"), Some(true));
    }
}
