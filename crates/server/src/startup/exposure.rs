//! Warnings about listeners that are open to everybody, and about those that accept nobody.

use std::net::SocketAddr;

use larder_protocol::Dialect;

use crate::access::{HttpSettings, ListenerAccess};
use crate::net::listeners::{Address, Listener};
use crate::net::tls::{ClientCertificates, TlsSettings};
use crate::startup::settings::Settings;

/// One line for each listener for items over HTTP that other machines can reach without a token or a certificate.
pub fn http_warnings(listeners: &[Listener], settings: &Settings) -> Vec<String> {
    let listeners = listeners.iter().filter(|listener| listener.dialect == Some(Dialect::Http));
    let open = open_addresses(listeners, &settings.http, &settings.tls);
    open.map(|address| {
        format!(
            "HTTP at {address} is open to everybody: no --http-token-file; 127.0.0.1 keeps it to this machine"
        )
    })
    .collect()
}

/// One line for each admin listener that other machines can reach without a token or a certificate.
pub fn admin_warnings(listeners: &[Listener], settings: &Settings) -> Vec<String> {
    let open = open_addresses(listeners.iter(), &settings.admin, &settings.tls);
    open.map(|address| {
        format!(
            "admin HTTP at {address} is open to everybody: no --admin-token-file; \
             127.0.0.1 keeps it to this machine"
        )
    })
    .collect()
}

/// One line for each admin listener that other machines reach without TLS, if it sends backups: who listens in has all
/// items, and the token to get them again.
pub fn backup_warnings(listeners: &[Listener], settings: &Settings) -> Vec<String> {
    if settings.store.as_ref().is_none_or(|store| store.backup_token_file.is_none()) {
        return Vec::new();
    }
    let has_tls =
        |address: &Address| ListenerAccess::of(address, &settings.admin, &settings.tls).tls.is_some();
    let warning = |Listener { address, .. }: &Listener| match address {
        Address::Tcp(bound) if !address.is_local() && !has_tls(address) => Some(format!(
            "admin HTTP at {bound} sends backups, and takes their token, without TLS: no --admin-tls; \
             127.0.0.1 keeps it to this machine"
        )),
        _ => None,
    };
    listeners.iter().filter_map(warning).collect()
}

fn open_addresses<'l>(
    listeners: impl Iterator<Item = &'l Listener>,
    http: &HttpSettings,
    tls: &TlsSettings,
) -> impl Iterator<Item = SocketAddr> {
    listeners.filter_map(|Listener { address, .. }| match address {
        Address::Tcp(bound) if ListenerAccess::of(address, http, tls).is_open => Some(*bound),
        _ => None,
    })
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

/// A line if all clients come over Unix sockets, which have no TLS, and `-Z` is for them. Like memcached, larderd
/// serves them: no other machine can connect.
pub fn unix_warning(listeners: &[Listener], settings: &Settings) -> Option<&'static str> {
    let is_unix = |listener: &Listener| matches!(listener.address, Address::Unix(_));
    let has_other_tls = settings.admin.tls
        || settings.http.tls
        || settings.store.as_ref().is_some_and(|store| store.replication.is_some());
    let is_unused = settings.tls.is_enabled && !has_other_tls && listeners.iter().all(is_unix);
    is_unused.then_some("-Z has no effect: Unix sockets have no TLS")
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
