//! Requests that larder and the reference answer differently on purpose.
//!
//! They are not sent: a golden script shows each difference with both answers. The reference is Debian's memcached
//! 1.6.18 while larder goes with 1.6.45, so most of them lie between those two. The page is `docs/compatibility.md`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// A class of such requests.
struct Difference {
    /// The request, and how its answers differ.
    what: &'static str,
    applies: fn(&Line<'_>) -> bool,
}

/// What a command line says.
struct Line<'a> {
    /// Its end included.
    bytes: &'a [u8],
    words: Vec<&'a [u8]>,
}

/// The first difference that a command line of `stream` runs into, if any. Values are passed over as the servers do.
pub(crate) fn find(stream: &[u8]) -> Option<&'static str> {
    lines(stream).find_map(|bytes| {
        let line = Line::new(bytes);
        DIFFERENCES.iter().find(|difference| (difference.applies)(&line)).map(|difference| difference.what)
    })
}

/// By how many bytes the last value of `stream` is short of what its command line announces.
pub(crate) fn missing_bytes(stream: &[u8]) -> usize {
    let mut at = 0;
    while at < stream.len() {
        at += line_and_block_bytes(&stream[at..]);
    }
    at - stream.len()
}

/// Whether a line other than a list of keys may be too long to be waited for.
pub(crate) fn has_long_line(stream: &[u8]) -> bool {
    lines(stream).any(|line| line.len() > 2000 && !line.starts_with(b"get"))
}

fn lines(mut stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = stream.iter().position(|byte| *byte == b'\n')? + 1;
        let line = &stream[..end];
        stream = stream.get(line_and_block_bytes(stream)..).unwrap_or_default();
        Some(line)
    })
}

fn line_and_block_bytes(stream: &[u8]) -> usize {
    let Some(end) = stream.iter().position(|byte| *byte == b'\n') else { return stream.len() };
    let line = Line::new(&stream[..=end]);
    end + 1 + line.announced_bytes().map_or(0, |bytes| bytes as usize + 2)
}

