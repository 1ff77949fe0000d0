//! rustls configurations, made from the files of the command line.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerConfig, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme, SupportedProtocolVersion,
    version,
};

use super::ClientCertificates;
use super::files::{self, LoadError};
use super::sessions::Short;
use super::settings::{TlsSettings, Version};
use super::validity;
use crate::startup::bounded_file::Read;

/// One context for each kind of listener.
///
/// Each has its own session tickets, and every load makes new ones. So a session that began where no certificate was
/// asked for does not resume where one is required, nor does one that began under authorities that are no longer
/// trusted.
pub(super) struct Contexts {
    ignored: Arc<ServerConfig>,
    requested: Arc<ServerConfig>,
    required: Arc<ServerConfig>,
    /// For connections to other servers; `None`: no authorities to check their certificates against.
    outgoing: Option<Arc<ClientConfig>>,
    /// Time when the first certificate of the chain expires, in seconds since 1970.
    end_secs: Option<i64>,
}

impl Contexts {
    pub(super) fn load(settings: &TlsSettings, read: Read) -> Result<Self, LoadError> {
        let identity = Identity::read(settings, read)?;
        let [requested, required] = verifiers(settings, read)?;
        Ok(Self {
            end_secs: identity.chain.iter().filter_map(validity::end_secs).min(),
            ignored: identity.context(settings, WebPkiClientVerifier::no_client_auth())?,
            requested: identity.context(settings, requested)?,
            required: identity.context(settings, required)?,
            outgoing: settings
                .ca_file
                .as_ref()
                .map(|file| identity.outgoing(settings, file, read))
                .transpose()?,
        })
    }

    pub(super) fn end_secs(&self) -> Option<i64> {
        self.end_secs
    }

    pub(super) fn outgoing(&self) -> Option<Arc<ClientConfig>> {
        self.outgoing.clone()
    }

    pub(super) fn get(&self, certificates: ClientCertificates) -> Arc<ServerConfig> {
        Arc::clone(match certificates {
            ClientCertificates::Ignored => &self.ignored,
            ClientCertificates::Requested => &self.requested,
            ClientCertificates::Required => &self.required,
        })
    }
}

/// The verifiers of client certificates: where they are requested, and where they are required.
fn verifiers(settings: &TlsSettings, read: Read) -> Result<[Arc<dyn ClientCertVerifier>; 2], LoadError> {
    let Some(file) = &settings.ca_file else {
        return Ok([false, true].map(|is_required| NoAuthorities::verifier(settings, is_required)));
    };
    let authorities = Arc::new(files::authorities(file, read)?);
    let verifier =
        || WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), provider(settings));
    let refuse = |error: &dyn fmt::Display| LoadError::new("the CA certificates", file, error);
    let requested = verifier().allow_unauthenticated().build().map_err(|error| refuse(&error))?;
    let required = verifier().build().map_err(|error| refuse(&error))?;
    Ok([requested, required])
}

/// The server's certificate and key.
struct Identity<'s> {
    chain_file: &'s Path,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl<'s> Identity<'s> {
    fn read(settings: &'s TlsSettings, read: Read) -> Result<Self, LoadError> {
        let chain_file = settings.chain_file.as_deref().unwrap_or_else(|| Path::new(""));
        let key_file = settings.key_file.as_deref().unwrap_or(chain_file);
        Ok(Self { chain_file, chain: files::chain(chain_file, read)?, key: files::key(key_file, read)? })
    }

    fn context(
        &self,
        settings: &TlsSettings,
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Result<Arc<ServerConfig>, LoadError> {
        let refuse = |error| LoadError::new("the certificate chain and its key", self.chain_file, &error);
        let mut context = ServerConfig::builder_with_provider(provider(settings))
            .with_protocol_versions(versions(settings))
            .map_err(refuse)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(refuse)?;
        if settings.session_cache {
            context.session_storage = Arc::new(Short(ServerSessionMemoryCache::new(SESSIONS_MAX)));
            context.ticketer = Arc::new(Short(ring::Ticketer::new().map_err(refuse)?));
        } else {
            context.session_storage = Arc::new(NoServerSessionStorage {});
            context.send_tls13_tickets = 0;
        }
        Ok(Arc::new(context))
    }

    /// For a connection to another server, which may require our certificate.
    fn outgoing(
        &self,
        settings: &TlsSettings,
        ca_file: &Path,
        read: Read,
    ) -> Result<Arc<ClientConfig>, LoadError> {
        let refuse = |error| LoadError::new("the certificate chain and its key", self.chain_file, &error);
        let context = ClientConfig::builder_with_provider(provider(settings))
            .with_protocol_versions(versions(settings))
            .map_err(refuse)?
            .with_root_certificates(files::authorities(ca_file, read)?)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(refuse)?;
        Ok(Arc::new(context))
    }
}

fn versions(settings: &TlsSettings) -> &'static [&'static SupportedProtocolVersion] {
    static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    match settings.version_min {
        Version::Tls12 => &NEWEST_FIRST,
        Version::Tls13 => &NEWEST_FIRST[..1],
    }
}

fn provider(settings: &TlsSettings) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    if let Some(ciphers) = &settings.ciphers {
        provider.cipher_suites = ciphers.suites();
    }
    Arc::new(provider)
}

/// Accepts no certificate: there is no authority.
#[derive(Debug)]
struct NoAuthorities {
    schemes: Vec<SignatureScheme>,
    is_required: bool,
}

impl NoAuthorities {
    fn verifier(settings: &TlsSettings, is_required: bool) -> Arc<dyn ClientCertVerifier> {
        let schemes = provider(settings).signature_verification_algorithms.supported_schemes();
        Arc::new(Self { schemes, is_required })
    }
}

impl ClientCertVerifier for NoAuthorities {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    // Never reached: the certificate itself is refused before.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// Sessions that clients without tickets may resume, for each kind of listener; memcached (OpenSSL) keeps 20480. A
/// session's size grows with the client's certificates, so this is lower.
const SESSIONS_MAX: usize = 4096;
