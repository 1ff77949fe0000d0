//! Budgets of sources: bytes sent against bytes received.
//!
//! The source address of a datagram is easily forged, and the reply hits whoever has that address. So what is sent to
//! an address is bounded by what arrived in its name: a server that amplifies little is useless for attacks. Memory is
//! constant: a table of slots, which sources share by chance. A source that loses its slot to another loses credit, and
//! never gains any.

use std::hash::{Hash as _, Hasher as _};
use std::mem;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

use super::host::Host;

/// The credit of sources.
pub(super) struct Budget {
    /// Keyed, so that nobody can choose addresses that share a slot.
    hasher: SipHasher13,
    slots: Box<[Slot]>,
    known_bytes: usize,
}

/// Bytes that may still be sent in reply to one datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    bytes: usize,
    /// Hash of the source whose slot keeps the rest.
    source: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Hash of the source.
    source: u64,
    credit_bytes: u32,
    /// When the credit was last halved.
    since_secs: u32,
}

impl Budget {
    /// `known_bytes`: what may be sent in reply to one datagram of a known source.
    pub(super) fn new(key: [u64; 2], known_bytes: usize) -> Self {
        let hasher = SipHasher13::new_with_keys(key[0], key[1]);
        Self { hasher, known_bytes, slots: vec![Slot::default(); SLOTS].into() }
    }

    /// What may be sent in reply to a datagram of `bytes_in` from `source`.
    pub(super) fn grant(&mut self, source: IpAddr, bytes_in: usize, now_secs: u32) -> Allowance {
        if source.is_loopback() {
            return self.known();
        }
        let source = self.hash(source);
        let slot = self.slot(source);
        if slot.source != source {
            *slot = Slot { source, credit_bytes: 0, since_secs: now_secs };
        }
        let half_lives = now_secs.saturating_sub(slot.since_secs) / HALF_LIFE_SECS;
        slot.credit_bytes = slot.credit_bytes.checked_shr(half_lives).unwrap_or(0);
        slot.since_secs += half_lives * HALF_LIFE_SECS;
        let earned = bytes_in.saturating_mul(BYTES_OUT_PER_BYTE_IN);
        // A grant takes all credit: another datagram of the source may come before the rest is kept.
        let credit_bytes = mem::take(&mut slot.credit_bytes);
        let bytes = (credit_bytes as usize).saturating_add(earned).min(CREDIT_BYTES_MAX as usize);
        Allowance { bytes, source: Some(source) }
    }

    /// The allowance of a source whose address is verified: bounded only so that one datagram cannot occupy a worker
    /// for long.
    pub(super) fn known(&self) -> Allowance {
        Allowance { bytes: self.known_bytes, source: None }
    }

    /// Keeps the rest of an allowance as credit of its source, unless another has its slot by now.
    pub(super) fn keep(&mut self, rest: &Allowance) {
        let Some(source) = rest.source else { return };
        let slot = self.slot(source);
        if slot.source == source {
            // Others of its allowances may have been kept since it was granted.
            let credit_bytes = slot.credit_bytes as usize + rest.bytes;
            slot.credit_bytes = credit_bytes.min(CREDIT_BYTES_MAX as usize) as u32;
        }
    }

    fn slot(&mut self, source: u64) -> &mut Slot {
        &mut self.slots[source as usize % SLOTS]
    }

    fn hash(&self, source: IpAddr) -> u64 {
        let mut hasher = self.hasher;
        Host::of(source).hash(&mut hasher);
        hasher.finish()
    }
}

impl Allowance {
    /// As much as came in, and no more.
    pub(super) fn even(bytes_in: usize) -> Self {
        Self { bytes: bytes_in, source: None }
    }

    /// Bytes left.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `bytes` from it. False: there are not so many left.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let rest = self.bytes.checked_sub(bytes);
        self.bytes = rest.unwrap_or(self.bytes);
        rest.is_some()
    }
}

