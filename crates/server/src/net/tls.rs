//! TLS (`-Z`): certificates, and the encryption of a worker's connections.
//!
//! A thin layer around the socket: the session sees plain bytes. It runs in the worker's loop, with buffers that all
//! connections of a worker share, so an idle connection holds the keys of its two directions and no buffer. rustls
//! implements the protocol.

mod channel;
mod ciphers;
mod contexts;
mod files;
pub mod harness;
mod sessions;
mod settings;
mod validity;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustls::client::ClientConfig;
use rustls::server::ServerConfig;

pub(crate) use channel::{Buffers, Channel};
pub use ciphers::Ciphers;
use contexts::Contexts;
pub use files::LoadError;
pub use settings::{TlsSettings, Version};

use crate::startup::bounded_file;
use crate::startup::options::{EXIT_USAGE, Refusal};

/// Whether a listener asks clients for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Does not ask for them.
    Ignored,
    /// Asks. Accepts a client without a certificate, and refuses one with a bad one.
    Requested,
    /// Refuses clients without a good certificate.
    Required,
}

/// The certificates in use.
pub struct Tls {
    settings: TlsSettings,
    current: RwLock<Loaded>,
    /// Held while files are read: what was read later is not to be replaced by what was read before.
    reading: Mutex<()>,
}

struct Loaded {
    contexts: Contexts,
    at: Instant,
}

impl Tls {
    /// Reads the certificates, if TLS is on. Call before dropping privileges: only root may be able to read the keys.
    /// Errors: a file cannot be read or parsed; exit code 64.
    pub fn load(settings: &TlsSettings) -> Result<Option<Self>, Refusal> {
        if !settings.is_enabled {
            return Ok(None);
        }
        let contexts = Contexts::load(settings, bounded_file::read)
            .map_err(|error| Refusal::new(EXIT_USAGE, error.to_string()))?;
        let current = RwLock::new(Loaded { contexts, at: Instant::now() });
        Ok(Some(Self { settings: settings.clone(), current, reading: Mutex::default() }))
    }

    /// Reads the certificates again (`refresh_certs`, SIGHUP). New connections use the new ones, open connections keep
    /// theirs. Errors: as [`Tls::load`], and for what is no regular file by now; the old certificates stay, and the
    /// journal gives the reason, which names files and so is not for clients.
    pub fn reload(&self) -> Result<(), LoadError> {
        self.read_again(self.reading.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Tls::reload`]; `None` if another thread is reading them, perhaps from before the caller was asked to.
    pub(crate) fn try_reload(&self) -> Option<Result<(), LoadError>> {
        let reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.read_again(reading))
    }

    /// Keeps others from reading the certificates, as a read does that takes long. For tests.
    #[doc(hidden)]
    pub fn hold_reading(&self) -> impl Drop + '_ {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_again(&self, _reading: MutexGuard<'_, ()>) -> Result<(), LoadError> {
        let contexts = Contexts::load(&self.settings, bounded_file::read_regular)
            .inspect_err(|error| tracing::error!("{error}; the old certificates stay"))?;
        tracing::info!("certificates read again");
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Loaded { contexts, at: Instant::now() };
        Ok(())
    }

    /// The files that [`Tls::reload`] reads.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let TlsSettings { chain_file, key_file, ca_file, .. } = &self.settings;
        [chain_file, key_file, ca_file].into_iter().flatten().cloned()
    }

    /// Seconds since the certificates in use were read.
    pub fn secs_since_load(&self) -> u64 {
        self.current.read().unwrap_or_else(PoisonError::into_inner).at.elapsed().as_secs()
    }

    /// Seconds until the first certificate of the chain expires, by the wall clock; negative: it has expired. `None`:
    /// no end could be read.
    pub fn secs_to_end(&self) -> Option<i64> {
        let end_secs = self.current.read().unwrap_or_else(PoisonError::into_inner).contexts.end_secs()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(end_secs.saturating_sub_unsigned(now.as_secs()))
    }

    /// The configuration for a new connection of such a listener.
    pub(crate) fn context(&self, certificates: ClientCertificates) -> Arc<ServerConfig> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).contexts.get(certificates)
    }

    /// The configuration for a new connection to another server, with our certificate; `None`: no `ssl_ca_cert`.
    pub(crate) fn outgoing(&self) -> Option<Arc<ClientConfig>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).contexts.outgoing()
    }
}
