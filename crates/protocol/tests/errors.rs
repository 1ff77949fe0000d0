//! Requests that cannot be understood, and the exact words that say so (memcached, doc/protocol.txt and its behaviour).

#![allow(clippy::unwrap_used)]

use larder_protocol::text;
use larder_protocol::{Command, Form, Parsed, Reply, Request, Sink};

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

/// What a malformed line is answered with, and how many bytes after it are to be swallowed. `None`: it is well formed.
fn refusal(line: &str) -> Option<(String, u32)> {
    let Parsed::Request { request, head_bytes: line_bytes } = text::parse(line.as_bytes(), 0) else {
        panic!("no request: {line:?}");
    };
    assert_eq!(line_bytes, line.len(), "{line:?}");
    let Command::Malformed(malformed) = request.command else { return None };
    let mut bytes = Bytes(Vec::new());
    request.form.encode(&Reply::Error(malformed.error), &mut bytes);
    Some((String::from_utf8(bytes.0).unwrap(), malformed.swallow_bytes))
}

fn assert_refused(line: &str, reply: &str, swallow_bytes: u32) {
    assert_eq!(refusal(line), Some((format!("{reply}\r\n"), swallow_bytes)), "{line:?}");
}

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";

#[test]
fn short_lines_and_short_commands() {
    let key = "k".repeat(251);
    for line in ["\r\n", "a\r\n", " \n", "\n", "mn\n"] {
        assert_refused(line, BAD_FORMAT, 0);
    }
    for line in [
        "get",
        "gets",
        "gat",
        "gat 1",
        "gats 1",
        "set",
        "set k 0 0",
        "cas k 0 0",
        "incr k",
        "decr k",
        "touch k",
        "delete",
        "mg",
        "md",
        "ma",
        "me",
        "ms",
        "ms k",
        "verbosity",
        "verbosity x",
        "get  ",
    ] {
        assert_refused(&format!("{line}\r\n"), BAD_FORMAT, 0);
    }
    for line in [
        "get @",
        "get a b c @",
        "gets @ a",
        "gat 0 @",
        "delete @",
        "incr @ 1",
        "touch @ 1",
        "mg @",
        "md @",
        "me @",
    ] {
        assert_refused(&format!("{}\r\n", line.replace('@', &key)), BAD_FORMAT, 0);
    }
    for line in ["ab", "bogus", "GET k", "Set k 0 0 1", " get k", "get\tk", "GET /", "HTTP/1.1", "    "] {
        assert_refused(&format!("{line}\r\n"), "ERROR", 0);
    }
}

#[test]
fn once_the_length_is_known_the_value_is_swallowed() {
    let key = "k".repeat(251);
    for length in ["-1", "x", "", "2147483646", "4294967296", "1.5", "+1"] {
        assert_refused(&format!("set k 0 0 {length}\r\n"), BAD_FORMAT, 0);
        assert_refused(&format!("set k 0 0 {length} noreply\r\n"), BAD_FORMAT, 0);
        assert_refused(&format!("ms k {length}\r\n"), BAD_FORMAT, 0);
    }
    assert!(refusal("set k 0 0 2147483645\r\n").is_none());
    for command in ["set", "add", "replace", "append", "prepend"] {
        for line in ["@ 0 0 5", "k -1 0 5", "k x 0 5", "k 4294967296 0 5", "k 0 x 5", "k 0 1x 5"] {
            let line = format!("{command} {}", line.replace('@', &key));
            assert_refused(&format!("{line}\r\n"), BAD_FORMAT, 7);
            assert_eq!(refusal(&format!("{line} noreply\r\n")), Some((String::new(), 7)));
        }
    }
    for line in ["cas k 0 0 5", "cas k 0 0 5 x", "cas k 0 0 5 -1", "cas k 0 0 5 18446744073709551616"] {
        assert_refused(&format!("{line}\r\n"), BAD_FORMAT, 7);
    }
    assert_eq!(refusal("cas k 0 0 5 noreply\r\n"), Some((String::new(), 7)));
    assert_refused(&format!("ms {key} 5\r\n"), BAD_FORMAT, 7);
    assert_refused("ms k 5 T\r\n", "CLIENT_ERROR bad token in command line format", 7);
    assert_refused("ms k 5 MX q\r\n", "CLIENT_ERROR invalid mode for ms M token", 7);
    assert_refused("ms k 5 M\r\n", "CLIENT_ERROR invalid mode for ms M token", 7);
    assert_refused("ms k S2\r\n", BAD_FORMAT, 0);
}

