//! Conversations with a session, without a socket: whatever pieces the input arrives in, the replies are the same.
//! Expected replies: memcached's.

#![allow(clippy::unwrap_used)]

mod harness;
mod http;
mod namespaces;
mod splits;

use std::fmt::Write as _;
use std::io::IoSlice;

use larder_server::conn::client;
use larder_server::conn::output::{Output, Pieces as _, Replies as _, Unsent};
use larder_server::conn::session::Context;
use larder_server::conn::waiter::Turns;
use larder_server::startup::settings::Settings;

use crate::harness::{Client, Server};
use crate::splits::{assert_same, for_each_split};

fn small() -> Settings {
    Settings { memory_bytes: 8 << 20, threads: 1, ..Settings::default() }
}

fn converse(input: &str, replies: &str) {
    for_each_split(&small(), input.as_bytes(), replies.as_bytes(), false);
}

#[test]
fn storing_and_getting() {
    converse(
        "set a 5 0 3\r\nabc\r\nget a\r\nadd a 0 0 1\r\nx\r\nadd b 0 0 0\r\n\r\nreplace c 0 0 1\r\nx\r\nreplace b 7 0 2\r\nxy\r\n\
         append a 9 9 2\r\nde\r\nprepend a 9 9 1\r\n_\r\nappend zz 0 0 1\r\nx\r\nget a b c a\r\n",
        "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nNOT_STORED\r\nSTORED\r\nNOT_STORED\r\nSTORED\r\n\
         STORED\r\nSTORED\r\nNOT_STORED\r\nVALUE a 5 6\r\n_abcde\r\nVALUE b 7 2\r\nxy\r\nVALUE a 5 6\r\n_abcde\r\nEND\r\n",
    );
}

#[test]
fn bare_line_feeds_end_lines_but_not_values() {
    converse(
        "set a 0 0 1\nx\r\nget a\nset a 0 0 1\r\ny\nabc\r\nget a\r\nmn\r\n",
        // "y\na" is the block of three bytes; "bc" is what is left.
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\nVALUE a 0 1\r\nx\r\nEND\r\nMN\r\n",
    );
}

#[test]
fn refused_values_are_swallowed() {
    converse(
        "set a 0 x 9\r\nflush_all\r\nbogus\r\nset a -1 0 5 noreply\r\nquit\n\r\ncas a 0 0 4\r\nquit\r\nms a 4 S\r\nquit\r\n\
         ms a 4 T0 T0\r\nquit\r\nmn\r\n",
        "CLIENT_ERROR bad command line format\r\nERROR\r\nCLIENT_ERROR bad command line format\r\n\
         CLIENT_ERROR invalid flag\r\nCLIENT_ERROR duplicate flag\r\nMN\r\n",
    );
}

#[test]
fn noreply() {
    converse(
        "set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\nappend a 0 0 1 noreply\r\n0\r\nincr a 5 noreply\r\n\
         decr a 1 noreply\r\ntouch a 0 noreply\r\nget a\r\nset a 0 0 1 noreply\r\ntoo long\r\nset b 0 0 1\r\nx\r\n\
         delete b noreply\r\ncas b 0 0 1 5 noreply\r\nx\r\nget b\r\nverbosity 1 noreply\r\nflush_all noreply\r\nincr a x noreply\r\nmn\r\n",
        "VALUE a 0 2\r\n14\r\nEND\r\nERROR\r\nSTORED\r\nEND\r\nMN\r\n",
    );
}

#[test]
fn numbers() {
    converse(
        "incr n 1\r\nset n 0 0 3\r\n100\r\ndecr n 1\r\nincr n 18446744073709551615\r\ndecr n 1000\r\nset n 0 0 20\r\n\
         18446744073709551615\r\nincr n 2\r\nset n 0 0 1\r\nx\r\nincr n 1\r\nmn\r\n",
        "NOT_FOUND\r\nSTORED\r\n99\r\n98\r\n0\r\nSTORED\r\n1\r\nSTORED\r\n\
         CLIENT_ERROR cannot increment or decrement non-numeric value\r\nMN\r\n",
    );
}

