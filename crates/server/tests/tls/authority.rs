//! Certificates made for a test.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// A certificate and its key.
pub(crate) struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
    /// Sent behind its certificate.
    ballast: Vec<CertificateDer<'static>>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    /// For a server called `localhost`.
    pub(crate) fn server(&self) -> Identity {
        self.sign("localhost", ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(crate) fn client(&self) -> Identity {
        self.sign("client", ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity { certificate, key, ballast: Vec::new() }
    }
}

impl Identity {
    /// With a second certificate in its chain, so that the two are about `chain_bytes` long.
    pub(crate) fn with_ballast(mut self, chain_bytes: usize) -> Self {
        let missing_bytes = chain_bytes.saturating_sub(self.certificate.der().len());
        let mut params = CertificateParams::default();
        let content = vec![0; missing_bytes.saturating_sub(BALLAST_BYTES)];
        params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 1], content)];
        let ballast = params.self_signed(&self.key).expect("a certificate");
        self.ballast = vec![ballast.der().clone()];
        self
    }

    /// Its certificate, and what is sent with it.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        [vec![self.certificate()], self.ballast.clone()].concat()
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.serialize_der().into())
    }

    /// Certificate and key in one file.
    pub(crate) fn pem(&self) -> String {
        self.certificate.pem() + &self.key.serialize_pem()
    }
}

/// What a certificate takes beside its ballast, about.
const BALLAST_BYTES: usize = 400;