#[test]
fn bad_numbers() {
    for line in ["gat x k", "gat 2147483648 k", "gat +1 k", "touch k x", "touch k 99999999999"] {
        assert_refused(&format!("{line}\r\n"), "CLIENT_ERROR invalid exptime argument", 0);
    }
    for line in ["incr k x", "incr k -1", "incr k +1", "decr k 18446744073709551616", "incr k 1e3"] {
        assert_refused(&format!("{line}\r\n"), "CLIENT_ERROR invalid numeric delta argument", 0);
    }
    assert!(refusal("incr k 18446744073709551615\r\n").is_none());
    // flush_all counts such attempts, so they reach the server.
    assert!(refusal("flush_all x\r\n").is_none());
}

#[test]
fn noreply_silences_errors_too() {
    for line in
        ["bogus noreply", "incr k x noreply", "incr k noreply", "touch k x noreply", "verbosity noreply"]
    {
        assert_eq!(refusal(&format!("{line}\r\n")), Some((String::new(), 0)), "{line}");
    }
    for line in ["touch noreply", "incr noreply", "set noreply", "mg k noreply"] {
        assert!(!refusal(&format!("{line}\r\n")).unwrap().0.is_empty(), "{line}");
    }
}

#[test]
fn noreply_is_the_last_of_the_first_23_words() {
    let is_noreply = |line: String| {
        let Parsed::Request { request, .. } = text::parse(line.as_bytes(), 0) else { panic!("{line:?}") };
        request.form.is_noreply()
    };
    let words = |n: usize| "x ".repeat(n);
    assert!(is_noreply("delete noreply\r\n".to_owned()));
    assert!(is_noreply(format!("delete k {}noreply \r\n", words(20))));
    assert!(!is_noreply(format!("delete k {}noreply\r\n", words(21))));
    for line in
        ["get k noreply", "gat 0 k noreply", "version noreply", "stats noreply", "quit noreply", "mn noreply"]
    {
        assert!(!is_noreply(format!("{line}\r\n")), "{line}");
    }
    for line in [
        "set k 0 0 1",
        "add k 0 0 1",
        "replace k 0 0 1",
        "append k 0 0 1",
        "prepend k 0 0 1",
        "cas k 0 0 1 1",
        "delete k",
        "incr k 1",
        "decr k 1",
        "flush_all",
        "flush_all 1",
        "verbosity 1",
        "touch k 1",
    ] {
        assert!(is_noreply(format!("{line} noreply\r\n")), "{line}");
        assert!(!is_noreply(format!("{line}\r\n")), "{line}");
    }
}

