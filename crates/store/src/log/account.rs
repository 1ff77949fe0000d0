//! What the index notes of a record that is counted for a prefix: for which one, and how long the record is.

use super::index::SizeClass;

/// 6 bits of the prefix's number, and 10 of the record's length within its size class; 0: it is not counted.
///
/// The length is exact to 0.1 % up to 2 MiB, to 0.5 % above. Adding and subtracting a record use the same figure, so
/// errors do not add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account(pub(super) u16);

const STEP_BITS: u32 = 10;
/// Steps within a class; 0 is none.
const STEPS: u64 = (1 << STEP_BITS) - 1;
/// Of the class without an end: steps in each doubling.
const OCTAVE_STEPS: u64 = 113;

impl Account {
    pub(super) const NONE: Self = Self(0);

    /// Of a record of so many bytes, padding included, in this class.
    pub(super) fn new(prefix: usize, class: SizeClass, bytes: usize) -> Self {
        let step = step_of(class, bytes as u64).clamp(1, STEPS);
        Self((prefix as u16) << STEP_BITS | step as u16)
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The number of the prefix.
    pub(super) fn prefix(self) -> usize {
        usize::from(self.0 >> STEP_BITS)
    }

    /// The length of the record, which has this class; 0 if it is not counted.
    pub(super) fn bytes(self, class: SizeClass) -> i64 {
        let step = u64::from(self.0) & STEPS;
        if step == 0 {
            return 0;
        }
        let (below, top) = bounds(class);
        let bytes = match top {
            Some(top) => below + step * (top - below) / STEPS,
            None => {
                let start = below << ((step - 1) / OCTAVE_STEPS);
                start + (step - 1) % OCTAVE_STEPS * start / OCTAVE_STEPS
            }
        };
        bytes as i64
    }
}

/// The longest record of the class below, and of this one.
fn bounds(class: SizeClass) -> (u64, Option<u64>) {
    let below = if class.0 == 0 { 0 } else { SizeClass(class.0 - 1).bytes() as u64 };
    (below, (class != SizeClass::LARGEST).then(|| class.bytes() as u64))
}

fn step_of(class: SizeClass, bytes: u64) -> u64 {
    let (below, top) = bounds(class);
    let bytes = bytes.max(below);
    if let Some(top) = top {
        return ((bytes - below) * STEPS).div_ceil(top - below);
    }
    let octave = u64::from((bytes / below).ilog2());
    let start = below << octave;
    1 + octave * OCTAVE_STEPS + ((bytes - start) * OCTAVE_STEPS + start / 2) / start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_nearly_exact() {
        let lengths = (56..4_096).step_by(8).chain((4_096..3 << 20).step_by(4_088));
        for bytes in lengths.chain((3 << 20..(1 << 30) + 65_600).step_by(1_000_000)) {
            let class = SizeClass::of(bytes);
            let account = Account::new(63, class, bytes);
            let error = account.bytes(class).abs_diff(bytes as i64) as f64 / bytes as f64;
            assert!(error <= if bytes > 2 << 20 { 0.005 } else { 0.001 }, "{bytes}: {account:?}, {error}");
            assert_eq!((account.prefix(), account.is_none()), (63, false));
        }
        assert!(!Account::new(0, SizeClass::of(0), 0).is_none());
        assert_eq!(Account::NONE.bytes(SizeClass::LARGEST), 0);
    }
}
