//! The access to a listener for HTTP.

use super::{Hosts, HttpSettings};
use crate::net::listeners::Address;
use crate::net::tls::{ClientCertificates, TlsSettings};

/// What a listener asks of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerAccess {
    /// Whether it requests certificates of clients; `None`: no TLS.
    pub tls: Option<ClientCertificates>,
    /// The hosts that a request may be for.
    pub hosts: Hosts,
    /// Clients have to show a token or a certificate.
    pub is_authenticated: bool,
    /// Other machines can connect, and need neither.
    pub is_open: bool,
}

impl ListenerAccess {
    /// That of a listener at this address.
    pub fn of(address: &Address, http: &HttpSettings, tls: &TlsSettings) -> Self {
        // The mode of a Unix socket decides who may open it; TLS would add nothing.
        let has_tls = http.tls && matches!(address, Address::Tcp(_));
        let tls = has_tls.then(|| tls.client_certificates());
        let is_authenticated = http.token_file.is_some() || tls == Some(ClientCertificates::Required);
        Self {
            tls,
            hosts: Hosts::of(address, is_authenticated),
            is_authenticated,
            is_open: !is_authenticated && !address.is_local(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(address: &str, has_token: bool, verify_mode: Option<u8>) -> ListenerAccess {
        let address = match address.parse() {
            Ok(address) => Address::Tcp(address),
            Err(_) => Address::Unix(address.into()),
        };
        let token_file = has_token.then(|| "token".into());
        let http = HttpSettings { token_file, tls: verify_mode.is_some(), ..HttpSettings::default() };
        let tls = TlsSettings { verify_mode: verify_mode.unwrap_or(0), ..TlsSettings::default() };
        ListenerAccess::of(&address, &http, &tls)
    }

    #[test]
    fn a_token_or_a_required_certificate_closes_a_listener() {
        for (has_token, verify_mode, is_open) in [
            (false, None, true),
            (false, Some(0), true),
            (false, Some(1), true),
            (false, Some(2), false),
            (true, None, false),
            (true, Some(1), false),
        ] {
            let access = access("192.0.2.1:80", has_token, verify_mode);
            assert_eq!(access.is_open, is_open, "{has_token} {verify_mode:?}");
            assert_eq!((access.hosts, access.tls.is_some()), (Hosts::Any, verify_mode.is_some()));
        }
    }

    #[test]
    fn loopback_addresses_check_the_host_unless_clients_are_authenticated() {
        for address in ["127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            let open = access(address, false, Some(1));
            assert_eq!((open.hosts, open.is_open), (Hosts::ThisMachine, false), "{address}");
            assert_eq!(access(address, true, None).hosts, Hosts::Any, "{address}");
            assert_eq!(access(address, false, Some(2)).hosts, Hosts::Any, "{address}");
        }
    }

    #[test]
    fn a_unix_socket_has_no_tls() {
        let socket = access("/run/larder.sock", false, Some(2));
        let is_authenticated = false;
        assert_eq!(socket, ListenerAccess { tls: None, hosts: Hosts::Any, is_authenticated, is_open: false });
    }
}
