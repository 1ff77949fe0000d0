//! What a cluster of AWS ElastiCache says of itself ("Adding Auto Discovery To Your Client Library", in its manual).

use std::{error, fmt};

use larder_protocol::number::parse_u64;

use crate::{Address, Server};

/// The nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Rises with each change.
    pub version: u64,
    /// The nodes, in order.
    pub servers: Vec<Server>,
}

/// A reply that is no configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadConfig {
    /// The server does not know the request, or has no configuration: its line.
    Refused(String),
    /// It is not in the form that AWS has published: what was found.
    Form(String),
    /// It says that it has so many bytes, or has more nodes than are accepted.
    TooLarge(u64),
}

impl ClusterConfig {
    /// The request that servers from 1.4.14 on know.
    pub const REQUEST: &'static [u8] = b"config get cluster\r\n";
    /// The request for older ones.
    pub const OLD_REQUEST: &'static [u8] = b"get AmazonElastiCache:cluster\r\n";

    /// Reads the reply to either request. `None`: it is not complete.
    ///
    /// # Errors
    /// As soon as it cannot become a configuration of at most [`CLUSTER_REPLY_BYTES_MAX`] and 1,024 nodes.
    pub fn parse(reply: &[u8]) -> Result<Option<Self>, BadConfig> {
        let Some((head, rest)) = line(reply) else {
            return if reply.len() > HEAD_BYTES_MAX { Err(form(reply)) } else { Ok(None) };
        };
        let words: Vec<_> = head.split(|byte| *byte == b' ').collect();
        let bytes = match words[..] {
            [b"CONFIG", b"cluster", _, bytes] | [b"VALUE", b"AmazonElastiCache:cluster", _, bytes] => {
                parse_u64(bytes).ok_or_else(|| form(head))?
            }
            [b"CONFIG" | b"VALUE", ..] => return Err(form(head)),
            _ => return Err(BadConfig::Refused(text(head))),
        };
        if bytes > CLUSTER_REPLY_BYTES_MAX as u64 {
            return Err(BadConfig::TooLarge(bytes));
        }
        let Some((payload, end)) = rest.split_at_checked(bytes as usize) else { return Ok(None) };
        if !END.starts_with(&end[..end.len().min(END.len())]) {
            return Err(form(end));
        }
        if end.len() < END.len() {
            return Ok(None);
        }
        if end.len() > END.len() {
            return Err(form(&end[END.len()..]));
        }
        Self::of(payload).map(Some)
    }

    /// A line with the version, and one with the nodes: `host|address|port`, separated by spaces.
    fn of(payload: &[u8]) -> Result<Self, BadConfig> {
        let mut lines = payload.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let version = lines.next().unwrap_or_default();
        let version = parse_u64(version).ok_or_else(|| form(version))?;
        let nodes = lines.next().unwrap_or_default();
        if lines.any(|line| !line.is_empty()) {
            return Err(form(payload));
        }
        let nodes: Vec<_> = nodes.split(|byte| *byte == b' ').filter(|node| !node.is_empty()).collect();
        if nodes.len() > SERVERS_MAX {
            return Err(BadConfig::TooLarge(nodes.len() as u64));
        }
        let servers: Result<Vec<_>, _> = nodes.into_iter().map(node).collect();
        match servers? {
            servers if servers.is_empty() => Err(form(payload)),
            servers => Ok(Self { version, servers }),
        }
    }
}

/// `host|address|port`. A node that is new has no address yet.
fn node(node: &[u8]) -> Result<Server, BadConfig> {
    let word = std::str::from_utf8(node).map_err(|_| form(node))?;
    let mut parts = word.split('|');
    let (Some(host), Some(ip), Some(port), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(form(node));
    };
    let host = if host.is_empty() { ip } else { host };
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| form(node))?;
    let is_name = !host.is_empty() && !host.contains(|char: char| char == '/' || char.is_control());
    if !is_name {
        return Err(form(node));
    }
    Ok(Address::Inet { host: host.to_owned(), port }.into())
}

/// The first line, and what follows.
fn line(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memmem::find(input, b"\r\n")?;
    Some((&input[..end], &input[end + 2..]))
}

fn form(found: &[u8]) -> BadConfig {
    BadConfig::Form(text(found))
}

