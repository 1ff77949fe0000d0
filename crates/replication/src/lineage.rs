//! Which positions of the own log another site can have, by the runs of larderd that wrote it.
//!
//! Sequences are counted, so a store that is an older copy of itself gives out numbers that the log has had before, for
//! other entries. A *run* is a random number that is new with each start. Each site keeps the run of a log with its
//! cursor, and a site keeps the runs of its own log, each with the sequence at which the next one began. A cursor of a
//! run that is not among them, or behind the end of its run, was in another log: this store is an older copy, or two
//! servers go on from one.

use crate::members::Cursor;

/// How many ended runs are kept.
pub const RUNS_MAX: usize = 60;

/// A run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// Its number.
    pub run: u64,
    /// The last sequence that the next run found.
    pub end: u64,
}

/// The runs of a log of one incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// Nothing is known of runs up to this sequence: there a cursor is right, whatever its run is.
    pub unknown_to: u64,
    /// The earlier runs that have sent the log to others, the oldest first.
    pub ended: Vec<EndedRun>,
    /// The last run that did so; 0: it is among the ended ones.
    pub last: u64,
}

impl Lineage {
    /// Of a log whose earlier runs nobody has noted, and which is so long.
    pub fn beginning(last_sequence: u64) -> Self {
        Self { unknown_to: last_sequence, ..Self::default() }
    }

    /// As a new process finds it: whoever wrote the log before is gone, and left it so long. Call before anything is
    /// appended. True: this has to be noted before anything else.
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

    /// The same site's log goes on as one of another incarnation, sent by this run, from here on. The earlier runs are
    /// kept to tell earlier logs from later ones.
    pub fn renew(&mut self, run: u64, last_sequence: u64) {
        *self = Self { unknown_to: last_sequence, last: run, ended: std::mem::take(&mut self.ended) };
    }

    /// True if a cursor of another incarnation is in an earlier log of the site, as far as that is known. If it is not,
    /// the log went on as one that this store knows nothing of.
    pub fn is_earlier(&self, cursor: Cursor) -> bool {
        let is_known = |run| run == self.last || self.ended.iter().any(|ended| ended.run == run);
        cursor.run == 0 || is_known(cursor.run)
    }

    /// True if a cursor can be one of this log, which is durable up to there.
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
        // Behind the end of a run, not durable, of a run that is none of this log's, of one that has none.
        for (run, sequence) in [(1, 11), (2, 21), (3, 29), (9, 1), (9, 11), (0, 1)] {
            assert!(!lineage.has(at(run, sequence), 28), "{run} {sequence}");
        }
        assert!(lineage.has(Cursor::default(), 28), "nothing at all");
    }

    /// Two logs go on from one copy, made while run 2 was going on: neither has what the other one has sent.
    #[test]
    fn an_older_copy_is_told_from_what_went_on() {
        let mut went_on = of_runs(2);
        let mut copy = went_on.clone();
        went_on.open(20);
        went_on.last = 3;
        copy.open(14);
        copy.last = 4;
        assert!(copy.has(at(2, 14), 1000) && copy.has(at(1, 10), 1000));
        // However long it has become.
        assert!(!copy.has(at(2, 15), 1000) && !copy.has(at(3, 21), 1000));
        assert!(went_on.has(at(2, 20), 1000) && !went_on.has(at(4, 15), 1000));
    }

    /// A process that sends nothing to anybody changes nothing, but that the run before it is over.
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
        // Nor is what is of a run that was too long ago.
        let long = of_runs(RUNS_MAX as u64 + 3);
        assert_eq!((long.ended.len(), long.unknown_to), (RUNS_MAX, 20));
        assert!(long.has(at(1, 10), 1000) && !long.has(at(1, 21), 1000) && long.has(at(3, 30), 1000));
    }
}
