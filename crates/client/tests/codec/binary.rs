//! The binary protocol. The packets are made by hand after doc/protocol-binary.txt.

use larder_client::codec::{Arith, Delete, Get, Mode, Pipeline, Protocol, Store, Touch, ViolationKind};

use crate::talk::{expect_events, expect_violation};

type Binary = Pipeline<u32>;
type Ask = fn(&mut Binary, &mut Vec<u8>);

/// A pipeline that has asked, and what it sent.
fn ask(asks: &[Ask]) -> (Binary, Vec<u8>) {
    let (mut pipeline, mut output) = (Pipeline::new(Protocol::Binary), Vec::new());
    for ask in asks {
        ask(&mut pipeline, &mut output);
    }
    (pipeline, output)
}

const GET: Ask = |binary, out| binary.get(out, &Get::default(), b"a", 1);
const SET: Ask =
    |binary, out| binary.store(out, &Store { key: b"a", value: &[b"x"], ..Store::default() }, Some(2));
const QUIET_SET: Ask =
    |binary, out| binary.store(out, &Store { key: b"a", value: &[b"x"], ..Store::default() }, None);
const MULTI: Ask = |binary, out| binary.multi_get(out, &Get::default(), ["a", "b", "b", "c"], 3);
const INCR: Ask =
    |binary, out| binary.arith(out, &Arith { key: b"a", delta: 2, ..Arith::default() }, Some(4));
const TOUCH: Ask =
    |binary, out| binary.touch(out, &Touch { key: b"a", exptime: 60, ..Touch::default() }, Some(5));
const QUIET_TOUCH: Ask =
    |binary, out| binary.touch(out, &Touch { key: b"a", exptime: 60, ..Touch::default() }, None);
const DELETE: Ask = |binary, out| binary.delete(out, &Delete { key: b"a", ..Delete::default() }, Some(6));
const QUIET_DELETE: Ask = |binary, out| binary.delete(out, &Delete { key: b"a", ..Delete::default() }, None);
const NOOP: Ask = |binary, out| binary.noop(out, 7);
const VERSION: Ask = |binary, out| binary.version(out, 8);
const STATS: Ask = |binary, out| binary.stats(out, b"", 9);
const LOGIN: Ask = |binary, out| binary.login(out, "ann", "pass", 10);

/// A packet, of a request (0x80) or of an answer (0x81), with its status or vbucket.
#[derive(Clone, Copy, Default)]
struct Packet<'a> {
    magic: u8,
    opcode: u8,
    status: u8,
    opaque: u8,
    cas: u8,
    extras: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
}

impl Packet<'_> {
    fn bytes(&self) -> Vec<u8> {
        let (extras, key) = (self.extras.len() as u8, self.key.len() as u8);
        let body = extras + key + self.value.len() as u8;
        let mut packet = vec![self.magic, self.opcode, 0, key, extras, 0, 0, self.status];
        packet.extend([0, 0, 0, body, 0, 0, 0, self.opaque, 0, 0, 0, 0, 0, 0, 0, self.cas]);
        packet.extend([self.extras, self.key, self.value].concat());
        packet
    }
}

fn request(opcode: u8, opaque: u8) -> Packet<'static> {
    Packet { magic: 0x80, opcode, opaque, ..Packet::default() }
}

fn answer(opcode: u8, opaque: u8) -> Packet<'static> {
    Packet { magic: 0x81, opcode, opaque, ..Packet::default() }
}

fn hit(opaque: u8, value: &[u8]) -> Packet<'_> {
    Packet { extras: &[0, 0, 0, 7], value, cas: 9, ..answer(0x00, opaque) }
}

fn multi_hit<'a>(opaque: u8, key: &'a [u8], value: &'a [u8]) -> Packet<'a> {
    Packet { opcode: 0x0d, key, ..hit(opaque, value) }
}

fn failure(opcode: u8, opaque: u8, status: u8, text: &str) -> Packet<'_> {
    Packet { status, value: text.as_bytes(), ..answer(opcode, opaque) }
}

