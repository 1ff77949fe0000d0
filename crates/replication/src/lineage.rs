//! Checks whether a position that another site claims in this site's log is possible, by the runs of larderd that wrote
//! the log.
//! Sequences are counted, so a store that is an older copy of itself reuses sequence numbers that the log has already
//! given to other entries. A *run* is a random number that is new with each start. Each site keeps the run of a log
//! with its cursor, and also the runs of its own log, each with the sequence at which the next one began. A cursor
//! whose run is not among them, or that lies beyond the end of its run, was in another log: either this store is an
//! older copy, or two servers continue from the same copy.

use crate::members::Cursor;

/// Number of ended runs to keep.
pub const RUNS_MAX: usize = 60;

/// A run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// Its random number.
    pub run: u64,
    /// The last sequence of the run, as the next run found it.
    pub end: u64,
}

/// The runs of one incarnation of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// Runs up to this sequence are unknown: a cursor there is accepted, whatever its run is.
    pub unknown_to: u64,
    /// Earlier runs that have sent the log to others, oldest first.
    pub ended: Vec<EndedRun>,
    /// The last run that has sent the log to others; 0: it is among the ended ones.
    pub last: u64,
}

impl Lineage {
    /// The lineage of a log of this length whose earlier runs nobody has noted.
    pub fn beginning(last_sequence: u64) -> Self {
        Self { unknown_to: last_sequence, ..Self::default() }
    }

    /// Opens the lineage in a new process: the run that wrote the log before has ended, and the log ends at
    /// `last_sequence`. Call before anything is appended. True: the lineage has to be noted before anything else.
    pub fn open(&mut self, last_sequence: u64) -> bool {
        if self.last == 0 {
            return false;
        }
        self.ended.push(EndedRun { run: std::mem::take(&mut self.last), end: last_sequence });
        let dropped = self.ended.len().saturating_sub(RUNS_MAX);
        if let Some(oldest) = self.ended.drain(..dropped).next_back() {
            self.unknown_to = oldest.end;
        }
        true
    }

    /// Continues this site's log as one of another incarnation, written by this run. The earlier runs are kept to tell
    /// earlier logs from later ones.
    pub fn renew(&mut self, run: u64, last_sequence: u64) {
        *self = Self { unknown_to: last_sequence, last: run, ended: std::mem::take(&mut self.ended) };
    }

    /// True if a cursor of another incarnation is in an earlier log of the site, as far as that is known. Otherwise the
    /// log continued as one that this store has not seen.
    pub fn is_earlier(&self, cursor: Cursor) -> bool {
        let is_known = |run| run == self.last || self.ended.iter().any(|ended| ended.run == run);
        cursor.run == 0 || is_known(cursor.run)
    }

    /// True if the cursor may be a position in this log, which is durable up to `durable`.
    pub fn has(&self, cursor: Cursor, durable: u64) -> bool {
        let ended = self.ended.iter().find(|ended| ended.run == cursor.run);
        let end = match ended {
            Some(ended) => ended.end,
            None if cursor.run == self.last && self.last != 0 => durable,
            None => self.unknown_to,
        };
        cursor.sequence <= end.min(durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(run: u64, sequence: u64) -> Cursor {
        Cursor { incarnation: 1, run, sequence }
    }

    /// Runs 1 to `count`, each of ten entries.
    fn of_runs(count: u64) -> Lineage {
        let mut lineage = Lineage::default();
        for run in 1..=count {
            lineage.open((run - 1) * 10);
            lineage.last = run;
        }
        lineage
    }

    #[test]
    fn a_log_has_what_its_runs_have_sent() {
        let lineage = of_runs(3);
        for (run, sequence) in [(1, 0), (1, 10), (2, 10), (2, 20), (3, 5), (3, 28)] {
            assert!(lineage.has(at(run, sequence), 28), "{run} {sequence}");
        }
        // These are beyond the end of a run, not durable, of a run that this log never had, and of a run that sent
        // nothing.
        for (run, sequence) in [(1, 11), (2, 21), (3, 29), (9, 1), (9, 11), (0, 1)] {
            assert!(!lineage.has(at(run, sequence), 28), "{run} {sequence}");
        }
        assert!(lineage.has(Cursor::default(), 28), "nothing at all");
    }

    /// Two logs continue from one copy, made during run 2: neither has what the other has sent since.
    #[test]
    fn an_older_copy_is_told_from_what_went_on() {
        let mut went_on = of_runs(2);
        let mut copy = went_on.clone();
        went_on.open(20);
        went_on.last = 3;
        copy.open(14);
        copy.last = 4;
        assert!(copy.has(at(2, 14), 1000) && copy.has(at(1, 10), 1000));
        // This holds however long the copy has become.
        assert!(!copy.has(at(2, 15), 1000) && !copy.has(at(3, 21), 1000));
        assert!(went_on.has(at(2, 20), 1000) && !went_on.has(at(4, 15), 1000));
    }

    /// A process that sends nothing to others only ends the run before it.
    #[test]
    fn runs_that_nobody_has_heard_of_are_not_kept() {
        let mut lineage = of_runs(1);
        assert!(lineage.open(10));
        assert!(!lineage.open(15) && !lineage.open(25));
        lineage.last = 2;
        assert!(lineage.has(at(1, 10), 30) && !lineage.has(at(1, 11), 30) && lineage.has(at(2, 30), 30));
    }

    /// A copy that was renewed, and is put back once more, knows nothing of the log that it became.
    #[test]
    fn logs_of_before_are_told_from_those_that_came_of_this_one() {
        let copy = of_runs(2);
        let mut renewed = copy.clone();
        renewed.open(20);
        renewed.renew(3, 25);
        let at = |incarnation, run| Cursor { incarnation, run, sequence: 15 };
        assert!(renewed.is_earlier(at(1, 2)) && renewed.is_earlier(at(0, 0)) && !copy.is_earlier(at(2, 3)));
        assert!(renewed.has(Cursor { incarnation: 2, run: 3, sequence: 40 }, 50));
    }

    #[test]
    fn what_was_written_before_runs_were_kept_is_not_doubted() {
        let mut lineage = Lineage::beginning(100);
        lineage.last = 1;
        assert!(lineage.has(at(0, 100), 200) && !lineage.has(at(0, 101), 200));
        // Runs that ended too long ago are dropped, too.
        let long = of_runs(RUNS_MAX as u64 + 3);
        assert_eq!((long.ended.len(), long.unknown_to), (RUNS_MAX, 20));
        assert!(long.has(at(1, 10), 1000) && !long.has(at(1, 21), 1000) && long.has(at(3, 30), 1000));
    }
}
