//! The files with certificates and keys, in PEM.

use std::fmt;
use std::path::{Path, PathBuf};

use memchr::memmem;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::startup::bounded_file::{BYTE_ORDER_MARK, Read};

/// Why certificates could not be loaded. It names files, so it is for the operator and not for clients.
#[derive(Debug)]
pub struct LoadError {
    what: &'static str,
    file: PathBuf,
    reason: String,
}

/// The server's certificate and the intermediate ones; at least one.
pub(super) fn chain(file: &Path, read: Read) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    certificates("the certificate chain", file, IDENTITY_BYTES_MAX, read)
}

/// The first private key.
pub(super) fn key(file: &Path, read: Read) -> Result<PrivateKeyDer<'static>, LoadError> {
    let what = "the key";
    let content = content(what, file, IDENTITY_BYTES_MAX, read)?;
    PrivateKeyDer::from_pem_slice(&content).map_err(|error| {
        let is_encrypted = has(&content, "-----BEGIN ENCRYPTED PRIVATE KEY-----");
        let nothing_found = if is_encrypted { ENCRYPTED } else { "no private key in it" };
        LoadError::new(what, file, &reason(error, &content, nothing_found))
    })
}

pub(super) fn authorities(file: &Path, read: Read) -> Result<RootCertStore, LoadError> {
    let what = "the CA certificates";
    let mut store = RootCertStore::empty();
    for certificate in certificates(what, file, AUTHORITIES_BYTES_MAX, read)? {
        store.add(certificate).map_err(|error| LoadError::new(what, file, &error))?;
    }
    Ok(store)
}

/// All certificates in a file; at least one.
fn certificates(
    what: &'static str,
    file: &Path,
    bytes_max: u64,
    read: Read,
) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let content = content(what, file, bytes_max, read)?;
    // Left out, it would be missed by clients, or they by us.
    if has(&content, "-----BEGIN TRUSTED CERTIFICATE-----") {
        return Err(LoadError::new(what, file, &TRUSTED));
    }
    let refuse = |error| LoadError::new(what, file, &reason(error, &content, "no certificate in it"));
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(&content).collect::<Result<_, _>>().map_err(refuse)?;
    let begun = memmem::find_iter(&content, "-----BEGIN CERTIFICATE-----").count();
    if certificates.len() < begun {
        let reason =
            format!("{begun} certificates begin in it, and {} can be read: {OWN_LINE}", certificates.len());
        return Err(LoadError::new(what, file, &reason));
    }
    if certificates.is_empty() { Err(refuse(pem::Error::NoItemsFound)) } else { Ok(certificates) }
}

/// The text of a file, in today's form: without byte order marks, which editors put before it and `cat` into it, and
/// with the present name of certificates.
fn content(what: &'static str, file: &Path, bytes_max: u64, read: Read) -> Result<Vec<u8>, LoadError> {
    let content = read(file, bytes_max).map_err(|error| LoadError::new(what, file, &error))?;
    let content = replace(content, BYTE_ORDER_MARK, b"");
    let content = replace(content, b"-----BEGIN X509 CERTIFICATE-----", b"-----BEGIN CERTIFICATE-----");
    Ok(replace(content, b"-----END X509 CERTIFICATE-----", b"-----END CERTIFICATE-----"))
}

fn replace(content: Vec<u8>, old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut found = memmem::find_iter(&content, old).peekable();
    if found.peek().is_none() {
        return content;
    }
    let mut replaced = Vec::with_capacity(content.len());
    let mut start = 0;
    for at in found {
        replaced.extend_from_slice(&content[start..at]);
        replaced.extend_from_slice(new);
        start = at + old.len();
    }
    replaced.extend_from_slice(&content[start..]);
    replaced
}

fn reason(error: pem::Error, content: &[u8], nothing_found: &str) -> String {
    match error {
        pem::Error::NoItemsFound => nothing_found.to_owned(),
        // RFC 1421, as OpenSSL writes keys in their traditional forms.
        pem::Error::Base64Decode(_) if has(content, "Proc-Type: 4,ENCRYPTED") => ENCRYPTED.to_owned(),
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("no line \"-----END {}-----\"", String::from_utf8_lossy(&end_marker))
        }
        error => error.to_string(),
    }
}

fn has(content: &[u8], text: &str) -> bool {
    memmem::find(content, text.as_bytes()).is_some()
}

