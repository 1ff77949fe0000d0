//! The meta commands.

use super::{Draw, Drawn, KEYS, Kind, ODD_KEYS, cas_of};
use crate::diff::request::{Piece, Request};

impl Draw {
    pub(super) fn meta(&mut self, is_large: bool) -> Drawn {
        let (name, letters, kind): (&[u8], &[u8], Kind) = match self.rng.u32(..20) {
            0..=6 => (b"mg", b"bcfhIJkLlNOPqRsTtuvvMF", Kind::Fetch),
            7..=12 => (b"ms", b"bcCFIkOPqTMMvt", Kind::Other),
            13..=14 => (b"md", b"bCIkOqTv", Kind::Other),
            15..=17 => (b"ma", b"bcCDJkMNOqTtvf", Kind::Arithmetic),
            18 => (b"me", b"", Kind::Fetch),
            _ => return Drawn { request: b"mn\r\n".to_vec().into(), kind: Kind::Other },
        };
        let (key, is_odd) = if name != b"me" && name != b"ma" && self.one_in(8) {
            (self.choice(&ODD_KEYS).1, true)
        } else {
            (self.key(), false)
        };
        let mut request = Request::default();
        request.push(&[name, b" ", key].concat());
        let value = (name == b"ms").then(|| self.value(is_large));
        if let Some(value) = &value {
            request.push(format!(" {}", self.length(value.len())).as_bytes());
        }
        if is_odd {
            request.push(b" b");
        }
        let letters = if is_odd && name == b"ms" { &b"cCFIkOPqTvt"[..] } else { letters };
        let count = self.rng.usize(..7.min(letters.len() + 1));
        for letter in self.rng.choose_multiple(letters.iter().copied(), count) {
            // This key is the first in base64; to store it so would make larder, not the reference, show it so for
            // ever.
            let is_base64 = !is_odd && key == KEYS[4] && name != b"ms";
            // Of a key that is no base64 an error is enough now and then.
            if letter == b'b' && !is_base64 && (key == KEYS[4] || !self.one_in(20)) {
                continue;
            }
            request.push(&[b' ', letter]);
            self.argument(name, letter, key, &mut request);
        }
        if self.one_in(30) {
            let odd: &[&[u8]] =
                &[b" z", b" k", b" kk", b" O", b" O123456789012345678901234567890", b" S100", b" q q"];
            request.push(self.choice(odd));
        }
        if self.one_in(30) {
            request.push(b"  ");
        }
        if self.one_in(40)
            && let [Piece::Bytes(line)] = &mut request.pieces[..]
        {
            *line = self.garble(line);
        }
        request.push(if self.one_in(20) { b"\n" } else { b"\r\n" });
        if let Some(value) = value {
            request.push(&value);
            request.push(if self.one_in(40) { b"x\n" } else { b"\r\n" });
        }
        Drawn { request, kind }
    }

    fn argument(&mut self, name: &[u8], letter: u8, key: &[u8], request: &mut Request) {
        let argument = match letter {
            b'C' => {
                return match self.age() {
                    Some(age) => request.pieces.push(Piece::Cas(cas_of(key, age))),
                    None => request.push(self.choice(&[&b"0"[..], b"1", b"x"])),
                };
            }
            b'T' => self.exptime(),
            b'N' => self.choice(&[&b"0"[..], b"100", b"300"]),
            b'R' => self.choice(&[&b"0"[..], b"30", b"200", b"1000000"]),
            b'F' => self.choice(&[&b"0"[..], b"7", b"65536", b"x"]),
            b'D' => self.choice(&[&b"0"[..], b"1", b"10", b"1844674407370", b"x"]),
            b'J' => self.choice(&[&b"0"[..], b"13", b"1000", b"x"]),
            b'M' if name == b"ma" => self.choice(&[&b"I"[..], b"D", b"+", b"-", b"X"]),
            b'M' => self.choice(&[&b"S"[..], b"E", b"A", b"P", b"R", b"X"]),
            b'O' => self.choice(&[
                &b"1"[..],
                b"abc",
                b"c77",
                b"t30",
                b"\xff\x01",
                b"k",
                b"",
                b"1234567890123456789012345678901",
            ]),
            b'P' | b'L' => self.choice(&[&b""[..], b"x", b"123"]),
            _ => b"",
        };
        request.push(argument);
    }
}
