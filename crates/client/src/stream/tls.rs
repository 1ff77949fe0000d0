//! Trusted authorities, and the client's certificate.

use std::path::Path;
use std::sync::Arc;
use std::{error, fmt, io};

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

/// Settings of TLS (1.2 or 1.3). Cheap to clone; connections that share one can resume each other's sessions.
#[derive(Clone, Debug)]
pub struct Tls {
    context: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

/// Why these settings cannot be used. Names the file.
#[derive(Debug)]
pub struct TlsError(String);

impl Tls {
    /// Trusts servers with a certificate of an authority in `ca_file` (PEM).
    ///
    /// # Errors
    /// The file cannot be read, or contains no certificate.
    pub fn trusting(ca_file: &Path) -> Result<TlsBuilder, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca_file)? {
            roots.add(certificate).map_err(|error| TlsError::of(ca_file, &error))?;
        }
        Ok(TlsBuilder { builder: versions()?.with_root_certificates(roots), server_name: None })
    }

    /// Accepts any certificate, so a third party can intercept and change all data. For measurements and tests.
    ///
    /// # Errors
    /// None known.
    pub fn accepting_anything() -> Result<TlsBuilder, TlsError> {
        let verifier = Arc::new(Anything(ring::default_provider()));
        let builder = versions()?.dangerous().with_custom_certificate_verifier(verifier);
        Ok(TlsBuilder { builder, server_name: None })
    }

    /// A new session. Requests `host`, unless another name is set.
    pub(super) fn session(&self, host: &str) -> io::Result<ClientConnection> {
        ClientConnection::new(self.context(), self.name(host)?).map_err(io::Error::other)
    }

    /// What all sessions share.
    pub(crate) fn context(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.context)
    }

    /// The name that a session with `host` requests.
    pub(crate) fn name(&self, host: &str) -> io::Result<ServerName<'static>> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => parse_name(host).map_err(io::Error::other),
        }
    }
}

/// Makes a [`Tls`].
pub struct TlsBuilder {
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    server_name: Option<ServerName<'static>>,
}

impl TlsBuilder {
    /// Requests this name, and expects it in the certificate, instead of the host's.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn server_name(self, name: &str) -> Result<Self, TlsError> {
        Ok(Self { server_name: Some(parse_name(name)?), ..self })
    }

    /// Sends no client certificate.
    pub fn anonymous(self) -> Tls {
        Tls { context: Arc::new(self.builder.with_no_client_auth()), server_name: self.server_name }
    }

    /// Sends the certificates in `chain_file`, the client's own first, with the key in `key_file` (both PEM; may be one
    /// file).
    ///
    /// # Errors
    /// A file cannot be read, has other content, or the key does not match.
    pub fn with_certificate(self, chain_file: &Path, key_file: &Path) -> Result<Tls, TlsError> {
        let chain = certificates(chain_file)?;
        let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| TlsError::of(key_file, &error))?;
        let context = self
            .builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| TlsError::of(chain_file, &error))?;
        Ok(Tls { context: Arc::new(context), server_name: self.server_name })
    }
}

fn versions() -> Result<ConfigBuilder<ClientConfig, rustls::WantsVerifier>, TlsError> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(error.to_string()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |error: &dyn fmt::Display| TlsError::of(file, error);
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).map_err(|error| fail(&error))?.collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(fail(&"no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(fail(&error)),
    }
}

fn parse_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|error| TlsError(format!("{name}: {error}")))
}

impl TlsError {
    fn of(file: &Path, reason: &dyn fmt::Display) -> Self {
        Self(format!("{}: {reason}", file.display()))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for TlsError {}

/// Trusts every certificate. The server must still have its private key.
#[derive(Debug)]
struct Anything(CryptoProvider);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
