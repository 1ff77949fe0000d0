//! A publisher's part in a comparison.

use super::super::{Closed, unexpected};
use super::{Publisher, PublisherAction};
use crate::compare::{Answer, Ask, CompareRead, Listed, Reply, ScanRead};
use crate::wire::Message;

impl Publisher {
    /// The answer to [`CompareStep::Scan`](crate::compare::CompareStep::Scan).
    pub fn compare_scanned(&mut self, read: ScanRead) {
        let answer = self.answering.scanned(read);
        self.answer(answer);
    }

    /// The answer to [`CompareStep::List`](crate::compare::CompareStep::List), and where the next list begins;
    /// `None`: there are no more.
    pub fn compare_listed(&mut self, keys: Vec<Listed<'_>>, position: Option<Vec<u8>>) {
        if let Some(answer) = self.answering.listed(keys, position) {
            self.channel.send(&Message::Compared(answer));
        }
    }

    /// The answer to [`CompareStep::Read`](crate::compare::CompareStep::Read).
    pub fn compare_read(&mut self, read: &CompareRead) {
        if let Some(answer) = self.answering.read(read.count) {
            self.channel.send_body(&read.body, &Message::Compared(answer));
        }
    }

    fn answer(&mut self, answer: Option<Answer<'static>>) {
        if let Some(answer) = answer {
            self.channel.send(&Message::Compared(answer));
        }
    }

    pub(super) fn receive_ask(&mut self, ask: &Ask<'_>) -> Result<(), Closed> {
        let bytes_max = self.settings.batch_bytes;
        match self.answering.receive(ask, bytes_max).ok_or_else(unexpected)? {
            Reply::Send(answer) => self.answer(Some(answer)),
            Reply::Act(step) => self.channel.act(PublisherAction::Compare(step)),
        }
        Ok(())
    }
}
