//! Addresses of servers.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::{error, fmt};

/// The port of memcached.
pub const DEFAULT_PORT: u16 = 11211;

/// The address of a server. Its text names the same address again, always with a port.
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

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress {
    text: String,
    reason: &'static str,
}

impl FromStr for Address {
    type Err = BadAddress;

    /// Errors: a port that is not 1 to 65535, no host or one with spaces, an IPv6 address with a port
    /// and without brackets.
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if let Some(path) = text.strip_prefix("unix:").or_else(|| text.contains('/').then_some(text)) {
            return Ok(Self::Unix(path.into()));
        }
        let bad = |reason| BadAddress { text: text.to_owned(), reason };
        let (host, port) = match text.rsplit_once(':') {
            // A bare IPv6 address has more than one colon.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                let number = port.parse().ok().filter(|port| *port > 0);
                (host, number.ok_or_else(|| bad("the port must be a number from 1 to 65535"))?)
            }
            _ => (text, DEFAULT_PORT),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(bad("there is no host"));
        }
        if host.contains(char::is_whitespace) {
            return Err(bad("a host contains no spaces"));
        }
        let (numbers, _zone) = host.split_once('%').unwrap_or((host, ""));
        if host.contains(':') && numbers.parse::<Ipv6Addr>().is_err() {
            return Err(bad("neither HOST:PORT nor an IPv6 address, which has brackets before a port"));
        }
        Ok(Self::Inet { host: host.to_owned(), port })
    }
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.text, self.reason)
    }
}

impl error::Error for BadAddress {}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Inet { host, port } => write!(f, "{host}:{port}"),
            // Without a `/` it would be taken for a host.
            Self::Unix(path) if !path.as_os_str().as_encoded_bytes().contains(&b'/') => {
                write!(f, "unix:{}", path.display())
            }
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
            ("fe80::1%eth0", "[fe80::1%eth0]:11211"),
            ("/tmp/a:1", "/tmp/a:1"),
            ("unix:a", "unix:a"),
            ("unix:/a", "/a"),
            ("./a", "./a"),
        ] {
            let address = text.parse::<Address>().expect("an address");
            assert_eq!(address.to_string(), expected, "{text}");
            assert_eq!(expected.parse::<Address>(), Ok(address), "{text}");
        }
        let address = "[::1]:1".parse::<Address>();
        assert_eq!(address, Ok(Address::Inet { host: "::1".into(), port: 1 }));
    }

    #[test]
    fn a_bad_port_is_refused() {
        for text in ["a:", "a:0", "a:65536", "a:99999", "a:abc", "a:-1", "[::1]:x", ":11211", "", "::1:99999"]
        {
            let bad = text.parse::<Address>().expect_err(text);
            assert!(bad.to_string().starts_with(&format!("{text}: ")), "{bad}");
        }
        let ports = "a:65535".parse::<Address>().map(|address| address.to_string());
        assert_eq!(ports.as_deref(), Ok("a:65535"));
    }
}
