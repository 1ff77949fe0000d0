//! Binary requests of every shape, whole and cut anywhere. Source of what fits which opcode, and of the answers:
//! memcached, doc/protocol-binary.txt, and memcached 1.6.18 as it runs.

#![allow(clippy::unwrap_used)]

use larder_protocol::command::VALUE_BYTES_MAX;
use larder_protocol::{Command, Error, Form, Parsed, Reply, Sink, binary};

struct Bytes(Vec<u8>);

impl Sink for Bytes {
    type Value = &'static [u8];
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    fn value(&mut self, value: &&'static [u8]) {
        self.0.extend_from_slice(value);
    }
}

/// Opcodes, sizes that their extras may have, whether they take (or may take) a key, and a value.
const SHAPES: &[(&[u8], &[usize], Part, Part)] = &[
    (&[0x00, 0x09, 0x0c, 0x0d], &[0], Part::Must, Part::Never),
    (&[0x01, 0x02, 0x03, 0x11, 0x12, 0x13], &[8], Part::Must, Part::May),
    (&[0x04, 0x14], &[0], Part::Must, Part::Never),
    (&[0x05, 0x06, 0x15, 0x16], &[20], Part::Must, Part::Never),
    (&[0x07, 0x17, 0x0a, 0x0b, 0x20], &[0], Part::Never, Part::Never),
    (&[0x08, 0x18], &[0, 4], Part::Never, Part::Never),
    (&[0x0e, 0x0f, 0x19, 0x1a], &[0], Part::Must, Part::May),
    (&[0x10], &[0], Part::May, Part::Never),
    (&[0x1c, 0x1d, 0x1e, 0x23, 0x24], &[4], Part::Must, Part::Never),
    (&[0x21, 0x22], &[0], Part::Must, Part::May),
];

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Must,
    May,
    Never,
}

impl Part {
    fn allows(self, bytes: usize) -> bool {
        match self {
            Self::Must => bytes > 0,
            Self::May => true,
            Self::Never => bytes == 0,
        }
    }
}

fn header(opcode: u8, key_bytes: usize, extras_bytes: usize, body_bytes: u32) -> Vec<u8> {
    let mut header = vec![0x80, opcode];
    header.extend(u16::try_from(key_bytes).unwrap().to_be_bytes());
    header.extend([u8::try_from(extras_bytes).unwrap(), 0, 0, 0]);
    header.extend(body_bytes.to_be_bytes());
    header.extend(*b"opaq");
    header.extend([0; 8]);
    header
}

fn packet(opcode: u8, extras_bytes: usize, key_bytes: usize, value_bytes: usize) -> Vec<u8> {
    let body = vec![b'1'; extras_bytes + key_bytes + value_bytes];
    let mut packet = header(opcode, key_bytes, extras_bytes, u32::try_from(body.len()).unwrap());
    packet.extend(body);
    packet
}

/// The error that a request is, if it is one, and the bytes to be swallowed after it.
fn error(input: &[u8]) -> Option<(Error, u32)> {
    let Parsed::Request { request, .. } = binary::parse(input) else { panic!("{input:?}") };
    match request.command {
        Command::Malformed(malformed) => Some((malformed.error, malformed.swallow_bytes)),
        _ => None,
    }
}

fn shape(opcode: u8) -> Option<(&'static [usize], Part, Part)> {
    let row = SHAPES.iter().find(|(opcodes, ..)| opcodes.contains(&opcode))?;
    Some((row.1, row.2, row.3))
}

#[test]
fn every_opcode_takes_its_shape_and_no_other() {
    for opcode in 0..=255 {
        for extras in [0, 1, 3, 4, 5, 7, 8, 9, 19, 20, 21, 255] {
            for key in [0, 1, 249, 250, 251, 65535] {
                for value in [0, 1, 100] {
                    let body = u32::try_from(extras + key + value).unwrap();
                    let expected = match shape(opcode) {
                        _ if key > 250 => Some((Error::BadShape, 0)),
                        None => Some((Error::UnknownCommand, body)),
                        Some((all_extras, key_part, value_part)) => {
                            let fits = all_extras.contains(&extras)
                                && key_part.allows(key)
                                && value_part.allows(value);
                            (!fits).then_some((Error::BadShape, 0))
                        }
                    };
                    let input = packet(opcode, extras, key, value);
                    assert_eq!(error(&input), expected, "{opcode:#04x} {extras} {key} {value}");
                }
            }
        }
    }
}

#[test]
fn lengths_are_checked_before_they_are_used() {
    for opcode in 0..=255 {
        // Less than extras and key.
        for (key, extras, body) in [(1, 0, 0), (250, 8, 257), (65535, 255, 65789), (0, 20, 19)] {
            let input = header(opcode, key, extras, body);
            assert_eq!(error(&input), Some((Error::BadLengths, 0)), "{opcode:#04x} {key} {extras} {body}");
        }
        // More than 1 GiB.
        for body in [(1 << 30) + 1, VALUE_BYTES_MAX, u32::MAX] {
            let input = header(opcode, 1, 8, body);
            assert_eq!(error(&input), Some((Error::BadShape, 0)), "{opcode:#04x} {body}");
        }
    }
    let mut largest = header(0x01, 1, 8, 1 << 30);
    largest.extend([0; 9]);
    assert_eq!(error(&largest), None);
    assert_eq!(error(&header(0x21, 1, 0, 1 + (16 << 10) + 1)), Some((Error::AuthTokenTooLong, 16386)));
}

