//! The meta protocol. The answers are those of doc/protocol.txt and of memcached 1.6.18.

use larder_client::codec::{Arith, Delete, Get, Mode, Pipeline, Protocol, Store, Touch, ViolationKind};

use crate::talk::{expect_events, expect_violation};

type Meta = Pipeline<u32>;
type Ask = fn(&mut Meta, &mut Vec<u8>);

/// A pipeline that has asked, and what it sent.
fn ask(asks: &[Ask]) -> (Meta, String) {
    let (mut pipeline, mut output) = (Pipeline::new(Protocol::Meta), Vec::new());
    for ask in asks {
        ask(&mut pipeline, &mut output);
    }
    (pipeline, String::from_utf8(output).expect("it is text"))
}

const GET: Ask = |meta, out| meta.get(out, &Get::default(), b"a", 1);
const GET_WITH_KEY: Ask =
    |meta, out| meta.get(out, &Get { meta_flags: b"k Oxy t", ..Get::default() }, b"a", 1);
const SET: Ask =
    |meta, out| meta.store(out, &Store { key: b"a", value: &[b"x"], ..Store::default() }, Some(2));
const QUIET_SET: Ask =
    |meta, out| meta.store(out, &Store { key: b"a", value: &[b"x"], ..Store::default() }, None);
const MULTI: Ask = |meta, out| meta.multi_get(out, &Get::default(), ["a", "b", "b", "c"], 3);
const INCR: Ask = |meta, out| meta.arith(out, &Arith { key: b"a", delta: 2, ..Arith::default() }, Some(4));
const TOUCH: Ask =
    |meta, out| meta.touch(out, &Touch { key: b"a", exptime: 60, ..Touch::default() }, Some(5));
const DELETE: Ask = |meta, out| meta.delete(out, &Delete { key: b"a", ..Delete::default() }, Some(6));
const QUIET_DELETE: Ask = |meta, out| meta.delete(out, &Delete { key: b"a", ..Delete::default() }, None);
const NOOP: Ask = |meta, out| meta.noop(out, 7);
const VERSION: Ask = |meta, out| meta.version(out, 8);

#[test]
fn requests_are_lines() {
    let (_, sent) = ask(&[
        GET,
        GET_WITH_KEY,
        |meta, out| meta.get(out, &Get { with_cas: true, exptime: Some(-1), meta_flags: b"f c" }, b"a", 0),
        MULTI,
        SET,
        QUIET_SET,
        |meta, out| {
            let store = Store {
                mode: Mode::Append,
                key: b"a",
                value: &[b"x", b"yz"],
                client_flags: 7,
                exptime: 60,
                compare: Some(9),
                meta_flags: b"c",
            };
            meta.store(out, &store, Some(0));
        },
        INCR,
        |meta, out| {
            let arith =
                Arith { key: b"a", delta: 3, decrement: true, initial: Some((5, 60)), ..Arith::default() };
            meta.arith(out, &arith, None);
        },
        TOUCH,
        DELETE,
        |meta, out| meta.delete(out, &Delete { key: b"a", compare: Some(9), meta_flags: b"I" }, None),
        NOOP,
        VERSION,
    ]);
    let expected = "mg a v f\r\nmg a v f k Oxy t\r\nmg a v T-1 f c\r\n\
        mg a v f k q\r\nmg b v f k q\r\nmg b v f k q\r\nmg c v f k q\r\nmn\r\n\
        ms a 1\r\nx\r\nms a 1 q Oq\r\nx\r\nms a 3 F7 T60 MA C9 c\r\nxyz\r\n\
        ma a v D2\r\nma a v D3 MD N60 J5 q Oq\r\nmg a T60\r\nmd a\r\nmd a C9 q Od I\r\nmn\r\nversion\r\n";
    assert_eq!(sent, expected);

    const LATE: i64 = i32::MAX as i64 + 1;
    let (_, sent) = ask(&[
        |meta, out| meta.get(out, &Get { exptime: Some(LATE), ..Get::default() }, b"a", 0),
        |meta, out| {
            let store = Store { key: b"a", value: &[b"x"], exptime: LATE, ..Store::default() };
            meta.store(out, &store, Some(0));
        },
        |meta, out| {
            meta.arith(out, &Arith { key: b"a", initial: Some((5, LATE)), ..Arith::default() }, Some(0))
        },
        |meta, out| meta.touch(out, &Touch { key: b"a", exptime: LATE, ..Touch::default() }, Some(0)),
    ]);
    let expected = "mg a v f T2147483647\r\nms a 1 T2147483647\r\nx\r\n\
        ma a v D0 N2147483647 J5\r\nmg a T2147483647\r\n";
    assert_eq!(sent, expected);
}