/// The beginning, with control characters escaped.
fn text(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(100)].escape_ascii().to_string()
}

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(line) => write!(f, "the server has no configuration of a cluster: {line}"),
            Self::Form(found) => write!(f, "not a configuration of a cluster: {found}"),
            Self::TooLarge(size) => {
                write!(f, "a configuration of a cluster of {size} bytes or nodes is too large")
            }
        }
    }
}

impl error::Error for BadConfig {}

/// The most that a configuration may have.
pub const CLUSTER_REPLY_BYTES_MAX: usize = 256 << 10;
const SERVERS_MAX: usize = 1024;
const HEAD_BYTES_MAX: usize = 1024;
const END: &[u8] = b"\r\nEND\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes of the example in the manual.
    const PAYLOAD: &str = "12\nmyCluster.pc4ldq.0001.use1.cache.amazonaws.com|10.82.235.120|11211 \
                           myCluster.pc4ldq.0002.use1.cache.amazonaws.com|10.80.249.27|11211\n";

    fn reply(head: &str, payload: &str) -> Vec<u8> {
        format!("{head} 0 {}\r\n{payload}\r\nEND\r\n", payload.len()).into_bytes()
    }

    #[test]
    fn the_example_of_the_manual_is_read_at_every_split() {
        for head in ["CONFIG cluster", "VALUE AmazonElastiCache:cluster"] {
            let reply = reply(head, PAYLOAD);
            for end in 0..reply.len() {
                assert_eq!(ClusterConfig::parse(&reply[..end]), Ok(None), "{end}");
            }
            let config = ClusterConfig::parse(&reply).expect("it is one").expect("it is complete");
            assert_eq!(config.version, 12);
            let names: Vec<_> = config.servers.iter().map(|server| server.address.to_string()).collect();
            let name = |n| format!("myCluster.pc4ldq.000{n}.use1.cache.amazonaws.com:11211");
            assert_eq!(names, [name(1), name(2)]);
        }
    }

    #[test]
    fn a_node_may_lack_its_address_or_its_name() {
        let config = ClusterConfig::parse(&reply("CONFIG cluster", "7\r\na||1 |10.0.0.1|2 b|::1|3\r\n"));
        let config = config.expect("it is one").expect("it is complete");
        let names: Vec<_> = config.servers.iter().map(|server| server.address.to_string()).collect();
        assert_eq!(names, ["a:1", "10.0.0.1:2", "b:3"]);
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for refused in ["ERROR\r\n", "END\r\n", "SERVER_ERROR x\r\n"] {
            let parsed = ClusterConfig::parse(refused.as_bytes());
            assert!(matches!(parsed, Err(BadConfig::Refused(_))), "{parsed:?}");
        }
        for payload in [
            "",
            "x\na||1\n",
            "1\n",
            "1\n\n",
            "1\na|b\n",
            "1\na|b|0\n",
            "1\na|b|65536\n",
            "1\n||1\n",
            "1\na|b|1|2\n",
            "1\na|b|1\nc|d|2\n",
            "99999999999999999999\na||1\n",
            "1\n/a||1\n",
        ] {
            let parsed = ClusterConfig::parse(&reply("CONFIG cluster", payload));
            assert!(matches!(parsed, Err(BadConfig::Form(_))), "{payload:?} {parsed:?}");
        }
        for wrong in [
            "CONFIG cluster 0 x\r\n",
            "CONFIG other 0 1\r\n",
            "CONFIG cluster 0 1\r\n1ab",
            "VALUE a 0 1\r\n",
            "CONFIG cluster 0 6\r\n1\na||1\r\nEND\r\nEND\r\n",
        ] {
            assert!(matches!(ClusterConfig::parse(wrong.as_bytes()), Err(BadConfig::Form(_))), "{wrong:?}");
        }
        assert!(ClusterConfig::parse(&[b'x'; 1025]).is_err());
        let many = format!("1\n{}", "a||1 ".repeat(1025));
        assert_eq!(ClusterConfig::parse(&reply("CONFIG cluster", &many)), Err(BadConfig::TooLarge(1025)));
        let announced = ClusterConfig::parse(b"CONFIG cluster 0 18446744073709551615\r\n");
        assert_eq!(announced, Err(BadConfig::TooLarge(u64::MAX)));
    }
}
