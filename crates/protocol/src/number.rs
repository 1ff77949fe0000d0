//! Numbers in requests and replies.

use crate::Sink;
use crate::reply::SHORT_BYTES;

/// Decimal digits alone, at most 22 of them.
#[inline]
pub fn parse_u64(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 22 {
        return None;
    }
    // So many digits cannot overflow.
    if word.len() <= 19 {
        let mut number = 0;
        for byte in word {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + u64::from(digit);
        }
        return Some(number);
    }
    word.iter().try_fold(0u64, |number, byte| {
        byte.is_ascii_digit().then_some(())?;
        number.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })
}

/// Decimal digits alone, at most 11 of them.
pub fn parse_u32(word: &[u8]) -> Option<u32> {
    if word.len() > 11 {
        return None;
    }
    u32::try_from(parse_u64(word)?).ok()
}

/// The number of one to nine digits at the head of `input`, and what follows the byte `end` behind it.
#[inline(always)]
pub(crate) fn split_short(input: &[u8], end: u8) -> Option<(u32, &[u8])> {
    let mut number = 0;
    for (at, &byte) in input.iter().take(10).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (byte == end && at > 0).then(|| (number, &input[at + 1..]));
        }
        if at == 9 {
            return None;
        }
        number = number * 10 + u32::from(digit);
    }
    None
}

/// Decimal digits with or without a minus, at most 11 characters.
pub(crate) fn parse_i32(word: &[u8]) -> Option<i32> {
    if word.len() > 11 {
        return None;
    }
    let number = match word.strip_prefix(b"-") {
        Some(digits) => -i64::from(parse_u32(digits)?),
        None => i64::from(parse_u32(word)?),
    };
    i32::try_from(number).ok()
}

/// The flags of the classic storage commands: as [`parse_u32`], but a plus and any number of zeros may lead.
pub(crate) fn parse_flags(word: &[u8]) -> Option<u32> {
    u32::try_from(parse_i64(word)?).ok().filter(|_| !word.starts_with(b"-"))
}

/// The exptime of the classic storage commands: the lower 32 bits of a number of 64 bits, with a sign. libmemcached
/// writes -1 as 4294967295 and counts on that.
pub(crate) fn parse_exptime(word: &[u8]) -> Option<i32> {
    parse_i64(word).map(|number| number as i32)
}

