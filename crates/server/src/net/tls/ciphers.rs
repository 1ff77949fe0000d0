//! Cipher suites by their OpenSSL names.

use rustls::crypto::ring::cipher_suite;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// A list of cipher suites.
#[derive(Clone, Debug)]
pub struct Ciphers {
    /// The list as it was given.
    pub written: String,
    suites: Vec<SupportedCipherSuite>,
}

impl Ciphers {
    /// Reads names separated by colons. Errors: the first name that is none of [`Ciphers::names`].
    pub(crate) fn read(list: &str) -> Result<Self, String> {
        let suites = list
            .split(':')
            .map(|name| {
                let known = SUITES.iter().find(|(known, _)| *known == name);
                known.map(|(_, suite)| **suite).ok_or_else(|| name.to_owned())
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { written: list.to_owned(), suites })
    }

    /// The names of all cipher suites that rustls has.
    pub(crate) fn names() -> String {
        SUITES.map(|(name, _)| name).join(":")
    }

    /// The suites to offer. As in OpenSSL, TLS 1.2 and 1.3 have lists of their own: a version of which the list names
    /// no suite keeps all of its suites.
    pub(super) fn suites(&self) -> Vec<SupportedCipherSuite> {
        let is_named =
            |version: &SupportedProtocolVersion| self.suites.iter().any(|suite| suite.version() == version);
        let unnamed = SUITES.iter().map(|(_, suite)| **suite).filter(|suite| !is_named(suite.version()));
        self.suites.iter().copied().chain(unnamed).collect()
    }
}

static SUITES: [(&str, &SupportedCipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", &cipher_suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", &cipher_suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", &cipher_suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", &cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", &cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", &cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", &cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", &cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", &cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_not_named_keeps_its_suites() {
        let ciphers = Ciphers::read("ECDHE-RSA-AES128-GCM-SHA256").expect("OpenSSL has it, and so have we");
        let suites = ciphers.suites();
        assert_eq!(suites.len(), 1 + 3);
        assert_eq!(Ciphers::read("TLS_AES_128_GCM_SHA256").expect("in TLS 1.3").suites().len(), 1 + 6);
        assert_eq!(Ciphers::read("AES128-SHA").expect_err("no forward secrecy"), "AES128-SHA");
    }
}
