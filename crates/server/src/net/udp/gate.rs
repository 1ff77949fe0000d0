//! Decides which datagrams are served, and how much may be sent in reply.

use std::net::{IpAddr, SocketAddr};

use larder_protocol::udp::{self, COOKIE_MARK, Header};

use super::budget::{Allowance, Budget};
use super::cookie::Cookies;

/// A worker's gate. Each worker has its own, bounded by what it received itself; so their sum is bounded too.
pub(super) struct Gate {
    budget: Budget,
    /// In cookie mode.
    cookies: Option<Cookies>,
}

/// A datagram that was admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admitted<'d> {
    pub(super) source: SocketAddr,
    pub(super) request_id: u16,
    /// Commands.
    pub(super) payload: &'d [u8],
    pub(super) allowance: Allowance,
    /// To be sent in place of a reply that the allowance does not cover.
    pub(super) cookie: Option<u64>,
}

impl Gate {
    /// `known_bytes`: what may be sent in reply to one datagram of a known source.
    pub(super) fn new(key: [u64; 2], with_cookies: bool, known_bytes: usize) -> Self {
        Self { budget: Budget::new(key, known_bytes), cookies: with_cookies.then(|| Cookies::new(key)) }
    }

    /// Admits a datagram that was received at `port`. `None`: drop it.
    pub(super) fn admit<'d>(
        &mut self,
        datagram: &'d [u8],
        source: SocketAddr,
        port: u16,
        now_secs: u32,
    ) -> Option<Admitted<'d>> {
        let (Header { request_id, reserved, .. }, payload) = udp::request(datagram)?;
        if is_server(source, port) {
            return None;
        }
        let Some(cookies) = &self.cookies else {
            let allowance = self.budget.grant(source.ip().to_canonical(), datagram.len(), now_secs);
            return Some(Admitted { source, request_id, payload, allowance, cookie: None });
        };
        let (cookie, payload) = match reserved {
            COOKIE_MARK => udp::split_cookie(payload).map(|(cookie, rest)| (Some(cookie), rest))?,
            _ => (None, payload),
        };
        let is_known = cookie.is_some_and(|cookie| cookies.is_genuine(cookie, source, now_secs));
        let (allowance, cookie) = if is_known {
            (self.budget.known(), None)
        } else {
            (Allowance::even(datagram.len()), Some(cookies.of(source, now_secs)))
        };
        Some(Admitted { source, request_id, payload, allowance, cookie })
    }

    /// Keeps the unspent rest.
    pub(super) fn keep(&mut self, rest: &Allowance) {
        self.budget.keep(rest);
    }
}

/// A reply can be a well-formed request: one forged datagram could make two servers answer each other for ever. Clients
/// use neither the ports of servers nor those below 1024, where echo and similar services live.
fn is_server(source: SocketAddr, port: u16) -> bool {
    const MEMCACHED: u16 = 11211;
    let is_unspecified = match source.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast(),
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast(),
    };
    is_unspecified || source.port() < 1024 || source.port() == port || source.port() == MEMCACHED
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 4000;
    const PLAIN: &[u8] = b"\x00\x07\x00\x00\x00\x01\x00\x00get a\r\n";

    fn source(text: &str) -> SocketAddr {
        text.parse().expect("an address and a port")
    }

    #[test]
    fn far_sources_are_bound_and_near_ones_are_not() {
        let mut gate = Gate::new([1, 2], false, 4 << 20);
        let mut far = gate.admit(PLAIN, source("192.0.2.1:5000"), PORT, 5).expect("let in");
        assert_eq!((far.request_id, far.payload, far.cookie), (7, &b"get a\r\n"[..], None));
        assert!(!far.allowance.spend(3 * PLAIN.len() + 1));
        assert!(far.allowance.spend(3 * PLAIN.len()));
        let near = gate.admit(PLAIN, source("127.0.0.1:5000"), PORT, 5).expect("let in");
        assert_eq!(near.allowance.bytes(), 4 << 20);
    }

    #[test]
    fn servers_are_not_answered() {
        let mut gate = Gate::new([1, 2], false, 4 << 20);
        for dropped in
            ["127.0.0.1:4000", "127.0.0.1:11211", "192.0.2.1:7", "192.0.2.1:0", "0.0.0.0:5000", "[::]:5000"]
        {
            assert_eq!(gate.admit(PLAIN, source(dropped), PORT, 5), None, "{dropped}");
        }
    }

    /// A dual-stack socket maps IPv4 addresses in this way.
    #[test]
    fn ipv4_within_ipv6_is_ipv4() {
        let mut gate = Gate::new([1, 2], false, 4 << 20);
        for dropped in ["[::ffff:0.0.0.0]:5000", "[::ffff:255.255.255.255]:5000", "[::ffff:224.0.0.1]:5000"] {
            assert_eq!(gate.admit(PLAIN, source(dropped), PORT, 5), None, "{dropped}");
        }
        let near = gate.admit(PLAIN, source("[::ffff:127.0.0.1]:5000"), PORT, 5).expect("let in");
        assert_eq!(near.allowance.bytes(), 4 << 20);
        // Neither source has the other's credit.
        for far in ["[::ffff:192.0.2.1]:5000", "[::ffff:198.51.100.7]:5000"] {
            let mut far = gate.admit(PLAIN, source(far), PORT, 5).expect("let in");
            assert!(far.allowance.spend(3 * PLAIN.len()));
            gate.keep(&far.allowance);
        }
    }

    #[test]
    fn the_mark_means_nothing_without_cookie_mode() {
        let marked = b"\x00\x07\x00\x00\x00\x01Ckget a\r\n";
        let admitted = Gate::new([1, 2], false, 4 << 20).admit(marked, source("127.0.0.1:5000"), PORT, 5);
        assert_eq!(admitted.map(|admitted| admitted.payload), Some(&b"get a\r\n"[..]));
    }

    #[test]
    fn in_cookie_mode_even_loopback_has_to_show_one() {
        let mut gate = Gate::new([1, 2], true, 4 << 20);
        let client = source("127.0.0.1:5000");
        let mut stranger = gate.admit(PLAIN, client, PORT, 5).expect("let in");
        let cookie = stranger.cookie.expect("a cookie");
        assert!(!stranger.allowance.spend(PLAIN.len() + 1));
        assert!(stranger.allowance.spend(PLAIN.len()));

        let with =
            |cookie: u64| [&b"\x00\x07\x00\x00\x00\x01Ck"[..], &cookie.to_be_bytes(), b"get a\r\n"].concat();
        let genuine = with(cookie);
        let known = gate.admit(&genuine, client, PORT, 64).expect("let in");
        assert_eq!((known.payload, known.cookie), (&b"get a\r\n"[..], None));
        assert_eq!(known.allowance.bytes(), 4 << 20);

        for (wrong, client, now_secs) in [
            (with(cookie + 1), client, 5),
            (with(cookie), source("127.0.0.2:5000"), 5),
            (with(cookie), client, 500),
        ] {
            let stranger = gate.admit(&wrong, client, PORT, now_secs).expect("let in");
            assert_eq!(stranger.allowance, Allowance::even(wrong.len()));
            assert_eq!(stranger.payload, b"get a\r\n");
        }
        assert_eq!(gate.admit(b"\x00\x07\x00\x00\x00\x01Ck1234567", client, PORT, 5), None);
    }
}