#[test]
fn meta_flags() {
    for (line, reply) in [
        ("mg k v v", "CLIENT_ERROR duplicate flag"),
        ("mg k O1 O2", "CLIENT_ERROR duplicate flag"),
        ("mg k S", "CLIENT_ERROR invalid flag"),
        ("mg k m", "CLIENT_ERROR invalid flag"),
        ("mg k 1", "CLIENT_ERROR invalid flag"),
        ("mg k !", BAD_FORMAT),
        ("mg k v \u{7f}", BAD_FORMAT),
        ("mg k N", "CLIENT_ERROR bad token in command line format"),
        ("mg k Tx", "CLIENT_ERROR bad token in command line format"),
        ("mg k R2147483648", "CLIENT_ERROR bad token in command line format"),
        ("mg k C", "CLIENT_ERROR bad token in command line format"),
        ("mg k E-1", "CLIENT_ERROR bad token in command line format"),
        ("md k x F4294967296", BAD_FORMAT),
        ("mg k Jx", "CLIENT_ERROR invalid numeric initial value"),
        ("mg k D", "CLIENT_ERROR invalid numeric delta value"),
        ("mg k O12345678901234567890123456789012", "CLIENT_ERROR opaque token too long"),
        ("mg k b", "CLIENT_ERROR error decoding key"),
        ("mg YQ= b", "CLIENT_ERROR error decoding key"),
        ("mg !!!! b", "CLIENT_ERROR error decoding key"),
        ("mg YQ\0Bi b", "CLIENT_ERROR error decoding key"),
        ("mg \0YQBi b", "CLIENT_ERROR error decoding key"),
        ("mg k a b c d e f g h i j k l m n o p q r s", "CLIENT_ERROR options flags are too long"),
        ("ma k v v", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k S", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k D", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k T", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k MX", "CLIENT_ERROR invalid mode for ma M token"),
        ("ma k Mi", "CLIENT_ERROR invalid mode for ma M token"),
        ("ma k M", "CLIENT_ERROR invalid mode for ma M token"),
    ] {
        assert_refused(&format!("{line}\r\n"), reply, 0);
    }
    let long = format!("ma {}\r\n", "k".repeat(251));
    assert_refused(&long, "CLIENT_ERROR invalid or duplicate flag", 0);
    for line in [
        "mg k I",
        "md k v",
        "mg k P L Pproxy1",
        "mg k b c C1 D1 E1 f F1 h I J1 k l LL MX N1",
        "mg k O P R1 q s t T1 u v x",
        "mg k O1234567890123456789012345678901",
        "md k T",
        "mg YQ== b",
        "mg Y.Q=-= b",
    ] {
        let refused = refusal(&format!("{line}\r\n"));
        match line {
            // P twice; base64 of a key that is none; T without a number.
            "mg k P L Pproxy1" | "mg k b c C1 D1 E1 f F1 h I J1 k l LL MX N1" | "md k T" => {
                assert!(refused.is_some())
            }
            _ => assert_eq!(refused, None, "{line}"),
        }
    }
    assert!(refusal("ms k 2 v\r\n").is_none());
    assert!(refusal("ms k 2 MSx\r\n").is_none());
}

#[test]
fn lines_without_end() {
    let input = |head: &str, length: usize| {
        let mut input = head.as_bytes().to_vec();
        input.resize(length, b'x');
        input
    };
    assert_eq!(text::parse(&input("set ", 2048), 0), Parsed::NeedInput);
    assert_eq!(text::parse(&input("set ", 2049), 0), Parsed::Close);
    assert_eq!(text::parse(&input("gat 0 ", 2049), 0), Parsed::Close);
    assert_eq!(text::parse(&input("mg ", 2049), 0), Parsed::Close);
    assert_eq!(text::parse(&input("get ", 1 << 20), 0), Parsed::NeedInput);
    assert_eq!(text::parse(&input("gets ", 16 << 20), 0), Parsed::NeedInput);
    assert_eq!(text::parse(&input("gets ", (16 << 20) + 1), 0), Parsed::Close);
    assert_eq!(text::parse(&input(&format!("{}get ", " ".repeat(100)), 4096), 0), Parsed::NeedInput);
    assert_eq!(text::parse(&input(&format!("{}get ", " ".repeat(101)), 4096), 0), Parsed::Close);
    // One that has ended is not too long, whatever its length.
    let mut line = input("delete k ", 10_000);
    line.extend_from_slice(b"\r\n");
    assert!(matches!(text::parse(&line, 0), Parsed::Request { .. }));
}

