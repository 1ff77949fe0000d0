//! memcached over UDP.

use std::net::UdpSocket;
use std::time::Duration;

use larder_client::codec::{DatagramPipeline, Event, Get, Outcome, Protocol, Store};

use crate::server::start;

#[test]
fn requests_are_answered_in_every_protocol() {
    let server = start(&["-U", "-1"]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.connect(server.udp_address().expect("it was asked for")).expect("it is local");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let mut pipeline = DatagramPipeline::new(protocol);
        let mut found = Vec::new();
        let mut outcomes = Vec::new();
        // A few datagrams' worth, and little.
        let values = [vec![b'x'; 1300], vec![b'y'; 10]];
        let mut ask = |make: &dyn Fn(&mut larder_client::Pipeline<u32>, &mut Vec<u8>)| {
            let mut datagram = Vec::new();
            pipeline.request(&mut datagram, make);
            socket.send(&datagram).expect("it listens");
            let mut buffer = [0; 2000];
            while !pipeline.is_empty() {
                let bytes = socket.recv(&mut buffer).expect("it answers");
                pipeline
                    .receive(&buffer[..bytes], |_, event| match event {
                        Event::Value(value) => found.push(value.bytes.to_vec()),
                        Event::Done(_, Outcome::Stored { .. }) => {}
                        Event::Done(_, outcome) => outcomes.push(format!("{outcome:?}")),
                        other => panic!("{other:?}"),
                    })
                    .expect("it keeps to the protocol");
            }
        };
        for (key, value) in [(b"a", &values[0]), (b"b", &values[1])] {
            ask(&|pipeline, out| {
                pipeline.store(out, &Store { key, value: &[value], ..Store::default() }, Some(0))
            });
        }
        // Together they are larger than a datagram, whatever the protocol adds.
        for part in [&values[0], &values[0]] {
            let mode = larder_client::codec::Mode::Append;
            ask(&|pipeline, out| {
                pipeline.store(out, &Store { mode, key: b"a", value: &[part], ..Store::default() }, Some(0));
            });
        }
        ask(&|pipeline, out| pipeline.get(out, &Get::default(), b"a", 0));
        ask(&|pipeline, out| pipeline.multi_get(out, &Get::default(), ["b", "a", "nokey", "b"], 0));
        let long = vec![b'x'; 3900];
        assert!(found.iter().eq([&long, &values[1], &long, &values[1]]), "{protocol:?}: {}", found.len());
        assert_eq!(outcomes, ["Found { hits: 1, keys: 1 }", "Found { hits: 3, keys: 4 }"]);
    }
}