const DIFFERENCES: [Difference; 31] = [
    Difference { what: "NUL in a line: ends the line for 1.6.18", applies: |line| line.bytes.contains(&0) },
    Difference {
        what: "a line that begins with a space: has no command since 1.6.4x; 1.6.18 skips the space",
        applies: |line| line.bytes.starts_with(b" "),
    },
    Difference {
        what: "a line of less than 4 bytes: is a bad line since 1.6.4x, and an unknown command for 1.6.18",
        applies: |line| line.bytes.len() < 4,
    },
    Difference {
        what: "a command that lacks words: is a bad line since 1.6.4x, and an unknown command for 1.6.18",
        applies: |line| line.lacks_words(),
    },
    Difference {
        what: "words after the last argument: are ignored since 1.6.4x",
        applies: |line| line.has_further_words(),
    },
    Difference {
        what: "a browser: needs two words since 1.6.4x",
        applies: |line| line.words.iter().any(|word| word.starts_with(b"HTTP/")),
    },
    Difference {
        what: "a key of more than 250 bytes in get, ma or before a value: get: no empty line after the error; ma: its one error line; a value is swallowed",
        applies: |line| {
            let is_listed = matches!(line.name(), b"get" | b"gets" | b"gat" | b"gats" | b"ma" | b"me");
            (is_listed || line.is_store()) && line.words.iter().skip(1).any(|word| word.len() > 250)
        },
    },
    Difference {
        what: "a value whose command line has an error: is swallowed since 1.6.4x; 1.6.18 runs it as commands",
        applies: |line| line.is_classic_store() && !line.has_good_numbers(),
    },
    Difference {
        what: "flags or exptime of more than 32 bits: are not cut to 32 bits",
        applies: |line| {
            line.is_classic_store()
                && (!line.is_number(2, 0, i64::from(u32::MAX)) || !line.is_number(3, i32::MIN, i32::MAX))
        },
    },
    Difference {
        what: "an odd length: is read strictly since 1.6.4x",
        applies: |line| line.is_store() && line.length().is_some_and(|word| !is_plain(word, 9)),
    },
    Difference {
        what: "a bad length with noreply: is told since 1.6.4x",
        applies: |line| {
            line.is_classic_store() && line.announced_bytes().is_none() && line.last() == b"noreply"
        },
    },
    Difference {
        what: "an odd delta: is read strictly since 1.6.4x",
        applies: |line| {
            matches!(line.name(), b"incr" | b"decr")
                && (!is_plain(line.word(2), 20) || is_negative(line.word(2)))
        },
    },
    Difference {
        what: "an odd exptime of touch, gat or flush_all: is read strictly since 1.6.4x",
        applies: |line| {
            let index = match line.name() {
                b"touch" => 2,
                b"gat" | b"gats" | b"flush_all" => 1,
                _ => return false,
            };
            let word = line.word(index);
            !word.is_empty() && word != b"noreply" && !is_plain(word, 9)
        },
    },
    Difference {
        what: "verbosity and commands of administration: 1.6.18 lacks some, and words some errors differently",
        applies: |line| {
            let is_admin: &[&[u8]] =
                &[b"shutdown", b"lru", b"lru_crawler", b"slabs", b"watch", b"cache_memlimit", b"stats"];
            is_admin.contains(&line.name())
                || line.name() == b"verbosity" && !matches!(line.words[1..], [b"0"] | [b"0", b"noreply"])
        },
    },
    Difference {
        what: "flags E and x, s and N in ms, C in mg: are newer than 1.6.18",
        applies: |line| {
            let newer: &[u8] = match line.name() {
                b"mg" => b"ExC",
                b"ms" => b"ExsN",
                b"md" | b"ma" => b"Ex",
                _ => return false,
            };
            line.flags().any(|(letter, _)| newer.contains(&letter))
        },
    },
    Difference {
        what: "more than one error in the flags: the first is told, not the last",
        applies: |line| line.is_meta() && line.flag_errors() > 1,
    },
    Difference {
        what: "an error in the flags of md, and of ms: 1.6.18 has one error line for md, and reads the value of ms as commands",
        applies: |line| line.name() == b"md" && line.flag_errors() > 0,
    },
    Difference {
        what: "an odd number in a flag: is read strictly since 1.6.4x",
        applies: |line| {
            line.flags().any(|(letter, argument)| match letter {
                b'T' | b'N' | b'R' => !is_plain(argument, 9),
                b'F' => !is_plain(argument, 9) || is_negative(argument),
                b'C' | b'D' | b'J' => !is_plain(argument, 19) || is_negative(argument),
                _ => false,
            })
        },
    },
    Difference {
        what: "M with other than one letter: its first letter counts since 1.6.4x",
        applies: |line| line.flags().any(|(letter, argument)| letter == b'M' && argument.len() != 1),
    },
    Difference {
        what: "more than 15 flags: 18 are taken since 1.6.4x",
        applies: |line| line.is_meta() && line.flags().count() > 15,
    },
    Difference {
        what: "a word that does not look like a flag: is a bad line since 1.6.4x",
        applies: |line| line.flags().any(|(letter, _)| !letter.is_ascii_alphabetic()),
    },
    Difference {
        what: "T before N, and T of ma: T is the time to live of what N creates, and is not lost when the number gets longer, as in 1.6.18",
        applies: |line| {
            line.has_flag(b'T')
                && (line.name() == b"ma" || line.name() == b"mg" && line.place(b'T') < line.place(b'N'))
        },
    },
    Difference {
        what: "delete noreply: is silent since 1.6.4x",
        applies: |line| line.words == [b"delete", &b"noreply"[..]],
    },
    Difference {
        what: "an unknown command with noreply: is not answered since 1.6.4x",
        applies: |line| line.last() == b"noreply" && line.words.len() > 1 && !line.is_known(),
    },
    Difference {
        what: "t before N: larder tells the time to live of the item that N creates",
        applies: |line| line.has_flag(b't') && line.place(b't') < line.place(b'N'),
    },
    Difference {
        what: "q in an ma that creates: larder hides HD, as q says",
        applies: |line| line.name() == b"ma" && line.has_flag(b'q') && line.has_flag(b'N'),
    },
    Difference {
        what: "a long opaque of ma: has ma's one error line since 1.6.4x",
        applies: |line| {
            line.name() == b"ma"
                && line.flags().any(|(letter, argument)| letter == b'O' && argument.len() > 31)
        },
    },
    Difference {
        what: "a long opaque with N: larder creates nothing for a command that it refuses",
        applies: |line| {
            line.has_flag(b'N')
                && line.flags().any(|(letter, argument)| letter == b'O' && argument.len() > 31)
        },
    },
    Difference {
        what: "N with a key in base64: larder remembers that the key was in base64",
        applies: |line| line.has_flag(b'b') && line.has_flag(b'N'),
    },
    Difference {
        what: "t after a T that is over: a number that wrapped around in memcached",
        applies: |line| {
            let is_over =
                |argument: &[u8]| is_negative(argument) || [&b"2592001"[..], b"4000000"].contains(&argument);
            line.has_flag(b't') && line.flags().any(|(letter, argument)| letter == b'T' && is_over(argument))
        },
    },
    Difference {
        what: "keys that are not quite base64, and b in me: larder wants padding where it belongs; b in me always counts",
        applies: |line| {
            line.has_flag(b'b') && (line.name() == b"me" || BASE64_STANDARD.decode(line.word(1)).is_err())
        },
    },
];

