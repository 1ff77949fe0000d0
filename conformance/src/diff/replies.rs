//! Compares what two servers answered to the same requests.
//!
//! Everything is compared byte for byte, except: CAS values, which must correspond; times, which may differ by
//! [`SECS_DIFFERENCE_MAX`]; and what is each server's own: the version, `cls` and `size` in `me`, and
//! the time since the last access, which the reference notes once a minute.

use std::collections::HashMap;

use super::request::CasShown;

/// Which CAS value of the one server stands for which of the other, and all that were shown.
#[derive(Debug, Default)]
pub(crate) struct CasPairs {
    pub(crate) reference: CasShown,
    pub(crate) larder: CasShown,
    /// The reference has one counter for all items, so one of its values stands for one version of one item.
    larder_of: HashMap<u64, u64>,
    /// Larder's are told apart only within a key.
    reference_of: HashMap<(Vec<u8>, u64), u64>,
}

/// The offsets, in the two streams, of the first reply that differs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Differs {
    pub(crate) reference_at: usize,
    pub(crate) larder_at: usize,
}

/// Two streams of replies, walked side by side.
struct Walk<'a> {
    streams: [&'a [u8]; 2],
    at: [usize; 2],
}

/// Compares lines of the text and meta dialects.
pub(crate) fn compare_text(reference: &[u8], larder: &[u8], cas: &mut CasPairs) -> Result<(), Differs> {
    let mut walk = Walk { streams: [reference, larder], at: [0; 2] };
    while !walk.is_at_end() {
        let start = walk.at;
        let lines = [walk.line(0), walk.line(1)];
        let blocks = lines.map(block_bytes);
        if blocks[0] != blocks[1] || !same_line(lines[0], lines[1], cas) {
            return Err(Differs::at(start));
        }
        if let Some(bytes) = blocks[0]
            && walk.take(0, bytes) != walk.take(1, bytes)
        {
            return Err(Differs::at(start));
        }
    }
    Ok(())
}

/// Compares packets of the binary dialect. `key_of` finds the key that a request with this opaque was about.
pub(crate) fn compare_binary(
    reference: &[u8],
    larder: &[u8],
    cas: &mut CasPairs,
    key_of: impl Fn(u32) -> Option<&'static [u8]>,
) -> Result<(), Differs> {
    let mut walk = Walk { streams: [reference, larder], at: [0; 2] };
    while !walk.is_at_end() {
        let start = walk.at;
        let [a, b] = [walk.packet(0), walk.packet(1)];
        let same = match (a, b) {
            (Some(a), Some(b)) => {
                let [cas_a, cas_b] = [a, b].map(|packet| be_u64(&packet[16..24]));
                let key = key_of(u32::from_be_bytes([a[12], a[13], a[14], a[15]]));
                let is_version = a[1] == 0x0b && b[1] == 0x0b;
                let same_head = if is_version { a[..8] == b[..8] } else { a[..16] == b[..16] };
                same_head && (is_version || a[24..] == b[24..]) && cas.correspond(key, cas_a, cas_b)
            }
            _ => false,
        };
        if !same {
            return Err(Differs::at(start));
        }
    }
    Ok(())
}

impl CasPairs {
    fn correspond(&mut self, key: Option<&[u8]>, reference: u64, larder: u64) -> bool {
        if reference == 0 || larder == 0 {
            return reference == larder;
        }
        if *self.larder_of.entry(reference).or_insert(larder) != larder {
            return false;
        }
        let Some(key) = key else { return true };
        self.reference.add(key, reference);
        self.larder.add(key, larder);
        *self.reference_of.entry((key.to_vec(), larder)).or_insert(reference) == reference
    }
}

impl Differs {
    fn at([reference_at, larder_at]: [usize; 2]) -> Self {
        Self { reference_at, larder_at }
    }
}

impl<'a> Walk<'a> {
    fn is_at_end(&self) -> bool {
        self.at[0] >= self.streams[0].len() && self.at[1] >= self.streams[1].len()
    }

    fn rest(&self, side: usize) -> &'a [u8] {
        self.streams[side].get(self.at[side]..).unwrap_or_default()
    }

    fn take(&mut self, side: usize, bytes: usize) -> &'a [u8] {
        let rest = self.rest(side);
        let taken = &rest[..bytes.min(rest.len())];
        self.at[side] += bytes;
        taken
    }

    fn line(&mut self, side: usize) -> &'a [u8] {
        let rest = self.rest(side);
        let bytes = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        self.take(side, bytes)
    }

    fn packet(&mut self, side: usize) -> Option<&'a [u8]> {
        let rest = self.rest(side);
        let length: [u8; 4] = rest.get(8..12)?.try_into().ok()?;
        let bytes = HEADER_BYTES + u32::from_be_bytes(length) as usize;
        (rest.len() >= bytes).then(|| self.take(side, bytes))
    }
}

/// Size of the data block after this line, with its CRLF.
fn block_bytes(line: &[u8]) -> Option<usize> {
    let mut words = words(line);
    let size = match words.next()? {
        b"VALUE" => words.nth(2)?,
        b"VA" => words.next()?,
        _ => return None,
    };
    Some(number(size)? as usize + 2)
}