#[test]
fn expiry_and_touch() {
    converse(
        "set a 0 -1 1\r\nx\r\nget a\r\nset a 0 2592001 1\r\nx\r\nget a\r\nset a 0 100 1\r\nx\r\ntouch a 0\r\ntouch b 0\r\n\
         gat -1 a b\r\nget a\r\n",
        "STORED\r\nEND\r\nSTORED\r\nEND\r\nSTORED\r\nTOUCHED\r\nNOT_FOUND\r\nVALUE a 0 1\r\nx\r\nEND\r\nEND\r\n",
    );
}

#[test]
fn meta() {
    converse(
        "ms a 3 F5 T100 s k O7\r\nabc\r\nmg a s f t k O8 v\r\nmg a h\r\nmg b k O9\r\nmg b q\r\nms a 1 ME k\r\nx\r\n\
         ms a 1 MA s q\r\nd\r\nmg a s v\r\nms a 1 C0 c\r\nx\r\nms b 1 C1 k c\r\nx\r\nmd b q k O1\r\nmd a q\r\nmg a\r\nmn\r\n",
        "HD s3 ka O7\r\nVA 3 s3 f5 t100 ka O8\r\nabc\r\nHD h1\r\nEN kb O9\r\nNS ka\r\n\
         VA 4 s4\r\nabcd\r\nEX c0\r\nNF kb c0\r\nNF kb O1\r\nEN\r\nMN\r\n",
    );
}

#[test]
fn meta_tokens() {
    converse(
        "ms a 1\r\nx\r\nmd a I T30\r\nmg a t v\r\nmg a t v\r\nms a 1\r\ny\r\nmg a v\r\nmg n N30 t\r\nmg n N30 t\r\nmg n s v\r\nget n\r\n",
        "HD\r\nHD\r\nVA 1 t30 X W\r\nx\r\nVA 1 t30 Z X\r\nx\r\nHD\r\nVA 1\r\ny\r\nHD t30 W\r\nHD t30 Z\r\nVA 0 s0 Z\r\n\r\n\
         VALUE n 0 0\r\n\r\nEND\r\n",
    );
}

#[test]
fn meta_flags_act_in_their_order() {
    converse(
        "ms a 1\r\nx\r\nmg a T100\r\nmg a T300 R200 t\r\nmg a T100\r\nmg a R200 T300 t\r\nma n N60 T70 t\r\n",
        "HD\r\nHD\r\nHD t300\r\nHD\r\nHD t300 W\r\nHD t70\r\n",
    );
}

#[test]
fn meta_numbers() {
    converse(
        "ma n\r\nma n N0 J13 v t\r\nma n v\r\nma n MD D5 v\r\nma n q v\r\nma n M-\r\nmg n v\r\nma n T30 t v\r\nma n k O1\r\n",
        "NF\r\nVA 2 t-1\r\n13\r\nVA 2\r\n14\r\nVA 1\r\n9\r\nHD\r\nVA 2\r\n9 \r\nVA 2 t30\r\n10\r\nHD kn O1\r\n",
    );
}

#[test]
fn binary_keys() {
    converse(
        "ms YQ== 1 b k\r\nz\r\nmg a k v\r\nmg YQ== b k\r\nms c 1\r\nx\r\nmg Yw== b k\r\nmg ZA== b k\r\nmd YQ== b k\r\nget a\r\n",
        "HD kYQ== b\r\nVA 1 kYQ== b\r\nz\r\nHD kYQ== b\r\nHD\r\nHD kc\r\nEN kZA== b\r\nHD kYQ== b\r\nEND\r\n",
    );
}

