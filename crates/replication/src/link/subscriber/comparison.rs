//! A subscriber's part in a comparison.

use super::super::{Closed, Now, unexpected};
use super::queue::Work;
use super::{Subscriber, SubscriberAction};
use crate::compare::{Answer, Arrived, Output, ScanRead, check_asked};

impl Subscriber {
    /// Begins to compare this site with the publisher, of what every site has at this horizon. False: the log does not
    /// follow yet, this site does not keep all keys, or a comparison is under way.
    pub fn compare(&mut self, horizon: u64, now: Now) -> bool {
        let is_possible = self.is_pulling() && self.settings.prefixes.is_empty() && self.asking.is_idle();
        if is_possible {
            self.asking.begin(horizon);
            self.go_on_comparing(now);
        }
        is_possible
    }

    /// True from [`compare`](Self::compare) to [`AskingStep::Ended`](crate::compare::AskingStep::Ended).
    pub fn is_comparing(&self) -> bool {
        !self.asking.is_idle()
    }

    /// The answer to [`AskingStep::Scan`](crate::compare::AskingStep::Scan).
    pub fn compare_scanned(&mut self, read: ScanRead, now: Now) {
        self.asking.scanned(read);
        self.go_on_comparing(now);
    }

    /// The answer to [`AskingStep::Judge`](crate::compare::AskingStep::Judge):
    /// the keys whose states this site asks for.
    pub fn compare_judged(&mut self, keys: Vec<Vec<u8>>, now: Now) {
        self.asking.judged(keys);
        self.compared_step(now);
    }

    /// The answer to [`AskingStep::Mend`](crate::compare::AskingStep::Mend).
    pub fn compare_mended(&mut self, now: Now) {
        self.asking.mended();
        self.compared_step(now);
    }

    /// The first of the queue was of a comparison, and is done.
    pub(super) fn compared_step(&mut self, now: Now) {
        self.queued_bytes -= self.applying_bytes.take().unwrap_or(0);
        self.work(now);
        self.go_on_comparing(now);
    }

    /// Says and asks for what is due of a comparison.
    pub(super) fn go_on_comparing(&mut self, now: Now) {
        self.asking.work(now.micros, self.settings.compare_bytes_per_sec);
        while let Some(output) = self.asking.next_output() {
            self.channel.act(match output {
                Output::Send(bytes) => SubscriberAction::Send(bytes),
                Output::Act(step) => SubscriberAction::Compare(step),
            });
        }
    }

    /// An answer of a comparison has arrived. Lists and states wait for the log before them.
    pub(super) fn receive_answer(&mut self, answer: &Answer<'_>) -> Result<(), Closed> {
        match self.asking.receive(answer).map_err(|_| unexpected())? {
            Arrived::Nothing => Ok(()),
            Arrived::List(list) => self.enqueue(Work::List(list)),
            Arrived::States(keys) => {
                let body = self.assembly.take();
                check_asked(&keys, &body).map_err(|_| unexpected())?;
                self.enqueue(Work::States(body))
            }
        }
    }
}
