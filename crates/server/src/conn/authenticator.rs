//! Authentication: the password file of `-Y` or `-S`, and a limit on the cost of checking passwords. Without these
//! options there is no authenticator.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use larder_auth::{Secret, Table};
use larder_protocol::Dialect;

use crate::startup::options::{EXIT_FAILURE, EXIT_OS_ERROR, EXIT_USAGE, Refusal};
use crate::startup::random;
use crate::startup::settings::Settings;

/// The passwords, and how clients send them.
#[derive(Debug)]
pub struct Authenticator {
    scheme: Scheme,
    path: PathBuf,
    secret: Arc<Secret>,
    table: RwLock<Arc<Table>>,
    pace: Mutex<Pace>,
}

/// The pace of expensive checks: one at a time.
#[derive(Debug)]
struct Pace {
    is_checking: bool,
    /// When the next check may begin; while one runs, when it is likely to end.
    next: Instant,
    /// How long the last one took.
    took: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { is_checking: false, next: Instant::now(), took: FIRST_CHECK }
    }
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
    /// The dialect of all clients, whatever the listener says: the only one in which they can log in.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Ascii => Dialect::Text,
            Self::Sasl => Dialect::Binary,
        }
    }
}

impl Authenticator {
    /// The authenticator that the settings ask for. Reads the password file, so call it before dropping privileges.
    /// Errors: there is no file, or it cannot be read or parsed.
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
        let secret = Arc::new(Secret::new(random_secret()?));
        let table = read(&path, scheme, &secret).map_err(|error| refuse(&error))?;
        // The directory changes when the server goes to the background.
        let path = std::path::absolute(&path).map_err(|error| refuse(&error))?;
        Ok(Some(Self { scheme, path, secret, table: RwLock::new(Arc::new(table)), pace: Mutex::default() }))
    }

    /// How clients log in.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The password file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again. Clients that are logged in stay so. If the file cannot be used the passwords stay as they
    /// are, and the journal says why.
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

    /// True if this is the user's password. `Err`: ask again at that moment.
    ///
    /// A password that the table cannot judge at once costs milliseconds to check, in which a worker serves nobody. So
    /// the whole server runs one such check at a time, with a pause after it: guessing passwords takes at most a fifth
    /// of a worker's time, and logins that need the check queue up.
    pub(crate) fn check(&self, user: &[u8], password: &[u8]) -> Result<bool, Instant> {
        let table = self.table();
        if let Some(is_right) = table.check(user, password) {
            return Ok(is_right);
        }
        let start = Instant::now();
        let mut pace = self.pace();
        if pace.is_checking || start < pace.next {
            // A check that is running may take longer than the last one: then the caller asks again a little later.
            return Err(pace.next.max(start + RETRY));
        }
        pace.is_checking = true;
        pace.next = start + pace.took * (1 + PAUSE_FACTOR);
        drop(pace);
        let is_right = table.check_dearly(user, password);
        let took = start.elapsed();
        *self.pace() = Pace { is_checking: false, next: start + took * (1 + PAUSE_FACTOR), took };
        Ok(is_right)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path, scheme: Scheme, secret: &Arc<Secret>) -> Result<Table, Box<dyn std::error::Error>> {
    let entries = larder_auth::parse(&std::fs::read(path)?)?;
    Ok(Table::new(entries, Arc::clone(secret), scheme == Scheme::Sasl))
}

fn random_secret() -> Result<[u8; 32], Refusal> {
    random::bytes().map_err(|_| Refusal::new(EXIT_OS_ERROR, "the system gives no random numbers"))
}

/// memcached: the environment variable with the password file of SASL.
const SASL_FILE: &str = "MEMCACHED_SASL_PWDB";
/// The pause after an expensive check, as a multiple of its duration.
const PAUSE_FACTOR: u32 = 4;
/// The assumed duration of the first expensive check.
const FIRST_CHECK: Duration = Duration::from_millis(5);
/// How long to wait for a check that takes longer than the last one.
const RETRY: Duration = Duration::from_millis(1);

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
            pace: Mutex::default(),
        };
        assert_eq!(authenticator.check(b"user", b"pen"), Ok(false));
        let when = authenticator.check(b"user", b"pencil").expect_err("it is too early");
        // At the moment that was named the caller is not sent away again.
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        assert_eq!(authenticator.check(b"user", b"pencil"), Ok(true));
        // Known by now, so it never waits.
        assert_eq!(authenticator.check(b"user", b"pencil"), Ok(true));
    }

    #[test]
    fn while_a_check_runs_others_are_told_when_to_come_again() {
        let start = Instant::now();
        let pace = Pace { is_checking: true, ..Pace::default() };
        let secret = Arc::new(Secret::new([1; 32]));
        let verifier = larder_auth::Verifier::derive(b"pencil", b"salt", 10_000);
        let entry =
            larder_auth::Entry { user: b"user".to_vec(), password: larder_auth::Password::Hashed(verifier) };
        let table = RwLock::new(Arc::new(Table::new(vec![entry], Arc::clone(&secret), false)));
        let scheme = Scheme::Ascii;
        let authenticator =
            Authenticator { scheme, path: PathBuf::new(), secret, table, pace: Mutex::new(pace) };
        let when = authenticator.check(b"user", b"pencil").expect_err("a check runs");
        assert!(when > start);
    }
}