impl<'a> Line<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        Self { bytes, words: text.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect() }
    }

    fn name(&self) -> &'a [u8] {
        self.word(0)
    }

    fn word(&self, index: usize) -> &'a [u8] {
        self.words.get(index).copied().unwrap_or_default()
    }

    fn last(&self) -> &'a [u8] {
        self.words.last().copied().unwrap_or_default()
    }

    fn is_classic_store(&self) -> bool {
        matches!(self.name(), b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas")
    }

    fn is_known(&self) -> bool {
        let others: &[&[u8]] = &[
            b"get",
            b"gets",
            b"gat",
            b"gats",
            b"incr",
            b"decr",
            b"delete",
            b"touch",
            b"flush_all",
            b"verbosity",
            b"version",
            b"mn",
            b"quit",
        ];
        self.is_store() || self.is_meta() || others.contains(&self.name())
    }

    fn is_store(&self) -> bool {
        self.is_classic_store() || self.name() == b"ms"
    }

    fn is_meta(&self) -> bool {
        matches!(self.name(), b"mg" | b"ms" | b"md" | b"ma" | b"me")
    }

    /// The word that tells the length of a value.
    fn length(&self) -> Option<&'a [u8]> {
        self.words.get(if self.name() == b"ms" { 2 } else { 4 }).copied().filter(|_| self.is_store())
    }

    /// The length of the value that follows.
    fn announced_bytes(&self) -> Option<u32> {
        let word = self.length()?;
        let is_digits = word.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(word).ok()?.parse().ok().filter(|bytes| is_digits && *bytes <= 2_147_483_645)
    }

    fn lacks_words(&self) -> bool {
        let wanted = match self.name() {
            b"get" | b"gets" | b"delete" | b"mg" | b"md" | b"ma" | b"me" | b"verbosity" => 2,
            b"gat" | b"gats" | b"incr" | b"decr" | b"touch" | b"ms" => 3,
            b"set" | b"add" | b"replace" | b"append" | b"prepend" => 5,
            b"cas" => 6,
            _ => return false,
        };
        self.words.len() < wanted
    }

    fn has_further_words(&self) -> bool {
        let wanted = match self.name() {
            b"delete" => 2,
            b"incr" | b"decr" | b"touch" => 3,
            b"set" | b"add" | b"replace" | b"append" | b"prepend" => 5,
            b"cas" => 6,
            _ => return false,
        };
        let further = self.words.get(wanted..).unwrap_or_default();
        !further.is_empty() && further != [b"noreply"]
    }

    fn has_good_numbers(&self) -> bool {
        let is_good = |word: &[u8]| is_plain(word.strip_prefix(b"+").unwrap_or(word), 18);
        let is_digits = |word: &[u8]| is_good(word) && !word[0].is_ascii_alphabetic();
        is_digits(self.word(2))
            && !is_negative(self.word(2))
            && is_digits(self.word(3))
            && (self.name() != b"cas" || is_digits(self.word(5)) && !is_negative(self.word(5)))
    }

    fn is_number(&self, index: usize, min: impl Into<i64>, max: impl Into<i64>) -> bool {
        let number = std::str::from_utf8(self.word(index)).ok().and_then(|word| word.parse::<i64>().ok());
        number.is_some_and(|number| (min.into()..=max.into()).contains(&number))
    }

    /// The flags of a meta command, each as its letter and its argument.
    fn flags(&self) -> impl Iterator<Item = (u8, &'a [u8])> {
        let from = match self.name() {
            b"ms" => 3,
            _ if self.is_meta() => 2,
            _ => self.words.len(),
        };
        self.words
            .iter()
            .skip(from)
            .filter_map(|word| word.split_first())
            .map(|(letter, rest)| (*letter, rest))
    }

    fn has_flag(&self, wanted: u8) -> bool {
        self.flags().any(|(letter, _)| letter == wanted)
    }

    /// Where a flag stands: at 0 if it is not there.
    fn place(&self, wanted: u8) -> usize {
        self.flags().position(|(letter, _)| letter == wanted).map_or(0, |place| place + 1)
    }

    fn flag_errors(&self) -> usize {
        let mut seen = Vec::new();
        self.flags()
            .filter(|(letter, argument)| {
                let is_known = b"bcCDEfFhIJklLMNOPqRstTuvx".contains(letter);
                let is_again = seen.contains(letter);
                seen.push(*letter);
                let is_bad = match letter {
                    b'T' | b'N' | b'R' | b'F' | b'C' | b'D' | b'J' => !is_number(argument),
                    b'M' => !b"AEPRSIDaeprsid+-".contains(argument.first().unwrap_or(&b'?')),
                    b'O' => argument.len() > 31,
                    _ => false,
                };
                !is_known || is_again || is_bad
            })
            .count()
            + usize::from(self.word(1).len() > 250)
            + usize::from(self.has_flag(b'b') && BASE64_STANDARD.decode(self.word(1)).is_err())
    }
}

