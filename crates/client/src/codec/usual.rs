//! What most of the bytes of replies are: values, as servers usually write them. A value of another form is none of
//! these, and what [`Pipeline::receive`] makes of it counts.

use larder_protocol::command::VALUE_BYTES_MAX;
use larder_protocol::number::parse_u64;

use super::due::{Due, Kind, Queue};
use super::{Pipeline, Protocol, Value};

impl<T> Pipeline<T> {
    /// The next event of [`Pipeline::receive`], if it is a whole value in the usual form, of the key that is due.
    /// `None`: see there.
    #[inline]
    pub(crate) fn receive_usual_value<'i>(&mut self, input: &mut &'i [u8]) -> Option<Value<'i>> {
        if self.due.is_answered || input.len() < self.due.needed_bytes {
            return None;
        }
        let value = match self.protocol {
            Protocol::Text => text(&mut self.due, input),
            Protocol::Meta => meta(&mut self.due, input),
            Protocol::Binary => None,
        }?;
        self.due.needed_bytes = 0;
        Some(value)
    }
}

/// `VALUE <key> <flags> <bytes>`
#[inline]
fn text<'i, T>(due: &mut Queue<T>, input: &mut &'i [u8]) -> Option<Value<'i>> {
    let line = input.strip_prefix(b"VALUE ")?;
    let numbers = line.strip_prefix(due.awaited_key()?)?.strip_prefix(b" ")?;
    let (client_flags, after) = split_number(numbers)?;
    let (value_bytes, after) = split_number(after.strip_prefix(b" ")?)?;
    let (bytes, rest) = split_block(after, value_bytes)?;
    due.pass_key();
    *input = rest;
    Some(Value { index: due.key_index(), bytes, client_flags, cas: None, meta_flags: b"" })
}

/// With opaques: `VA <size> f<client flags> O<number>`
#[inline]
fn meta<'i, T>(due: &mut Queue<T>, input: &mut &'i [u8]) -> Option<Value<'i>> {
    if !due.has_opaques {
        return None;
    }
    let front = due.front()?;
    let &mut Due { kind: Kind::Get | Kind::MultiGet, keys, keys_left: 1.., quiets, .. } = front else {
        return None;
    };
    // As `Queue::awaited_opaque`.
    let opaque = front.sent.opaque.wrapping_sub(front.keys_left - 1);
    let (value_bytes, flags) = split_number(input.strip_prefix(b"VA ")?)?;
    let (client_flags, after) = split_number(flags.strip_prefix(b" f")?)?;
    let (number, after) = split_number(after.strip_prefix(b" O")?)?;
    if number != opaque || quiets.all > 0 {
        return None;
    }
    let (bytes, rest) = split_block(after, value_bytes)?;
    // As `Queue::pass_key`, but that no key is remembered where replies have numbers.
    front.keys_left -= 1;
    front.hits += 1;
    let keys_left = front.keys_left;
    due.is_answered = keys_left == 0;
    *input = rest;
    let meta_flags = &flags[1..flags.len() - after.len()];
    Some(Value { index: keys - keys_left - 1, bytes, client_flags, cas: None, meta_flags })
}

/// The block after the end of its line, and what follows the end of the block.
#[inline(always)]
fn split_block(after_line: &[u8], value_bytes: u32) -> Option<(&[u8], &[u8])> {
    let (bytes, after) = after_line.strip_prefix(b"\r\n")?.split_at_checked(value_bytes as usize)?;
    let rest = after.strip_prefix(b"\r\n")?;
    (value_bytes <= VALUE_BYTES_MAX).then_some((bytes, rest))
}

/// The number of one to ten digits at the head, and what follows. `None`: nothing does, or it has more than 32 bits.
#[inline(always)]
fn split_number(input: &[u8]) -> Option<(u32, &[u8])> {
    match input.first_chunk() {
        Some(head) => match short_number(*head) {
            Some((number, digits)) => Some((number, &input[digits..])),
            None => split_long_number(input),
        },
        None => split_long_number(input),
    }
}