fn join(packets: &[Packet<'_>]) -> Vec<u8> {
    packets.iter().flat_map(Packet::bytes).collect()
}

/// All ones say that no number is created.
#[test]
fn the_latest_expiry_of_a_number_still_creates_it() {
    let (_, sent) = ask(&[|binary, out| {
        let initial = Some((5, u32::MAX.into()));
        binary.arith(out, &Arith { key: b"a", delta: 2, initial, ..Arith::default() }, Some(0));
    }]);
    assert_eq!(sent[40..44], [0xff, 0xff, 0xff, 0xfe]);
}

#[test]
fn requests_are_packets_with_counted_opaques() {
    let (_, sent) = ask(&[
        GET,
        |binary, out| binary.get(out, &Get { exptime: Some(60), ..Get::default() }, b"a", 0),
        MULTI,
        |binary, out| {
            let store = Store {
                mode: Mode::Add,
                key: b"key",
                value: &[b"val", b"ue"],
                client_flags: 0x0102_0304,
                exptime: 60,
                compare: Some(9),
                ..Store::default()
            };
            binary.store(out, &store, Some(0));
        },
        |binary, out| {
            let store = Store { mode: Mode::Append, key: b"key", value: &[b"x"], ..Store::default() };
            binary.store(out, &store, None);
        },
        INCR,
        |binary, out| {
            let arith =
                Arith { key: b"a", delta: 2, decrement: true, initial: Some((5, -1)), ..Arith::default() };
            binary.arith(out, &arith, None);
        },
        TOUCH,
        |binary, out| binary.delete(out, &Delete { key: b"a", compare: Some(9), ..Delete::default() }, None),
        |binary, out| binary.flush_all(out, 0, Some(0)),
        |binary, out| binary.flush_all(out, 5, None),
        NOOP,
        VERSION,
        STATS,
        LOGIN,
        |binary, out| binary.quit(out),
    ]);
    let key = |opcode, opaque, key| Packet { key, ..request(opcode, opaque) };
    let never = [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    // 2,592,001 seconds: more than 30 days, so a time in 1970.
    let past = [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0x27, 0x8d, 0x01];
    let expected = join(&[
        key(0x00, 0, b"a"),
        Packet { extras: &[0, 0, 0, 60], ..key(0x1d, 1, b"a") },
        key(0x0d, 2, b"a"),
        key(0x0d, 3, b"b"),
        key(0x0d, 4, b"b"),
        key(0x0d, 5, b"c"),
        request(0x0a, 6),
        Packet { cas: 9, extras: &[1, 2, 3, 4, 0, 0, 0, 60], value: b"value", ..key(0x02, 7, b"key") },
        Packet { value: b"x", ..key(0x19, 8, b"key") },
        Packet { extras: &never, ..key(0x05, 9, b"a") },
        Packet { extras: &past, ..key(0x16, 10, b"a") },
        Packet { extras: &[0, 0, 0, 60], ..key(0x1c, 11, b"a") },
        Packet { cas: 9, ..key(0x14, 12, b"a") },
        request(0x08, 13),
        Packet { extras: &[0, 0, 0, 5], ..request(0x18, 14) },
        request(0x0a, 15),
        request(0x0b, 16),
        request(0x10, 17),
        Packet { value: b"\0ann\0pass", ..key(0x21, 18, b"PLAIN") },
        request(0x17, 19),
    ]);
    assert_eq!(sent, expected);
}

#[test]
fn answers_may_be_cut_anywhere() {
    let input = join(&[
        hit(0, b"x\r\n"),
        failure(0x00, 1, 1, "Not found"),
        multi_hit(3, b"b", b""),
        multi_hit(5, b"c", b"y"),
        answer(0x0a, 6),
        answer(0x0a, 11),
        Packet { cas: 17, ..answer(0x01, 12) },
        failure(0x01, 13, 2, "Data exists for key."),
        failure(0x01, 14, 5, "Not stored."),
        Packet { value: &[0, 0, 0, 0, 0, 0, 1, 0], ..answer(0x05, 15) },
        failure(0x05, 16, 1, "Not found"),
        failure(0x05, 17, 6, "Non-numeric server-side value for incr or decr"),
        Packet { extras: &[0, 0, 0, 7], ..answer(0x1c, 18) },
        // Of no interest.
        failure(0x1c, 19, 1, "Not found"),
        answer(0x04, 20),
        answer(0x0a, 21),
        Packet { value: b"1.6.18", ..answer(0x0b, 22) },
        Packet { key: b"pid", value: b"17", ..answer(0x10, 23) },
        Packet { key: b"empty", ..answer(0x10, 23) },
        answer(0x10, 23),
        failure(0x21, 24, 0x20, "Auth failure."),
        Packet { value: b"Authenticated", ..answer(0x21, 25) },
        failure(0x00, 26, 0x82, "Out of memory"),
    ]);
    let asks = [
        GET,
        GET,
        MULTI,
        MULTI,
        SET,
        SET,
        SET,
        INCR,
        INCR,
        INCR,
        TOUCH,
        QUIET_TOUCH,
        DELETE,
        NOOP,
        VERSION,
        STATS,
        LOGIN,
        LOGIN,
        GET,
    ];
    expect_events(
        || ask(&asks).0,
        &input,
        &[
            "value 0 \"x\\r\\n\" flags 7 cas Some(9) []",
            "1 Found { hits: 1, keys: 1 }",
            "1 Found { hits: 0, keys: 1 }",
            "value 1 \"\" flags 7 cas Some(9) []",
            "value 3 \"y\" flags 7 cas Some(9) []",
            "3 Found { hits: 2, keys: 4 }",
            "3 Found { hits: 0, keys: 4 }",
            "2 Stored { cas: Some(17) }",
            "2 Exists",
            "2 NotStored",
            "4 Number(256)",
            "4 NotFound",
            "4 NonNumeric: Non-numeric server-side value for incr or decr",
            "5 Touched",
            "6 Deleted",
            "7 Ok",
            "8 version 1.6.18",
            "stat pid=17",
            "stat empty=",
            "9 Ok",
            "10 Unauthenticated: Auth failure.",
            "10 LoggedIn",
            "1 OutOfMemory: Out of memory",
        ],
    );
}

#[test]
fn failures_of_quiet_requests_are_told_from_answers() {
    let input = join(&[
        failure(0x11, 0, 0x82, "Out of memory"),
        failure(0x11, 1, 3, "Too large."),
        Packet { cas: 1, ..answer(0x01, 2) },
        multi_hit(4, b"a", b"x"),
        failure(0x0d, 5, 0x82, "Out of memory"),
        answer(0x0a, 8),
        failure(0x11, 9, 3, "Too large."),
    ]);
    expect_events(
        || ask(&[QUIET_SET, QUIET_SET, SET, QUIET_SET, MULTI, QUIET_SET]).0,
        &input,
        &[
            "quiet OutOfMemory: Out of memory",
            "quiet TooLarge: Too large.",
            "2 Stored { cas: Some(1) }",
            "value 0 \"x\" flags 7 cas Some(9) []",
            "key failed Out of memory",
            "3 Found { hits: 1, keys: 4 }",
            "quiet TooLarge: Too large.",
        ],
    );
}

#[test]
fn a_quiet_delete_of_nothing_is_no_failure() {
    let input = join(&[
        failure(0x14, 0, 1, "Not found"),
        failure(0x04, 1, 1, "Not found"),
        failure(0x14, 2, 2, "Data exists for key."),
        failure(0x14, 3, 1, "Not found"),
    ]);
    let asks = [QUIET_DELETE, DELETE, QUIET_DELETE, QUIET_DELETE];
    expect_events(|| ask(&asks).0, &input, &["6 NotFound", "quiet Exists"]);
    let twice = join(&[failure(0x14, 0, 1, "Not found"), failure(0x14, 0, 1, "Not found")]);
    expect_violation(|| ask(&[QUIET_DELETE]).0, &twice, ViolationKind::WrongOpaque);
}

#[test]
fn what_nobody_asked_for_is_a_violation() {
    use ViolationKind::{Malformed, Unasked, WrongForm, WrongKey, WrongOpaque};
    let stored = answer(0x01, 0);
    let no_memory = |opaque| failure(0x11, opaque, 0x82, "Out of memory");
    for (asks, packets, kind) in [
        (&[][..], &[stored][..], Unasked),
        (&[SET], &[stored, stored], Unasked),
        (&[GET], &[hit(0, b"x"), hit(0, b"x")], Unasked),
        (&[GET, GET], &[hit(0, b"x"), hit(0, b"x")], WrongOpaque),
        (&[GET, GET], &[hit(1, b"x")], WrongOpaque),
        (&[GET], &[stored], WrongForm),
        (&[SET], &[hit(0, b"x")], WrongForm),
        (&[GET], &[Packet { extras: b"", ..hit(0, b"x") }], WrongForm),
        (&[GET], &[Packet { key: b"a", ..hit(0, b"x") }], WrongForm),
        (&[INCR], &[Packet { value: b"7", ..answer(0x05, 0) }], WrongForm),
        (&[MULTI], &[answer(0x0a, 3)], WrongForm),
        (&[MULTI], &[multi_hit(4, b"c", b"x")], WrongForm),
        (&[MULTI], &[multi_hit(0, b"b", b"x")], WrongKey),
        (&[MULTI], &[multi_hit(1, b"b", b"x"), multi_hit(1, b"b", b"x")], WrongOpaque),
        (&[MULTI], &[multi_hit(5, b"c", b"x")], WrongOpaque),
        // Quiet requests that were not sent, have failed already, or were passed by an answer.
        (&[QUIET_SET], &[no_memory(1)], WrongOpaque),
        (&[QUIET_SET], &[no_memory(0), no_memory(0)], WrongOpaque),
        (&[QUIET_SET, NOOP], &[answer(0x0a, 1), no_memory(0)], WrongOpaque),
        (&[QUIET_SET], &[answer(0x11, 0)], WrongForm),
        (&[GET], &[Packet { magic: 0x80, ..hit(0, b"x") }], Malformed),
        (&[GET], &[Packet { magic: b'E', ..hit(0, b"x") }], Malformed),
    ] {
        expect_violation(|| ask(asks).0, &join(packets), kind);
    }
    let mut short = hit(0, b"x").bytes();
    short[11] = 3;
    expect_violation(|| ask(&[GET]).0, &short, Malformed);
    let mut endless = hit(0, b"x").bytes();
    endless[8] = 0xff;
    expect_violation(|| ask(&[GET]).0, &endless, Malformed);
}

/// The same, with an answer for each key of many.
fn ask_loudly(asks: &[Ask]) -> (Binary, Vec<u8>) {
    let (mut pipeline, mut output) = (Pipeline::with_opaques(Protocol::Binary), Vec::new());
    for ask in asks {
        ask(&mut pipeline, &mut output);
    }
    (pipeline, output)
}

#[test]
fn with_opaques_each_key_of_many_is_answered() {
    let key = |opaque, key| Packet { key, ..request(0x00, opaque) };
    let expected = [key(0, &b"a"[..]), key(1, b"b"), key(2, b"b"), key(3, b"c"), request(0x0a, 4)];
    assert_eq!(ask_loudly(&[MULTI, NOOP]).1, join(&expected));
    let miss = |opaque| failure(0x00, opaque, 0x01, "Not found");
    let no_memory = |opaque| failure(0x00, opaque, 0x82, "Out of memory");
    expect_events(
        || ask_loudly(&[MULTI, GET]).0,
        &join(&[hit(0, b"x"), miss(1), no_memory(2), hit(3, b"y"), miss(4)]),
        &[
            "value 0 \"x\" flags 7 cas Some(9) []",
            "key failed Out of memory",
            "value 3 \"y\" flags 7 cas Some(9) []",
            "3 Found { hits: 2, keys: 4 }",
            "1 Found { hits: 0, keys: 1 }",
        ],
    );
    expect_events(
        || ask_loudly(&[QUIET_SET, MULTI]).0,
        &join(&[failure(0x11, 0, 0x82, "Out of memory"), miss(1), miss(2), miss(3), no_memory(4)]),
        &["quiet OutOfMemory: Out of memory", "key failed Out of memory", "3 Found { hits: 0, keys: 4 }"],
    );
    use ViolationKind::{WrongForm, WrongOpaque};
    for (packets, kind) in [
        (&[hit(0, b"x"), hit(0, b"x")][..], WrongOpaque),
        (&[miss(0), miss(0)], WrongOpaque),
        (&[miss(1)], WrongOpaque),
        (&[miss(3)], WrongOpaque),
        (&[miss(4)], WrongOpaque),
        (&[multi_hit(0, b"a", b"x")], WrongForm),
        (&[answer(0x0a, 0)], WrongForm),
        (&[Packet { extras: b"", ..hit(0, b"x") }], WrongForm),
    ] {
        expect_violation(|| ask_loudly(&[MULTI]).0, &join(packets), kind);
    }
}