impl LoadError {
    pub(super) fn new(what: &'static str, file: &Path, reason: &dyn fmt::Display) -> Self {
        Self { what, file: file.to_owned(), reason: reason.to_string() }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error loading {}: {}: {}", self.what, self.file.display(), self.reason)
    }
}

impl std::error::Error for LoadError {}

const ENCRYPTED: &str = "the key is encrypted (openssl pkey -in OLD -out NEW decrypts it)";
const OWN_LINE: &str = "each \"-----BEGIN CERTIFICATE-----\" needs a line of its own";
const TRUSTED: &str = "a TRUSTED CERTIFICATE, OpenSSL's own form (openssl x509 -in OLD -out NEW converts it)";
/// A chain, or a key: some KiB. What was read stays in the heap's hands at each reload.
const IDENTITY_BYTES_MAX: u64 = 1 << 20;
/// The certificate authorities of a whole system take less than 1 MiB.
const AUTHORITIES_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use larder_conformance::folder::Folder;

    use super::*;
    use crate::startup::bounded_file::read;

    #[test]
    fn a_byte_order_mark_is_left_out() {
        let folder = Folder::create();
        let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let marked = |name, text: String| folder.write(name, [BYTE_ORDER_MARK, text.as_bytes()].concat());
        let certificate = marked("certificate", identity.cert.pem());
        assert_eq!(chain(&certificate, read).expect("it is one"), [identity.cert.der().clone()]);
        assert_eq!(authorities(&certificate, read).expect("it is one").len(), 1);
        let mark = String::from_utf8_lossy(BYTE_ORDER_MARK);
        let both = marked("both", format!("{0}{mark}{0}", identity.cert.pem()));
        assert_eq!(chain(&both, read).expect("they are two").len(), 2);
        key(&marked("key", identity.signing_key.serialize_pem()), read).expect("it is one");
    }

    /// As `cat` joins files whose last line has no end, among others. What is left out would be missed.
    #[test]
    fn no_certificate_is_left_out_in_silence() {
        let folder = Folder::create();
        let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let pem = identity.cert.pem();
        let old_name = pem.replace(" CERTIFICATE-", " X509 CERTIFICATE-");
        for (is_served, second) in [
            (true, format!("\n{pem}")),
            (true, format!("\n{old_name}")),
            (true, format!("\nsubject=x\n{}", pem.replace('\n', "\r\n"))),
            (false, pem.clone()),
            (false, format!("\n {pem}")),
            (false, format!("\n\u{a0}{pem}")),
        ] {
            let file = folder.write("pem", format!("{}{second}", pem.trim_end()));
            match chain(&file, read) {
                Ok(certificates) => assert!(is_served && certificates.len() == 2, "{second:?}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!is_served && said.contains("a line of its own"), "{second:?}: {said}");
                }
            }
        }
        let cut = folder.write("cut", pem.split("-----END").next().expect("its head"));
        let said = chain(&cut, read).expect_err("it has no end").to_string();
        assert!(said.ends_with("no line \"-----END CERTIFICATE-----\""), "{said}");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let folder = Folder::create();
        let pem = |label: &str, head: &str| {
            folder.write("pem", format!("-----BEGIN {label}-----\n{head}AAAA\n-----END {label}-----\n"))
        };
        let trusted = pem("TRUSTED CERTIFICATE", "");
        for refused in [chain(&trusted, read).err(), authorities(&trusted, read).err()] {
            let said = refused.expect("it is no CERTIFICATE").to_string();
            assert!(said.contains("TRUSTED CERTIFICATE") && said.contains("openssl x509"), "{said}");
        }
        let proc_type = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n";
        for (label, head) in
            [("ENCRYPTED PRIVATE KEY", ""), ("EC PRIVATE KEY", proc_type), ("RSA PRIVATE KEY", proc_type)]
        {
            let said = key(&pem(label, head), read).expect_err("nobody gives a passphrase").to_string();
            assert!(said.contains("is encrypted"), "{label}: {said}");
        }
        // In one file, the chain is read first.
        let said =
            chain(&pem("EC PRIVATE KEY", proc_type), read).expect_err("nothing else is there").to_string();
        assert!(said.contains("is encrypted"), "{said}");
        let said = key(&pem("CERTIFICATE", ""), read).expect_err("it is no key").to_string();
        assert!(said.ends_with("no private key in it"), "{said}");
    }
}