/// The number of one to seven digits at the head of eight bytes, and how many they are.
#[inline(always)]
fn short_number(head: [u8; 8]) -> Option<(u32, usize)> {
    const ONES: u64 = u64::MAX / 0xff;
    // A digit becomes its value, and every other byte at least 10.
    let values = u64::from_le_bytes(head) ^ (ONES * 0x30);
    // The highest bit of each byte that is no digit.
    let others = (((values & (ONES * 0x7f)) + (ONES * 0x76)) | values) & (ONES * 0x80);
    let digits = others.trailing_zeros() as usize / 8;
    if digits == 0 || digits == 8 {
        return None;
    }
    // As if zeros were before them; then the sums of two, of four and of eight digits.
    let digit_values = values << (64 - 8 * digits);
    let of_two = (digit_values & 0x000f_000f_000f_000f) * 10 + ((digit_values >> 8) & 0x000f_000f_000f_000f);
    let of_four = (of_two & 0x0000_00ff_0000_00ff) * 100 + ((of_two >> 16) & 0x0000_00ff_0000_00ff);
    let of_eight = (of_four & 0xffff) * 10_000 + ((of_four >> 32) & 0xffff);
    Some((of_eight as u32, digits))
}

fn split_long_number(input: &[u8]) -> Option<(u32, &[u8])> {
    let digits = input.iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let (word, rest) = input.split_at(digits);
    let number = parse_u64(word).filter(|_| digits <= DIGITS_MAX && !rest.is_empty())?;
    Some((u32::try_from(number).ok()?, rest))
}

