//! Whom the source address of a datagram stands for. Credit and turns are a host's, so that many ports, or many
//! addresses of one network, get no more than one.

use std::net::IpAddr;

/// An IPv4 address, or an IPv6 network: all addresses that share their first 64 bits mostly belong to one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Host {
    V4(u32),
    V6(u64),
}

impl Host {
    pub(super) fn of(source: IpAddr) -> Self {
        // A dual-stack socket maps all IPv4 addresses into one network.
        match source.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip.to_bits()),
            IpAddr::V6(ip) => Self::V6((ip.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(ip: &str) -> Host {
        Host::of(ip.parse().expect("an address"))
    }

    #[test]
    fn a_network_of_ipv6_is_one_host() {
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:0:0:2"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
    }

    #[test]
    fn ipv4_within_ipv6_is_ipv4() {
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_ne!(host("::ffff:192.0.2.1"), host("::ffff:192.0.2.2"));
        assert_ne!(host("::1"), host("::ffff:0.0.0.0"));
    }
}
