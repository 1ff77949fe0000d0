//! The listeners for operators, and what each may show.

use crate::access::Hosts;
use crate::net::listeners::{Address, Listener};
use crate::net::tls::ClientCertificates;
use crate::startup::settings::Settings;

/// A listener, and how far its clients are trusted.
pub(super) struct AdminEndpoint {
    pub(super) listener: Listener,
    /// Whether it requests certificates of clients; `None`: no TLS.
    pub(super) tls: Option<ClientCertificates>,
    /// Keys may be shown here.
    pub(super) shows_keys: bool,
    /// The hosts that a request may be for.
    pub(super) hosts: Hosts,
}

/// Makes endpoints of listeners.
pub(super) fn open(listeners: Vec<Listener>, needs_login: bool, settings: &Settings) -> Vec<AdminEndpoint> {
    let endpoint = |listener: Listener| {
        // The mode of a Unix socket decides who may open it; TLS would add nothing.
        let has_tls = settings.web.tls && matches!(listener.address, Address::Tcp(_));
        let tls = has_tls.then(|| settings.tls.client_certificates());
        let is_known = needs_login || tls == Some(ClientCertificates::Required);
        AdminEndpoint {
            // -X forbids showing keys.
            shows_keys: (listener.address.is_local() || is_known) && settings.dump,
            hosts: Hosts::of(&listener.address, is_known),
            tls,
            listener,
        }
    };
    listeners.into_iter().map(endpoint).collect()
}
