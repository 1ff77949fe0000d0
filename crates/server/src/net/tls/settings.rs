//! TLS options of the command line.

use std::path::PathBuf;

use super::ClientCertificates;
use super::ciphers::Ciphers;
use crate::startup::options::{EXIT_USAGE, Refusal};

/// Settings of TLS: `-Z` and `-o ssl_*`. Defaults are memcached's.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// TCP listeners speak TLS (`-Z`).
    pub is_enabled: bool,
    /// The server's certificate chain, in PEM (`ssl_chain_cert`).
    pub chain_file: Option<PathBuf>,
    /// Its private key, in PEM (`ssl_key`); `None`: in the chain file.
    pub key_file: Option<PathBuf>,
    /// Authorities of clients' certificates, in PEM (`ssl_ca_cert`).
    pub ca_file: Option<PathBuf>,
    /// `ssl_verify_mode` as given, 0 to 3.
    pub verify_mode: u8,
    /// The cipher suites (`ssl_ciphers`); `None`: all.
    pub ciphers: Option<Ciphers>,
    /// The oldest version of the protocol (`ssl_min_version`).
    pub version_min: Version,
    /// Clients may resume sessions (`ssl_session_cache`).
    pub session_cache: bool,
    /// `ssl_wbuf_size`; without effect.
    pub write_buffer_bytes: u32,
    /// `ssl_kernel_tls`; without effect.
    pub kernel_tls: bool,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.2.
    Tls12,
    /// 1.3.
    Tls13,
}

impl TlsSettings {
    /// Whether a listener without a prefix of its own asks for certificates. "Once" (3) is "require" without asking
    /// again at a renegotiation, which rustls does not have.
    pub fn client_certificates(&self) -> ClientCertificates {
        match self.verify_mode {
            0 => ClientCertificates::Ignored,
            1 => ClientCertificates::Requested,
            _ => ClientCertificates::Required,
        }
    }

    /// The checks that need all options. Errors: exit code 64.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.is_enabled && self.chain_file.is_none() {
            let message = "Error loading the certificate chain: -Z needs -o ssl_chain_cert=<file>";
            return Err(Refusal::new(EXIT_USAGE, message));
        }
        Ok(())
    }
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            is_enabled: false,
            chain_file: None,
            key_file: None,
            ca_file: None,
            verify_mode: 0,
            ciphers: None,
            version_min: Version::Tls12,
            session_cache: false,
            write_buffer_bytes: 16 << 10,
            kernel_tls: false,
        }
    }
}
