//! The target of a scenario: servers, transport security, login.

use serde::{Deserialize, Serialize};

/// The servers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Target {
    /// `host:port`, or the path of a Unix socket. The server of a key is its hash modulo their number, unless
    /// `replicate` is set.
    pub servers: Vec<String>,
    /// Store on the first so many servers, and read from any of them (replicas). 0: keys are distributed over the
    /// servers. In tables each copy of a store is a request; for `until.requests` and similar limits all copies are
    /// one.
    pub replicate: usize,
    /// With `replicate`: the servers replicate themselves. Each store goes to a random one of the first `replicate`
    /// servers, and each get to any server: memaslap's `--rep_write`. A copy may lag, so the check of a value accepts
    /// any version that was ever stored, and neither expiries nor misses are checked.
    pub servers_replicate: bool,
    /// TLS over TCP.
    pub tls: Option<Tls>,
    /// Log in with this user and password first.
    pub login: Option<Login>,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            servers: vec!["127.0.0.1:11211".into()],
            replicate: 0,
            servers_replicate: false,
            tls: None,
            login: None,
        }
    }
}

/// TLS settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Trusted certificates, a PEM file. `None`: any certificate is accepted, since a benchmark only measures.
    pub ca_file: Option<String>,
    /// A client certificate, a PEM file.
    pub certificate_file: Option<String>,
    /// The key of `certificate_file`.
    pub key_file: Option<String>,
    /// The requested server name; by default the host of the address.
    pub server_name: Option<String>,
}

/// User and password: SASL PLAIN in the binary protocol, else memcached's ASCII authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The password. It is never written to a report, so a scenario that was read from one has none.
    #[serde(default, skip_serializing)]
    pub password: String,
}
