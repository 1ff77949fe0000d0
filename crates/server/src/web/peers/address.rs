//! The addresses of `--admin-peers`.

use crate::net::listeners;
use crate::startup::options::{EXIT_USAGE, Refusal};
use crate::startup::settings::Port;

/// The admin listener of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// `host:port`, IPv6 in brackets.
    pub text: String,
    /// A name or an IP address, without brackets.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
}

impl PeerAddress {
    /// Adds those of one `--admin-peers`, separated by commas, to `peers`. Errors: exit code 64 for an entry that is no
    /// `host:port`, and for more than 64 peers.
    pub fn add(peers: &mut Vec<Self>, list: &str) -> Result<(), Refusal> {
        for entry in list.split(',') {
            let refuse = |reason: &str| {
                Err(Refusal::new(EXIT_USAGE, format!("larderd: --admin-peers {entry}: {reason}")))
            };
            let peer = match Self::parse(entry) {
                Ok(peer) => peer,
                Err(reason) => return refuse(&reason),
            };
            if peers.len() >= PEERS_MAX {
                return refuse(&format!("there are {PEERS_MAX} peers already, and no more are possible"));
            }
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        Ok(())
    }

    /// Reads `host:port`. Errors: the reason.
    fn parse(entry: &str) -> Result<Self, String> {
        let (host, port) = listeners::host_and_port(entry)?;
        // It becomes the Host header of a request, and a link on the page.
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err("not a host name or an IP address".to_owned());
        }
        match port {
            // Not as given: `a:+80` and `[a]:080` are no links, and the same peer as `a:80`.
            Some(Port::Fixed(port)) => {
                let text =
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                Ok(Self { text, host: host.to_owned(), port })
            }
            Some(Port::Ephemeral | Port::Off) => Err("port 0 is no server's".to_owned()),
            None => Err("a port is missing".to_owned()),
        }
    }
}

/// What is kept of them, and what it costs to ask them, stays small.
const PEERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_hosts_with_ports() {
        let mut peers = Vec::new();
        PeerAddress::add(&mut peers, "cache-1:9150,192.0.2.1:80").expect("they are");
        PeerAddress::add(&mut peers, "[2001:db8::1]:9150,cache-1:9150").expect("they are");
        let found: Vec<_> = peers.iter().map(|peer| (peer.host.as_str(), peer.port)).collect();
        assert_eq!(found, [("cache-1", 9150), ("192.0.2.1", 80), ("2001:db8::1", 9150)]);
        PeerAddress::add(&mut peers, "cache-1:09150,[cache-1]:+9150").expect("it is there already");
        assert_eq!(peers.len(), 3);
        assert_eq!(peers[2].text, "[2001:db8::1]:9150");
        for entry in [
            "",
            "cache-1",
            "cache-1:",
            "cache-1:0",
            ":9150",
            "a:b:9150",
            "http://a:80",
            "a b:1",
            "a@b:1",
            "/a",
        ] {
            let refusal = PeerAddress::add(&mut peers, entry).expect_err(entry);
            assert_eq!(refusal.exit_code, EXIT_USAGE, "{entry}");
        }
        let many: Vec<_> = (1..=PEERS_MAX).map(|port| format!("cache:{port}")).collect();
        let refusal = PeerAddress::add(&mut peers, &many.join(",")).expect_err("there are three already");
        assert!(refusal.message.contains("64 peers"), "{}", refusal.message);
        assert_eq!(peers.len(), PEERS_MAX);
    }
}