#[test]
fn many_keys_in_one_line() {
    let mut input = String::new();
    let mut line = String::from("get");
    let mut replies = String::new();
    for n in 0..300 {
        write!(line, " key{n}").unwrap();
        if n % 3 == 0 {
            write!(input, "set key{n} 0 0 4000 noreply\r\n{}\r\n", "v".repeat(4000)).unwrap();
            write!(replies, "VALUE key{n} 0 4000\r\n{}\r\n", "v".repeat(4000)).unwrap();
        }
    }
    // More than one turn's output, in one line that is longer than others may be.
    let input = format!("{input}{line}\r\nmn\r\n");
    let replies = format!("{replies}END\r\nMN\r\n");
    converse(&input, &replies);
}

#[test]
fn large_values() {
    let settings = Settings { memory_bytes: 64 << 20, ..small() };
    let value = "L".repeat(700_000);
    let input = format!(
        "set a 1 0 700000\r\n{value}\r\nget a\r\nms b 700000 s\r\n{value}\r\nset a 0 0 700000\r\n{value}xx\nmn\r\nget a b\r\n"
    );
    let replies = format!(
        "STORED\r\nVALUE a 1 700000\r\n{value}\r\nEND\r\nHD s700000\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\n\
         VALUE a 1 700000\r\n{value}\r\nVALUE b 0 700000\r\n{value}\r\nEND\r\n"
    );
    // The bad chunk's last byte begins the next line.
    let replies = replies.replace(
        "bad data chunk\r\nERROR\r\nMN",
        "bad data chunk\r\nCLIENT_ERROR bad command line format\r\nMN",
    );
    for_each_split(&settings, input.as_bytes(), replies.as_bytes(), false);
}

/// A binary request or reply: header, extras, key and value.
fn packet(magic: u8, opcode: u8, status: u16, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut packet = vec![magic, opcode];
    packet.extend(u16::try_from(key.len()).unwrap().to_be_bytes());
    packet.extend([u8::try_from(extras.len()).unwrap(), 0]);
    packet.extend(status.to_be_bytes());
    packet.extend(u32::try_from(extras.len() + key.len() + value.len()).unwrap().to_be_bytes());
    packet.extend([b'o'; 4]);
    packet.extend([0; 8]);
    [&packet[..], extras, key, value].concat()
}

#[test]
fn binary_values_of_all_sizes() {
    // Without CAS values, which are never the same.
    let settings = Settings { memory_bytes: 64 << 20, cas: false, ..small() };
    let (mut input, mut replies) = (Vec::new(), Vec::new());
    for value_bytes in [0, 1, 4096, (16 << 10) + 1, 300_000] {
        let value = vec![b'v'; value_bytes];
        let flags = [0, 0, 0, 7];
        // set and getk; setq and getkq; get of nothing, getq of nothing.
        input.extend(packet(0x80, 0x01, 0, &[0, 0, 0, 7, 0, 0, 0, 0], b"a key", &value));
        input.extend(packet(0x80, 0x0c, 0, b"", b"a key", b""));
        input.extend(packet(0x80, 0x11, 0, &[0, 0, 0, 7, 0, 0, 0, 0], b"\r\n", &value));
        input.extend(packet(0x80, 0x0d, 0, b"", b"\r\n", b""));
        input.extend(packet(0x80, 0x00, 0, b"", b"none", b""));
        input.extend(packet(0x80, 0x09, 0, b"", b"none", b""));
        replies.extend(packet(0x81, 0x01, 0, b"", b"", b""));
        replies.extend(packet(0x81, 0x0c, 0, &flags, b"a key", &value));
        replies.extend(packet(0x81, 0x0d, 0, &flags, b"\r\n", &value));
        replies.extend(packet(0x81, 0x00, 1, b"", b"", b"Not found"));
    }
    input.extend(packet(0x80, 0x0a, 0, b"", b"", b""));
    replies.extend(packet(0x81, 0x0a, 0, b"", b"", b""));
    for_each_split(&settings, &input, &replies, false);
}

