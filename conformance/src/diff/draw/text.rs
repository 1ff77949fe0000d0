//! The classic text dialect.

use super::{Draw, Drawn, Kind, cas_of};
use crate::diff::request::{Piece, Request};

impl Draw {
    pub(super) fn text(&mut self, is_large: bool) -> Drawn {
        let (line, value, kind) = match self.rng.u32(..if is_large { 10 } else { 30 }) {
            0..=5 => self.store(is_large),
            6..=9 => (self.get(), None, Kind::Fetch),
            10..=11 => self.store(is_large),
            12 => return self.cas(),
            13..=16 => (self.get(), None, Kind::Fetch),
            17 => (self.get_and_touch(), None, Kind::Fetch),
            18..=21 => (self.arith(), None, Kind::Arithmetic),
            22..=23 => {
                let key = self.key();
                let time: &[u8] = if self.one_in(10) { b" 0" } else { b"" };
                ([b"delete ", key, time, self.noreply()].concat(), None, Kind::Other)
            }
            24..=25 => {
                let (key, exptime) = (self.key(), self.exptime());
                ([b"touch ", key, b" ", exptime, self.noreply()].concat(), None, Kind::Other)
            }
            _ => (self.other(), None, Kind::Fetch),
        };
        let line = if self.one_in(10) { self.garble(&line) } else { line };
        let mut bytes = line;
        let end: &[u8] = if self.one_in(20) { b"\n" } else { b"\r\n" };
        bytes.extend_from_slice(end);
        if let Some(value) = value {
            bytes.extend_from_slice(&value);
            let end = if self.one_in(40) {
                self.choice(&[&b"\n"[..], b"xx", b"\rx", b"x\n", b"", b"x\r\n"])
            } else {
                b"\r\n"
            };
            bytes.extend_from_slice(end);
        }
        // What was garbled may have become anything.
        Drawn { request: bytes.into(), kind }
    }

    // <command name> <key> <flags> <exptime> <bytes> [noreply]
    fn store(&mut self, is_large: bool) -> (Vec<u8>, Option<Vec<u8>>, Kind) {
        let name = self.choice(&[&b"set"[..], b"set", b"add", b"replace", b"append", b"prepend"]);
        let (key, value) = (self.key(), self.value(is_large));
        let client_flags =
            self.choice(&[&b"0"[..], b"0", b"5", b"+7", b"0012", b"4294967295", b"65536", b"2147483648"]);
        let exptime = self.exptime();
        let line = [name, b" ", key, b" ", client_flags, b" ", exptime, b" "].concat();
        let bytes = self.length(value.len());
        ([&line, bytes.as_bytes(), self.noreply()].concat(), Some(value), Kind::Other)
    }

    // cas <key> <flags> <exptime> <bytes> <cas unique> [noreply]
    fn cas(&mut self) -> Drawn {
        let (key, value, exptime) = (self.key(), self.value(false), self.exptime());
        let mut request = Request::default();
        request.push(&[b"cas ", key, b" 3 ", exptime, b" "].concat());
        request.push(format!("{} ", self.length(value.len())).as_bytes());
        match self.age() {
            Some(age) => request.pieces.push(Piece::Cas(cas_of(key, age))),
            None => request.push(self.choice(&[&b"0"[..], b"1", b"18446744073709551615"])),
        }
        request.push(self.noreply());
        request.push(&[b"\r\n", &value[..], b"\r\n"].concat());
        Drawn { request, kind: Kind::Other }
    }

    // get <key>*
    fn get(&mut self) -> Vec<u8> {
        let name: &[u8] = if self.rng.bool() { b"gets" } else { b"get" };
        let mut line = name.to_vec();
        let keys = if self.one_in(50) { self.rng.usize(30..120) } else { self.rng.usize(1..5) };
        for _ in 0..keys {
            line.extend_from_slice(&[b" ", self.key()].concat());
        }
        line
    }

    // gat <exptime> <key>*
    fn get_and_touch(&mut self) -> Vec<u8> {
        let name: &[u8] = if self.rng.bool() { b"gats " } else { b"gat " };
        [name, self.exptime(), b" ", self.key(), b" ", self.key()].concat()
    }

    // incr <key> <value> [noreply]
    fn arith(&mut self) -> Vec<u8> {
        let is_incr = self.rng.bool();
        let name: &[u8] = if is_incr { b"incr " } else { b"decr " };
        let large: &[u8] = if is_incr { b"1000000000000" } else { b"18446744073709551615" };
        let delta = self.choice(&[&b"0"[..], b"1", b"1", b"5", b"91", large, b"x", b"12a"]);
        [name, self.key(), b" ", delta, self.noreply()].concat()
    }

    fn other(&mut self) -> Vec<u8> {
        if self.one_in(60) {
            return self
                .choice(&[&b"flush_all"[..], b"flush_all 0", b"flush_all noreply", b"flush_all -1"])
                .to_vec();
        }
        let lines: &[&[u8]] = &[
            b"version",
            b"verbosity 0",
            b"verbosity 0 noreply",
            b"flush_all x",
            b"bogus",
            b"bogus noreply",
            b"bogus words and more",
            b"GET a",
            b"get\ta",
            b"mn",
            b"quit",
        ];
        self.choice(lines).to_vec()
    }

    pub(super) fn exptime(&mut self) -> &'static [u8] {
        self.choice(&[&b"0"[..], b"0", b"0", b"0", b"100", b"2592000", b"-1", b"2592001", b"99", b"4000000"])
    }

    fn noreply(&mut self) -> &'static [u8] {
        if self.one_in(5) { b" noreply" } else { b"" }
    }

    /// The length of a value, or nearly so.
    pub(super) fn length(&mut self, bytes: usize) -> String {
        match self.rng.u32(..60) {
            0 => (bytes + self.rng.usize(1..4)).to_string(),
            1 => bytes.saturating_sub(self.rng.usize(1..4)).to_string(),
            2 => self.choice(&["-1", "x", "-5", "abc", "1.5"]).to_owned(),
            3 => format!("00{bytes}"),
            _ => bytes.to_string(),
        }
    }

    /// Changes a line a little.
    pub(super) fn garble(&mut self, line: &[u8]) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = line.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect();
        let index = self.rng.usize(..words.len());
        match self.rng.u32(..9) {
            0 => words.insert(index + 1, Vec::new()),
            1 => words.push(Vec::new()),
            2 => drop(words.remove(index)),
            3 => words[index].make_ascii_uppercase(),
            4 => {
                words[index] = self
                    .choice(&[&b"x"[..], b"-1", b"0", b"noreply", b"2147483648", b"+900", b"\xff"])
                    .to_vec()
            }
            5 => words[index] = vec![b'L'; self.rng.usize(245..260)],
            6 => {
                let byte = self.choice(b"\r\t\x01\x7f\xff:/=");
                let at = self.rng.usize(..=words[index].len());
                words[index].insert(at, byte);
            }
            7 => words.push(self.choice(&[&b"noreply"[..], b"0", b"x"]).to_vec()),
            _ => {
                let again = words[index].clone();
                words.insert(index, again);
            }
        }
        words.join(&b' ')
    }
}
