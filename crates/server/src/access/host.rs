//! The host that a request names.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::net::listeners::Address;

/// The hosts that the requests to a listener may name. A page of another site, open in somebody's browser, could give
/// this machine a name of its own (DNS rebinding) and reach a loopback listener that asks for no token. There the host
/// must be localhost or a loopback address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Any, or none.
    #[default]
    Any,
    /// Names that only this machine has.
    ThisMachine,
}

impl Hosts {
    /// Those of a listener at this address. `is_authenticated`: its clients show a token or a certificate.
    pub(super) fn of(address: &Address, is_authenticated: bool) -> Self {
        match address {
            Address::Tcp(_) if address.is_local() && !is_authenticated => Self::ThisMachine,
            _ => Self::Any,
        }
    }

    /// True if a request for this host is meant for the listener.
    pub fn admit(self, host: Option<&str>) -> bool {
        self == Self::Any || host.is_some_and(is_this_machine)
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
