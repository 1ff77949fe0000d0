//! The bytes of the protocol. Expected ones are written by hand from docs/replication-protocol.md; checksums and proofs
//! are computed with Python (a bitwise CRC32C of the polynomial 0x82F63B78, and its `hmac`).

use fastrand::Rng;
use larder_replication::entry::{Beat, Entries, Entry, Put};
use larder_replication::state::Expiry;
use larder_replication::version::version_at;
use larder_replication::wire::{
    Assembly, FRAME_BYTES_MAX, FrameDecoder, Message, PART_BYTES_MAX, Role, Token, WireError, push_parts,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("hex digits are ASCII");
        u8::from_str_radix(pair, 16).expect("it is hex")
    };
    digits.chunks(2).map(byte).collect()
}

fn entries() -> Vec<(Entry<'static>, Vec<u8>)> {
    let put = Put {
        key: b"key",
        version: 0x0102_0304_0507,
        base_version: 0x0102,
        expiry: Expiry {
            value_version: 0x0102_0304_0507,
            version: 0x0102_0304_0607,
            exptime_secs: 2_000_000_000,
        },
        client_flags: 7,
        marks: 1,
        value: b"value",
    };
    vec![
        (
            Entry::Put(put),
            hex("01 01 0300 0705040302010000 0201000000000000 0705040302010000 0706040302010000 0094357700000000
                 07000000 05000000
                 6b6579 76616c7565"),
        ),
        (
            Entry::Delete { key: b"key", version: 0x0307, base_version: 0x0107 },
            hex("02 00 0300 0703000000000000 0701000000000000 6b6579"),
        ),
        (
            Entry::Touch { key: b"key", expiry: Expiry { value_version: 0x0207, version: 0x0307, exptime_secs: 1 } },
            hex("03 00 0300 0702000000000000 0703000000000000 0100000000000000 6b6579"),
        ),
        (
            Entry::Flush { prefix: b"a", exceptions: vec![b"ab", b"ac"], version: 0x0307 },
            hex("04 00 0100 0703000000000000 0200 61 0200 6162 0200 6163"),
        ),
        (
            Entry::Beat(Beat { clock: 3, stable: 2, horizon: 1 }),
            hex("05 00 0000 0300000000000000 0200000000000000 0100000000000000"),
        ),
    ]
}

#[test]
fn entries_have_the_documented_bytes() {
    for (entry, bytes) in entries() {
        let mut encoded = Vec::new();
        entry.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{entry:?}");
        let decoded: Vec<_> = Entries::new(&bytes).collect();
        assert_eq!(decoded, [Ok(entry)]);
    }
}

/// The document's example, which a program of its own has made, is what goes over the wire.
#[test]
fn the_documents_example_is_what_is_sent() {
    let document = include_str!("../../../docs/replication-protocol.md");
    let dump = document.split("```hexdump\n").nth(1).and_then(|rest| rest.split("```").next());
    let lines = dump.expect("the document has an example").lines();
    let bytes: Vec<u8> = lines
        .flat_map(|line| hex(line.get(10..58).unwrap_or_default().split('|').next().unwrap_or_default()))
        .collect();
    let now_micros = 1_800_000_000_000_000;
    let (version, base_version) = (version_at(now_micros, 1), version_at(now_micros - 1_000_000, 2));
    let mut body = Vec::new();
    Entry::Delete { key: b"key", version, base_version }.encode(&mut body);
    let mut sent = Vec::new();
    push_parts(&mut sent, &body, true);
    Message::Batch { from: 7, to: 12, unix_micros: now_micros }.encode(&mut sent);
    assert_eq!(bytes, sent);
}

#[test]
fn a_site_gets_what_concerns_its_prefixes() {
    let kept = [b"user:".to_vec(), b"page:x".to_vec()];
    let flush = |prefix| Entry::Flush { prefix, exceptions: vec![], version: 1 << 8 | 1 };
    let delete = |key| Entry::Delete { key, version: 1 << 8 | 1, base_version: 0 };
    assert!(delete(b"user:1").concerns(&kept) && delete(b"page:xy").concerns(&kept));
    assert!(!delete(b"page:1").concerns(&kept) && delete(b"page:1").concerns(&[]));
    assert!(
        flush(b"").concerns(&kept) && flush(b"page:").concerns(&kept) && flush(b"user:1").concerns(&kept)
    );
    assert!(!flush(b"page:y").concerns(&kept));
    assert!(Entry::Beat(Beat::default()).concerns(&kept));
}

#[test]
fn an_entry_that_is_cut_is_none() {
    for (entry, bytes) in entries() {
        for length in 1..bytes.len() {
            let decoded: Vec<_> = Entries::new(&bytes[..length]).collect();
            assert!(matches!(decoded[..], [Err(_)]), "{entry:?} cut to {length}");
        }
    }
}

#[test]
fn what_no_site_writes_is_malformed() {
    let put =
        hex("01 01 0300 0705040302010000 0201000000000000 0705040302010000 0706040302010000 0094357700000000
                 07000000 05000000
         6b6579 76616c7565");
    let malformed = |place: usize, byte: u8| {
        let mut bytes = put.clone();
        bytes[place] = byte;
        Entries::new(&bytes).any(|entry| entry.is_err())
    };
    assert!(!malformed(4, 7) && !malformed(44, 8));
    assert!(malformed(0, 9), "an unknown kind");
    assert!(malformed(4, 0), "a version of site 0");
    assert!(malformed(10, 0xFF), "a version of more than 53 bits");
    assert!(malformed(21, 4), "an expiry of an older value");
    assert!(malformed(29, 4), "an expiry that is older than its value");
    assert!(malformed(51, 0xFF), "a value that does not fit");
    let empty_key = hex("02 00 0000 0703000000000000 0701000000000000");
    assert!(Entries::new(&empty_key).any(|entry| entry.is_err()));
}

#[test]
fn frames_have_the_documented_bytes() {
    for (message, bytes) in [
        (Message::Alive { unix_micros: 5 }, "08000000 66b183bb 0f 000000 0500000000000000"),
        (Message::CopyTaken, "00000000 1ec329be 0e 000000"),
    ] {
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        assert_eq!(encoded, hex(bytes));
        let mut decoder = FrameDecoder::new();
        decoder.push(&encoded);
        let (kind, payload) = decoder.next_frame().expect("it is a frame").expect("it is whole");
        assert_eq!(Message::decode(kind, payload), Ok(message));
    }
}

#[test]
fn every_flipped_bit_of_a_frame_is_found() {
    let bytes = hex("08000000 66b183bb 0f 000000 0500000000000000");
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut decoder = FrameDecoder::new();
        decoder.push(&bytes);
        // A longer frame is still to come; its checksum is wrong then.
        let is_incomplete = bit < 32 && decoder.next_frame() == Ok(None);
        assert!(is_incomplete || decoder.next_frame().is_err(), "bit {bit}");
    }
}

#[test]
fn a_long_frame_is_refused_before_it_comes() {
    for (length, is_trusted) in [(3000, false), (FRAME_BYTES_MAX + 1, true), (u32::MAX as usize, true)] {
        let mut decoder = FrameDecoder::new();
        if is_trusted {
            decoder.trust();
        }
        decoder.push(&(length as u32).to_le_bytes());
        assert_eq!(decoder.next_frame(), Err(WireError::TooLong));
    }
}

#[test]
fn proofs_are_hmac_sha_256() {
    let token = Token::new(*b"the token");
    let said: [&[u8]; 2] = [b"LARDRREP\x01\x02", b"three"];
    let proof = hex("c88b3a1244b786af2c73bd6c245bda99884e01061cde44d8fe4c94ade6a9a7a2");
    assert_eq!(token.prove(Role::Subscriber, &said).to_vec(), proof);
    let proof = token.prove(Role::Subscriber, &said);
    assert!(token.verify(Role::Subscriber, &said, &proof));
    assert!(!token.verify(Role::Publisher, &said, &proof));
    assert!(!token.verify(Role::Subscriber, &[b"LARDRREP\x01", b"\x02three"], &proof));
    assert!(!Token::new(*b"another").verify(Role::Subscriber, &said, &proof));
    assert_eq!(format!("{token:?}"), "Token(..)", "it is not shown");
}

#[test]
fn bodies_of_any_size_come_back() {
    let mut rng = Rng::with_seed(1);
    for length in [0, 1, 255, 256, 5000, PART_BYTES_MAX, PART_BYTES_MAX + 1, 3 * PART_BYTES_MAX + 7] {
        for is_random in [false, true] {
            let body: Vec<u8> = (0..length).map(|_| if is_random { rng.u8(..) } else { b'v' }).collect();
            let mut sent = Vec::new();
            push_parts(&mut sent, &body, true);
            assert!(is_random || length < 5000 || sent.len() < length / 10, "it is compressed");
            let mut decoder = FrameDecoder::new();
            decoder.trust();
            decoder.push(&sent);
            let mut assembly = Assembly::new(length);
            while let Some((kind, payload)) = decoder.next_frame().expect("it is a frame") {
                let Ok(Message::Part { body_bytes, data }) = Message::decode(kind, payload) else {
                    panic!("it is no part")
                };
                assembly.push(body_bytes, data).expect("it fits");
            }
            assert_eq!(assembly.take(), body);
        }
    }
}

/// A few bytes cannot stand for more than a part, nor parts for more than the body.
#[test]
fn a_part_cannot_blow_up() {
    let bomb = lz4_flex::block::compress(&vec![0; 64 << 20]);
    let mut assembly = Assembly::new(1 << 20);
    assert!(assembly.push(64 << 20, &bomb).is_err());
    assert!(assembly.push(PART_BYTES_MAX as u32, &bomb).is_err(), "it is longer than it says");
    assert!(assembly.body_bytes() <= 2 * PART_BYTES_MAX);
    let mut assembly = Assembly::new(PART_BYTES_MAX + 1);
    assert_eq!(assembly.push(PART_BYTES_MAX as u32, &vec![1; PART_BYTES_MAX]), Ok(()));
    assert_eq!(assembly.push(2, &[1, 2]), Err(WireError::BodyTooLong));
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        let data: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
        let mut assembly = Assembly::new(1 << 20);
        let _ = assembly.push(rng.u32(..2000), &data);
        assert!(assembly.body_bytes() <= 2000);
    }
}

#[test]
fn random_bytes_are_no_messages_and_no_harm() {
    for seed in 0..50_000 {
        let mut rng = Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..rng.usize(..120)).map(|_| rng.u8(..)).collect();
        let _ = Message::decode(rng.u8(..20), &bytes);
        let mut body = bytes;
        if let Some(kind) = body.first_mut() {
            *kind = rng.u8(1..=5);
        }
        assert!(Entries::new(&body).count() <= body.len());
    }
}