/// What QUIC allows a server towards an address that is not validated yet: RFC 9000, section 8.1.
const BYTES_OUT_PER_BYTE_IN: usize = 3;
/// The most credit that a source can save.
const CREDIT_BYTES_MAX: u32 = 64 << 10;
/// Saved credit halves in this time.
const HALF_LIFE_SECS: u32 = 10;
const SLOTS: usize = 4096;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn budget() -> Budget {
        Budget::new([1, 2], 4 << 20)
    }

    /// Spends everything, and returns how much that was.
    fn spend_all(budget: &mut Budget, source: IpAddr, bytes_in: usize, now_secs: u32) -> usize {
        let mut allowance = budget.grant(source, bytes_in, now_secs);
        let bytes = allowance.bytes;
        assert!(allowance.spend(bytes));
        assert!(!allowance.spend(1));
        budget.keep(&allowance);
        bytes
    }

    #[test]
    fn far_sources_get_three_bytes_for_one() {
        let mut budget = budget();
        for _ in 0..1000 {
            assert_eq!(spend_all(&mut budget, FAR, 20, 5), 60);
        }
    }

    #[test]
    fn what_is_not_spent_is_kept_halved_in_time_and_bounded() {
        let mut budget = budget();
        let mut granted = |bytes_in, now_secs| {
            let allowance = budget.grant(FAR, bytes_in, now_secs);
            budget.keep(&allowance);
            allowance.bytes
        };
        for _ in 0..10 {
            granted(100, 5);
        }
        assert_eq!(granted(0, 14), 3000);
        assert_eq!(granted(0, 15), 1500);
        assert_eq!(granted(0, 35), 375);
        assert_eq!(granted(0, u32::MAX), 0);
        assert_eq!(granted(1 << 20, u32::MAX), CREDIT_BYTES_MAX as usize);
    }

    /// A datagram may be kept for the next round while another of its source is served.
    #[test]
    fn credit_is_granted_once() {
        let mut budget = budget();
        let first = budget.grant(FAR, 100, 5);
        budget.keep(&first);
        let (first, second) = (budget.grant(FAR, 0, 5), budget.grant(FAR, 0, 5));
        assert_eq!((first.bytes, second.bytes), (300, 0));
        budget.keep(&second);
        budget.keep(&first);
        assert_eq!(budget.grant(FAR, 0, 5).bytes, 300);
    }

    /// A datagram may be dropped after another of its source was served.
    #[test]
    fn credit_is_kept_in_any_order() {
        let mut budget = budget();
        let (first, second) = (budget.grant(FAR, 100, 5), budget.grant(FAR, 10, 5));
        budget.keep(&first);
        budget.keep(&second);
        assert_eq!(budget.grant(FAR, 0, 5).bytes, 330);
        for _ in 0..3 {
            budget.keep(&Allowance { bytes: CREDIT_BYTES_MAX as usize, ..first });
        }
        assert_eq!(budget.grant(FAR, 0, 5).bytes, CREDIT_BYTES_MAX as usize);
    }

    #[test]
    fn no_source_is_given_the_rest_of_another() {
        let mut budget = budget();
        let slot = |ip: &IpAddr| budget.hash(*ip) as usize % SLOTS;
        let mut others = (0..1_000_000).map(|n| IpAddr::from(Ipv4Addr::from_bits(10 << 24 | n)));
        let other = others.find(|ip| slot(ip) == slot(&FAR)).expect("one of so many shares the slot");
        let rest = budget.grant(FAR, 100, 5);
        assert_eq!(budget.grant(other, 0, 5).bytes, 0);
        budget.keep(&rest);
        assert_eq!(budget.grant(other, 0, 5).bytes, 0);
    }

    /// The sum is bounded however many addresses are forged, and however they share slots.
    #[test]
    fn no_crowd_of_sources_gets_more_than_three_for_one() {
        let mut budget = budget();
        let (mut bytes_in, mut bytes_out) = (0, 0);
        let mut random = 1_u64;
        for step in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let source = IpAddr::from(Ipv4Addr::from_bits((random >> 48) as u32 | 10 << 24));
            let bytes = (random >> 40) as usize & 0x3f;
            bytes_in += bytes;
            let mut allowance = budget.grant(source, bytes, step / 1000);
            let wanted = (random >> 32) as usize & 0xff;
            if allowance.spend(wanted) {
                bytes_out += wanted;
            }
            budget.keep(&allowance);
            assert!(bytes_out <= 3 * bytes_in);
        }
    }

    #[test]
    fn loopback_is_known() {
        let mut budget = budget();
        for source in [IpAddr::from([127, 0, 0, 2]), Ipv6Addr::LOCALHOST.into()] {
            assert_eq!(budget.grant(source, 9, 5), budget.known());
        }
        assert_ne!(budget.grant(FAR, 9, 5), budget.known());
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let mut budget = budget();
        let [one, other, far] = ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"]
            .map(|ip| IpAddr::V6(ip.parse().expect("an address")));
        let saved = budget.grant(one, 100, 5);
        budget.keep(&saved);
        assert_eq!(budget.grant(other, 0, 5).bytes, 300);
        assert_eq!(budget.grant(far, 0, 5).bytes, 0);
    }
}
