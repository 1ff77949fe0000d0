//! What a server has to read and write, in the three dialects: as little of them as the benchmark needs here.

use std::io::{self, BufRead, Read};

use larder_protocol::binary::{HEADER_BYTES, REPLY_MAGIC, REQUEST_MAGIC, opcode};

/// A request, and what its answer depends on.
#[derive(Debug)]
pub(super) struct Request {
    dialect: Dialect,
    /// No answer is wanted; of a get, none to a miss.
    pub(super) is_quiet: bool,
    pub(super) ask: Ask,
}

#[derive(Debug)]
pub(super) enum Ask {
    Get(Vec<String>),
    Set { key: String, client_flags: u32, ttl_secs: u64, value: Vec<u8> },
    Delete(String),
    Noop,
    Version,
    Unknown,
}

#[derive(Clone, Copy, Debug)]
enum Dialect {
    Text,
    Meta,
    Binary { opcode: u8, opaque: [u8; 4] },
}

/// What became of a request that asks for no value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Stored,
    Deleted,
    NotFound,
    Ok,
    Version,
    Refused,
    NoMemory,
}

impl Request {
    /// The next one. `None`: the client has hung up.
    pub(super) fn read(input: &mut impl BufRead) -> io::Result<Option<Self>> {
        match input.fill_buf()?.first() {
            None => Ok(None),
            Some(&REQUEST_MAGIC) => Self::read_binary(input).map(Some),
            Some(_) => Self::read_line(input).map(Some),
        }
    }

    fn read_line(input: &mut impl BufRead) -> io::Result<Self> {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let flag = |letter| words.iter().skip(2).find_map(|word| word.strip_prefix(letter));
        let is_meta = words.first().is_some_and(|word| matches!(*word, "mg" | "ms" | "md" | "mn"));
        let ask = match words[..] {
            ["get", ref keys @ ..] => Ask::Get(keys.iter().map(|&key| key.into()).collect()),
            ["set", key, flags, ttl, bytes, ..] => Ask::Set {
                key: key.into(),
                client_flags: number(flags) as u32,
                ttl_secs: number(ttl),
                value: read_value(input, bytes)?,
            },
            ["delete", key, ..] | ["md", key, ..] => Ask::Delete(key.into()),
            ["mg", key, ..] => Ask::Get(vec![key.into()]),
            ["ms", key, bytes, ..] => Ask::Set {
                key: key.into(),
                client_flags: flag('F').map_or(0, number) as u32,
                ttl_secs: flag('T').map_or(0, number),
                value: read_value(input, bytes)?,
            },
            ["mn"] => Ask::Noop,
            ["version"] => Ask::Version,
            _ => Ask::Unknown,
        };
        let dialect = if is_meta { Dialect::Meta } else { Dialect::Text };
        let is_quiet = words.last() == Some(&"noreply") || is_meta && words.contains(&"q");
        Ok(Self { dialect, is_quiet, ask })
    }

    fn read_binary(input: &mut impl BufRead) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        input.read_exact(&mut header)?;
        let [_, opcode, k0, k1, extras, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, ..] = header;
        let mut extras = vec![0; extras.into()];
        input.read_exact(&mut extras)?;
        let mut key = vec![0; u16::from_be_bytes([k0, k1]).into()];
        input.read_exact(&mut key)?;
        let body_bytes = u32::from_be_bytes([b0, b1, b2, b3]) as usize;
        let mut value = vec![0; body_bytes - extras.len() - key.len()];
        input.read_exact(&mut value)?;
        let key = String::from_utf8(key).map_err(io::Error::other)?;
        let word =
            |at: usize| u32::from_be_bytes([extras[at], extras[at + 1], extras[at + 2], extras[at + 3]]);
        let ask = match opcode {
            opcode::GET | opcode::GETKQ => Ask::Get(vec![key]),
            opcode::SET | opcode::SETQ => {
                Ask::Set { key, client_flags: word(0), ttl_secs: word(4).into(), value }
            }
            opcode::DELETE | opcode::DELETEQ => Ask::Delete(key),
            opcode::NOOP => Ask::Noop,
            opcode::VERSION => Ask::Version,
            _ => Ask::Unknown,
        };
        let is_quiet = matches!(opcode, opcode::GETKQ | opcode::SETQ | opcode::DELETEQ);
        Ok(Self { dialect: Dialect::Binary { opcode, opaque: [o0, o1, o2, o3] }, is_quiet, ask })
    }

    /// A key that was found.
    pub(super) fn hit(&self, key: &str, client_flags: u32, value: &[u8]) -> Vec<u8> {
        let shown = if self.is_quiet { format!(" k{key}") } else { String::new() };
        let line = match self.dialect {
            Dialect::Text => format!("VALUE {key} {client_flags} {}\r\n", value.len()),
            Dialect::Meta => format!("VA {} f{client_flags}{shown}\r\n", value.len()),
            Dialect::Binary { .. } => {
                let key = if self.is_quiet { key } else { "" };
                return self.packet(0, &client_flags.to_be_bytes(), key.as_bytes(), value);
            }
        };
        [line.as_bytes(), value, b"\r\n"].concat()
    }

    /// A key that was not found.
    pub(super) fn miss(&self) -> Vec<u8> {
        match self.dialect {
            Dialect::Text => Vec::new(),
            _ if self.is_quiet => Vec::new(),
            Dialect::Meta => b"EN\r\n".to_vec(),
            Dialect::Binary { .. } => self.packet(1, b"", b"", b"Not found"),
        }
    }

    /// What ends a get.
    pub(super) fn end(&self) -> &'static [u8] {
        if let Dialect::Text = self.dialect { b"END\r\n" } else { b"" }
    }

    pub(super) fn done(&self, done: Done) -> Vec<u8> {
        let (text, meta, status) = match done {
            Done::Stored => ("STORED", "HD", 0),
            Done::Deleted => ("DELETED", "HD", 0),
            Done::NotFound => ("NOT_FOUND", "NF", 1),
            Done::Ok => ("OK", "MN", 0),
            Done::Version => ("VERSION 0.1-faulty", "VERSION 0.1-faulty", 0),
            Done::Refused => {
                ("SERVER_ERROR I do not feel like it", "SERVER_ERROR I do not feel like it", 0x84)
            }
            Done::NoMemory => {
                let text = "SERVER_ERROR out of memory storing object";
                (text, text, 0x82)
            }
        };
        let line = match self.dialect {
            Dialect::Text => text,
            Dialect::Meta => meta,
            Dialect::Binary { .. } => return self.packet(status, b"", b"", b""),
        };
        format!("{line}\r\n").into_bytes()
    }

    fn packet(&self, status: u16, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let Dialect::Binary { opcode, opaque } = self.dialect else { return Vec::new() };
        let body_bytes = (extras.len() + key.len() + value.len()) as u32;
        let mut header = [0; HEADER_BYTES];
        header[0] = REPLY_MAGIC;
        header[1] = opcode;
        header[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
        header[4] = extras.len() as u8;
        header[6..8].copy_from_slice(&status.to_be_bytes());
        header[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        header[12..16].copy_from_slice(&opaque);
        [&header, extras, key, value].concat()
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap()
}

fn read_value(input: &mut impl Read, bytes: &str) -> io::Result<Vec<u8>> {
    let mut value = vec![0; number(bytes) as usize + 2];
    input.read_exact(&mut value)?;
    value.truncate(value.len() - 2);
    Ok(value)
}
