//! Datagrams that come late, twice, or not at all. Their form is that of memcached 1.6.18.

use larder_client::codec::{DatagramCounts, DatagramPipeline, Event, Get, Protocol, ViolationKind};

/// A datagram of an answer.
fn datagram(id: u16, sequence: u16, total: u16, payload: &[u8]) -> Vec<u8> {
    let numbers = [id, sequence, total, 0].map(u16::to_be_bytes).concat();
    [&numbers, payload].concat()
}

fn asking(keys: &[&str]) -> DatagramPipeline<char> {
    let mut pipeline = DatagramPipeline::new(Protocol::Text);
    for (tag, key) in ('A'..).zip(keys) {
        let mut output = Vec::new();
        pipeline.request(&mut output, |pipeline, out| {
            pipeline.multi_get(out, &Get::default(), key.split(' '), tag)
        });
        let request = format!("get {key}\r\n");
        assert_eq!(output, datagram(tag as u16 - 'A' as u16, 0, 1, request.as_bytes()));
    }
    pipeline
}

/// What comes of a datagram: values, and the tags of requests that are answered.
#[track_caller]
fn receive(pipeline: &mut DatagramPipeline<char>, datagram: &[u8]) -> String {
    let mut events = String::new();
    let received = pipeline.receive(datagram, |pipeline, event| match event {
        Event::Value(value) => {
            events += &format!("{}={} ", pipeline.front().expect("it waits"), value.bytes.escape_ascii());
        }
        Event::Done(tag, _) => events.push(tag),
        other => panic!("{other:?}"),
    });
    received.expect("it is as the protocol says");
    events
}

#[test]
fn answers_come_in_any_order() {
    let mut pipeline = asking(&["a", "b", "c"]);
    assert_eq!(receive(&mut pipeline, &datagram(1, 0, 1, b"VALUE b 0 1\r\n1\r\nEND\r\n")), "B=1 B");
    assert_eq!(receive(&mut pipeline, &datagram(2, 0, 1, b"END\r\n")), "C");
    assert_eq!((pipeline.len(), pipeline.front()), (1, Some(&'A')));
    assert_eq!(receive(&mut pipeline, &datagram(0, 0, 1, b"END\r\n")), "A");
    assert!(pipeline.is_empty());
    assert_eq!(pipeline.counts(), DatagramCounts::default());
}

#[test]
fn an_answer_is_put_together_from_its_datagrams() {
    let parts = [
        datagram(0, 0, 3, b"VALUE a 0 10\r\n01"),
        datagram(0, 1, 3, b"234"),
        datagram(0, 2, 3, b"56789\r\nEND\r\n"),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut pipeline = asking(&["a"]);
        assert_eq!(receive(&mut pipeline, &parts[order[0]]), "");
        assert_eq!(receive(&mut pipeline, &parts[order[1]]), "");
        assert_eq!(receive(&mut pipeline, &parts[order[2]]), "A=0123456789 A");
        assert_eq!(pipeline.counts().disordered > 0, order != [0, 1, 2]);
    }
}

// As memcached does for a get of many keys.
#[test]
fn an_answer_may_have_many_messages() {
    let mut pipeline = asking(&["a b c"]);
    assert_eq!(receive(&mut pipeline, &datagram(0, 0, 1, b"VALUE a 0 1\r\n1\r\n")), "A=1 ");
    assert_eq!(receive(&mut pipeline, &datagram(0, 0, 2, b"VALUE b 0 1\r\n")), "");
    assert_eq!(receive(&mut pipeline, &datagram(0, 1, 2, b"2\r\n")), "A=2 ");
    assert_eq!(receive(&mut pipeline, &datagram(0, 0, 1, b"END\r\n")), "A");
}

#[test]
fn what_is_lost_can_be_given_up() {
    let mut pipeline = asking(&["a", "b", "c"]);
    assert_eq!(receive(&mut pipeline, &datagram(0, 0, 2, b"VALUE a 0 1\r\n")), "");
    let mut lost = String::new();
    pipeline.give_up(|tag| *tag < 'C', |tag| lost.push(tag));
    assert_eq!((&*lost, pipeline.len()), ("AB", 1));
    // It comes after all, and is not taken for another's.
    assert_eq!(receive(&mut pipeline, &datagram(0, 1, 2, b"1\r\nEND\r\n")), "");
    for nothing in [&b""[..], b"1234567", &datagram(2, 0, 0, b""), &datagram(2, 1, 1, b"END\r\n")] {
        assert_eq!(receive(&mut pipeline, nothing), "");
    }
    assert_eq!(pipeline.counts(), DatagramCounts { disordered: 0, stray: 5 });
    assert_eq!(receive(&mut pipeline, &datagram(2, 0, 1, b"END\r\n")), "C");
}

#[test]
fn a_wrong_answer_fails_its_request_alone() {
    let mut pipeline = asking(&["a", "b"]);
    let failure = pipeline
        .receive(&datagram(0, 0, 1, b"VALUE b 0 1\r\n1\r\nEND\r\n"), |_, event| panic!("{event:?}"))
        .expect_err("it is about another key");
    assert_eq!((failure.tag, failure.violation.kind), (Some('A'), ViolationKind::WrongKey));
    assert_eq!(receive(&mut pipeline, &datagram(1, 0, 1, b"END\r\n")), "B");
}

#[test]
fn a_datagram_that_comes_twice_counts_once() {
    let mut pipeline = asking(&["a"]);
    let first = datagram(0, 0, 2, b"VALUE a 0 1\r\n");
    assert_eq!(receive(&mut pipeline, &first), "");
    assert_eq!(receive(&mut pipeline, &first), "");
    assert_eq!(receive(&mut pipeline, &datagram(0, 1, 2, b"1\r\nEND\r\n")), "A=1 A");
    assert_eq!(receive(&mut pipeline, &first), "");
    assert_eq!(pipeline.counts(), DatagramCounts { disordered: 0, stray: 2 });
}

/// Those of a server that leaves the first one out, and would fill the memory with the others.
#[test]
fn what_comes_early_is_bounded() {
    const HELD: u16 = 32;
    let mut pipeline = asking(&["a"]);
    let payload = vec![b'v'; 65_000];
    for sequence in 1..100 {
        assert_eq!(receive(&mut pipeline, &datagram(0, sequence, 100, &payload)), "");
    }
    // So many fit into 2 MiB that the next one is missing.
    let value_bytes = usize::from(HELD) * payload.len();
    let head = format!("VALUE a 0 {value_bytes}\r\n");
    assert_eq!(receive(&mut pipeline, &datagram(0, 0, 100, head.as_bytes())), "");
    assert_eq!(pipeline.counts().disordered, 99);
    // All that is kept is the value; what comes next ends it.
    let events = receive(&mut pipeline, &datagram(0, HELD + 1, 100, b"\r\nEND\r\n"));
    assert!(events.ends_with(" A"), "it waits for one that was not kept");
}
