//! Certificates made for a test, in a directory of their own.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
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
        Identity { certificate, key }
    }
}

impl Identity {
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

/// A directory that is gone when dropped. Whoever the server becomes may read it.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("larder-tls-{}-{n}", std::process::id()));
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file whole, as renewals should.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (unfinished, path) = (self.path("unfinished"), self.path(name));
        fs::write(&unfinished, text).expect("a file");
        fs::rename(unfinished, &path).expect("a new name");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