#[test]
fn answers_may_be_cut_anywhere() {
    let input = b"VA 5 f7\r\nx\r\nEN\r\nEN\r\nVA 0 f0 ka Oxy t-1\r\n\r\nEN ka Oxy\r\n\
        VA 1 f1 ka W\r\n1\r\nVA 2 f2 kb\r\n22\r\nMN\r\nMN\r\n\
        HD\r\nHD c17\r\nNS\r\nEX\r\nNF\r\n\
        VA 2\r\n10\r\nVA 20\r\n18446744073709551615\r\nNF\r\n\
        HD\r\nEN\r\nHD\r\nNF\r\nMN\r\nVERSION 1.6.18\r\n";
    let asks = [
        GET,
        GET,
        GET_WITH_KEY,
        GET_WITH_KEY,
        MULTI,
        MULTI,
        SET,
        SET,
        SET,
        SET,
        SET,
        INCR,
        INCR,
        INCR,
        TOUCH,
        TOUCH,
        DELETE,
        DELETE,
        NOOP,
        VERSION,
    ];
    expect_events(
        || ask(&asks).0,
        input,
        &[
            "value 0 \"x\\r\\nEN\" flags 7 cas None [f7]",
            "1 Found { hits: 1, keys: 1 }",
            "1 Found { hits: 0, keys: 1 }",
            "value 0 \"\" flags 0 cas None [f0 ka Oxy t-1]",
            "1 Found { hits: 1, keys: 1 }",
            "1 Found { hits: 0, keys: 1 }",
            "value 0 \"1\" flags 1 cas None [f1 ka W]",
            "value 1 \"22\" flags 2 cas None [f2 kb]",
            "3 Found { hits: 2, keys: 4 }",
            "3 Found { hits: 0, keys: 4 }",
            "2 Stored { cas: None }",
            "2 Stored { cas: Some(17) }",
            "2 NotStored",
            "2 Exists",
            "2 NotFound",
            "4 Number(10)",
            "4 Number(18446744073709551615)",
            "4 NotFound",
            "5 Touched",
            "5 NotFound",
            "6 Deleted",
            "6 NotFound",
            "7 Ok",
            "8 version 1.6.18",
        ],
    );
}

#[test]
fn keys_in_base64_are_understood() {
    // A key that was stored as `YQ==` in base64 is `a`; memcached shows it so to everybody.
    expect_events(
        || ask(&[MULTI, GET]).0,
        b"VA 1 f0 kYg== b\r\nx\r\nMN\r\nEN\r\n",
        &[
            "value 1 \"x\" flags 0 cas None [f0 kYg== b]",
            "3 Found { hits: 1, keys: 4 }",
            "1 Found { hits: 0, keys: 1 }",
        ],
    );
}

#[test]
fn failures_of_quiet_requests_are_told_from_answers() {
    expect_events(
        || ask(&[QUIET_SET, QUIET_SET, SET, QUIET_SET, QUIET_SET, NOOP, QUIET_SET]).0,
        b"NS Oq\r\nEX\r\nSERVER_ERROR out of memory storing object\r\nMN\r\nNF Oq\r\n",
        &[
            "quiet NotStored",
            "2 Exists",
            "quiet OutOfMemory: SERVER_ERROR out of memory storing object",
            "7 Ok",
            "quiet NotFound",
        ],
    );
    // To delete what is not there is no failure, and the deletes that succeed are not answered.
    expect_events(
        || ask(&[QUIET_DELETE, QUIET_SET, QUIET_DELETE, DELETE, QUIET_DELETE, GET, QUIET_DELETE]).0,
        b"NF Od\r\nNS Oq\r\nNF\r\nEX Od\r\nEN\r\nNF Od\r\n",
        &["quiet NotStored", "6 NotFound", "quiet Exists", "1 Found { hits: 0, keys: 1 }"],
    );
    // Of a multi-get a key may fail, and the others are told.
    expect_events(
        || ask(&[MULTI]).0,
        b"VA 1 f0 ka\r\nx\r\nSERVER_ERROR out of memory writing get response\r\nVA 1 f0 kc\r\ny\r\nMN\r\n",
        &[
            "value 0 \"x\" flags 0 cas None [f0 ka]",
            "key failed SERVER_ERROR out of memory writing get response",
            "value 3 \"y\" flags 0 cas None [f0 kc]",
            "3 Found { hits: 2, keys: 4 }",
        ],
    );
    let error = b"SERVER_ERROR out of memory storing object\r\n";
    expect_violation(|| ask(&[QUIET_SET, SET]).0, error, ViolationKind::Ambiguous);
    expect_violation(|| ask(&[SET, QUIET_SET]).0, b"HD\r\nNS Oq\r\nNS Oq\r\n", ViolationKind::Unasked);
    expect_violation(|| ask(&[GET]).0, b"NS Oq\r\n", ViolationKind::WrongForm);
    // More deletes than were sent find nothing; or it is a number that no request has.
    expect_violation(|| ask(&[QUIET_SET, GET]).0, b"NF Od\r\n", ViolationKind::WrongForm);
    expect_violation(
        || ask(&[QUIET_DELETE, QUIET_SET, GET]).0,
        b"NF Od\r\nNF Od\r\n",
        ViolationKind::WrongForm,
    );
    expect_violation(|| ask(&[QUIET_DELETE, GET]).0, b"NF Ox\r\n", ViolationKind::WrongForm);
    expect_violation(|| ask(&[QUIET_DELETE]).0, b"NF Od\r\nNF Od\r\n", ViolationKind::Unasked);
}

