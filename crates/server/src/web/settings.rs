//! What the command line says about the operator's side.

use std::path::PathBuf;

/// Settings of `--admin-*`.
#[derive(Clone, Debug, Default)]
pub struct WebSettings {
    /// Where to listen, as given: `host:port`, or the path of a Unix socket; empty: nowhere.
    pub listen: Vec<String>,
    /// The file with the token that is asked for.
    pub token_file: Option<PathBuf>,
    /// TCP listeners speak TLS, with the server's certificates.
    pub tls: bool,
}
