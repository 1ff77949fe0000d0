//! An item of a dump, and the format of dumps: see docs/tools.md, "The format of a dump".

use std::io::{self, BufRead, Read as _, Write};

/// An item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub key: Vec<u8>,
    pub client_flags: u32,
    /// Unix time; 0: never.
    pub expires_at_secs: i64,
    pub value: Vec<u8>,
}

/// Writes a dump.
pub(crate) struct Writer<W> {
    out: W,
    records: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a dump.
    pub(crate) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(HEADING)?;
        Ok(Self { out, records: 0 })
    }

    /// Continues a dump with so many records.
    pub(crate) fn go_on(out: W, records: u64) -> Self {
        Self { out, records }
    }

    pub(crate) fn write(&mut self, record: &Record) -> io::Result<()> {
        self.out.write_all(b"item ")?;
        write_key(&mut self.out, &record.key)?;
        writeln!(self.out, " {} {} {}", record.client_flags, record.expires_at_secs, record.value.len())?;
        self.out.write_all(&record.value)?;
        self.out.write_all(b"\n")?;
        self.records += 1;
        Ok(())
    }

    /// Writes the end of the dump. Returns the number of records.
    pub(crate) fn end(mut self) -> io::Result<u64> {
        writeln!(self.out, "end {}", self.records)?;
        self.leave_open()
    }

    /// Ends this part of a dump that will be continued. Returns the number of records.
    pub(crate) fn leave_open(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.records)
    }
}

/// Reads a dump.
pub(crate) struct Reader<R> {
    input: R,
    line: Vec<u8>,
    /// The end of the last complete record.
    pub position_bytes: u64,
    pub records: u64,
    /// The dump has its last line.
    pub is_complete: bool,
}

/// Why a dump cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// It ends within a record, or without the last line.
    Cut,
    /// It is not a dump, or is damaged.
    Malformed(String),
    Io(io::Error),
}

impl<R: BufRead> Reader<R> {
    pub(crate) fn begin(mut input: R) -> Result<Self, Unreadable> {
        let mut heading = Vec::new();
        (&mut input).take(HEADING.len() as u64).read_to_end(&mut heading)?;
        if heading != HEADING {
            let is_cut = HEADING.starts_with(&heading);
            return Err(if is_cut { Unreadable::Cut } else { malformed("this is no dump of larder") });
        }
        let position_bytes = HEADING.len() as u64;
        Ok(Self { input, line: Vec::new(), position_bytes, records: 0, is_complete: false })
    }

    /// The next record; `None` at the end of a complete dump.
    pub(crate) fn read(&mut self) -> Result<Option<Record>, Unreadable> {
        self.line.clear();
        (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)?;
        let Some((b'\n', line)) = self.line.split_last() else {
            let is_long = self.line.len() as u64 == LINE_BYTES_MAX;
            return Err(if is_long { malformed("a line without an end") } else { Unreadable::Cut });
        };
        let line = std::str::from_utf8(line).map_err(|_| malformed("a line that is no text"))?;
        let wrong = || malformed(&format!("record {}: {}", self.records + 1, line.escape_debug()));
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["item", key, client_flags, expires_at_secs, value_bytes] => {
                let key = read_key(key).ok_or_else(wrong)?;
                let client_flags = client_flags.parse().map_err(|_| wrong())?;
                let expires_at_secs = expires_at_secs.parse().map_err(|_| wrong())?;
                let value_bytes: u64 =
                    value_bytes.parse().ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX).ok_or_else(wrong)?;
                let mut value = Vec::new();
                (&mut self.input).take(value_bytes + 1).read_to_end(&mut value)?;
                if value.len() as u64 <= value_bytes {
                    return Err(Unreadable::Cut);
                }
                if value.pop() != Some(b'\n') {
                    return Err(wrong());
                }
                self.position_bytes += self.line.len() as u64 + value_bytes + 1;
                self.records += 1;
                Ok(Some(Record { key, client_flags, expires_at_secs, value }))
            }
            ["end", records] if records.parse() == Ok(self.records) => {
                self.is_complete = true;
                Ok(None)
            }
            _ => Err(wrong()),
        }
    }
}

