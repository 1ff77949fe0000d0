//! Warnings about listeners that are open to everybody, and about those that accept nobody.

use std::net::SocketAddr;

use larder_protocol::Dialect;

use crate::net::listeners::{Address, Listener};
use crate::net::tls::{ClientCertificates, TlsSettings};
use crate::web::Web;

/// One line for each listener for items by HTTP that other machines can reach without a token or a certificate.
pub fn http_warnings(listeners: &[Listener], needs_token: bool) -> Vec<String> {
    let open = listeners.iter().filter(|listener| {
        let is_known = listener.tls == Some(ClientCertificates::Required);
        let is_closed = needs_token || is_known || listener.address.is_local();
        listener.dialect == Some(Dialect::Http) && !is_closed
    });
    open.map(|Listener { address, .. }| {
        format!(
            "HTTP at {address} is open to everybody: no --http-token-file; 127.0.0.1 keeps it to this machine"
        )
    })
    .collect()
}

/// One line for each admin listener that other machines can reach and that shows metrics without a token.
pub fn admin_warnings(web: &Web) -> Vec<String> {
    if web.needs_login() {
        return Vec::new();
    }
    let open = web.listeners().iter().filter_map(|listener| match listener.address {
        Address::Tcp(address) if !address.ip().to_canonical().is_loopback() => Some(address),
        _ => None,
    });
    open.map(|address| {
        format!(
            "admin HTTP at {address} is open to everybody: no --admin-token-file; \
             127.0.0.1 keeps it to this machine"
        )
    })
    .collect()
}

/// One line for each listener that requests certificates of clients while no authorities are set to check them against.
pub fn certificate_warnings(listeners: &[Listener], tls: &TlsSettings) -> Vec<String> {
    let asking = listeners.iter().filter_map(|Listener { address, tls: certificates, .. }| {
        let whom = match certificates.filter(|_| tls.ca_file.is_none())? {
            ClientCertificates::Ignored => return None,
            ClientCertificates::Requested => "nobody with a certificate",
            ClientCertificates::Required => "nobody",
        };
        Some(format!("{address} accepts {whom}: no ssl_ca_cert to check client certificates against"))
    });
    asking.collect()
}

/// One line for each TCP listener that other machines can reach without login and TLS, and for each such UDP listener.
/// None if all clients must log in.
///
/// Unix sockets are protected by the owner and mode of their file.
pub fn warnings(listeners: &[Listener], udp: &[SocketAddr], needs_login: bool) -> Vec<String> {
    let datagrams = udp.iter().filter(|address| !address.ip().to_canonical().is_loopback());
    let datagrams = datagrams.map(|address| {
        format!(
            "UDP {address} is open to everybody, without login, and with forged addresses (docs/udp.md); \
             -l 127.0.0.1 keeps it to this machine"
        )
    });
    let open = listeners.iter().filter_map(|listener| match listener.address {
        _ if needs_login || listener.tls.is_some() || listener.dialect == Some(Dialect::Http) => None,
        Address::Tcp(address) if !address.ip().to_canonical().is_loopback() => Some(address),
        _ => None,
    });
    open.map(|address| {
        format!(
            "{address} is open to everybody: no login (-Y, -S), no TLS (-Z); \
             -l 127.0.0.1 keeps it to this machine"
        )
    })
    .chain(datagrams)
    .collect()
}
