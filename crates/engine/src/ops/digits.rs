//! Decimal numbers as values, for incr and decr.

/// The decimal text of a number, padded with spaces.
#[derive(Clone, Copy)]
pub(crate) struct Digits {
    text: [u8; 20],
    start: usize,
    pub(crate) padding: usize,
}

impl Digits {
    pub(crate) fn new(mut number: u64, pad_to: usize) -> Self {
        let mut digits = Self { text: [0; 20], start: 20, padding: 0 };
        loop {
            digits.start -= 1;
            digits.text[digits.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        digits.padding = pad_to.saturating_sub(digits.len());
        digits
    }

    pub(crate) fn len(&self) -> usize {
        20 - self.start
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

/// A stored number, as C's `strtoull` would read it.
pub(crate) fn parse_number(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !is_space(byte))?;
    let value = value[start..].strip_prefix(b"+").unwrap_or_else(|| &value[start..]);
    let end = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    let is_ended = value.get(end).is_none_or(is_space);
    if end == 0 || !is_ended {
        return None;
    }
    value[..end].iter().try_fold(0u64, |sum, byte| sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')))
}
