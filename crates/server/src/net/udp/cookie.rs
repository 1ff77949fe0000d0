//! Cookies: proof that a source receives what is sent to its address.
//!
//! A cookie is a keyed hash of address, port and time, so no state is kept. A client that returns one has received it
//! recently, at the address it sends from. Framing: [`larder_protocol::udp::COOKIE_MARK`], docs/udp.md.

use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

/// Makes and verifies cookies.
pub(super) struct Cookies(SipHasher24);

impl Cookies {
    pub(super) fn new(key: [u64; 2]) -> Self {
        Self(SipHasher24::new_with_keys(key[0], key[1]))
    }

    /// The cookie of a source.
    pub(super) fn of(&self, source: SocketAddr, now_secs: u32) -> u64 {
        self.at(source, now_secs / PERIOD_SECS)
    }

    /// True if the source was given this cookie in this period, or in the one before. Comparing numbers takes constant
    /// time.
    pub(super) fn is_genuine(&self, cookie: u64, source: SocketAddr, now_secs: u32) -> bool {
        let period = now_secs / PERIOD_SECS;
        [Some(period), period.checked_sub(1)].into_iter().flatten().any(|at| self.at(source, at) == cookie)
    }

    fn at(&self, source: SocketAddr, period: u32) -> u64 {
        let mut hasher = self.0;
        match source.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write(&source.port().to_be_bytes());
        hasher.write(&period.to_be_bytes());
        hasher.finish()
    }
}

/// A cookie is good for this long at least, and for less than twice as long.
const PERIOD_SECS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_source_for_a_while() {
        let cookies = Cookies::new([1, 2]);
        let [source, port, address] = ["192.0.2.1:5000", "192.0.2.1:5001", "192.0.2.2:5000"]
            .map(|source| source.parse().expect("an address"));
        let cookie = cookies.of(source, 119);
        for good_secs in [119, 120, 179] {
            assert!(cookies.is_genuine(cookie, source, good_secs), "{good_secs}");
        }
        for bad_secs in [0, 59, 180, 1000] {
            assert!(!cookies.is_genuine(cookie, source, bad_secs), "{bad_secs}");
        }
        assert!(!cookies.is_genuine(cookie, port, 119));
        assert!(!cookies.is_genuine(cookie, address, 119));
        assert!(!cookies.is_genuine(cookie ^ 1, source, 119));
        assert!(!Cookies::new([1, 3]).is_genuine(cookie, source, 119));
    }
}
