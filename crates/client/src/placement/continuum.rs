//! Points on a ring.

/// Points of servers on a ring of 32-bit numbers. Invariant: the points rise, and no two are equal.
#[derive(Clone, Debug)]
pub(super) struct Continuum {
    points: Vec<(u32, usize)>,
    owner: Owner,
}

/// Which point owns a hash. Past the end, the ring begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The first one that is not below: ketama.
    NotBelow,
    /// The first one above: uhashring.
    Above,
    /// The last one that is not above: dalli.
    NotAbove,
}

/// Which of several servers with an equal point has it, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tie {
    First,
    Last,
}

impl Continuum {
    /// The points in the order of their servers.
    pub(super) fn new(mut points: Vec<(u32, usize)>, owner: Owner, tie: Tie) -> Self {
        if tie == Tie::Last {
            points.reverse();
        }
        points.sort_by_key(|(point, _)| *point);
        points.dedup_by_key(|(point, _)| *point);
        Self { points, owner }
    }

    /// `None`: there are no points.
    pub(super) fn server_of(&self, hash: u64) -> Option<usize> {
        self.points.get(self.position(hash)).map(|(_, server)| *server)
    }

    /// The servers of all points, from that of a hash on, in the order in which they would own it if those before were
    /// taken away. A server comes as often as it has points.
    pub(super) fn walk(&self, hash: u64) -> impl Iterator<Item = usize> {
        let (start, count) = (self.position(hash), self.points.len());
        let is_backward = self.owner == Owner::NotAbove;
        let at = move |step: usize| (if is_backward { start + count - step } else { start + step }) % count;
        (0..count).map(move |step| self.points[at(step)].1)
    }

    /// The position of the point that owns a hash.
    fn position(&self, hash: u64) -> usize {
        let below = |point: u32| match self.owner {
            Owner::NotBelow => u64::from(point) < hash,
            Owner::Above | Owner::NotAbove => u64::from(point) <= hash,
        };
        let after = self.points.partition_point(|(point, _)| below(*point));
        match self.owner {
            Owner::NotBelow | Owner::Above if after == self.points.len() => 0,
            Owner::NotBelow | Owner::Above => after,
            Owner::NotAbove => after.checked_sub(1).unwrap_or_else(|| self.points.len().saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_belongs_to_the_point_that_the_client_says() {
        let points = vec![(30, 0), (10, 1), (20, 1), (20, 2)];
        let owners = |owner, tie| {
            let ring = Continuum::new(points.clone(), owner, tie);
            [5, 10, 11, 20, 30, 31].map(|hash| ring.server_of(hash).expect("there are points"))
        };
        assert_eq!(owners(Owner::NotBelow, Tie::First), [1, 1, 1, 1, 0, 1]);
        assert_eq!(owners(Owner::NotBelow, Tie::Last), [1, 1, 2, 2, 0, 1]);
        assert_eq!(owners(Owner::Above, Tie::First), [1, 1, 1, 0, 1, 1]);
        assert_eq!(owners(Owner::NotAbove, Tie::First), [0, 1, 1, 1, 0, 0]);
        assert_eq!(Continuum::new(Vec::new(), Owner::NotBelow, Tie::First).server_of(0), None);
    }
}
