//! SRV records, from a name server of the test's own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_client::discovery::Discovery;
use larder_client::{Distribution, Error, Protocol};
use larder_conformance::server::free_port;

use crate::discovery::until;
use crate::servers::patient;

/// What is said of `_mc._tcp.test`.
#[derive(Default)]
struct Zone {
    /// Priority, weight, port, host.
    records: Vec<(u16, u16, u16, &'static str)>,
    /// Only over TCP.
    is_long: bool,
    code: u8,
    /// An answer with a wrong number comes first, then nothing for the first questions.
    attacks: bool,
    silent: u32,
    asked: u32,
}

fn start() -> (SocketAddr, Arc<Mutex<Zone>>) {
    let zone = Arc::new(Mutex::new(Zone::default()));
    // One that nobody else is given for UDP.
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listener = TcpListener::bind(at).expect("it is kept for us");
    let socket = UdpSocket::bind(at).expect("it is kept for us");
    let held = Arc::clone(&zone);
    std::thread::spawn(move || {
        let mut question = [0; 1000];
        while let Ok((bytes, client)) = socket.recv_from(&mut question) {
            let mut zone = held.lock().expect("no panic");
            zone.asked += 1;
            if zone.attacks {
                let mut forged = answer(&question[..bytes], &[(0, 0, 6, "evil.test")], 0);
                forged[0] ^= 1;
                socket.send_to(&forged, client).expect("it is local");
            }
            if zone.asked > zone.silent {
                let mut answer = answer(&question[..bytes], &zone.records, zone.code);
                if zone.is_long {
                    // Cut: the bit TC.
                    answer[2] |= 2;
                    answer.truncate(bytes);
                }
                socket.send_to(&answer, client).expect("it is local");
            }
        }
    });
    let held = Arc::clone(&zone);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("somebody connects");
            let mut length = [0; 2];
            stream.read_exact(&mut length).expect("a length");
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut question).expect("a question");
            let answer = answer(&question, &held.lock().expect("no panic").records, 0);
            let framed = [&(answer.len() as u16).to_be_bytes(), &answer[..]].concat();
            for piece in framed.chunks(11) {
                stream.write_all(piece).expect("it listens");
            }
        }
    });
    (at, zone)
}

/// RFC 1035, 4.1, and RFC 2782.
fn answer(question: &[u8], records: &[(u16, u16, u16, &str)], code: u8) -> Vec<u8> {
    // Without the additional record, which has 11 bytes.
    let mut answer = question[..question.len() - 11].to_vec();
    answer[2..4].copy_from_slice(&[0x81, 0x80 | code]);
    answer[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    answer[10..12].copy_from_slice(&[0, 0]);
    for (priority, weight, port, host) in records {
        let labels = host.split('.').filter(|label| !label.is_empty());
        let mut target: Vec<u8> =
            labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
        target.push(0);
        answer.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 1]);
        answer.extend((target.len() as u16 + 6).to_be_bytes());
        answer.extend([priority, weight, port].iter().flat_map(|number| number.to_be_bytes()));
        answer.extend(target);
    }
    answer
}

fn source(name_server: SocketAddr) -> Discovery {
    Discovery::Srv { name: "_mc._tcp.test".into(), name_server: Some(name_server) }
}

#[tokio::test]
async fn records_are_servers_and_followed() {
    let (at, zone) = start();
    let records = vec![(20, 0, 3, "spare.test"), (10, 30, 1, "b.test"), (10, 10, 2, "a.test")];
    *zone.lock().expect("no panic") = Zone { records, attacks: true, ..Zone::default() };
    let client = patient(Protocol::Meta).distribution(Distribution::KetamaWeighted).build();
    client.discover(&source(at)).await.expect("it answers");
    let listed = || {
        let servers = client.servers();
        servers.iter().map(|server| format!("{} {}", server.address, server.weight)).collect::<Vec<_>>()
    };
    assert_eq!(listed(), ["a.test:2 10", "b.test:1 30"]);
    // Three quarters of the keys belong to the server with three quarters of the weight.
    let of_b = (0..4000).filter(|n| {
        let server = client.server_of(format!("key:{n}")).expect("there are servers");
        server.address.to_string() == "b.test:1"
    });
    let of_b = of_b.count();
    assert!((2600..3400).contains(&of_b), "{of_b} of 4000");

    let watch = client.watch_servers(source(at), Duration::from_millis(10));
    // Another order is no other list; too long for UDP; then the better ones are gone.
    zone.lock().expect("no panic").records.reverse();
    zone.lock().expect("no panic").is_long = true;
    let asked = zone.lock().expect("no panic").asked;
    until(|| zone.lock().expect("no panic").asked > asked + 1).await;
    assert_eq!((listed(), watch.failure()), (vec!["a.test:2 10".into(), "b.test:1 30".into()], None));
    zone.lock().expect("no panic").records.retain(|(priority, ..)| *priority == 20);
    until(|| listed() == ["spare.test:3 1"]).await;
    // What is wrong changes nothing, and is told.
    zone.lock().expect("no panic").records = vec![(0, 0, 0, ".")];
    until(|| watch.failure().is_some_and(|failure| failure.contains("no records"))).await;
    *zone.lock().expect("no panic") = Zone { code: 3, ..Zone::default() };
    until(|| watch.failure().is_some_and(|failure| failure.contains("no such name"))).await;
    *zone.lock().expect("no panic") = Zone { code: 2, ..Zone::default() };
    until(|| watch.failure().is_some_and(|failure| failure.contains("code 2"))).await;
    assert_eq!(listed(), ["spare.test:3 1"]);
}

#[tokio::test]
async fn no_name_server_holds_a_client_up() {
    let (at, zone) = start();
    zone.lock().expect("no panic").silent = u32::MAX;
    let client = patient(Protocol::Meta).build().with_timeout(Duration::from_millis(100));
    let error = client.discover(&source(at)).await.expect_err("nobody answers");
    assert!(matches!(error, Error::Timeout | Error::Discovery(_)), "{error}");
    let error = client.discover(&Discovery::Srv { name: "a..b".into(), name_server: Some(at) }).await;
    assert!(matches!(error, Err(Error::Discovery(_))), "{error:?}");
}
