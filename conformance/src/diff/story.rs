//! A story is told to both servers, and their answers compared.

use super::draw::{KEYS, ODD_KEYS, key_of_opaque};
use super::pair::{Answer, End, Pair};
use super::replies::{CasPairs, Differs, compare_binary, compare_text};
use super::request::Burst;
use crate::{Result, notation};

/// Tells stories.
pub(crate) struct Teller {
    pub(crate) pair: Pair,
    /// Numbers the bursts, so that no reply is taken for the end of another burst.
    bursts: u32,
}

/// Where two servers part.
#[derive(Debug)]
pub(crate) struct Parting {
    /// The number of the burst in its story.
    pub(crate) burst: usize,
    /// What was sent to the reference.
    sent: Vec<u8>,
    answers: [Answer; 2],
    at: Differs,
}

impl Teller {
    /// The reference's first CAS values are used up: a story takes 1 for nobody's.
    pub(crate) fn new(pair: Pair) -> Result<Self> {
        let mut teller = Self { pair, bursts: 0 };
        let mut bytes = [b"set a 0 0 1\r\nx\r\nset a 0 0 1\r\nx\r\n".to_vec(), Vec::new()];
        let last = teller.end(false, &mut bytes);
        teller.pair.exchange(CONTROL, [&bytes[0], &bytes[1]], &[], &last)?;
        Ok(teller)
    }

    /// Tells a story from its beginning, when no item with a key of [`KEYS`] is there. `None`: all answers agree.
    pub(crate) fn tell(&mut self, story: &[Burst]) -> Result<Option<Parting>> {
        self.forget()?;
        let mut cas = CasPairs::default();
        for (index, burst) in story.iter().enumerate() {
            let mut bytes = [burst.write(&cas.reference), burst.write(&cas.larder)];
            let sent = bytes[0].clone();
            let last = self.end(burst.is_binary, &mut bytes);
            let answers = self.pair.exchange(burst.connection, [&bytes[0], &bytes[1]], &burst.cuts, &last)?;
            let [a, b] = [&answers[0].bytes[..], &answers[1].bytes[..]];
            let compared = if burst.is_binary {
                compare_binary(a, b, &mut cas, key_of_opaque)
            } else {
                compare_text(a, b, &mut cas)
            };
            let both_close = answers.iter().all(|answer| answer.end == End::Closed);
            let at = match compared {
                // The reference may close before it has sent all replies.
                Err(at) if both_close && at.reference_at == a.len() => continue,
                Err(at) => at,
                Ok(()) if answers[0].end == answers[1].end => continue,
                Ok(()) => Differs { reference_at: a.len(), larder_at: b.len() },
            };
            self.pair.check()?;
            self.pair.disconnect();
            return Ok(Some(Parting { burst: index, sent, answers, at }));
        }
        Ok(None)
    }

    /// Tells a story that was answered differently a few times more, until it is so again. `None`: it never is.
    pub(crate) fn tell_again(&mut self, story: &[Burst]) -> Result<Option<Parting>> {
        for _ in 0..TELLINGS {
            if let Some(parting) = self.tell(story)? {
                return Ok(Some(parting));
            }
        }
        Ok(None)
    }

    /// Removes the items of the story before, but for those of odd keys, which a garbled line has made.
    fn forget(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        for key in KEYS {
            bytes.extend_from_slice(&[b"delete ", key, b" noreply\r\n"].concat());
        }
        for (_, base64) in ODD_KEYS {
            bytes.extend_from_slice(&[b"md ", base64, b" b q\r\n"].concat());
        }
        // Now and then all others too. Not each time: memory that was flushed is free only a while later.
        if self.bursts % FLUSH_BURSTS < 4 {
            bytes.extend_from_slice(b"flush_all noreply\r\n");
        }
        let mut bytes = [bytes.clone(), bytes];
        let last = self.end(false, &mut bytes);
        let answers = self.pair.exchange(CONTROL, [&bytes[0], &bytes[1]], &[], &last)?;
        if answers.iter().all(|answer| answer.end == End::Whole) {
            Ok(())
        } else {
            self.pair.check()?;
            Err("a server does not answer".into())
        }
    }

    /// Appends a request whose reply shows that all before are answered, and returns that reply.
    fn end(&mut self, is_binary: bool, bytes: &mut [Vec<u8>; 2]) -> Vec<u8> {
        self.bursts += 1;
        let (end, last) = if is_binary {
            let opaque = (self.bursts | 1 << 31).to_be_bytes();
            let packet =
                |magic: u8| [&[magic, NOOP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &opaque[..], &[0; 8]].concat();
            (packet(0x80), packet(0x81))
        } else {
            // A value that was announced longer than it is ends in the first line.
            let key = format!("end{}", self.bursts);
            (
                format!("mn ----------------------------------------\r\nmg {key} k\r\n").into_bytes(),
                format!("EN k{key}\r\n").into_bytes(),
            )
        };
        for bytes in bytes {
            bytes.extend_from_slice(&end);
        }
        last
    }
}

impl Parting {
    /// In the notation of golden scripts, with what differs marked.
    pub(crate) fn shown(&self) -> String {
        let mut text = String::from("---\n");
        push(&self.answers[0], self.at.reference_at, &mut text);
        text.push_str("larder differs: \n");
        push(&self.answers[1], self.at.larder_at, &mut text);
        text
    }

    /// What was sent last, in that notation.
    pub(crate) fn sent(&self) -> &[u8] {
        &self.sent
    }
}

/// The requests of a burst, or a reply, as lines of a script.
pub(crate) fn write_lines(bytes: &[u8], text: &mut String) {
    for line in notation::write(bytes) {
        text.push_str(&line);
        text.push('\n');
    }
}

fn push(answer: &Answer, at: usize, text: &mut String) {
    let from = at.min(answer.bytes.len());
    let to = answer.bytes.len().min(from + SHOWN_BYTES_MAX);
    write_lines(&answer.bytes[..from], text);
    text.push_str("# from here on\n");
    write_lines(&answer.bytes[from..to], text);
    match answer.end {
        End::Whole => {}
        End::Closed => text.push_str("{closed}\n"),
        End::Silent => text.push_str("# and nothing more\n"),
    }
}

/// The connection over which items are removed.
const CONTROL: usize = 4;
const FLUSH_BURSTS: u32 = 512;
const TELLINGS: u32 = 5;
const NOOP: u8 = 0x0a;
const SHOWN_BYTES_MAX: usize = 2000;
