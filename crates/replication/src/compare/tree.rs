//! Digests of ranges of keys.

use super::Fingerprint;

/// Ranges of the lowest level.
pub const LEAVES: usize = 1 << (BITS * LEVELS);
/// Levels below the root.
pub(super) const LEVELS: u32 = 4;
/// Of the number of a child within its range: each range has 16.
const BITS: u32 = 4;
pub(super) const CHILDREN: usize = 1 << BITS;

/// The digests of all leaves, one mebibyte. That of a range is the sum of the fingerprints in it, so the order of a scan
/// does not matter. A state that a scan visits twice counts twice; its leaf is then listed for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    leaves: Vec<u128>,
    states: u64,
}

impl Tree {
    /// Of nothing.
    pub fn new() -> Self {
        Self { leaves: vec![0; LEAVES], states: 0 }
    }

    /// Adds a state.
    pub fn add(&mut self, leaf: u16, fingerprint: Fingerprint) {
        let digest = &mut self.leaves[usize::from(leaf)];
        *digest = digest.wrapping_add(fingerprint);
        self.states += 1;
    }

    /// States that were added.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// The digests of the children of a range: of this level (0: the root) and number. `None`: there is no such range.
    pub fn children(&self, level: u8, number: u16) -> Option<[u128; CHILDREN]> {
        let level = u32::from(level);
        if level >= LEVELS || usize::from(number) >> (BITS * level) != 0 {
            return None;
        }
        let leaves_of_child = 1 << (BITS * (LEVELS - level - 1));
        let start = usize::from(number) * leaves_of_child * CHILDREN;
        let sum = |leaves: &[u128]| leaves.iter().fold(0, |sum: u128, digest| sum.wrapping_add(*digest));
        Some(std::array::from_fn(|child| {
            let from = start + child * leaves_of_child;
            sum(&self.leaves[from..from + leaves_of_child])
        }))
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

/// A set of leaves, eight kibibytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaves(Vec<u64>);

impl Leaves {
    /// Of these leaves.
    pub fn new(leaves: &[u16]) -> Self {
        let mut bits = vec![0; LEAVES / 64];
        for leaf in leaves {
            bits[usize::from(*leaf) / 64] |= 1 << (leaf % 64);
        }
        Self(bits)
    }

    /// True if the leaf is in it.
    pub fn contains(&self, leaf: u16) -> bool {
        self.0[usize::from(leaf) / 64] >> (leaf % 64) & 1 != 0
    }
}
