//! The namespaces of a server, and the search for that of a key.

use crate::{Error, Policy, read};

/// The number of the default namespace.
pub const DEFAULT: u8 = 0;
/// Namespaces at most, beside the default.
pub const NAMESPACES_MAX: usize = 63;

/// The namespaces of a server. They are numbered from 1 on in the order of their prefixes; number [`DEFAULT`] has all
/// keys that belong to no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    default: Policy,
    /// In the order of their prefixes, which are distinct and not empty.
    namespaces: Vec<(Box<[u8]>, Policy)>,
    /// Where the numbers of the prefixes with each first byte are in `candidates`.
    by_first_byte: Box<[(u8, u8); 256]>,
    /// The numbers of all namespaces, those with the same first byte together, longer prefixes first.
    candidates: Vec<u8>,
}

impl Table {
    /// Reads a TOML text: tables `[namespace."<prefix>"]`, and `[default]`. Errors: it is none, or a key or a value in
    /// it is wrong.
    pub fn parse(text: &str) -> Result<Self, Error> {
        read::table(text, Policy::default())
    }

    /// The same, where the policy of the default namespace begins as this one; where the others do not say it, their
    /// items are kept where this one says.
    pub fn parse_over(text: &str, default: Policy) -> Result<Self, Error> {
        read::table(text, default)
    }

    /// The default namespace alone, with this policy.
    pub fn of_default(policy: Policy) -> Self {
        Self::new(policy, Vec::new())
    }

    /// The prefixes are distinct, at most [`NAMESPACES_MAX`], and none is empty.
    pub(crate) fn new(default: Policy, mut namespaces: Vec<(Box<[u8]>, Policy)>) -> Self {
        namespaces.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut candidates: Vec<u8> = (1..=namespaces.len() as u8).collect();
        let prefix = |number: &u8| &namespaces[usize::from(*number) - 1].0;
        candidates.sort_by_key(|number| (prefix(number)[0], usize::MAX - prefix(number).len()));
        let mut by_first_byte = Box::new([(0, 0); 256]);
        for (byte, range) in (0..=255).zip(by_first_byte.iter_mut()) {
            let start = candidates.partition_point(|number| prefix(number)[0] < byte);
            let end = candidates.partition_point(|number| prefix(number)[0] <= byte);
            *range = (start as u8, end as u8);
        }
        Self { default, namespaces, by_first_byte, candidates }
    }

    /// How many namespaces there are beside the default.
    pub fn len(&self) -> usize {
        self.namespaces.len()
    }

    /// True if there is the default alone.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// The number of the namespace that a key belongs to.
    #[inline]
    pub fn find(&self, key: &[u8]) -> u8 {
        let Some(first) = key.first() else { return DEFAULT };
        let (start, end) = self.by_first_byte[usize::from(*first)];
        let candidates = &self.candidates[usize::from(start)..usize::from(end)];
        let is_of = |number: &&u8| key.starts_with(&self.namespaces[usize::from(**number) - 1].0);
        candidates.iter().find(is_of).copied().unwrap_or(DEFAULT)
    }

    /// The number of the namespace with exactly this prefix.
    pub fn named(&self, prefix: &[u8]) -> Option<u8> {
        let at = self.namespaces.binary_search_by(|(other, _)| other[..].cmp(prefix)).ok()?;
        Some(at as u8 + 1)
    }

    /// The prefix of a namespace; empty of the default, and of one that there is not.
    pub fn prefix(&self, number: u8) -> &[u8] {
        self.namespace(number).map_or(&[], |(prefix, _)| prefix)
    }

    /// The policy of a namespace; the default's of one that there is not.
    #[inline]
    pub fn policy(&self, number: u8) -> &Policy {
        self.namespace(number).map_or(&self.default, |(_, policy)| policy)
    }

    /// The numbers of all namespaces, the default first.
    pub fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        0..=self.namespaces.len() as u8
    }

    #[inline]
    fn namespace(&self, number: u8) -> Option<&(Box<[u8]>, Policy)> {
        self.namespaces.get(usize::from(number).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(prefixes: &[&[u8]]) -> Table {
        let namespaces = prefixes.iter().map(|prefix| (Box::from(*prefix), Policy::default()));
        Table::new(Policy::default(), namespaces.collect())
    }

    #[test]
    fn the_longest_prefix_wins() {
        let table = table(&[b"a", b"ab:", b"abc", b"b:", b"a:"]);
        let found = |key: &[u8]| table.prefix(table.find(key)).to_vec();
        for (key, prefix) in [
            (&b"a"[..], &b"a"[..]),
            (b"a:x", b"a:"),
            (b"ab", b"a"),
            (b"ab:1", b"ab:"),
            (b"abcd", b"abc"),
            (b"b", b""),
            (b"b:", b"b:"),
            (b"c", b""),
            (b"", b""),
            (b"\xff", b""),
        ] {
            assert_eq!(found(key), prefix, "{}", key.escape_ascii());
        }
        assert_eq!(table.named(b"ab:"), Some(table.find(b"ab:9")));
        assert_eq!(table.named(b"ab"), None);
        assert_eq!(table.named(b""), None);
    }

    #[test]
    fn it_finds_what_a_search_through_all_finds() {
        let mut random = fastrand::Rng::with_seed(21);
        for _ in 0..200 {
            let count = random.usize(..=NAMESPACES_MAX);
            let mut word = |bytes| (0..bytes).map(|_| random.u8(b'a'..=b'c')).collect::<Vec<u8>>();
            let mut prefixes: Vec<_> = (0..count).map(|n| word(n % 6 + 1)).collect();
            prefixes.sort();
            prefixes.dedup();
            let table = table(&prefixes.iter().map(Vec::as_slice).collect::<Vec<_>>());
            for _ in 0..50 {
                let key = word(7);
                let longest =
                    prefixes.iter().filter(|prefix| key.starts_with(prefix)).max_by_key(|p| p.len());
                assert_eq!(table.prefix(table.find(&key)), longest.map_or(&b""[..], |prefix| prefix));
            }
        }
    }
}