#[test]
fn what_nobody_asked_for_is_a_violation() {
    for (asks, input, kind) in [
        (&[GET][..], &b"EN\r\nEN\r\n"[..], ViolationKind::Unasked),
        (&[], b"HD\r\n", ViolationKind::Unasked),
        (&[GET], b"VA 1 f0\r\nx\r\nVA 1 f0\r\nx\r\n", ViolationKind::Unasked),
        (&[GET, GET], b"VA 1 f0\r\nx\r\nMN\r\n", ViolationKind::WrongForm),
        (&[GET], b"NF\r\n", ViolationKind::WrongForm),
        (&[GET], b"END\r\n", ViolationKind::WrongForm),
        (&[GET], b"\r\n", ViolationKind::WrongForm),
        (&[SET], b"EN\r\n", ViolationKind::WrongForm),
        (&[SET], b"VA 1\r\nx\r\n", ViolationKind::WrongForm),
        (&[SET], b"STORED\r\n", ViolationKind::WrongForm),
        (&[NOOP], b"HD\r\n", ViolationKind::WrongForm),
        // Every get asks for the value (`v`).
        (&[GET], b"HD\r\n", ViolationKind::WrongForm),
        (&[MULTI], b"HD f0 ka\r\n", ViolationKind::WrongForm),
        (&[GET_WITH_KEY], b"VA 1 f0 kb Oxy t-1\r\nx\r\n", ViolationKind::WrongKey),
        (&[MULTI], b"VA 1 f0 kb\r\nx\r\nVA 1 f0 ka\r\nx\r\nMN\r\n", ViolationKind::WrongKey),
        (&[MULTI], b"VA 1 f0\r\nx\r\nMN\r\n", ViolationKind::WrongKey),
        (&[MULTI], b"VA 1 f0 k?? b\r\nx\r\nMN\r\n", ViolationKind::WrongKey),
        (&[GET], b"VA 1 f0\r\nxyz\r\n", ViolationKind::Malformed),
        (&[GET], b"VA x f0\r\nx\r\n", ViolationKind::Malformed),
        (&[GET], b"VA 1 fx\r\nx\r\n", ViolationKind::Malformed),
        (&[GET], b"VA 1 f4294967296\r\nx\r\n", ViolationKind::Malformed),
        (&[GET], b"VA 1 f0 cx\r\nx\r\n", ViolationKind::Malformed),
        (&[GET], b"VA\r\nx\r\n", ViolationKind::Malformed),
        (&[INCR], b"VA 1\r\nx\r\n", ViolationKind::Malformed),
    ] {
        expect_violation(|| ask(asks).0, input, kind);
    }
}

/// The same, with an opaque on every request.
fn ask_numbered(asks: &[Ask]) -> (Meta, String) {
    let (mut pipeline, mut output) = (Pipeline::with_opaques(Protocol::Meta), Vec::new());
    for ask in asks {
        ask(&mut pipeline, &mut output);
    }
    (pipeline, String::from_utf8(output).expect("it is text"))
}

#[test]
fn with_opaques_every_request_has_its_number() {
    let (_, sent) = ask_numbered(&[GET, SET, QUIET_SET, MULTI, INCR, TOUCH, DELETE, NOOP]);
    assert_eq!(
        sent,
        "mg a v f O0\r\nms a 1 O1\r\nx\r\nms a 1 q Oq\r\nx\r\n\
         mg a v f O2\r\nmg b v f O3\r\nmg b v f O4\r\nmg c v f O5\r\n\
         ma a v D2 O6\r\nmg a T60 O7\r\nmd a O8\r\nmn\r\n"
    );
    let (_, sent) = ask_numbered(&[|meta, out| meta.multi_get(out, &Get::default(), [""; 0], 3)]);
    assert_eq!(sent, "mn\r\n");
}

