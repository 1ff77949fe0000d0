//! Which sites have a state that this one knows nothing of.

use std::collections::{BTreeMap, BTreeSet};

use super::Fingerprint;

/// What other sites have been found to have, by fingerprint, until they are compared again. Bounded.
#[derive(Clone, Debug, Default)]
pub struct Votes {
    sites: BTreeMap<Fingerprint, BTreeSet<u8>>,
}

impl Votes {
    /// A site is compared anew: what it had before is not known any more.
    pub fn begin(&mut self, site: u8) {
        self.sites.retain(|_, sites| {
            sites.remove(&site);
            !sites.is_empty()
        });
    }

    /// A site has this state. True: so has a majority of all sites, of which this one has another state or none.
    pub fn add(&mut self, fingerprint: Fingerprint, site: u8, all_sites: usize) -> bool {
        if self.sites.len() >= STATES_MAX && !self.sites.contains_key(&fingerprint) {
            return false;
        }
        let sites = self.sites.entry(fingerprint).or_default();
        sites.insert(site);
        let is_majority = sites.len() * 2 > all_sites;
        if is_majority {
            self.sites.remove(&fingerprint);
        }
        is_majority
    }
}

/// A few mebibytes. What is beyond waits for a later comparison.
const STATES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_of_all_sites_decide() {
        let mut votes = Votes::default();
        assert!(!votes.add(7, 2, 2), "of two, one is not more than half");
        assert!(!votes.add(8, 2, 3) && !votes.add(8, 2, 3), "a site has one vote");
        assert!(votes.add(8, 3, 3));
        assert!(!votes.add(9, 2, 4) && !votes.add(9, 3, 4) && votes.add(9, 4, 4));
        votes.add(10, 2, 3);
        votes.begin(2);
        assert!(!votes.add(10, 3, 3), "what a site had before counts no more");
    }

    #[test]
    fn their_number_is_bounded() {
        let mut votes = Votes::default();
        (0..STATES_MAX as u128 + 100).for_each(|fingerprint| {
            votes.add(fingerprint, 2, 3);
        });
        assert_eq!(votes.sites.len(), STATES_MAX);
        assert!(votes.add(5, 3, 3), "what is known goes on");
    }
}
