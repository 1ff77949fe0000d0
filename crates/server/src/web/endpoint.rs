//! The listeners for operators, and what each may show.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::net::listeners::{self, Address, Listener};
use crate::net::tls::ClientCertificates;
use crate::startup::options::{EXIT_OS_ERROR, Refusal};
use crate::startup::privileges::Target;
use crate::startup::settings::Settings;

/// A listener, and how far its clients are trusted.
pub(super) struct AdminEndpoint {
    pub(super) listener: Listener,
    /// Whether it requests certificates of clients; `None`: no TLS.
    pub(super) tls: Option<ClientCertificates>,
    /// Keys may be shown here.
    pub(super) shows_keys: bool,
    /// The host of a request must be this machine: see [`AdminEndpoint::is_meant`].
    is_local_only: bool,
}

/// Binds the addresses of `--admin-listen`. Errors: exit code 71.
pub(super) fn bind(settings: &Settings, user: Option<&Target>) -> Result<Vec<Listener>, Refusal> {
    let mut listeners = Vec::new();
    for entry in &settings.web.listen {
        let bound = if entry.starts_with('/') {
            listeners::bind_unix(entry.as_ref(), settings, user)
                .map(|listener| vec![listener])
                .map_err(|e| e.to_string())
        } else {
            listeners::host_and_port(entry).and_then(|(host, port)| {
                let port = port.ok_or("a port is missing")?;
                listeners::bind_host(host, port, None, settings.backlog).map_err(|error| error.to_string())
            })
        };
        listeners.extend(bound.map_err(|error| {
            Refusal::new(EXIT_OS_ERROR, format!("larderd: --admin-listen {entry}: {error}"))
        })?);
    }
    Ok(listeners)
}

/// Makes endpoints of listeners.
pub(super) fn open(listeners: Vec<Listener>, needs_login: bool, settings: &Settings) -> Vec<AdminEndpoint> {
    let endpoint = |listener: Listener| {
        let is_local = is_local(&listener.address);
        // The mode of a Unix socket decides who may open it; TLS would add nothing.
        let has_tls = settings.web.tls && matches!(listener.address, Address::Tcp(_));
        let tls = has_tls.then(|| settings.tls.client_certificates());
        let is_known = needs_login || tls == Some(ClientCertificates::Required);
        AdminEndpoint {
            // -X forbids showing keys.
            shows_keys: (is_local || is_known) && settings.dump,
            is_local_only: is_local && !is_known && matches!(listener.address, Address::Tcp(_)),
            tls,
            listener,
        }
    };
    listeners.into_iter().map(endpoint).collect()
}

/// True if only this machine can reach it.
pub(super) fn is_local(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
        Address::Unix(_) => true,
    }
}

impl AdminEndpoint {
    /// True if a request for this host is meant for this listener. A page of another site, open in the operator's
    /// browser, could give this machine a name of its own (DNS rebinding) and read what a loopback listener shows
    /// without a token. So the host must be localhost or a loopback address.
    pub(super) fn is_meant(&self, host: Option<&str>) -> bool {
        !self.is_local_only || host.is_some_and(is_this_machine)
    }
}

/// Matches `127.0.0.1:80`, `[::1]`, `localhost:80` and so on, with nothing before or after (RFC 9110, section 7.2: host
/// and port).
fn is_this_machine(host: &str) -> bool {
    let (is_named, rest) = match host.strip_prefix('[').map(|bracketed| bracketed.split_once(']')) {
        Some(Some((ip, rest))) => (ip.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback()), rest),
        Some(None) => return false,
        None => {
            let (name, rest) = host.split_at(host.find(':').unwrap_or(host.len()));
            let is_loopback = || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
            (name.eq_ignore_ascii_case("localhost") || is_loopback(), rest)
        }
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    is_named && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_only_this_machine_has() {
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:9150", "[::1]", "[::1]:9150", "127.1.2.3"]
        {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["", "example.org", "localhost.example.org", "192.0.2.1", "[2001:db8::1]:1", "127.0.0.1.nip.io"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
        for host in [
            "[::1].evil.example",
            "[::1]evil.example",
            "[::1",
            "[::1]:80@evil.example",
            "[localhost]",
            "[127.0.0.1]",
            "::1",
            "localhost:80@evil.example",
            "localhost:x",
            "localhost:80:80",
            "localhost@evil.example",
            "evil.example@localhost",
            "127.0.0.1:80/evil.example",
            " localhost",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
