//! Recorded requests, to be asked again.
//!
//! A trace is shared out over the connections of its group by the hash of the key, so that requests of one key keep
//! their order: each connection plays its own part from the first to the last, as fast as its group's `arrival` lets
//! it.
//!
//! **`kv`**: records of 12 bytes, little endian: the number of a key (u64) and the length of its value (u32). Each is a
//! get; if it misses, a set with a value of that length follows.
//!
//! **`text`**: a request on each line, `#` begins a comment:
//!
//! ```text
//! <micros since the start> <command> <key> [<value bytes> [<ttl secs>]]
//! 1500 get user:17
//! 1720 set user:17 4096 3600
//! ```
//!
//! Commands are those of a scenario, by the same names, but for cas. A get with a length is followed by a set if it
//! misses. The times order the lines for whoever reads them; when a request is asked is up to `arrival`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};

use super::{RunError, mix};
use crate::scenario::{Kind, Trace, TraceFormat};

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What is asked.
    pub kind: Kind,
    /// Number of the key, or index of its name.
    pub number: u64,
    /// Length of the value to be stored, at once or after a miss.
    pub value_bytes: Option<u32>,
    /// Of what is stored; 0: for ever.
    pub ttl_secs: u32,
}

/// A trace that has been read.
#[derive(Debug, Default)]
pub struct Recording {
    /// One part for each connection.
    pub parts: Vec<Vec<Record>>,
    /// Keys by their index, where they have names.
    pub names: Option<Vec<Box<[u8]>>>,
    /// Of the longest value.
    pub value_bytes_max: u32,
}

impl Recording {
    /// Reads a trace for a group of so many connections. Errors: the file cannot be read, or is no trace.
    pub fn read(trace: &Trace, connections: usize) -> Result<Self, RunError> {
        let failed = |reason: String| RunError::File { path: trace.file.clone(), reason };
        let bytes = read_file(&trace.file).map_err(|error| failed(error.to_string()))?;
        let mut recording = Self { parts: vec![Vec::new(); connections], names: None, value_bytes_max: 0 };
        match trace.format {
            TraceFormat::Kv => recording.take_kv(&bytes),
            TraceFormat::Text => recording.take_text(&bytes),
        }
        .map_err(failed)?;
        Ok(recording)
    }

    fn take_kv(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (records, rest) = bytes.as_chunks::<12>();
        if !rest.is_empty() {
            return Err(format!("{} bytes are no whole number of records of 12", bytes.len()));
        }
        for record in records {
            let (number, length) = record.split_at(8);
            let number = number.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
            let length = length.iter().rev().fold(0, |length, &byte| length << 8 | u32::from(byte));
            self.push(Record { kind: Kind::Get, number, value_bytes: Some(length), ttl_secs: 0 })?;
        }
        Ok(())
    }

    fn take_text(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut numbers: HashMap<Box<[u8]>, u64> = HashMap::new();
        for (at, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let line = line.split(|&byte| byte == b'#').next().unwrap_or_default();
            let words: Vec<&[u8]> =
                line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
            if words.is_empty() {
                continue;
            }
            let (key, record) = parse(&words).map_err(|why| format!("line {}: {why}", at + 1))?;
            let next = numbers.len() as u64;
            let number = *numbers.entry(key.into()).or_insert(next);
            self.push(Record { number, ..record })?;
        }
        let mut names: Vec<Box<[u8]>> = vec![Box::default(); numbers.len()];
        for (name, number) in numbers {
            names[number as usize] = name;
        }
        self.names = Some(names);
        Ok(())
    }

    fn push(&mut self, record: Record) -> Result<(), String> {
        let bytes = record.value_bytes.unwrap_or(0);
        if bytes > VALUE_BYTES_MAX {
            return Err(format!("a value of {bytes} bytes is more than any server takes"));
        }
        self.value_bytes_max = self.value_bytes_max.max(bytes);
        let part = mix(record.number) % self.parts.len() as u64;
        self.parts[part as usize].push(record);
        Ok(())
    }
}

