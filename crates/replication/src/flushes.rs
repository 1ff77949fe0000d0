//! Which keys were flushed, up to which version.
//!
//! A flush does not look for its items: it is a mark, and everything below the mark's version that it covers is gone.
//! What is under way, and older, is gone when it arrives. The marks of two sites become one set by union; marks that
//! say nothing which another does not say are left out. That is again a join: any order, any repetition.

/// A flush of the keys that begin with a prefix, except those that begin with one of the exceptions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushMark {
    /// Empty: all keys.
    pub prefix: Vec<u8>,
    /// Longer prefixes that keep their items (a namespace inside of this one). Sorted; none begins with another.
    pub exceptions: Vec<Vec<u8>>,
    /// What is below it is gone.
    pub version: u64,
}

impl FlushMark {
    /// A mark with its exceptions in order, and without those that say nothing. `None`: it covers no key.
    pub fn new(prefix: Vec<u8>, mut exceptions: Vec<Vec<u8>>, version: u64) -> Option<Self> {
        if exceptions.iter().any(|exception| prefix.starts_with(exception)) {
            return None;
        }
        exceptions.retain(|exception| exception.starts_with(&prefix));
        exceptions.sort();
        // In this order what begins with another one follows it.
        exceptions.dedup_by(|later, earlier| later.starts_with(earlier));
        Some(Self { prefix, exceptions, version })
    }

    /// True if the mark speaks of this key.
    pub fn covers(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix) && !self.exceptions.iter().any(|exception| key.starts_with(exception))
    }

    /// True if this mark says all that the other one says.
    fn implies(&self, other: &Self) -> bool {
        self.version >= other.version
            && other.prefix.starts_with(&self.prefix)
            && self.exceptions.iter().all(|kept| {
                !other.prefix.starts_with(kept)
                    && (!kept.starts_with(&other.prefix)
                        || other.exceptions.iter().any(|exception| kept.starts_with(exception)))
            })
    }
}

/// The flush marks of a site. None of them is implied by another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flushes {
    /// Sorted.
    marks: Vec<FlushMark>,
}

impl Flushes {
    /// Adds a mark. False: nothing new.
    pub fn add(&mut self, mark: FlushMark) -> bool {
        if self.marks.iter().any(|known| known.implies(&mark)) {
            return false;
        }
        self.marks.retain(|known| !mark.implies(known));
        let place = self.marks.partition_point(|known| *known < mark);
        self.marks.insert(place, mark);
        true
    }

    /// The highest version of a flush that covers this key; 0: none.
    pub fn newest(&self, key: &[u8]) -> u64 {
        self.marks.iter().filter(|mark| mark.covers(key)).map(|mark| mark.version).max().unwrap_or(0)
    }

    /// All marks, sorted.
    pub fn marks(&self) -> &[FlushMark] {
        &self.marks
    }

    /// Forgets marks that every site knows, and has known so long that nothing below them is under way. The caller has
    /// no records left that they cover.
    pub fn forget(&mut self, horizon: u64) {
        self.marks.retain(|mark| mark.version > horizon);
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    fn mark(prefix: &str, exceptions: &[&str], version: u64) -> FlushMark {
        let exceptions = exceptions.iter().map(|exception| exception.as_bytes().to_vec()).collect();
        FlushMark::new(prefix.as_bytes().to_vec(), exceptions, version).expect("it covers its prefix")
    }

    fn random_mark(rng: &mut Rng) -> Option<FlushMark> {
        let mut word =
            |longest: usize| -> Vec<u8> { (0..rng.usize(..=longest)).map(|_| b'a' + rng.u8(..2)).collect() };
        let prefix = word(2);
        let exceptions = (0..word(2).len()).map(|_| word(3)).collect();
        FlushMark::new(prefix, exceptions, rng.u64(1..6))
    }

    fn words() -> Vec<Vec<u8>> {
        let mut words = vec![Vec::new()];
        for length in 0..5_u32 {
            let of_length = (0..1 << length)
                .map(|bits: u32| (0..length).map(|bit| b'a' + (bits >> bit & 1) as u8).collect::<Vec<u8>>());
            words.extend(of_length);
        }
        words
    }

    #[test]
    fn a_mark_keeps_what_its_exceptions_name() {
        let mark = mark("user:", &["user:tmp:", "user:tmp:x", "other", "user:a"], 9);
        assert_eq!(mark.exceptions, [b"user:a".to_vec(), b"user:tmp:".to_vec()]);
        assert!(mark.covers(b"user:b") && mark.covers(b"user:tmp"));
        assert!(!mark.covers(b"user:tmp:1") && !mark.covers(b"user") && !mark.covers(b"user:abc"));
        assert_eq!(FlushMark::new(b"user:".to_vec(), vec![b"us".to_vec()], 9), None);
    }

    #[test]
    fn marks_that_say_nothing_new_are_left_out() {
        let mut flushes = Flushes::default();
        assert!(flushes.add(mark("a", &["ab"], 5)));
        assert!(!flushes.add(mark("aa", &[], 4)) && !flushes.add(mark("a", &["ab"], 5)));
        assert!(flushes.add(mark("ab", &[], 3)) && flushes.add(mark("a", &[], 4)));
        assert_eq!(flushes.marks().len(), 2, "a without ab at 5, a at 4");
        assert_eq!((flushes.newest(b"ac"), flushes.newest(b"abc"), flushes.newest(b"b")), (5, 4, 0));
        assert!(flushes.add(mark("", &[], 6)));
        assert_eq!((flushes.marks().len(), flushes.newest(b"b")), (1, 6));
        flushes.forget(6);
        assert_eq!(flushes, Flushes::default());
    }

    /// Any order of marks gives the same set, and the set says what the marks said.
    #[test]
    fn the_order_of_flushes_does_not_matter() {
        let words = words();
        for seed in 0..3000 {
            let mut rng = Rng::with_seed(seed);
            let mut marks: Vec<FlushMark> = (0..6).filter_map(|_| random_mark(&mut rng)).collect();
            let mut flushes = Flushes::default();
            for mark in &marks {
                flushes.add(mark.clone());
            }
            for word in &words {
                let newest = marks.iter().filter(|mark| mark.covers(word)).map(|mark| mark.version).max();
                assert_eq!(flushes.newest(word), newest.unwrap_or(0), "seed {seed}");
            }
            marks.extend_from_within(..marks.len() / 2);
            rng.shuffle(&mut marks);
            let mut again = Flushes::default();
            for mark in marks {
                again.add(mark);
            }
            assert_eq!(again, flushes, "seed {seed}");
        }
    }
}