#[test]
fn binary_refusals() {
    let settings = Settings { memory_bytes: 8 << 20, item_bytes_max: 100_000, cas: false, ..small() };
    let value = [b'v'; 100_000];
    let mut input = packet(0x80, 0x01, 0, &[0; 8], b"k", b"x");
    input.extend(packet(0x80, 0x02, 0, &[0; 8], b"k", &value));
    input.extend(packet(0x80, 0x00, 0, b"", b"k", b""));
    input.extend(packet(0x80, 0x11, 0, &[0; 8], b"k", &value));
    input.extend(packet(0x80, 0x00, 0, b"", b"k", b""));
    input.extend(packet(0x80, 0x7f, 0, b"??", b"k", &value));
    input.extend(packet(0x80, 0x01, 0, &[0; 7], b"k", b"closes"));
    input.extend(packet(0x80, 0x0a, 0, b"", b"", b""));
    let mut replies = packet(0x81, 0x01, 0, b"", b"", b"");
    replies.extend(packet(0x81, 0x02, 3, b"", b"", b"Too large."));
    replies.extend(packet(0x81, 0x00, 0, &[0; 4], b"", b"x"));
    replies.extend(packet(0x81, 0x11, 3, b"", b"", b"Too large."));
    replies.extend(packet(0x81, 0x00, 1, b"", b"", b"Not found"));
    replies.extend(packet(0x81, 0x7f, 0x81, b"", b"", b"Unknown command"));
    replies.extend(packet(0x81, 0x01, 4, b"", b"", b"Invalid arguments"));
    for_each_split(&settings, &input, &replies, true);
}