fn parse<'a>(words: &[&'a [u8]]) -> Result<(&'a [u8], Record), String> {
    let (&[_micros, command, key], rest) =
        words.split_first_chunk::<3>().ok_or("a time, a command and a key are needed")?;
    number::<u64>(words[0])?;
    let command = std::str::from_utf8(command).map_err(|_| "the command is no word")?;
    let name: StrDeserializer<'_, NameError> = command.into_deserializer();
    let kind = Kind::deserialize(name).map_err(|_| format!("there is no command {command}"))?;
    if kind == Kind::Cas {
        return Err("a cas cannot be played: its value was told to somebody else".into());
    }
    if key.len() > super::keys::KEY_BYTES_MAX {
        return Err("the key is longer than 250 bytes".into());
    }
    let value_bytes = rest.first().map(|word| number(word)).transpose()?;
    let ttl_secs = rest.get(1).map_or(Ok(0), |word| number(word))?;
    Ok((key, Record { kind, number: 0, value_bytes, ttl_secs }))
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| format!("{} is no number", word.escape_ascii()))
}

/// The file, unpacked if its name ends in `.xz`.
fn read_file(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if !path.ends_with(".xz") {
        File::open(path)?.read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    // The program would say less clearly that there is no such file.
    let packed = File::open(path)?;
    let mut unpacked =
        Command::new("xz").arg("-dc").stdin(Stdio::from(packed)).stdout(Stdio::piped()).spawn()?;
    if let Some(output) = &mut unpacked.stdout {
        output.read_to_end(&mut bytes)?;
    }
    let status = unpacked.wait()?;
    if !status.success() {
        return Err(io::Error::other(format!("xz failed: {status}")));
    }
    Ok(bytes)
}

const VALUE_BYTES_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use larder_conformance::folder::Folder;

    use super::*;

    fn read(bytes: &[u8], format: TraceFormat, connections: usize) -> Result<Recording, RunError> {
        let folder = Folder::create();
        folder.write("trace", bytes);
        let file = folder.arg("trace");
        Recording::read(&Trace { file, format, repeat: 1 }, connections)
    }

    #[test]
    fn records_of_twelve_bytes() {
        let mut bytes = Vec::new();
        for (key, length) in [(7u64, 100u32), (0x0102_0304_0506_0708, 5), (7, 100)] {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        let recording = read(&bytes, TraceFormat::Kv, 1).unwrap();
        let records: Vec<(u64, Option<u32>)> =
            recording.parts[0].iter().map(|record| (record.number, record.value_bytes)).collect();
        assert_eq!(records, [(7, Some(100)), (0x0102_0304_0506_0708, Some(5)), (7, Some(100))]);
        assert_eq!(recording.value_bytes_max, 100);
        assert!(read(&bytes[..13], TraceFormat::Kv, 1).is_err());
    }

    #[test]
    fn lines_of_text() {
        let text = b"# a trace\n0 set a 10 60\n5 get b 20\n9 delete a # gone\n\n";
        let recording = read(text, TraceFormat::Text, 1).unwrap();
        assert_eq!(recording.names.unwrap(), [b"a"[..].into(), b"b"[..].into()]);
        let record = |kind, number, value_bytes, ttl_secs| Record { kind, number, value_bytes, ttl_secs };
        assert_eq!(
            recording.parts[0],
            [
                record(Kind::Set, 0, Some(10), 60),
                record(Kind::Get, 1, Some(20), 0),
                record(Kind::Delete, 0, None, 0)
            ]
        );
        for wrong in [&b"get a"[..], b"0 fly a", b"x get a", b"0 set a b"] {
            assert!(read(wrong, TraceFormat::Text, 1).is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_key_belongs_to_one_connection_and_keeps_its_order() {
        let lines: String = (0..1000).map(|n| format!("{n} set key{} {n}\n", n % 50)).collect();
        let recording = read(lines.as_bytes(), TraceFormat::Text, 4).unwrap();
        let mut seen = [0; 50];
        for (part, records) in recording.parts.iter().enumerate() {
            assert!(records.len() > 100, "part {part}");
            let mut last = HashMap::new();
            for record in records {
                assert!(last.insert(record.number, record.value_bytes) < Some(record.value_bytes));
                seen[record.number as usize] |= 1 << part;
            }
        }
        assert!(seen.iter().all(|parts: &u32| parts.is_power_of_two()));
    }
}
