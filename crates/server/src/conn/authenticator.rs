//! Authentication: the password file of `-Y` or `-S`, and a limit on the cost of checking passwords. Without these
//! options there is no authenticator.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use larder_auth::{Secret, Table};
use larder_protocol::Dialect;

use crate::conn::login_queue::{LoginAttempt, LoginQueue};
use crate::startup::bounded_file;
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
    queue: Arc<Mutex<LoginQueue>>,
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
        let table = table_of(&path, scheme, &secret, bounded_file::read).map_err(|error| refuse(&error))?;
        // The directory changes when the server goes to the background.
        let path = std::path::absolute(&path).map_err(|error| refuse(&error))?;
        Ok(Some(Self { scheme, path, secret, table: RwLock::new(Arc::new(table)), queue: Arc::default() }))
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
        match table_of(&self.path, self.scheme, &self.secret, bounded_file::read_regular) {
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
    /// of a worker's time, and logins that need the check queue up ([`LoginQueue`]).
    pub(crate) fn check(
        &self,
        attempt: &mut LoginAttempt,
        origin: Option<IpAddr>,
        user: &[u8],
        password: &[u8],
    ) -> Result<bool, Instant> {
        let table = self.table();
        if let Some(is_right) = table.check(user, password) {
            attempt.note(is_right);
            return Ok(is_right);
        }
        let start = Instant::now();
        attempt.begin(&self.queue, origin, start)?;
        let is_right = table.check_dearly(user, password);
        attempt.finish(&self.queue, is_right, start, start.elapsed());
        Ok(is_right)
    }
}

fn table_of(
    path: &Path,
    scheme: Scheme,
    secret: &Arc<Secret>,
    read: bounded_file::Read,
) -> Result<Table, Box<dyn std::error::Error>> {
    let entries = larder_auth::parse(&read(path, FILE_BYTES_MAX)?)?;
    Ok(Table::new(entries, Arc::clone(secret), scheme == Scheme::Sasl))
}

fn random_secret() -> Result<[u8; 32], Refusal> {
    random::bytes().map_err(|_| Refusal::new(EXIT_OS_ERROR, "the system gives no random numbers"))
}

/// memcached: the environment variable with the password file of SASL.
const SASL_FILE: &str = "MEMCACHED_SASL_PWDB";
/// Far more than [`larder_auth::ENTRIES_MAX`] lines need, comments and empty lines included.
const FILE_BYTES_MAX: u64 = 16 << 20;

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
            queue: Arc::default(),
        };
        let mut attempt = LoginAttempt::default();
        let mut check = |password| authenticator.check(&mut attempt, None, b"user", password);
        assert_eq!(check(b"pen".as_slice()), Ok(false));
        let when = loop {
            // On a busy machine it may not come too early.
            match check(b"pen") {
                Ok(is_right) => assert!(!is_right),
                Err(when) => break when,
            }
        };
        // At the moment that was named the caller is not sent away again.
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        assert_eq!(check(b"pencil"), Ok(true));
        // Known by now, so it never waits.
        assert_eq!(check(b"pencil"), Ok(true));
    }
}