/// A number that every parser reads alike, or a word that none takes for one.
fn is_plain(word: &[u8], digits_max: usize) -> bool {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    (1..=digits_max).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
        || !word.is_empty() && word.iter().all(u8::is_ascii_alphabetic)
}

fn is_number(word: &[u8]) -> bool {
    is_plain(word, 20) && !word[0].is_ascii_alphabetic()
}

fn is_negative(word: &[u8]) -> bool {
    word.starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(stream: &str) -> Option<&'static str> {
        Some(find(stream.as_bytes())?.split(':').next().unwrap_or_default())
    }

    #[test]
    fn values_are_passed_over() {
        assert_eq!(what("set a 0 0 3\r\n \n \r\nget a\r\n"), None);
        assert_eq!(what("set a 0 0 x\r\n \n"), Some("a line that begins with a space"));
        assert_eq!(what("ms a 3 k\r\n \n \r\nmg a E1\r\n"), Some("flags E and x, s and N in ms, C in mg"));
        assert_eq!(missing_bytes(b"set a 0 0 3\r\nabc\r\n"), 0);
        assert_eq!(missing_bytes(b"mn\r\nset a 0 0 5\r\nabc\r\n"), 2);
    }

    #[test]
    fn ordinary_requests_are_none() {
        for line in [
            "get a b",
            "set a +7 -1 0 noreply",
            "cas a 0 0 1 5",
            "delete a noreply",
            "incr a 5",
            "mg a s N30 t v k O1 q",
            "ma a MI D5",
            "touch a -1",
            "bogus",
        ] {
            assert_eq!(what(&format!("{line}\r\n")), None, "{line}");
        }
    }
}
