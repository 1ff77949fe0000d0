//! SRV records (RFC 2782) in DNS messages (RFC 1035), without I/O.
//!
//! All that is read may come from anybody. Every length is checked, a name is followed over pointers that only go back,
//! and no more than [`RECORDS_MAX`] records are kept of a message, which has at most 64 KiB.

use std::{error, fmt};

use crate::{Address, Server};

/// A question for the SRV records of a name.
#[derive(Clone, Debug)]
pub(super) struct Question {
    id: u16,
    name: Name,
}

/// A name: its labels in lower case, each of 1 to 63 bytes, without a dot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name(Vec<Box<[u8]>>);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It does not fit into a datagram: TCP is to be asked.
    Truncated,
    /// The records.
    Records(Vec<Record>),
}

/// A record of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    priority: u16,
    weight: u16,
    port: u16,
    target: Name,
}

/// Why there is no list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BadAnswer {
    /// It is no answer to this question.
    Foreign,
    /// It breaks the protocol.
    Malformed,
    /// The name server has no such name.
    NoName,
    /// The name server has failed, with this code.
    Failed(u8),
    /// The name has more than [`RECORDS_MAX`] records.
    TooMany,
}

impl Question {
    /// For a name that is written out, with or without a dot at its end. `None`: it is not one of DNS.
    pub(super) fn new(id: u16, name: &str) -> Option<Self> {
        let labels: Vec<Box<[u8]>> = name
            .strip_suffix('.')
            .unwrap_or(name)
            .split('.')
            .map(|label| label.to_ascii_lowercase().into_bytes().into())
            .collect();
        let bytes: usize = labels.iter().map(|label| label.len() + 1).sum();
        (labels.iter().all(|label| (1..=LABEL_BYTES_MAX).contains(&label.len())) && bytes < NAME_BYTES_MAX)
            .then_some(Self { id, name: Name(labels) })
    }

    /// The message.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Recursion is desired; one question, and one additional record.
        let head = [self.id, 0x0100, 1, 0, 0, 1];
        let mut message = head.map(u16::to_be_bytes).concat();
        for label in &self.name.0 {
            message.push(label.len() as u8);
            message.extend_from_slice(label);
        }
        message.push(0);
        message.extend([TYPE_SRV, CLASS_IN].map(u16::to_be_bytes).concat());
        // EDNS (RFC 6891): answers may be longer than 512 bytes, but not be cut on their way.
        message.push(0);
        message.extend([TYPE_OPT, ANSWER_BYTES_MAX, 0, 0, 0].map(u16::to_be_bytes).concat());
        message
    }

    /// What a name server answers. Records of other names are left out, unless aliases lead to them.
    pub(super) fn read(&self, message: &[u8]) -> Result<Answer, BadAnswer> {
        let mut reader = Reader { message, at: 0 };
        let head: [u16; 6] = {
            let mut head = [0; 6];
            for word in &mut head {
                *word = reader.word().ok_or(BadAnswer::Malformed)?;
            }
            head
        };
        let [id, flags, questions, answers, ..] = head;
        let is_reply = flags & 0x8000 != 0 && flags & 0x7800 == 0;
        if id != self.id || !is_reply {
            return Err(BadAnswer::Foreign);
        }
        let code = (flags & 0xf) as u8;
        // Who cannot read a question need not repeat it.
        if questions == 0 && code != 0 {
            return Err(BadAnswer::Failed(code));
        }
        if questions != 1 || self.is_repeated(&mut reader) != Some(true) {
            return Err(BadAnswer::Foreign);
        }
        match code {
            _ if flags & 0x0200 != 0 => return Ok(Answer::Truncated),
            0 => {}
            3 => return Err(BadAnswer::NoName),
            code => return Err(BadAnswer::Failed(code)),
        }
        let mut owner = self.name.clone();
        let mut records = Vec::new();
        for _ in 0..answers {
            reader.record(&mut owner, &mut records).ok_or(BadAnswer::Malformed)?;
            // A part of them would be another list each time.
            if records.len() > RECORDS_MAX {
                return Err(BadAnswer::TooMany);
            }
        }
        Ok(Answer::Records(records))
    }

    fn is_repeated(&self, reader: &mut Reader<'_>) -> Option<bool> {
        let name = reader.name()?;
        Some(name == self.name && reader.word()? == TYPE_SRV && reader.word()? == CLASS_IN)
    }
}