#[test]
fn no_binary_input_does_harm() {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut random = |below: usize| rng.usize(..below);
    let mut server = Server::new(Settings { item_bytes_max: 90_000, ..small() });
    for _ in 0..5_000 {
        let mut client = Client { uses_windows: random(2) == 0, ..Client::default() };
        for _ in 0..random(30) {
            let opcode = u8::try_from(random(0x28)).unwrap();
            let extras = vec![0; [0, 4, 8, 20, random(30)][random(5)]];
            let key = vec![b'k'; [1, 1, 1, 0, 250, random(300)][random(6)]];
            let value = vec![b'1'; [0, 0, 1, 20, random(5_000), random(100_000)][random(6)]];
            let mut piece = packet(0x80, opcode, 0, &extras, &key, &value);
            if random(20) == 0 {
                let at = random(24);
                piece[at] = u8::try_from(random(256)).unwrap();
            }
            let (head, tail) = piece.split_at(random(piece.len()));
            server.receive(&mut client, head);
            server.receive(&mut client, tail);
        }
    }
    // It still serves.
    let mut client = Client::default();
    server.receive(&mut client, b"set k 0 0 1\r\nx\r\nget k\r\n");
    assert_same(&client.replies, b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n", "");
}

#[test]
fn too_large_removes_what_set_would_have_replaced() {
    let settings = Settings { memory_bytes: 8 << 20, item_bytes_max: 100_000, ..small() };
    let value = "L".repeat(100_000);
    let mut input = String::new();
    let mut replies = String::new();
    for (command, is_removed) in
        [("set", true), ("add", false), ("replace", false), ("append", false), ("prepend", false)]
    {
        write!(input, "set k 0 0 1\r\nx\r\n{command} k 0 0 100000\r\n{value}\r\nget k\r\n").unwrap();
        let hit = if is_removed { "" } else { "VALUE k 0 1\r\nx\r\n" };
        write!(replies, "STORED\r\nSERVER_ERROR object too large for cache\r\n{hit}END\r\n").unwrap();
    }
    for mode in ["E", "A", "P", "R", "S"] {
        write!(input, "set k 0 0 1\r\nx\r\nms k 100000 M{mode} q\r\n{value}\r\nget k\r\n").unwrap();
        replies.push_str("STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n");
    }
    for_each_split(&settings, input.as_bytes(), replies.as_bytes(), false);
}

#[test]
fn the_founding_dialogue_of_a_full_cache() {
    let settings = Settings { memory_bytes: 1 << 20, evict: false, ..small() };
    let set = format!("set A 0 0 524288\r\n{}\r\n", "A".repeat(524_288));
    for_each_split(
        &settings,
        format!("{set}{set}get A\r\n").as_bytes(),
        b"STORED\r\nSERVER_ERROR out of memory storing object\r\nEND\r\n",
        false,
    );
}

#[test]
fn closing() {
    for_each_split(&small(), b"mn\r\nquit now\r\nmn\r\n", b"MN\r\n", true);
    for_each_split(&small(), b"mn\r\nGET / HTTP/1.1\r\nmn\r\n", b"MN\r\n", true);
    for_each_split(
        &small(),
        b"mn\r\nshutdown\r\nmn\r\n",
        b"MN\r\nSERVER_ERROR: shutdown not enabled\r\nMN\r\n",
        false,
    );
    for_each_split(
        &Settings { shutdown_command: true, ..small() },
        b"mn\r\nshutdown\r\nmn\r\n",
        b"MN\r\n",
        true,
    );
    let too_large = format!("set a 0 0 100000 noreply\r\n{}\r\nmn\r\n", "x".repeat(100_000));
    let settings = Settings { item_bytes_max: 50_000, ..small() };
    for_each_split(&settings, too_large.as_bytes(), b"MN\r\n", false);
    let settings = Settings { noreply_close_on_error: true, ..settings };
    for_each_split(&settings, too_large.as_bytes(), b"", true);
}

#[test]
fn switches_that_turn_things_off() {
    for_each_split(
        &Settings { flush_all: false, ..small() },
        b"flush_all\r\nflush_all noreply\r\nmn\r\n",
        b"CLIENT_ERROR flush_all not allowed\r\nMN\r\n",
        false,
    );
    for_each_split(
        &Settings { cas: false, ..small() },
        b"set a 0 0 1\r\nx\r\ngets a\r\ncas a 0 0 1 0\r\ny\r\ncas a 0 0 1 5\r\ny\r\ncas b 0 0 1 5\r\ny\r\nmg a c\r\n",
        b"STORED\r\nVALUE a 0 1 0\r\nx\r\nEND\r\nEXISTS\r\nEXISTS\r\nNOT_FOUND\r\nHD c0\r\n",
        false,
    );
}

#[test]
fn what_was_not_sent_can_be_sent_later() {
    let mut server = Server::new(Settings { memory_bytes: 64 << 20, ..small() });
    let mut client = Client::default();
    let value = "L".repeat(900_000);
    let middle = "M".repeat(6_000);
    server.receive(
        &mut client,
        format!("set a 0 0 900000\r\n{value}\r\nset b 0 0 6000\r\n{middle}\r\n").as_bytes(),
    );
    let context = Context {
        shared: &server.shared,
        counters: &server.shared.counters[0],
        recorder: &server.recorder,
        worker: 0,
        client: &client::Client::of_datagrams(),
        turns: &Turns::new(u32::MAX),
    };
    let expected = format!("VALUE b 0 6000\r\n{middle}\r\nVALUE a 0 900000\r\n{value}\r\nEND\r\n");
    for written in
        [0, 1, 15, 16, 17, 3_000, 6_015, 6_016, 6_018, 6_030, 6_038, 6_039, 500_000, 906_036, 906_042]
    {
        let mut unsent: Unsent = {
            let guards = server.handles.pin(server.shared.clock.now());
            let mut output = Output::default();
            let fed = client.session.feed(&context, &guards, b"get b a\r\n", None, &mut output, 20);
            assert_eq!(fed.consumed, 9);
            output.unsent(written).expect("memory")
        };
        let mut bytes = Vec::new();
        while !unsent.is_empty() {
            let mut slices = [IoSlice::new(&[]); 2];
            let guards = server.handles.pin(server.shared.clock.now());
            let guarded = unsent.guarded(&guards);
            let filled = guarded.slices(0, &mut slices).expect("the values are there");
            // A socket takes what it likes.
            let before = bytes.len();
            slices[..filled].iter().for_each(|slice| bytes.extend_from_slice(slice));
            bytes.truncate(before + 70_001);
            unsent.advance(bytes.len() - before);
        }
        assert_same(&bytes, &expected.as_bytes()[written..], &format!("after {written}"));
    }
}

#[test]
fn counters_move_as_memcached_s_do() {
    let mut server = Server::new(small());
    let mut client = Client::default();
    server.receive(
        &mut client,
        b"set a 0 0 1\r\n1\r\nadd a 0 0 1\r\n1\r\nget a b a\r\ngat 0 a b\r\ntouch a 0\r\ntouch b 0\r\nincr a 1\r\nincr b 1\r\n\
          decr a 1\r\ndecr b 1\r\nmg a\r\nmg a T0\r\nmg b T0\r\nmg b\r\ncas a 0 0 1 0\r\nx\r\ncas b 0 0 1 1\r\nx\r\ndelete b\r\nmd a C0\r\n\
          delete a\r\nflush_all\r\nflush_all x\r\nme a\r\n",
    );
    let totals = server.shared.totals();
    let counted = [
        ("cmd_get", totals.cmd_get, 3 + 3),
        ("get_hits", totals.get_hits, 2 + 1),
        ("get_misses", totals.get_misses, 1 + 2),
        ("cmd_touch", totals.cmd_touch, 2 + 2 + 1),
        ("touch_hits", totals.touch_hits, 1 + 1 + 1),
        ("touch_misses", totals.touch_misses, 2),
        ("cmd_set", totals.cmd_set, 4),
        ("incr_hits", totals.incr_hits, 1),
        ("incr_misses", totals.incr_misses, 1),
        ("decr_hits", totals.decr_hits, 1),
        ("decr_misses", totals.decr_misses, 1),
        ("cas_badval", totals.cas_badval, 1),
        ("cas_misses", totals.cas_misses, 1),
        ("delete_hits", totals.delete_hits, 1),
        ("delete_misses", totals.delete_misses, 2),
        ("cmd_flush", totals.cmd_flush, 2),
        ("cmd_meta", totals.cmd_meta, 1),
    ];
    for (name, counted, expected) in counted {
        assert_eq!(counted, expected, "{name}");
    }
}

#[test]
fn no_input_does_harm() {
    // Words that lead far into the grammar, put together at random.
    const WORDS: &[&[u8]] = &[
        b"get ",
        b"gets ",
        b"gat 1 ",
        b"set k 0 0 ",
        b"cas k 0 0 3 ",
        b"mg ",
        b"ms k ",
        b"md k ",
        b"ma k ",
        b"me k",
        b"incr k ",
        b"touch k ",
        b"stats",
        b"flush_all",
        b"delete k",
        b"noreply",
        b" ",
        b"k ",
        b"1",
        b"0",
        b"-1",
        b"100000 ",
        b"b ",
        b"T30 ",
        b"N0 ",
        b"O1 ",
        b"C1 ",
        b"v ",
        b"MA ",
        b"I ",
        b"x ",
        b"q ",
        b"YQ== ",
        b"\r\n",
        b"\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b"2147483645 ",
        b"99999999999999999999 ",
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    let mut random = |below: usize| rng.usize(..below);
    let mut server = Server::new(Settings { item_bytes_max: 90_000, ..small() });
    for _ in 0..5_000 {
        let mut client = Client { uses_windows: random(2) == 0, ..Client::default() };
        for _ in 0..random(30) {
            let mut piece = Vec::new();
            for _ in 0..random(6) {
                piece.extend_from_slice(WORDS[random(WORDS.len())]);
            }
            if random(10) == 0 {
                piece.resize(piece.len() + random(60_000), b'v');
            }
            server.receive(&mut client, &piece);
        }
    }
    // It still serves.
    let mut client = Client::default();
    server.receive(&mut client, b"set k 0 0 1\r\nx\r\nget k\r\n");
    assert_same(&client.replies, b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n", "");
}