/// Digits of a number of 32 bits.
const DIGITS_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Delete, Event, Get};

    /// What is made of input that arrives in two parts, with or without a look for usual values.
    fn events(pipeline: &mut Pipeline<u8>, input: &[u8], first: usize, looks: bool) -> (Vec<String>, usize) {
        let mut events = Vec::new();
        let (mut taken, mut usual) = (0, 0);
        for end in [first, input.len()] {
            let mut rest = &input[taken..end];
            loop {
                let value = if looks { pipeline.receive_usual_value(&mut rest) } else { None };
                usual += usize::from(value.is_some());
                let event = match value {
                    Some(value) => Ok(Some(Event::Value(value))),
                    None => pipeline.receive(&mut rest),
                };
                match event {
                    Ok(Some(event)) => events.push(format!("{event:?}")),
                    Ok(None) => break,
                    Err(violation) => {
                        events.push(violation.to_string());
                        return (events, usual);
                    }
                }
            }
            taken = end - rest.len();
            events.push(format!("{} left, {} needed", pipeline.len(), pipeline.needed_bytes()));
        }
        (events, usual)
    }

    /// Compares at each place where the input may be split. Returns how many values were usual ones.
    fn compare(make: impl Fn() -> Pipeline<u8>, input: &[u8]) -> usize {
        let usual = |first| {
            let (plain, _) = events(&mut make(), input, first, false);
            let (looked, usual) = events(&mut make(), input, first, true);
            assert_eq!(looked, plain, "{}, split at {first}", input.escape_ascii());
            usual
        };
        (0..=input.len()).map(usual).max().unwrap_or_default()
    }

    fn asked(protocol: Protocol) -> Pipeline<u8> {
        let (mut pipeline, mut output) = (Pipeline::with_opaques(protocol), Vec::new());
        pipeline.multi_get(&mut output, &Get::default(), ["a", "bc", "d"], 1);
        pipeline.get(&mut output, &Get::default(), b"e", 2);
        pipeline
    }

    #[test]
    fn meta_values_are_what_they_are_without_the_look() {
        let asked = || asked(Protocol::Meta);
        assert_eq!(
            compare(asked, b"VA 1 f7 O0\r\nx\r\nVA 0 f4294967295 O1\r\n\r\nEN O2\r\nVA 2 f0 O3\r\nyz\r\n"),
            3
        );
        // Flags in another order, more of them, or too few.
        assert_eq!(compare(asked, b"VA 1 O0 f7\r\nx\r\nVA 1 f0 c9 O1\r\nx\r\nVA 1 O2\r\nx\r\nEN O3\r\n"), 0);
        for wrong in [
            &b"VA 1 f0 O1\r\nx\r\n"[..],
            b"VA 1 f0 O00000000000\r\nx\r\n",
            b"VA 1 f0 O4294967296\r\nx\r\n",
            b"VA 1 f0\r\nx\r\n",
            b"VA 1 f4294967296 O0\r\nx\r\n",
            b"VA  f0 O0\r\nx\r\n",
            b"VA 4294967295 f0 O0\r\nx\r\n",
            b"VA 1 f0 O0\nx\r\n",
            b"VA 1 f0 O0\r\nxx\r\n",
            b"VA 1 f O0\r\nx\r\n",
        ] {
            assert_eq!(compare(asked, wrong), 0);
        }
        // More values than keys.
        assert_eq!(compare(asked, &b"VA 1 f0 O0\r\nx\r\n".repeat(2)), 1);
    }

    #[test]
    fn a_value_before_the_failure_of_a_quiet_change_is_left_to_the_full_look() {
        let asked = || {
            let (mut pipeline, mut output) = (Pipeline::with_opaques(Protocol::Meta), Vec::new());
            pipeline.delete(&mut output, &Delete { key: b"q", ..Delete::default() }, None);
            pipeline.get(&mut output, &Get::default(), b"e", 2);
            pipeline
        };
        assert_eq!(compare(asked, b"NF Od\r\nVA 2 f0 O0\r\nyz\r\n"), 1);
        assert_eq!(compare(asked, b"VA 2 f0 O0\r\nyz\r\n"), 0);
    }

    #[test]
    fn text_values_are_what_they_are_without_the_look() {
        let asked = || asked(Protocol::Text);
        assert_eq!(
            compare(asked, b"VALUE a 7 1\r\nx\r\nVALUE bc 0 0\r\n\r\nEND\r\nVALUE e 0 2\r\nyz\r\nEND\r\n"),
            3
        );
        // A key is missing before it, and a CAS value.
        assert_eq!(compare(asked, b"VALUE bc 0 1\r\nx\r\nVALUE d 0 1 7\r\nx\r\nEND\r\nEND\r\n"), 0);
        for wrong in [
            &b"VALUE b 0 1\r\nx\r\n"[..],
            b"VALUE aa 0 1\r\nx\r\n",
            b"VALUE a 4294967296 1\r\nx\r\n",
            b"VALUE a 0 4294967295\r\nx\r\n",
            b"VALUE a 0 1\nx\r\n",
            b"VALUE a 0 1\r\nxx\r\n",
            b"VALUE a 0\r\nx\r\n",
            b"VALUE  0 1\r\nx\r\n",
        ] {
            assert_eq!(compare(asked, wrong), 0);
        }
        assert_eq!(compare(asked, &b"VALUE a 0 1\r\nx\r\n".repeat(2)), 1);
    }

    #[test]
    fn numbers_are_split_where_their_digits_end() {
        for number in (0..8).map(|digits| 10_u64.pow(digits) - 1).chain([10_000_000, 4_294_967_295, 12_345]) {
            for after in [&b" "[..], b"\r\nsomething", b"/1234567", b":1234567", b"\xb01234567"] {
                let input = [number.to_string().as_bytes(), after].concat();
                assert_eq!(split_number(&input), Some((number as u32, after)), "{number}");
            }
        }
        assert_eq!(split_number(b"0000000012 "), Some((12, &b" "[..])));
        for none in [&b""[..], b"1", b"12345678", b" 1234567", b"4294967296 ", b"00000000001 ", b"-1 345678"]
        {
            assert_eq!(split_number(none), None, "{}", none.escape_ascii());
        }
    }
}