/// A plus or minus, and any number of digits.
fn parse_i64(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Writes a number in decimal.
pub(crate) fn write<S: Sink>(number: impl itoa::Integer, sink: &mut S) {
    sink.bytes(itoa::Buffer::new().format(number).as_bytes());
}

/// " 0 ", a number of up to four digits and CRLF, which is how most lines of values end, and how long that is. One
/// word, without a branch.
#[inline]
pub(crate) fn plain_tail(number: usize) -> Option<([u8; SHORT_BYTES], usize)> {
    if number >= 10_000 {
        return None;
    }
    let [high, low] = [number / 100, number % 100].map(|pair| u32::from(u16::from_le_bytes(PAIRS[pair])));
    let zeros = usize::from(number < 10) + usize::from(number < 100) + usize::from(number < 1000);
    let (head, crlf) = (u32::from_le_bytes(*b" 0 \0"), u16::from_le_bytes(*b"\r\n"));
    let rest = (u64::from(high | low << 16) | u64::from(crlf) << 32) >> (8 * zeros);
    let tail = u128::from(head) | u128::from(rest) << 24;
    Some((tail.to_le_bytes(), 9 - zeros))
}

/// The end of a line: numbers with a space before each, and CRLF. Put together from its last byte on, as digits are,
/// and so written in one piece.
pub(crate) struct Tail {
    buffer: [u8; TAIL_BYTES_MAX],
    from: usize,
}

impl Default for Tail {
    fn default() -> Self {
        let mut buffer = [0; TAIL_BYTES_MAX];
        buffer[TAIL_BYTES_MAX - 2..].copy_from_slice(b"\r\n");
        Self { buffer, from: TAIL_BYTES_MAX - 2 }
    }
}

impl Tail {
    /// Puts a space and a number before what is there. There is room for three.
    #[inline]
    pub(crate) fn prepend(&mut self, mut number: u64) {
        // Flags, most of the time.
        if number == 0 {
            return self.push(*b" 0");
        }
        // Two digits a division.
        while number >= 100 {
            self.push(PAIRS[(number % 100) as usize]);
            number /= 100;
        }
        if number >= 10 {
            self.push(PAIRS[number as usize]);
            self.push([b' ']);
        } else {
            self.push([b' ', b'0' + number as u8]);
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..]
    }

    #[inline]
    fn push<const BYTES: usize>(&mut self, bytes: [u8; BYTES]) {
        self.from -= BYTES;
        self.buffer[self.from..self.from + BYTES].copy_from_slice(&bytes);
    }
}

/// Three spaces and numbers of twenty digits, and the end of the line.
const TAIL_BYTES_MAX: usize = 3 * 21 + 2;

/// "00" to "99".
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_numbers() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"0018446744073709551615"), Some(u64::MAX));
        for bad in
            [&b""[..], b"-1", b"+1", b" 1", b"1 ", b"0x1", b"1e3", b"18446744073709551616", &[b'0'; 23]]
        {
            assert_eq!(parse_u64(bad), None, "{bad:?}");
        }
        assert_eq!(parse_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(parse_u32(b"4294967296"), None);
        assert_eq!(parse_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(parse_i32(b"2147483647"), Some(i32::MAX));
        for bad in [&b"2147483648"[..], b"-2147483649", b"-", b"--1", b"+1", b"", b"000000000001"] {
            assert_eq!(parse_i32(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_tail_is_put_together_backwards() {
        let mut tail = Tail::default();
        assert_eq!(tail.bytes(), b"\r\n");
        for number in [u64::MAX, 0, 1_048_576] {
            tail.prepend(number);
        }
        assert_eq!(tail.bytes(), b" 1048576 0 18446744073709551615\r\n");
        for number in [0, 9, 10, 99, 100, 101, 999, 1000, 10_000, 1 << 40] {
            let mut tail = Tail::default();
            tail.prepend(number);
            assert_eq!(tail.bytes(), format!(" {number}\r\n").as_bytes());
        }
        let mut longest = Tail::default();
        for number in [u64::MAX; 3] {
            longest.prepend(number);
        }
        assert_eq!(longest.bytes().len(), TAIL_BYTES_MAX);
    }

    #[test]
    fn plain_tails_are_what_tails_are() {
        for number in 0..10_000 {
            let (tail, len_bytes) = plain_tail(number).expect("four digits");
            assert_eq!(&tail[..len_bytes], format!(" 0 {number}\r\n").as_bytes());
        }
        assert_eq!(plain_tail(10_000), None);
    }

    #[test]
    fn lenient_numbers_of_storage_commands() {
        assert_eq!(parse_exptime(b"+5"), Some(5));
        assert_eq!(parse_exptime(b"-5"), Some(-5));
        // As memcached 1.6.18 answers them.
        assert_eq!(parse_exptime(b"2147483647"), Some(i32::MAX));
        assert_eq!(parse_exptime(b"2147483648"), Some(i32::MIN));
        assert_eq!(parse_exptime(b"4294967295"), Some(-1));
        assert_eq!(parse_exptime(b"00000000000004294967295"), Some(-1));
        assert_eq!(parse_exptime(b"4294967296"), Some(0));
        assert_eq!(parse_exptime(b"-4294967295"), Some(1));
        assert_eq!(parse_exptime(b"9223372036854775807"), Some(-1));
        assert_eq!(parse_exptime(b"-9223372036854775808"), Some(0));
        for beyond in [&b"9223372036854775808"[..], b"-9223372036854775809", b"99999999999999999999999"] {
            assert_eq!(parse_exptime(beyond), None, "{beyond:?}");
        }
        for bad in [&b""[..], b"+", b"-", b"+-1", b"5x", b"x"] {
            assert_eq!(parse_exptime(bad), None, "{bad:?}");
        }
        assert_eq!(parse_flags(b"+5"), Some(5));
        assert_eq!(parse_flags(b"4294967295"), Some(u32::MAX));
        for bad in [&b"4294967296"[..], b"-1", b"-0", b"", b"1.5"] {
            assert_eq!(parse_flags(bad), None, "{bad:?}");
        }
    }
}
