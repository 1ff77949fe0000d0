//! The values of `-o ssl_*` options.

use super::{Draft, EXIT_USAGE, Refusal, absolute, number_in};
use crate::net::tls::{Ciphers, Version};

pub(super) fn chain_file(draft: &mut Draft, value: &str) -> Result<(), Refusal> {
    draft.settings.tls.chain_file = Some(absolute(value)?);
    Ok(())
}

pub(super) fn key_file(draft: &mut Draft, value: &str) -> Result<(), Refusal> {
    draft.settings.tls.key_file = Some(absolute(value)?);
    Ok(())
}

pub(super) fn ca_file(draft: &mut Draft, value: &str) -> Result<(), Refusal> {
    draft.settings.tls.ca_file = Some(absolute(value)?);
    Ok(())
}

pub(super) fn key_format(_: &mut Draft, value: &str) -> Result<(), Refusal> {
    if value == "1" {
        return Ok(());
    }
    Err(Refusal::new(EXIT_USAGE, "larderd: ssl_keyformat: keys are read in PEM (1) alone"))
}

pub(super) fn verify_mode(draft: &mut Draft, value: &str) -> Result<(), Refusal> {
    let message = "Invalid ssl_verify_mode. Use help to see valid options.";
    draft.settings.tls.verify_mode = number_in(value, 0..=3, message)?;
    Ok(())
}

pub(super) fn ciphers(draft: &mut Draft, value: &str) -> Result<(), Refusal> {
    let ciphers = Ciphers::read(value).map_err(|name| {
        let names = Ciphers::names();
        Refusal::new(EXIT_USAGE, format!("Error setting the provided cipher(s): {name} is none of {names}"))
    })?;
    draft.settings.tls.ciphers = Some(ciphers);
    Ok(())
}

pub(super) fn version_min(draft: &mut Draft, value: &str) -> Result<(), Refusal> {
    let message = "Invalid ssl_min_version. Use help to see valid options.";
    draft.settings.tls.version_min = match number_in(value, 0..=3, message)? {
        3 => Version::Tls13,
        2 => Version::Tls12,
        _ => {
            let message =
                "larderd: ssl_min_version: there is no TLS older than 1.2 (2) here, as it is broken";
            return Err(Refusal::new(EXIT_USAGE, message));
        }
    };
    Ok(())
}
