//! Draws requests: mostly well-formed ones about few keys, so that they meet; and all that clients get wrong.

mod binary;
mod meta;
mod text;

use std::collections::BTreeMap;

use fastrand::Rng;

pub(crate) use self::binary::key_of_opaque;
use super::deliberate;
use super::request::{Age, Burst, Cas, CasShown, Request};

/// Which dialects are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// The classic commands.
    pub text: bool,
    /// The meta commands.
    pub meta: bool,
    /// Packets.
    pub binary: bool,
}

/// A generator of requests.
pub(crate) struct Draw {
    pub(crate) rng: Rng,
    dialects: Dialects,
    /// Requests that were not sent, because they are answered differently on purpose.
    pub(crate) left_out: BTreeMap<&'static str, u64>,
}

impl Draw {
    pub(crate) fn new(seed: u64, dialects: Dialects) -> Self {
        Self { rng: Rng::with_seed(seed), dialects, left_out: BTreeMap::new() }
    }

    /// What a few clients say, one after the other: a story of about 50 requests.
    pub(crate) fn story(&mut self) -> Vec<Burst> {
        let bursts = self.rng.usize(1..8);
        let is_large = self.one_in(200);
        (0..bursts).map(|_| self.burst(is_large)).collect()
    }

    fn burst(&mut self, is_large: bool) -> Burst {
        let has_lines = self.dialects.text || self.dialects.meta;
        let is_binary = self.dialects.binary && (!has_lines || self.rng.bool());
        let count = if is_large { self.rng.usize(1..4) } else { self.rng.usize(1..25) };
        let mut requests: Vec<Request> = Vec::new();
        // The reference writes the result of arithmetic into the item unless a reply still holds it; then its length
        // may differ, and clients must not rely on either. So nothing is fetched before arithmetic in one burst.
        let mut fetched = false;
        while requests.len() < count {
            let request = if is_binary { self.packet(is_large) } else { self.line(is_large) };
            let Drawn { request, kind } = request;
            if kind == Kind::Arithmetic && fetched {
                break;
            }
            fetched |= kind == Kind::Fetch;
            requests.push(request);
            if !is_binary && let Err(why) = check(&requests) {
                requests.pop();
                *self.left_out.entry(why).or_default() += 1;
            }
        }
        let connection = usize::from(is_binary) * 2 + self.rng.usize(..2);
        let cuts = if self.one_in(4) { self.rng.usize(1..4) } else { 0 };
        Burst { connection, is_binary, requests, cuts: (0..cuts).map(|_| self.rng.u16(..)).collect() }
    }

    fn line(&mut self, is_large: bool) -> Drawn {
        let is_meta = self.dialects.meta && (!self.dialects.text || self.rng.bool());
        if is_meta { self.meta(is_large) } else { self.text(is_large) }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    fn choice<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    fn key(&mut self) -> &'static [u8] {
        // The first three most of the time.
        let among = if self.one_in(4) { KEYS.len() } else { 3 };
        KEYS[self.rng.usize(..among)]
    }

    fn value(&mut self, is_large: bool) -> Vec<u8> {
        if is_large {
            let bytes = self
                .choice(&[100_000, 500_000, 524_288, 600_000, 1_000_000, 1_047_500, 1_048_600, 1_100_000]);
            return vec![self.rng.alphanumeric() as u8; bytes + self.rng.usize(..20)];
        }
        match self.rng.u32(..20) {
            0 => Vec::new(),
            1..=9 => self.choice(&NUMBERS).to_vec(),
            // Never white space alone: 1.6.18 looks for digits behind its end.
            10 => b"END\r\nget a\r\n"[..self.rng.usize(1..13)].to_vec(),
            11 => vec![b'v'; self.rng.usize(..6000)],
            // No NUL: a number ends there for the reference.
            12 => std::iter::once(b'~').chain((0..self.rng.usize(..40)).map(|_| self.rng.u8(1..))).collect(),
            _ => vec![self.rng.lowercase() as u8; self.rng.usize(1..50)],
        }
    }

    /// A CAS value of the item, or one that is nobody's.
    fn age(&mut self) -> Option<Age> {
        match self.rng.u32(..10) {
            0 => None,
            1..=2 => Some(Age::Outdated),
            3 => Some(Age::Ahead),
            _ => Some(Age::Latest),
        }
    }
}

/// A request, and what the draw must know of it.
struct Drawn {
    request: Request,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its reply may hold an item.
    Fetch,
    /// It may write into an item.
    Arithmetic,
    Other,
}

/// Whether the requests can be sent together; if not, why the last of them is left out.
fn check(requests: &[Request]) -> Result<(), &'static str> {
    let shown = CasShown::default();
    let mut bytes = Vec::new();
    for request in requests {
        request.write(&shown, &mut bytes);
    }
    if let Some(why) = deliberate::find(&bytes) {
        return Err(why);
    }
    if deliberate::has_long_line(&bytes) {
        return Err("a long line: what becomes of it depends on how much of it arrives at once");
    }
    // The burst's end makes up for a few bytes that are missing.
    if deliberate::missing_bytes(&bytes) > 8 { Err("a value that is far too short") } else { Ok(()) }
}

fn cas_of(key: &[u8], age: Age) -> Cas {
    Cas { key: key.to_vec(), age }
}

/// The keys of all stories. The fifth is the first in base64, the last of them has the greatest length.
pub(crate) const KEYS: [&[u8]; 7] = [b"a", b"b", b"c", b"key:1", b"YQ==", b"\xffhigh\x01\t", &[b'k'; 250]];

/// Keys that only base64 and packets can name, and their base64. They are not appended to nor counted with: the
/// reference would forget that they came in base64.
pub(crate) const ODD_KEYS: [(&[u8], &[u8]); 3] = [(b"a b", b"YSBi"), (b"x \xff", b"eCD/"), (b"a\0", b"YQA=")];

/// None beyond 2^63: there 1.6.18 looks for a minus behind the value's end, and sometimes finds one.
const NUMBERS: [&[u8]; 20] = [
    b"0",
    b"1",
    b"9",
    b"10",
    b"99",
    b"100",
    b"18446744073709551616",
    b"99999999999999999999",
    b"007",
    b" 5",
    b"5 x",
    b"12 34",
    b"+3",
    b"-1",
    b"1e3",
    b"0x10",
    b"5\t",
    b"12345678901234567890123",
    b"3\r\n",
    b"4.5",
];