fn same_line(reference: &[u8], larder: &[u8], cas: &mut CasPairs) -> bool {
    let kind = words(reference).next().unwrap_or_default();
    if words(larder).next() != Some(kind) {
        return reference == larder;
    }
    match kind {
        b"VERSION" => true,
        b"VALUE" | b"HD" | b"VA" | b"ME" | b"EN" | b"NF" | b"NS" | b"EX" => {
            let key = key_in(kind, larder);
            let [mut a, mut b] = [words(reference), words(larder)];
            for index in 0.. {
                match (a.next(), b.next()) {
                    (None, None) => break,
                    (Some(a), Some(b)) if a == b && cas_in(kind, index, a).is_none() => {}
                    (Some(a), Some(b)) if same_word(kind, index, key, [a, b], cas) => {}
                    _ => return false,
                }
            }
            ends(reference) == ends(larder)
        }
        _ => reference == larder,
    }
}

fn same_word(
    kind: &[u8],
    index: usize,
    key: Option<&[u8]>,
    [reference, larder]: [&[u8]; 2],
    pairs: &mut CasPairs,
) -> bool {
    if let (Some(a), Some(b)) = (cas_in(kind, index, reference), cas_in(kind, index, larder)) {
        return pairs.correspond(key, a, b);
    }
    let own: &[&[u8]] = if kind == b"ME" { &[b"cls=", b"size=", b"la="] } else { &[b"l"] };
    if index > 0 && own.iter().any(|own| both_begin(reference, larder, own)) {
        return true;
    }
    let times: &[&[u8]] = if kind == b"ME" { &[b"exp="] } else { &[b"t"] };
    times.iter().filter(|_| index > 0).any(|time| {
        let seconds = |word: &[u8]| {
            let seconds = word.strip_prefix(*time)?;
            // 1.6.18 counts what is left in me below zero.
            number(seconds.strip_prefix(b"-").filter(|_| kind == b"ME").unwrap_or(seconds))
        };
        let are_close = |a: u64, b: u64| a.abs_diff(b) <= SECS_DIFFERENCE_MAX || a.min(b) > WRAPPED;
        matches!((seconds(reference), seconds(larder)), (Some(a), Some(b)) if are_close(a, b))
    })
}

/// The CAS value that this word of a reply shows.
fn cas_in(kind: &[u8], index: usize, word: &[u8]) -> Option<u64> {
    match kind {
        b"VALUE" if index == 4 => number(word),
        b"ME" => number(word.strip_prefix(b"cas=")?),
        b"HD" | b"VA" if index > 0 => number(word.strip_prefix(b"c")?),
        _ => None,
    }
}

/// The key that the reply names.
fn key_in<'a>(kind: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    match kind {
        b"VALUE" | b"ME" => words(line).nth(1),
        // Not of keys in base64: their text is not that of the request.
        _ if words(line).any(|word| word == b"b") => None,
        _ => words(line).skip(1).find_map(|word| word.strip_prefix(b"k")),
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = line.strip_suffix(b"\r\n").unwrap_or(line);
    text.split(|byte| *byte == b' ')
}

fn ends(line: &[u8]) -> &[u8] {
    &line[line.len().saturating_sub(2)..]
}

fn both_begin(a: &[u8], b: &[u8], with: &[u8]) -> bool {
    a.starts_with(with) && b.starts_with(with)
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn be_u64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

const HEADER_BYTES: usize = 24;

/// The clocks tick in whole seconds, each server's at its own moment.
const SECS_DIFFERENCE_MAX: u64 = 2;

/// What is left of an exptime of 2^32 - 1 wraps around in me of 1.6.18.
const WRAPPED: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn differs(reference: &str, larder: &str) -> Option<Differs> {
        compare_text(reference.as_bytes(), larder.as_bytes(), &mut CasPairs::default()).err()
    }

    #[test]
    fn cas_values_correspond() {
        let pairs = "VALUE a 0 1 7\r\nx\r\nHD c7\r\nEND\r\n";
        assert_eq!(differs(pairs, "VALUE a 0 1 900\r\nx\r\nHD c900\r\nEND\r\n"), None);
        assert_eq!(
            differs(pairs, "VALUE a 0 1 900\r\nx\r\nHD c901\r\nEND\r\n"),
            Some(Differs { reference_at: 18, larder_at: 20 })
        );
        // A new version of an item has a new value.
        let changed = |cas: [u64; 2]| format!("HD ka c{}\r\nHD ka c{}\r\n", cas[0], cas[1]);
        assert!(differs(&changed([7, 8]), &changed([70, 70])).is_some());
        assert_eq!(differs(&changed([7, 8]), &changed([70, 80])), None);
    }

    #[test]
    fn all_else_is_compared() {
        assert_eq!(differs("HD t30 l0\r\n", "HD t29 l1\r\n"), None);
        assert!(differs("HD t30\r\n", "HD t20\r\n").is_some());
        assert!(differs("VA 1\r\nx\r\n", "VA 1\r\ny\r\n").is_some());
        assert!(differs("HD s1\r\n", "HD s2\r\n").is_some());
        assert!(differs("END\r\n", "END\r\nEND\r\n").is_some());
        assert!(differs("HD\r\n", "HD \r\n").is_some());
        assert!(differs("VALUE a 0 4\r\nHD t\r\n", "VALUE a 0 4\r\nHD u\r\n").is_some());
    }
}
