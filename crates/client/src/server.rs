//! Lists of servers, as programs receive them.

use std::str::FromStr;
use std::{env, error, fmt};

use crate::Address;
use crate::address::BadAddress;

/// A server of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address.
    pub address: Address,
    /// Its share of the keys relative to the other servers, where weights are used. At least 1.
    pub weight: u32,
}

/// Servers. Their order decides which keys belong to which.
///
/// Parsed as in libmemcached: `host[:port[:weight]]` or `host[:port] weight`, separated by commas; paths are Unix
/// sockets. A path may contain spaces but no commas; if its last word is a number, that is the weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers(pub Vec<Server>);

/// An entry of a list that names no server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadServer {
    /// Its address is invalid.
    Address(BadAddress),
    /// Its weight is not a number from 1: the entry.
    Weight(String),
}

impl Servers {
    /// The list in the environment variable `MEMCACHED_SERVERS`, which libmemcached's tools also use; empty if it is
    /// not set.
    ///
    /// # Errors
    /// An address or a weight is invalid.
    pub fn from_env() -> Result<Self, BadServer> {
        env::var("MEMCACHED_SERVERS").map_or_else(|_| Ok(Self::default()), |list| list.parse())
    }
}

impl FromStr for Servers {
    type Err = BadServer;

    fn from_str(list: &str) -> Result<Self, BadServer> {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Server {
    type Err = BadServer;

    fn from_str(entry: &str) -> Result<Self, BadServer> {
        let (address, weight) = match entry.rsplit_once(char::is_whitespace) {
            Some((_, word)) if is_path(entry) && !word.bytes().all(|byte| byte.is_ascii_digit()) => {
                (entry, None)
            }
            Some((address, weight)) => (address.trim_end(), Some(weight)),
            None => match split_weight(entry) {
                Some((address, weight)) => (address, Some(weight)),
                None => (entry, None),
            },
        };
        let weight = match weight {
            None => 1,
            Some(text) => text
                .parse()
                .ok()
                .filter(|weight| *weight > 0)
                .ok_or_else(|| BadServer::Weight(entry.to_owned()))?,
        };
        Ok(Self { address: address.parse().map_err(BadServer::Address)?, weight })
    }
}

impl From<Address> for Server {
    fn from(address: Address) -> Self {
        Self { address, weight: 1 }
    }
}

fn is_path(entry: &str) -> bool {
    entry.contains('/') || entry.starts_with("unix:")
}

/// The weight behind `host:port:`. A bare IPv6 address has none.
fn split_weight(entry: &str) -> Option<(&str, &str)> {
    let (address, weight) = entry.rsplit_once(':')?;
    let (host, port) = address.rsplit_once(':')?;
    (!is_path(entry) && !port.is_empty() && (!host.contains(':') || host.ends_with(']')))
        .then_some((address, weight))
}

impl fmt::Display for BadServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(bad) => bad.fmt(f),
            Self::Weight(entry) => write!(f, "{entry}: the weight must be a number from 1"),
        }
    }
}

impl error::Error for BadServer {}

#[cfg(test)]
mod tests {
    use super::*;

    // The results of memcached_servers_parse of libmemcached 1.1.4 for these lists, except for spaces before a name,
    // which it takes for part of the name, and empty entries, which it takes for localhost.
    #[test]
    fn lists_are_as_libmemcached_writes_them() {
        let servers = |list: &str| {
            let Servers(servers) = list.parse().expect("a list");
            servers.iter().map(|server| format!("{} {}", server.address, server.weight)).collect::<Vec<_>>()
        };
        assert_eq!(servers("localhost"), ["localhost:11211 1"]);
        assert_eq!(servers("a:1, b:2"), ["a:1 1", "b:2 1"]);
        assert_eq!(servers("a:1:7,b:2 9"), ["a:1 7", "b:2 9"]);
        assert_eq!(servers("/tmp/sock,b"), ["/tmp/sock 1", "b:11211 1"]);
        assert_eq!(
            servers("[::1]:5,[::1]:5:2,::1,fe80::1"),
            ["[::1]:5 1", "[::1]:5 2", "[::1]:11211 1", "[fe80::1]:11211 1"]
        );
        assert_eq!(servers("a,,b,"), ["a:11211 1", "b:11211 1"]);
        assert_eq!(servers("a  3"), ["a:11211 3"]);
        assert_eq!(servers(""), [""; 0]);
        for wrong in ["a:1:0", "a:1:x", "a 0", "a -1", "a b 3", "a:1:", "a:99999", "a:x", "a,b:99999:2"] {
            assert!(wrong.parse::<Servers>().is_err(), "{wrong}");
        }
    }
    #[test]
    fn a_path_may_have_spaces() {
        for (list, expected) in [
            ("/tmp/so ck/a.sock", vec![("/tmp/so ck/a.sock", 1)]),
            ("unix:so ck", vec![("so ck", 1)]),
            (" /tmp/so ck/a.sock 3 ,/b 2", vec![("/tmp/so ck/a.sock", 3), ("/b", 2)]),
            ("/tmp/so  ck/a b", vec![("/tmp/so  ck/a b", 1)]),
        ] {
            let Servers(servers) = list.parse().expect("a list");
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(path, weight)| Server { address: Address::Unix(path.into()), weight })
                .collect();
            assert_eq!(servers, expected, "{list}");
        }
        assert!("/tmp/so ck/a.sock 0".parse::<Servers>().is_err());
    }
}
