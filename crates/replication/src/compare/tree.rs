//! Digests of ranges of keys.

use super::Fingerprint;

/// Ranges of the lowest level.
pub const LEAVES: usize = 1 << (BITS * LEVELS);
/// Levels below the root.
pub(super) const LEVELS: u32 = 4;
/// Of the number of a child within its range: each range has 16.
const BITS: u32 = 4;
pub(super) const CHILDREN: usize = 1 << BITS;

/// The digests of all ranges, a little more than a mebibyte. That of a range is the sum of the fingerprints in it, so
/// the order of a scan does not matter. A state that a scan visits twice counts twice; its leaf is then listed for
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// By level, below the root.
    levels: [Vec<u128>; LEVELS as usize],
    states: u64,
}

impl Tree {
    /// Of nothing.
    pub fn new() -> Self {
        Self { levels: std::array::from_fn(|above| vec![0; CHILDREN << (BITS * above as u32)]), states: 0 }
    }

    /// Adds a state.
    pub fn add(&mut self, leaf: u16, fingerprint: Fingerprint) {
        let mut number = usize::from(leaf);
        for level in self.levels.iter_mut().rev() {
            level[number] = level[number].wrapping_add(fingerprint);
            number >>= BITS;
        }
        self.states += 1;
    }

    /// States that were added.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// The digests of the children of a range: of this level (0: the root) and number. `None`: there is no such range.
    pub fn children(&self, level: u8, number: u16) -> Option<&[u128; CHILDREN]> {
        let start = usize::from(number) * CHILDREN;
        self.levels.get(usize::from(level))?.get(start..)?.first_chunk()
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
