//! TLS, by options that libmemcached does not have: `--TLS`, `--TLS-CA=FILE`, `--TLS-CERT=FILE`, `--TLS-KEY=FILE`,
//! `--TLS-NAME=NAME`, `--TLS-INSECURE`.

use std::path::Path;

use larder_client::Tls;

use crate::abi::Memc;
use crate::face::session;

/// What configuration strings say about TLS.
#[derive(Default)]
pub(super) struct TlsOptions {
    is_on: bool,
    is_insecure: bool,
    authorities: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    name: Option<String>,
}

impl TlsOptions {
    /// Takes an option: its name, and after `=` its value, which may be in quotes.
    pub(super) fn take(&mut self, option: &[u8]) -> Result<(), String> {
        let option = String::from_utf8_lossy(option);
        let (name, value) = option.split_once('=').unwrap_or((&option, ""));
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        let file = (!value.is_empty()).then(|| value.to_owned());
        match (name.to_ascii_uppercase().as_str(), &file) {
            ("--TLS", None) => {}
            ("--TLS-INSECURE", None) => self.is_insecure = true,
            ("--TLS-CA", Some(_)) => self.authorities = file,
            ("--TLS-CERT", Some(_)) => self.certificate = file,
            ("--TLS-KEY", Some(_)) => self.key = file,
            ("--TLS-NAME", Some(_)) => self.name = file,
            ("--TLS-CA" | "--TLS-CERT" | "--TLS-KEY" | "--TLS-NAME", None) => {
                return Err(format!("{name} needs a value"));
            }
            _ => return Err(format!("Unknown option: {option}")),
        }
        self.is_on = true;
        Ok(())
    }

    /// Sets TLS for a client, if it is wished for.
    pub(super) fn apply(&self, memc: &Memc) -> Result<(), String> {
        if !self.is_on {
            return Ok(());
        }
        let tls = self.make().map_err(|error| format!("Could not set TLS: {error}"))?;
        if let Some((mut session, options)) = session(memc) {
            session.core.quit(&options);
            session.core.tls = Some(tls);
        }
        Ok(())
    }

    fn make(&self) -> Result<Tls, String> {
        let authorities = self.authorities.as_deref().unwrap_or(SYSTEM_AUTHORITIES);
        let builder = match self.is_insecure {
            true => Tls::accepting_anything(),
            false => Tls::trusting(Path::new(authorities)),
        };
        let mut builder = builder.map_err(|error| error.to_string())?;
        if let Some(name) = &self.name {
            builder = builder.server_name(name).map_err(|error| error.to_string())?;
        }
        match (&self.certificate, &self.key) {
            (None, None) => Ok(builder.anonymous()),
            (Some(chain), key) => {
                let key = key.as_ref().unwrap_or(chain);
                builder.with_certificate(Path::new(chain), Path::new(key)).map_err(|error| error.to_string())
            }
            (None, Some(_)) => Err("--TLS-KEY needs --TLS-CERT".into()),
        }
    }
}

/// Where Debian and others keep the authorities that the system trusts.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
