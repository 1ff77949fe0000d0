//! What was said about each key, for the report of a violation.

use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

/// The last requests about each key of one client, with their replies.
pub(crate) struct Dialogue {
    of_key: Vec<VecDeque<Rc<str>>>,
}

impl Dialogue {
    pub(crate) fn new(keys: usize) -> Self {
        Self { of_key: vec![VecDeque::new(); keys] }
    }

    /// Remembers a request that was answered rightly.
    pub(crate) fn note(&mut self, keys: &[usize], told: &Told) {
        let told: Rc<str> = told.to_string().into();
        for &key in keys {
            let lines = &mut self.of_key[key];
            if lines.len() == REQUESTS_PER_KEY {
                lines.pop_front();
            }
            lines.push_back(Rc::clone(&told));
        }
    }

    /// What was said about this key before the batch at hand or in it, oldest first.
    pub(crate) fn of_key(&self, key: usize) -> String {
        self.of_key[key].iter().fold(String::new(), |text, told| text + told)
    }
}

/// A request and its reply, cut to what a report shows.
pub(crate) struct Told {
    request: String,
    /// Since the start of the client.
    sent: Duration,
    replies: Vec<String>,
    answered: Duration,
}

impl Told {
    pub(crate) fn request(bytes: &[u8]) -> Self {
        Self { request: shown(bytes), sent: Duration::ZERO, replies: Vec::new(), answered: Duration::ZERO }
    }

    pub(crate) fn sent(&mut self, at: Duration) {
        self.sent = at;
    }

    pub(crate) fn answered(&mut self, replies: Vec<String>, at: Duration) {
        (self.replies, self.answered) = (replies, at);
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:>12.6} > {}", self.sent.as_secs_f64(), self.request)?;
        for reply in &self.replies {
            writeln!(f, "{:>12.6} < {reply}", self.answered.as_secs_f64())?;
        }
        Ok(())
    }
}

/// The first line whole, of the rest a piece.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let line_bytes = bytes.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let head = &bytes[..bytes.len().min(line_bytes.max(SHOWN_BYTES))];
    let mut text = head.escape_ascii().to_string();
    if head.len() < bytes.len() {
        let _ = write!(text, "... ({} bytes)", bytes.len());
    }
    text
}

const REQUESTS_PER_KEY: usize = 12;
const SHOWN_BYTES: usize = 100;
