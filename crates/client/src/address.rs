//! Addresses of servers.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of memcached.
pub const DEFAULT_PORT: u16 = 11211;

/// The address of a server.
///
/// Parsed from `host`, `host:port`, `[ipv6]:port`, or the path of a unix socket, which has a `/` or begins with
/// `unix:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP, and UDP if the server has it.
    Inet {
        /// A name or an IP address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Infallible;

    /// An invalid port becomes part of the host; connecting to such a host fails.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        if let Some(path) = text.strip_prefix("unix:").or_else(|| text.contains('/').then_some(text)) {
            return Ok(Self::Unix(path.into()));
        }
        let (host, port) = match text.rsplit_once(':') {
            // A bare IPv6 address has more than one colon.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
            _ => (text, Some(DEFAULT_PORT)),
        };
        let (host, port) = port.map_or((text, DEFAULT_PORT), |port| (host, port));
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(Self::Inet { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Inet { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_with_ports_or_paths() {
        for (text, expected) in [
            ("localhost", "localhost:11211"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("[::1]:1", "[::1]:1"),
            ("[::1]", "[::1]:11211"),
            ("::1", "[::1]:11211"),
            ("/tmp/a:1", "/tmp/a:1"),
            ("unix:a", "a"),
            ("./a", "./a"),
        ] {
            let Ok(address) = text.parse::<Address>();
            assert_eq!(address.to_string(), expected, "{text}");
        }
        let Ok(address) = "[::1]:1".parse::<Address>();
        assert_eq!(address, Address::Inet { host: "::1".into(), port: 1 });
    }
}
