//! The entries of `-l`: `[notls:|btls:|mtls:][proto[...]:][tag...:]host[:port]`.

use larder_protocol::Dialect;

use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::settings::{Port, Settings};

/// The entries of `-l` that are served over UDP: not those that ask for TLS, which UDP does not have. Errors: exit code
/// 71.
pub(crate) fn listen_specs(settings: &Settings) -> Result<Vec<ListenSpec<'_>>, Refusal> {
    if settings.listen.is_empty() {
        return Ok(vec![ListenSpec { tls: None, protocol: Protocol::Default, host: "*", port: None }]);
    }
    let refuse = |error| Refusal::new(EXIT_OS_ERROR, format!("failed to listen on UDP port: {error}"));
    let has_tls = |entry: &&String| matches!(split_tls(entry).0, Some(TlsPrefix::Basic | TlsPrefix::Mutual));
    let entries = settings.listen.iter().filter(|entry| !has_tls(entry));
    entries.map(|entry| listen_spec(entry).map_err(refuse)).collect()
}

/// True if clients of this entry have to show certificates, whatever `ssl_verify_mode` says.
pub(crate) fn needs_certificate(entry: &str) -> bool {
    split_tls(entry).0 == Some(TlsPrefix::Mutual)
}

/// An entry of `-l`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListenSpec<'e> {
    /// `None`: as `-Z` and `ssl_verify_mode` say.
    pub(super) tls: Option<TlsPrefix>,
    pub(crate) protocol: Protocol,
    pub(crate) host: &'e str,
    /// `None`: the port of `-p`, or `-U`.
    pub(crate) port: Option<Port>,
}

/// What an entry of `-l` says about TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsPrefix {
    /// `notls:`.
    None,
    /// `btls:`, without clients' certificates.
    Basic,
    /// `mtls:`, with.
    Mutual,
}

/// The dialect of the clients of an entry of `-l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// As `-B` says.
    Default,
    /// Their first byte tells.
    Negotiating,
    Of(Dialect),
}

impl Protocol {
    /// `None`: the first byte tells.
    pub(crate) fn dialect(self, settings: &Settings) -> Option<Dialect> {
        match self {
            Self::Default => settings.dialect,
            Self::Negotiating => None,
            Self::Of(dialect) => Some(dialect),
        }
    }
}

fn split_tls(entry: &str) -> (Option<TlsPrefix>, &str) {
    match entry.split_once(':') {
        Some(("notls", rest)) => (Some(TlsPrefix::None), rest),
        Some(("btls", rest)) => (Some(TlsPrefix::Basic), rest),
        Some(("mtls", rest)) => (Some(TlsPrefix::Mutual), rest),
        _ => (None, entry),
    }
}

/// Reads an entry of `-l`: `[notls:|btls:|mtls:][proto[ascii|binary|negotiating]:][tag[name]:|tag_name_:]host[:port]`,
/// IPv6 in brackets if a port follows. Tags are taken and have no effect.
pub(super) fn listen_spec(entry: &str) -> Result<ListenSpec<'_>, String> {
    let (tls, mut rest) = split_tls(entry);
    let mut protocol = Protocol::Default;
    if let Some((name, after)) = rest.strip_prefix("proto[").and_then(|rest| rest.split_once("]:")) {
        protocol = match name {
            "ascii" => Protocol::Of(Dialect::Text),
            "binary" => Protocol::Of(Dialect::Binary),
            "negotiating" => Protocol::Negotiating,
            _ => return Err(format!("protocol {name} is not in this version")),
        };
        rest = after;
    }
    let bracketed = rest.strip_prefix("tag[").and_then(|rest| rest.split_once("]:"));
    if let Some((tag, after)) =
        bracketed.or_else(|| rest.strip_prefix("tag_").and_then(|rest| rest.split_once("_:")))
    {
        if !(1..=8).contains(&tag.len()) {
            return Err("a tag has 1 to 8 characters".to_owned());
        }
        rest = after;
    }
    let (host, port) = host_and_port(rest)?;
    Ok(ListenSpec { tls, protocol, host, port })
}

/// Reads `host[:port]`, IPv6 in brackets if a port follows; port 0 is one that the system chooses.
pub(crate) fn host_and_port(text: &str) -> Result<(&str, Option<Port>), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']').ok_or("missing ]")?;
            match after {
                "" => (host, None),
                _ => (host, Some(after.strip_prefix(':').ok_or("missing : before the port")?)),
            }
        }
        // More than one colon: an IPv6 address without a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => None,
        Some(digits) => {
            let number: u16 = digits.parse().map_err(|_| format!("Invalid port number: \"{digits}\""))?;
            Some(if number == 0 { Port::Ephemeral } else { Port::Fixed(number) })
        }
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_memcached_documents_them() {
        let default = Protocol::Default;
        for (entry, protocol, host, port) in [
            ("127.0.0.1", default, "127.0.0.1", None),
            ("127.0.0.1:5", default, "127.0.0.1", Some(Port::Fixed(5))),
            ("*:5", default, "*", Some(Port::Fixed(5))),
            ("::1", default, "::1", None),
            ("[::1]", default, "::1", None),
            ("[::1]:5", default, "::1", Some(Port::Fixed(5))),
            ("proto[ascii]:localhost:5", Protocol::Of(Dialect::Text), "localhost", Some(Port::Fixed(5))),
            ("proto[binary]:[::1]:5", Protocol::Of(Dialect::Binary), "::1", Some(Port::Fixed(5))),
            ("tag[b]:a:5", default, "a", Some(Port::Fixed(5))),
            ("proto[negotiating]:tag_b_:a", Protocol::Negotiating, "a", None),
        ] {
            assert_eq!(listen_spec(entry), Ok(ListenSpec { tls: None, protocol, host, port }), "{entry}");
        }
        for entry in ["a:x", "a:70000", "[::1", "[::1]5", "proto[proxy]:a", "tag[]:a"] {
            assert!(listen_spec(entry).is_err(), "{entry}");
        }
    }
}
