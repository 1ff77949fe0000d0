//! Refuses options that protect a listener which does not exist: the operator would believe that they protect
//! something.

use larder_protocol::Dialect;

use crate::net::listeners::{Address, Listener};
use crate::startup::endpoints::Endpoints;
use crate::startup::options::{EXIT_USAGE, Refusal};
use crate::startup::settings::Settings;

/// Checks for such an option. Errors: exit code 64.
pub(super) fn check(settings: &Settings, endpoints: &Endpoints) -> Result<(), Refusal> {
    let Settings { admin, http, store, .. } = settings;
    let replication = store.as_ref().and_then(|store| store.replication.as_ref());
    let has_admin = endpoints.web.is_some();
    let has_http = !http.listen.is_empty();
    // A Unix socket has no TLS.
    let is_tcp = |listener: &Listener| matches!(listener.address, Address::Tcp(_));
    let is_http = |listener: &Listener| listener.dialect == Some(Dialect::Http);
    let has_admin_tls = admin.tls && endpoints.admin().iter().any(is_tcp);
    let has_http_tls = http.tls && endpoints.listeners.iter().any(|one| is_http(one) && is_tcp(one));
    let has_links = replication.is_some_and(|replication| {
        replication.listen.is_some() || !replication.peers.is_empty() || replication.peers_file.is_some()
    });
    let has_replication_token = replication.is_some_and(|replication| replication.token_file.is_some());
    for (option, is_given, has_effect, needs) in [
        ("--admin-token-file", admin.token_file.is_some(), has_admin, "--admin-listen"),
        ("--admin-tls", admin.tls, has_admin_tls, "--admin-listen with a host and a port"),
        ("--http-token-file", http.token_file.is_some(), has_http, "--http-listen"),
        ("--http-tls", http.tls, has_http_tls, "--http-listen with a host and a port"),
        ("--replication-token-file", has_replication_token, has_links, "--replication-listen or --peer"),
        ("--udp-cookie", settings.udp_cookie, endpoints.udp.iter().any(|sockets| !sockets.is_empty()), "-U"),
    ] {
        if is_given && !has_effect {
            return Err(Refusal::new(
                EXIT_USAGE,
                format!("larderd: {option} has no effect: it needs {needs}"),
            ));
        }
    }
    Ok(())
}