#[test]
fn with_opaques_replies_are_found_by_their_numbers() {
    expect_events(
        || ask_numbered(&[GET, SET, MULTI, INCR, TOUCH, DELETE, NOOP]).0,
        b"VA 1 f7 O0\r\nx\r\nHD O1\r\nEN O2\r\nVA 1 f0 O3\r\ny\r\nEN O4\r\nEN O5\r\n\
          VA 2 O6\r\n44\r\nHD O7\r\nNF O8\r\nMN\r\n",
        &[
            "value 0 \"x\" flags 7 cas None [f7 O0]",
            "1 Found { hits: 1, keys: 1 }",
            "2 Stored { cas: None }",
            "value 1 \"y\" flags 0 cas None [f0 O3]",
            "3 Found { hits: 1, keys: 4 }",
            "4 Number(44)",
            "5 Touched",
            "6 NotFound",
            "7 Ok",
        ],
    );
    // The last key ends a multi-get by its value, too, and one may fail.
    expect_events(
        || ask_numbered(&[MULTI, GET]).0,
        b"VA 1 f0 O0\r\nx\r\nEN O1\r\nSERVER_ERROR no\r\nVA 1 f0 O3\r\ny\r\nEN O4\r\n",
        &[
            "value 0 \"x\" flags 0 cas None [f0 O0]",
            "key failed SERVER_ERROR no",
            "value 3 \"y\" flags 0 cas None [f0 O3]",
            "3 Found { hits: 2, keys: 4 }",
            "1 Found { hits: 0, keys: 1 }",
        ],
    );
    expect_events(
        || ask_numbered(&[MULTI]).0,
        b"EN O0\r\nEN O1\r\nEN O2\r\nSERVER_ERROR no\r\n",
        &["key failed SERVER_ERROR no", "3 Found { hits: 0, keys: 4 }"],
    );
    // Quiet requests keep theirs, which no other request has.
    expect_events(
        || ask_numbered(&[QUIET_SET, SET]).0,
        b"NS Oq\r\nNS O0\r\n",
        &["quiet NotStored", "2 NotStored"],
    );
}

#[test]
fn a_new_connection_has_numbers_as_the_one_before() {
    let mut output = Vec::new();
    let mut pipeline = Pipeline::with_opaques(Protocol::Meta);
    pipeline.get(&mut output, &Get::default(), b"a", 1);
    assert_eq!(pipeline.reset().collect::<Vec<_>>(), [1]);
    output.clear();
    pipeline.get(&mut output, &Get::default(), b"a", 2);
    assert_eq!(String::from_utf8_lossy(&output), "mg a v f O0\r\n");
}

#[test]
fn with_opaques_no_reply_is_taken_for_anothers() {
    for (asks, input) in [
        (&[GET, GET][..], &b"VA 1 f0 O1\r\nx\r\n"[..]),
        (&[GET, GET], b"EN O0\r\nEN O0\r\n"),
        (&[GET], b"EN\r\n"),
        (&[GET], b"VA 1 f0\r\nx\r\n"),
        (&[SET, SET], b"HD O1\r\n"),
        (&[SET], b"HD\r\n"),
        (&[SET], b"HD Oq\r\n"),
        (&[DELETE, DELETE], b"NF O1\r\n"),
        (&[TOUCH, TOUCH], b"HD O1\r\n"),
        (&[INCR, INCR], b"VA 1 O1\r\n5\r\n"),
        // A key of a multi-get twice, too early, or of another request.
        (&[MULTI], b"VA 1 f0 O0\r\nx\r\nVA 1 f0 O0\r\nx\r\n"),
        (&[MULTI], b"EN O1\r\n"),
        (&[MULTI], b"EN O0\r\nEN O3\r\n"),
        (&[MULTI], b"VA 1 f0 O4\r\nx\r\n"),
        (&[GET, MULTI], b"EN O0\r\nVA 1 f0 O0\r\nx\r\n"),
    ] {
        expect_violation(|| ask_numbered(asks).0, input, ViolationKind::WrongOpaque);
    }
    // The end of a quiet multi-get.
    expect_violation(|| ask_numbered(&[MULTI]).0, b"MN\r\n", ViolationKind::WrongForm);
}