/// A key as in memcached's `lru_crawler metadump`: each byte but letters, digits and `-._~` is written as `%` and two
/// hexadecimal digits.
pub(crate) fn write_key(out: &mut impl Write, key: &[u8]) -> io::Result<()> {
    for byte in key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.write_all(&[*byte])?,
            _ => write!(out, "%{byte:02X}")?,
        }
    }
    Ok(())
}

/// Parses a key in this form; `None`: it is none.
pub(crate) fn read_key(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut key = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        // `from_str_radix` takes a sign.
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        key.push(u8::from_str_radix(digits, 16).ok()?);
        key.extend_from_slice(rest.as_bytes());
    }
    (1..=KEY_BYTES_MAX).contains(&key.len()).then_some(key)
}

fn malformed(why: &str) -> Unreadable {
    Unreadable::Malformed(why.to_owned())
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

const HEADING: &[u8] = b"larder-dump 1\n";
/// protocol.txt: the length limit of a key.
const KEY_BYTES_MAX: usize = 250;
/// A key of which every byte is escaped, and three numbers.
const LINE_BYTES_MAX: u64 = 1024;
/// The largest item that memcached can be configured for (`-I 1g`).
pub(crate) const VALUE_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let record = |key: &[u8], client_flags, expires_at_secs, value: &[u8]| Record {
            key: key.to_vec(),
            client_flags,
            expires_at_secs,
            value: value.to_vec(),
        };
        vec![
            record(b"a/b", 0, 0, b""),
            record(b"\0%\xff", u32::MAX, 1_800_000_000, b"item x\nend 2\n"),
            record(&[b' '; 250], 7, 1, &[0; 70_000]),
        ]
    }

    fn dump() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(&mut bytes).expect("memory can be written");
        for record in records() {
            writer.write(&record).expect("memory can be written");
        }
        assert_eq!(writer.end().expect("memory can be written"), 3);
        bytes
    }

    #[test]
    fn a_dump_is_as_documented_and_comes_back() {
        let bytes = dump();
        assert!(bytes.starts_with(
            b"larder-dump 1\nitem a%2Fb 0 0 0\n\nitem %00%25%FF 4294967295 1800000000 13\nitem x\nend 2\n\nitem "
        ));
        assert!(bytes.ends_with(b"\0\nend 3\n"));
        let mut reader = Reader::begin(&bytes[..]).expect("it begins as it should");
        for record in records() {
            assert_eq!(reader.read().expect("it is whole"), Some(record));
        }
        assert_eq!(reader.read().expect("it is whole"), None);
        assert!(reader.is_complete);
    }

    #[test]
    fn a_dump_that_was_cut_anywhere_is_read_up_to_its_last_whole_record() {
        let bytes = dump();
        for length in (0..200).chain(bytes.len() - 10..bytes.len()) {
            let mut whole = 0;
            let cut = match Reader::begin(&bytes[..length]) {
                Ok(mut reader) => loop {
                    match reader.read() {
                        Ok(Some(_)) => whole = reader.position_bytes,
                        Ok(None) => panic!("{length} is not all"),
                        Err(unreadable) => break unreadable,
                    }
                },
                Err(unreadable) => unreadable,
            };
            assert!(matches!(cut, Unreadable::Cut), "{length}: {cut:?}");
            assert!(whole <= length as u64);
        }
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        for wrong in [
            "REDIS0011",
            "larder-dump 1\nitem a 0 0\n\n",
            "larder-dump 1\nitem  0 0 0\n\n",
            "larder-dump 1\nitem %4 0 0 0\n\n",
            "larder-dump 1\nitem %+f 0 0 0\n\n",
            "larder-dump 1\nitem a 0 0 1\nxy",
            "larder-dump 1\nitem a 4294967296 0 0\n\n",
            "larder-dump 1\nitem a 0 0 99999999999\n\n",
            "larder-dump 1\nend 1\n",
            "larder-dump 1\nend\n",
        ] {
            let read = Reader::begin(wrong.as_bytes()).and_then(|mut reader| reader.read());
            assert!(matches!(read, Err(Unreadable::Malformed(_))), "{wrong}: {read:?}");
        }
    }
}