/// memcached, `process_get_command`: each key is judged by its own length, however many there are and wherever it
/// stands.
#[test]
fn one_of_many_keys_is_too_long() {
    let line = |lengths: &[usize], space: &str| {
        let keys = lengths.iter().map(|&bytes| format!("{space}{}", "k".repeat(bytes)));
        format!("get{}\r\n", keys.collect::<String>())
    };
    let counted = |line: &str| match text::parse(line.as_bytes(), 0) {
        Parsed::Request { request: Request { command: Command::Get(get), .. }, .. } => Some(get.keys.count()),
        _ => None,
    };
    for at in 0..30 {
        for bytes in [249, 250, 251, 252, 500] {
            let mut lengths: Vec<usize> = (0..30).map(|n| 1 + n * 37 % 250).collect();
            lengths[at] = bytes;
            let expected = (bytes <= 250).then_some(30);
            for space in [" ", "   "] {
                assert_eq!(counted(&line(&lengths, space)), expected, "{bytes} bytes as key {at}");
            }
        }
    }
}

#[test]
fn web_browsers_are_hung_up_on() {
    assert_eq!(text::parse(b"GET / HTTP/1.1\r\n", 0), Parsed::Close);
    assert_eq!(text::parse(b"x HTTP/\n", 0), Parsed::Close);
    assert!(matches!(text::parse(b"get k HTTP/1.1\r\n", 0), Parsed::Request { .. }));
}

#[test]
fn a_line_is_a_request_from_its_line_feed_on() {
    let lines: &[&[u8]] = &[
        b"get k\r\n",
        b"get a b c\n",
        b"set k 1 2 3 noreply\r\n",
        b"mg k v t k O1 q\r\n",
        b"ms YQ== 2 b\r\n",
        b"mn\r\n",
        b"bogus\r\n",
        b"stats items\r\n",
        b"incr k 5\r\n",
        b"flush_all 1\r\n",
        b"quit\r\n",
        b"gat 1 a b\r\n",
        b"\r\n",
    ];
    for line in lines {
        let whole = text::parse(line, 0);
        assert!(matches!(whole, Parsed::Request { .. }));
        for end in 0..line.len() {
            assert_eq!(text::parse(&line[..end], 0), Parsed::NeedInput);
            // What was scanned before changes nothing.
            assert_eq!(text::parse(line, end), whole);
            // Nor does what follows.
            assert_eq!(text::parse(&[line, &line[..end]].concat(), 0), whole);
        }
    }
}

#[test]
fn no_input_does_harm() {
    // Words that lead far into the grammar, put together at random.
    const WORDS: &[&[u8]] = &[
        b"get",
        b"gets",
        b"gat",
        b"set",
        b"cas",
        b"mg",
        b"ms",
        b"md",
        b"ma",
        b"me",
        b"mn",
        b"incr",
        b"touch",
        b"stats",
        b"flush_all",
        b"delete",
        b"verbosity",
        b"watch",
        b"noreply",
        b" ",
        b" ",
        b" ",
        b" ",
        b"k",
        b"1",
        b"0",
        b"-1",
        b"b",
        b"T30",
        b"O1",
        b"C1",
        b"v",
        b"MA",
        b"YQ==",
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b"\t",
        b"HTTP/1.1",
        b"99999999999999999999",
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    let mut random = |below: usize| rng.usize(..below);
    for _ in 0..200_000 {
        let mut input = Vec::new();
        for _ in 0..=random(12) {
            input.extend_from_slice(WORDS[random(WORDS.len())]);
        }
        if let Parsed::Request { request, head_bytes: line_bytes } = text::parse(&input, 0) {
            assert!(line_bytes <= input.len());
            let mut bytes = Bytes(Vec::new());
            request.form.encode(&Reply::NotFound, &mut bytes);
            assert!(bytes.0.is_empty() || bytes.0.ends_with(b"\r\n"));
            if let (Form::Text(_), Command::Get(get)) = (request.form, request.command) {
                assert!(get.keys.count() > 0);
            }
        }
    }
}
