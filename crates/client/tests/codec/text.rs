//! The text protocol. The answers are those of doc/protocol.txt and of memcached 1.6.18.

use larder_client::codec::{Arith, Delete, Get, Mode, Pipeline, Protocol, Store, Touch, ViolationKind};

use crate::talk::{expect_events, expect_violation};

type Text = Pipeline<u32>;

/// A pipeline that has asked, and what it sent.
fn ask(asks: &[fn(&mut Text, &mut Vec<u8>)]) -> (Text, String) {
    let (mut pipeline, mut output) = (Pipeline::new(Protocol::Text), Vec::new());
    for ask in asks {
        ask(&mut pipeline, &mut output);
    }
    (pipeline, String::from_utf8(output).expect("it is text"))
}

const GET: fn(&mut Text, &mut Vec<u8>) = |text, out| text.get(out, &Get::default(), b"a", 1);
const SET: fn(&mut Text, &mut Vec<u8>) =
    |text, out| text.store(out, &Store { key: b"a", value: &[b"x"], ..Store::default() }, Some(2));
const MULTI: fn(&mut Text, &mut Vec<u8>) =
    |text, out| text.multi_get(out, &Get::default(), ["a", "b", "b", "c"], 3);

#[test]
fn requests_are_lines() {
    let get = |with_cas, exptime| Get { with_cas, exptime, ..Get::default() };
    let mut text = Text::new(Protocol::Text);
    let mut out = Vec::new();
    text.get(&mut out, &get(false, None), b"k", 0);
    text.get(&mut out, &get(true, None), b"k", 0);
    text.get(&mut out, &get(false, Some(-1)), b"k", 0);
    text.multi_get(&mut out, &get(true, Some(60)), ["k", "l"], 0);
    assert_eq!(out, b"get k\r\ngets k\r\ngat -1 k\r\ngats 60 k l\r\n");

    out.clear();
    let store =
        Store { key: b"k", value: &[b"hel", b"lo"], client_flags: 7, exptime: 60, ..Store::default() };
    for mode in [Mode::Set, Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend] {
        text.store(&mut out, &Store { mode, ..store }, Some(0));
    }
    text.store(&mut out, &Store { compare: Some(u64::MAX), ..store }, None);
    let expected = "set k 7 60 5\r\nhello\r\nadd k 7 60 5\r\nhello\r\nreplace k 7 60 5\r\nhello\r\n\
                    append k 7 60 5\r\nhello\r\nprepend k 7 60 5\r\nhello\r\n\
                    cas k 7 60 5 18446744073709551615 noreply\r\nhello\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);

    out.clear();
    for tag in [Some(0), None] {
        text.delete(&mut out, &Delete { key: b"k", ..Delete::default() }, tag);
        text.arith(&mut out, &Arith { key: b"k", delta: 3, ..Arith::default() }, tag);
        text.arith(&mut out, &Arith { key: b"k", delta: 3, decrement: true, ..Arith::default() }, tag);
        text.touch(&mut out, &Touch { key: b"k", exptime: -1, ..Touch::default() }, tag);
        text.flush_all(&mut out, 0, tag);
        text.flush_all(&mut out, 5, tag);
    }
    let loud = "delete k\r\nincr k 3\r\ndecr k 3\r\ntouch k -1\r\nflush_all\r\nflush_all 5\r\n";
    let expected = loud.to_owned() + &loud.replace("\r\n", " noreply\r\n");
    assert_eq!(String::from_utf8_lossy(&out), expected);

    // Servers read 32 bits: a later one would be past, and the flush be made at once.
    out.clear();
    text.flush_all(&mut out, u32::MAX, Some(0));
    text.flush_prefix(&mut out, b"p", u32::MAX, Some(0));
    let expected = "flush_all 2147483647\r\nflush_prefix p 2147483647\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);

    // Servers read no later times, and some refuse them without the value, which is then taken for commands.
    out.clear();
    let times = [(i64::MAX, i32::MAX), (i64::MIN, i32::MIN), (u32::MAX.into(), i32::MAX), (-1, -1)];
    for (exptime, sent) in times {
        text.get(&mut out, &get(false, Some(exptime)), b"k", 0);
        text.store(&mut out, &Store { exptime, ..store }, Some(0));
        text.touch(&mut out, &Touch { key: b"k", exptime, ..Touch::default() }, Some(0));
        let expected = format!("gat {sent} k\r\nset k 7 {sent} 5\r\nhello\r\ntouch k {sent}\r\n");
        assert_eq!(String::from_utf8_lossy(&out), expected);
        out.clear();
    }

    out.clear();
    text.version(&mut out, 0);
    text.noop(&mut out, 0);
    text.stats(&mut out, b"", 0);
    text.stats(&mut out, b"items", 0);
    text.login(&mut out, "ann", "pass word", 0);
    text.verbosity(&mut out, 2, 0);
    text.quit(&mut out);
    let expected = "version\r\nversion\r\nstats\r\nstats items\r\nset login 0 0 13\r\nann pass word\r\n\
        verbosity 2\r\nquit\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

#[test]
fn answers_may_be_cut_anywhere() {
    let make = || {
        ask(&[
            GET,
            SET,
            MULTI,
            GET,
            |text, out| text.get(out, &Get { with_cas: true, ..Get::default() }, b"a", 4),
            |text, out| text.store(out, &Store { mode: Mode::Add, key: b"a", ..Store::default() }, Some(5)),
            |text, out| text.store(out, &Store { key: b"a", compare: Some(1), ..Store::default() }, Some(6)),
            |text, out| text.store(out, &Store { key: b"a", compare: Some(1), ..Store::default() }, Some(7)),
            |text, out| text.delete(out, &Delete { key: b"a", ..Delete::default() }, Some(8)),
            |text, out| text.arith(out, &Arith { key: b"a", delta: 1, ..Arith::default() }, Some(9)),
            |text, out| text.touch(out, &Touch { key: b"a", ..Touch::default() }, Some(10)),
            |text, out| text.flush_all(out, 0, Some(11)),
            |text, out| text.version(out, 12),
            |text, out| text.noop(out, 13),
            |text, out| text.stats(out, b"", 14),
            |text, out| text.stats(out, b"reset", 15),
            |text, out| text.login(out, "ann", "wrong", 16),
            |text, out| text.login(out, "ann", "right", 17),
            |text, out| text.verbosity(out, 1, 18),
        ])
        .0
    };
    let input = b"VALUE a 5 7\r\nx\r\nEND\r\r\nEND\r\n\
        STORED\r\n\
        VALUE a 0 0\r\n\r\nVALUE b 4294967295 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\n\
        END\r\n\
        VALUE a 0 1 18446744073709551615\r\nx\r\nEND\r\n\
        NOT_STORED\r\nEXISTS\r\nNOT_FOUND\r\nDELETED\r\n18446744073709551615\r\nTOUCHED\r\nOK\r\n\
        VERSION 1.6.18\r\nVERSION 1.6.18\r\n\
        STAT pid 17\r\nSTAT libevent 2.1.12 stable\r\nSTAT empty \r\n\
        ITEM a [1 b; 0 s]\r\nPREFIX a get 1 hit 0 set 0 del 0\r\nEND\r\nRESET\r\n\
        CLIENT_ERROR authentication failure\r\nSTORED\r\nOK\r\n";
    expect_events(
        make,
        input,
        &[
            "value 0 \"x\\r\\nEND\\r\" flags 5 cas None []",
            "1 Found { hits: 1, keys: 1 }",
            "2 Stored { cas: None }",
            "value 0 \"\" flags 0 cas None []",
            "value 1 \"1\" flags 4294967295 cas None []",
            "value 2 \"2\" flags 0 cas None []",
            "3 Found { hits: 3, keys: 4 }",
            "1 Found { hits: 0, keys: 1 }",
            "value 0 \"x\" flags 0 cas Some(18446744073709551615) []",
            "4 Found { hits: 1, keys: 1 }",
            "5 NotStored",
            "6 Exists",
            "7 NotFound",
            "8 Deleted",
            "9 Number(18446744073709551615)",
            "10 Touched",
            "11 Ok",
            "12 version 1.6.18",
            "13 Ok",
            "stat pid=17",
            "stat libevent=2.1.12 stable",
            "stat empty=",
            "stat a=[1 b; 0 s]",
            "stat a=get 1 hit 0 set 0 del 0",
            "14 Ok",
            "15 Ok",
            "16 Unauthenticated: CLIENT_ERROR authentication failure",
            "17 LoggedIn",
            "18 Ok",
        ],
    );
}

#[test]
fn errors_answer_what_was_asked() {
    let input = b"SERVER_ERROR out of memory storing object\r\nSERVER_ERROR Out of memory during read\r\n\
        SERVER_ERROR object too large for cache\r\nVALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory writing get response\r\n\
        ERROR\r\nERROR Too many open connections\r\nCLIENT_ERROR bad data chunk\r\n\
        CLIENT_ERROR cannot increment or decrement non-numeric value\r\nEND\r\n";
    expect_events(
        || {
            ask(&[
                SET,
                SET,
                SET,
                MULTI,
                GET,
                GET,
                SET,
                |text, out| {
                    text.arith(out, &Arith { key: b"a", ..Arith::default() }, Some(9));
                },
                GET,
            ])
            .0
        },
        input,
        &[
            "2 OutOfMemory: SERVER_ERROR out of memory storing object",
            "2 OutOfMemory: SERVER_ERROR Out of memory during read",
            "2 TooLarge: SERVER_ERROR object too large for cache",
            "value 0 \"x\" flags 0 cas None []",
            "3 OutOfMemory: SERVER_ERROR out of memory writing get response",
            "1 UnknownCommand: ERROR",
            "1 Server: ERROR Too many open connections",
            "2 Client: CLIENT_ERROR bad data chunk",
            "9 NonNumeric: CLIENT_ERROR cannot increment or decrement non-numeric value",
            "1 Found { hits: 0, keys: 1 }",
        ],
    );
}

#[test]
fn what_nobody_asked_for_is_a_violation() {
    for (asks, input, kind) in [
        (&[GET][..], &b"END\r\nEND\r\n"[..], ViolationKind::Unasked),
        (&[], b"STORED\r\n", ViolationKind::Unasked),
        (&[SET], b"STORED\r\nSTORED\r\n", ViolationKind::Unasked),
        (&[GET], b"STORED\r\n", ViolationKind::WrongForm),
        (&[GET], b"EN\r\n", ViolationKind::WrongForm),
        (&[SET], b"END\r\n", ViolationKind::WrongForm),
        (&[SET], b"EXISTS\r\n", ViolationKind::WrongForm),
        (&[SET], b"VALUE a 0 1\r\nx\r\n", ViolationKind::WrongForm),
        (&[SET], b"\r\n", ViolationKind::WrongForm),
        (&[GET], b"VALUE b 0 1\r\nx\r\nEND\r\n", ViolationKind::WrongKey),
        (&[GET], b"VALUE aa 0 1\r\nx\r\nEND\r\n", ViolationKind::WrongKey),
        (&[GET], b"VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n", ViolationKind::WrongKey),
        (&[MULTI], b"VALUE b 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n", ViolationKind::WrongKey),
        // Longer and shorter than it says.
        (&[GET], b"VALUE a 0 1\r\nxyz\r\nEND\r\n", ViolationKind::Malformed),
        (&[GET], b"VALUE a 0 1\r\n\r\nEND\r\n", ViolationKind::Malformed),
        (&[GET], b"VALUE a 0 x\r\nEND\r\n", ViolationKind::Malformed),
        (&[GET], b"VALUE a 0 99999999999\r\nEND\r\n", ViolationKind::Malformed),
        (&[GET], b"VALUE a 4294967296 1\r\nx\r\n", ViolationKind::Malformed),
        (&[GET], b"END\n", ViolationKind::Malformed),
        (&[GET], &[b'x'; 20_000], ViolationKind::Malformed),
    ] {
        let cut_everywhere = input.len() < 100;
        if cut_everywhere {
            expect_violation(|| ask(asks).0, input, kind);
        } else {
            assert_eq!(
                crate::talk::events(ask(asks).0, input, &[]).expect_err("no line is so long").kind,
                kind
            );
        }
    }
}

#[test]
fn noreply_is_not_waited_for() {
    let quiet: fn(&mut Text, &mut Vec<u8>) =
        |text, out| text.store(out, &Store { key: b"a", ..Store::default() }, None);
    let (pipeline, sent) = ask(&[quiet, GET]);
    assert_eq!(sent, "set a 0 0 0 noreply\r\n\r\nget a\r\n");
    assert_eq!((pipeline.len(), pipeline.front()), (1, Some(&1)));
}

#[test]
fn a_large_value_is_looked_at_again_only_when_it_is_whole() {
    let (mut pipeline, _) = ask(&[GET]);
    let mut input = &b"VALUE a 0 1000000\r\nxxx"[..];
    assert_eq!(pipeline.receive(&mut input), Ok(None));
    assert_eq!(pipeline.needed_bytes(), b"VALUE a 0 1000000\r\n".len() + 1_000_000 + 2);
}
