//! The ways that are short cuts for what most clients send: they understand a line as `parse` does, or leave it to it.

use larder_protocol::{Command, Form, Parsed, text};

#[test]
fn a_plain_set_is_what_it_is_to_the_parser() {
    let longest = format!("set {} 0 0 1\r\n1\r\n", "k".repeat(250));
    for (line, key, client_flags, exptime, value_bytes) in [
        ("set key 0 0 5\r\nvalue\r\n", "key", 0, 0, 5),
        ("set key 007 999999999 000\r\n\r\n", "key", 7, 999_999_999, 0),
        ("set k\r 123456789 2592001 1048576\r\n", "k\r", 123_456_789, 2_592_001, 1 << 20),
        (&longest, &longest[4..254], 0, 0, 1),
    ] {
        let (store, head_bytes) = text::parse_plain_set(line.as_bytes()).expect(line);
        assert_eq!(store.key.written(), key.as_bytes());
        assert_eq!(
            (store.client_flags, store.exptime, store.value_bytes),
            (client_flags, exptime, value_bytes)
        );
        let Parsed::Request { request, head_bytes: of_any } = text::parse(line.as_bytes(), 0) else {
            panic!("{line:?}")
        };
        assert_eq!((request.command, head_bytes), (Command::Store(store), of_any));
        assert_eq!(request.form, Form::Text(text::TextForm::default()));
        for cut in 0..head_bytes {
            assert_eq!(text::parse_plain_set(&line.as_bytes()[..cut]), None);
        }
    }
}

#[test]
fn what_is_not_plain_is_left_to_the_parser() {
    let too_long = format!("set {} 0 0 1\r\n", "k".repeat(251));
    for line in [
        "set key 0 0 5 noreply\r\n",
        "set key 0 0 5 \r\n",
        "set key 0 0 5\n",
        "set  key 0 0 5\r\n",
        "set key 0  0 5\r\n",
        "set key 0 0\r\n",
        "set key 0 0 \r\n",
        "set key 0 -1 5\r\n",
        "set key +1 0 5\r\n",
        "set key 0 0 5x\r\n",
        "set key 1234567890 0 5\r\n",
        "set key\n 0 0 5\r\n",
        "set k\ney 0 0 5\r\n",
        "set key 0 0 5\r\r\n",
        "Set key 0 0 5\r\n",
        "add key 0 0 5\r\n",
        &too_long,
    ] {
        assert_eq!(text::parse_plain_set(line.as_bytes()), None, "{line:?}");
    }
}