/// The servers that records name: those of the best priority, which is the lowest. In an order that does not depend on
/// the answer's, so that keys do not move. `None`: the service is not there.
pub(super) fn servers(mut records: Vec<Record>) -> Option<Vec<Server>> {
    // RFC 2782: the root as target says that there is no such service.
    records.retain(|record| !record.target.0.is_empty() && record.port > 0);
    let best = records.iter().map(|record| record.priority).min()?;
    records.retain(|record| record.priority == best);
    let mut servers: Vec<_> = records
        .into_iter()
        .filter_map(|record| {
            let host = record.target.to_text()?;
            // 0 is a weight as well, of who wants next to nothing.
            Some((host, record.port, u32::from(record.weight).max(1)))
        })
        .collect();
    servers.sort_unstable();
    servers.dedup_by(|next, kept| (&next.0, next.1) == (&kept.0, kept.1));
    let server = |(host, port, weight)| Server { address: Address::Inet { host, port }, weight };
    Some(servers.into_iter().map(server).collect()).filter(|servers: &Vec<_>| !servers.is_empty())
}

impl Name {
    /// `None`: it is not the name of a host.
    fn to_text(&self) -> Option<String> {
        let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let labels = self
            .0
            .iter()
            .map(|label| label.iter().all(is_host).then(|| str::from_utf8(label).ok()).flatten());
        Some(labels.collect::<Option<Vec<_>>>()?.join("."))
    }
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(count)?;
        let bytes = self.message.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn word(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    }

    /// A name, which may end with a pointer to an earlier place. Each pointer goes further back, so there are few.
    fn name(&mut self) -> Option<Name> {
        let mut labels: Vec<Box<[u8]>> = Vec::new();
        let (mut bytes, mut limit, mut end) = (0, self.at, None);
        loop {
            let length = self.bytes(1)?[0];
            match length {
                0 => break,
                1..=63 => {
                    let label = self.bytes(usize::from(length))?.to_ascii_lowercase();
                    bytes += label.len() + 1;
                    if bytes >= NAME_BYTES_MAX {
                        return None;
                    }
                    labels.push(label.into());
                }
                0xc0.. => {
                    let low = self.bytes(1)?[0];
                    let place = usize::from(length & 0x3f) << 8 | usize::from(low);
                    end = end.or(Some(self.at));
                    if place >= limit {
                        return None;
                    }
                    (limit, self.at) = (place, place);
                }
                _ => return None,
            }
        }
        self.at = end.unwrap_or(self.at);
        Some(Name(labels))
    }

    /// An alias of the owner, or one of its records.
    fn record(&mut self, owner: &mut Name, records: &mut Vec<Record>) -> Option<()> {
        let name = self.name()?;
        let (kind, class) = (self.word()?, self.word()?);
        // The time to live: the caller has an interval.
        self.bytes(4)?;
        let length = usize::from(self.word()?);
        let end = self.at.checked_add(length).filter(|end| *end <= self.message.len())?;
        if name == *owner && class == CLASS_IN {
            match kind {
                TYPE_CNAME => *owner = self.name()?,
                TYPE_SRV => {
                    let (priority, weight, port) = (self.word()?, self.word()?, self.word()?);
                    records.push(Record { priority, weight, port, target: self.name()? });
                }
                _ => self.at = end,
            }
        } else {
            self.at = end;
        }
        (self.at == end).then_some(())
    }
}

impl fmt::Display for BadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("the name server answered another question"),
            Self::Malformed => f.write_str("the name server's answer is malformed"),
            Self::NoName => f.write_str("there is no such name"),
            Self::Failed(code) => write!(f, "the name server failed with code {code}"),
            Self::TooMany => write!(f, "the name has more than {RECORDS_MAX} records"),
        }
    }
}

impl error::Error for BadAnswer {}

