//! The options of listeners for HTTP.

use std::path::PathBuf;

/// Settings of `--admin-*`, or of `--http-*`.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// Addresses as given: `host:port`, or the path of a Unix socket; empty: none.
    pub listen: Vec<String>,
    /// The file with the required token.
    pub token_file: Option<PathBuf>,
    /// TCP listeners use TLS, with the server's certificates.
    pub tls: bool,
}