#[test]
fn requests_may_be_cut_anywhere() {
    for opcode in 0..=255 {
        let Some((extras, key, value)) = shape(opcode) else { continue };
        let key = if key == Part::Never { 0 } else { 250 };
        let value = if value == Part::Never { 0 } else { 50 };
        let input = packet(opcode, extras[extras.len() - 1], key, value);
        let Parsed::Request { request, head_bytes } = binary::parse(&input) else { panic!("{opcode:#04x}") };
        assert_eq!(head_bytes + request.command.value_bytes().unwrap_or(0) as usize, input.len());
        for end in 0..head_bytes {
            assert_eq!(binary::parse(&input[..end]), Parsed::NeedInput, "{opcode:#04x} {end}");
        }
        for end in head_bytes..=input.len() {
            assert_eq!(binary::parse(&input[..end]), Parsed::Request { request, head_bytes });
        }
    }
}

#[test]
fn another_magic_closes() {
    let mut input = packet(0x0a, 0, 0, 0);
    for magic in (0..=255).filter(|magic| *magic != 0x80) {
        input[0] = magic;
        assert_eq!(binary::parse(&input), Parsed::Close);
        assert_eq!(binary::parse(&input[..23]), Parsed::NeedInput);
    }
}

// The packets are those of memcached 1.6.18.
#[test]
fn errors_are_told_by_status_and_text() {
    let answer = |opcode: u8, reply: Reply<'_, &'static [u8]>| {
        let input = match shape(opcode) {
            Some((extras, key, _)) => packet(opcode, extras[0], usize::from(key == Part::Must), 0),
            None => packet(opcode, 0, 0, 0),
        };
        let Parsed::Request { request, .. } = binary::parse(&input) else { panic!("{opcode:#04x}") };
        let mut bytes = Bytes(Vec::new());
        request.form.encode(&reply, &mut bytes);
        bytes.0
    };
    for (opcode, reply, status, text) in [
        (0x00, Reply::Miss, 0x01, &b"Not found"[..]),
        (0x02, Reply::NotStored, 0x02, b"Data exists for key."),
        (0x12, Reply::NotStored, 0x02, b"Data exists for key."),
        (0x03, Reply::NotStored, 0x01, b"Not found"),
        (0x0e, Reply::NotStored, 0x05, b"Not stored."),
        (0x1a, Reply::NotStored, 0x05, b"Not stored."),
        (0x11, Reply::Exists, 0x02, b"Data exists for key."),
        (0x11, Reply::NotFound, 0x01, b"Not found"),
        (0x14, Reply::NotFound, 0x01, b"Not found"),
        (0x01, Reply::Error(Error::TooLarge), 0x03, b"Too large."),
        (0x00, Reply::Error(Error::BadShape), 0x04, b"Invalid arguments"),
        (0x15, Reply::Error(Error::NonNumeric), 0x06, b"Non-numeric server-side value for incr or decr"),
        (0x08, Reply::Error(Error::FlushNotAllowed), 0x20, b"Auth failure."),
        (0x21, Reply::Error(Error::AuthFailure), 0x20, b"Auth failure."),
        (0x1b, Reply::Error(Error::UnknownCommand), 0x81, b"Unknown command"),
        (0x10, Reply::Error(Error::UnknownStatistics), 0x01, b"Not found"),
    ] {
        let mut expected = vec![0x81, opcode, 0, 0, 0, 0, 0, status];
        expected.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        expected.extend(b"opaq\0\0\0\0\0\0\0\0");
        expected.extend(text);
        assert_eq!(answer(opcode, reply), expected, "{opcode:#04x} {reply:?}");
    }
    for (opcode, reply) in [
        (0x09, Reply::Miss),
        (0x0d, Reply::Miss),
        (0x1e, Reply::Miss),
        (0x24, Reply::Miss),
        (0x00, Reply::End),
        (0x11, Reply::Stored { cas: 1, value_bytes: 1, is_new: false }),
        (0x14, Reply::Deleted),
        (0x17, Reply::Bye),
        (0x18, Reply::Ok),
    ] {
        assert!(answer(opcode, reply).is_empty(), "{opcode:#04x} {reply:?}");
    }
}

/// Whatever comes, the parser says something, and what it says fits into what came.
#[test]
fn random_bytes_do_no_harm() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random.to_le_bytes()
    };
    for round in 0..200_000 {
        let mut input: Vec<u8> = (0..8).flat_map(|_| next()).collect();
        input.truncate(usize::from(next()[0] % 65));
        if let Some(magic) = input.first_mut().filter(|_| round % 8 > 0) {
            *magic = 0x80;
        }
        if round % 2 == 0 && input.len() >= 24 {
            // Lengths that may come true.
            input[1] %= 0x28;
            input[2] = 0;
            input[3] %= 24;
            input[4] %= 24;
            input[8..11].fill(0);
            input[11] %= 64;
        }
        if let Parsed::Request { request, head_bytes } = binary::parse(&input) {
            assert!(head_bytes <= input.len());
            assert!(matches!(request.form, Form::Binary(_)));
            let mut bytes = Bytes(Vec::new());
            request.form.encode(&Reply::Error(Error::OutOfMemory), &mut bytes);
            assert!(bytes.0.starts_with(&[0x81, input[1]]));
        }
    }
}