const TYPE_CNAME: u16 = 5;
const TYPE_SRV: u16 = 33;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 255;
/// The most that an answer by UDP may have: no network fragments it (DNS flag day 2020).
pub(super) const ANSWER_BYTES_MAX: u16 = 1232;
/// As many servers as a cluster may have.
const RECORDS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer as BIND writes it, by hand from RFC 1035, 4.1: an alias, two records whose targets are compressed, a
    /// record of another name.
    fn answer() -> Vec<u8> {
        let mut message = b"\x12\x34\x81\x80\0\x01\0\x04\0\0\0\0".to_vec();
        message.extend(b"\x03_mc\x04_tcp\x01x\x04test\0\0\x21\0\x01");
        // 12 is the question's name; `test` is at 12 + 4 + 5 + 2.
        message.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01y\xc0\x17");
        let alias = (message.len() - 4) as u8;
        for (weight, host) in [(3_u8, b'b'), (0, b'a')] {
            message.extend([0xc0, alias, 0, 33, 0, 1, 0, 0, 0, 60, 0, 10, 0, 1, 0, weight, 0x2b, 0xcb]);
            message.extend([1, host, 0xc0, 0x17]);
        }
        message.extend(b"\x01z\0\0\x21\0\x01\0\0\0\x3c\0\x07\0\0\0\0\0\x05\0");
        message
    }

    fn question() -> Question {
        Question::new(0x1234, "_MC._tcp.x.test.").expect("a name")
    }

    #[test]
    fn records_are_read_behind_an_alias() {
        let Ok(Answer::Records(records)) = question().read(&answer()) else {
            panic!("{:?}", question().read(&answer()))
        };
        let servers = servers(records).expect("they are there");
        let named: Vec<_> =
            servers.iter().map(|server| format!("{} {}", server.address, server.weight)).collect();
        assert_eq!(named, ["a.test:11211 1", "b.test:11211 3"]);
    }

    #[test]
    fn the_question_is_as_the_standard_says() {
        let expected = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x03_mc\x04_tcp\x01x\x04test\0\0\x21\0\x01\
                         \0\0\x29\x04\xd0\0\0\0\0\0\0";
        assert_eq!(question().to_bytes(), expected);
        for name in ["", ".", "a..b", &"x".repeat(64), &vec!["y".repeat(63); 4].join(".")] {
            assert!(Question::new(1, name).is_none(), "{name}");
        }
    }

    #[test]
    fn only_the_best_priority_counts() {
        let name = |label: &str| Name(label.split('.').map(|label| label.as_bytes().into()).collect());
        let record =
            |priority, weight, target: &str| Record { priority, weight, port: 1, target: name(target) };
        let list = vec![record(2, 9, "far"), record(1, 5, "near"), record(1, 7, "by"), record(1, 7, "by")];
        let servers_of = |records| {
            servers(records).map(|servers| {
                servers.iter().map(|server| (server.address.to_string(), server.weight)).collect::<Vec<_>>()
            })
        };
        assert_eq!(servers_of(list), Some(vec![("by:1".to_owned(), 7), ("near:1".to_owned(), 5)]));
        assert_eq!(servers_of(vec![record(1, 1, "not/a/host")]), None);
        let root = Record { target: Name(Vec::new()), ..record(0, 0, "x") };
        assert_eq!(servers_of(vec![root]), None);
    }

    #[test]
    fn only_records_of_the_name_are_counted() {
        // TXT records of the name, then its SRV records, at the root.
        let answer = |others: u16, records: u16| {
            let mut message = question().to_bytes();
            message.truncate(message.len() - 11);
            message[2..4].copy_from_slice(&[0x81, 0x80]);
            message[6..8].copy_from_slice(&(others + records).to_be_bytes());
            message[10..12].copy_from_slice(&[0, 0]);
            (0..others).for_each(|_| message.extend(b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\0"));
            for port in 0..records {
                message.extend(b"\xc0\x0c\0\x21\0\x01\0\0\0\x3c\0\x07\0\0\0\0");
                message.extend(port.to_be_bytes());
                message.push(0);
            }
            message
        };
        for others in [0, 1500] {
            let read = question().read(&answer(others, 1024));
            assert!(matches!(&read, Ok(Answer::Records(records)) if records.len() == 1024), "{read:?}");
            assert_eq!(question().read(&answer(others, 1025)), Err(BadAnswer::TooMany));
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let answer = answer();
        for end in 0..answer.len() {
            assert!(question().read(&answer[..end]).is_err(), "{end}");
        }
        let changed = |at: usize, byte: u8| {
            let mut answer = answer.clone();
            answer[at] = byte;
            question().read(&answer)
        };
        assert_eq!(changed(0, 0x13), Err(BadAnswer::Foreign));
        assert_eq!(changed(2, 0x01), Err(BadAnswer::Foreign));
        assert_eq!(changed(13, b'x'), Err(BadAnswer::Foreign));
        assert_eq!(changed(3, 0x83), Err(BadAnswer::NoName));
        assert_eq!(changed(3, 0x82), Err(BadAnswer::Failed(2)));
        assert_eq!(changed(2, 0x83), Ok(Answer::Truncated));
        // A name that points to itself, or ahead.
        let first = 12 + 17 + 4;
        assert_eq!(answer[first..first + 2], [0xc0, 12]);
        for low in first..first + 4 {
            assert_eq!(changed(first + 1, low as u8), Err(BadAnswer::Malformed));
        }
        // Any byte may be any other: it ends.
        for at in 0..answer.len() {
            for byte in 0..=255 {
                let _ = changed(at, byte).map(|answer| match answer {
                    Answer::Records(records) => servers(records),
                    Answer::Truncated => None,
                });
            }
        }
    }
}
