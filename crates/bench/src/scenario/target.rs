//! Whom a scenario asks: servers, and how to get in.

use serde::{Deserialize, Serialize};

/// Where the servers are.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Target {
    /// `host:port`, or the path of a unix socket. A key goes to the server that its hash names (modulo their number),
    /// unless `replicate` says otherwise.
    pub servers: Vec<String>,
    /// Store on the first so many servers, and read from any of them: replicas. 0: keys are shared out. Each copy of a
    /// store counts as a request in tables; for `until.requests` and the like all of them are one.
    pub replicate: usize,
    /// With `replicate`: the servers copy among themselves. Each store goes to one of the first `replicate` servers,
    /// drawn at random, and each get to any of all servers: memaslap's `--rep_write`. A copy may lag, so a check of
    /// values takes any version that was ever stored, and neither expiries nor misses are checked.
    pub servers_replicate: bool,
    /// TLS over TCP.
    pub tls: Option<Tls>,
    /// Log in with this name and password before anything else.
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

/// TLS to the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Certificates that are trusted, a PEM file. `None`: whatever the server shows is accepted, since a benchmark
    /// measures.
    pub ca_file: Option<String>,
    /// A certificate of our own, a PEM file, and its key.
    pub certificate_file: Option<String>,
    /// The key of `certificate_file`.
    pub key_file: Option<String>,
    /// The name to ask for; that of the server's address by default.
    pub server_name: Option<String>,
}

/// Name and password: SASL PLAIN in the binary protocol, else memcached's ASCII authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The password. It is never written to a report, so a scenario that was read from one has none.
    #[serde(default, skip_serializing)]
    pub password: String,
}
