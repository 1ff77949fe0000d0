//! Requests over UDP: whatever becomes of datagrams, no answer is wrong.

mod network;

use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_client::async_client::{Connecting, Connector, StoreOptions};
use larder_client::codec::Mode;
use larder_client::udp::UdpCounts;
use larder_client::{Address, AsyncClient, Error, Protocol, Servers, Tls, Ttl, Udp};
use network::{Faults, Network, bind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::servers::{MINUTE, PROTOCOLS, patient, start_each, start_larderd};

const WELL: &str = "all is well";
const UDP: &[&str] = &["-U", "-1"];
const NOTHING_WRONG: Faults = Faults { lost: 0, repeated: 0, turned: 0, late: 0, cut: 0 };

fn gets(wait: Duration) -> Udp {
    Udp::Gets { wait }
}

#[tokio::test]
async fn gets_go_over_udp_alone() {
    for server in start_each(UDP) {
        for protocol in PROTOCOLS {
            let network = Network::of(&server, NOTHING_WRONG, 1).await;
            let builder = patient(protocol).server(network.address.clone()).connections(1);
            let client = builder.udp(gets(MINUTE)).build();
            // As many datagrams as fit, and one byte less than two of them.
            let values = [0, 1, 1300, 2700, 40_000].map(|bytes| vec![b'v'; bytes]);
            for (n, value) in values.iter().enumerate() {
                client.set(format!("{protocol:?}{n}"), &value[..], MINUTE).await.expect(WELL);
            }
            let keys: Vec<_> = (0..values.len()).map(|n| format!("{protocol:?}{n}")).collect();
            for (key, value) in keys.iter().zip(&values) {
                let item = client.get(key).await.expect(WELL).expect("it is stored");
                assert!(item.value == *value, "{protocol:?} {}", item.value.len());
                let item = client.gets(key).await.expect(WELL).expect("it is stored");
                assert!(item.value == *value && item.cas.is_some());
            }
            assert_eq!(client.get("nokey").await.expect(WELL), None);
            let found = client.get_many(&keys).collect().await;
            assert!(found.failures.is_empty(), "{:?}", found.failures);
            let found = found.items.iter().map(|item| item.as_ref().map(|item| &item.value));
            assert!(found.eq(values.iter().map(Some)));
            assert_eq!(client.udp_counts(), UdpCounts { asked: 16, answered: 16, stray: 0 }, "{protocol:?}");
            // What is too large for UDP comes over TCP.
            let large = vec![b'l'; 400_000];
            client.set("large", &large[..], MINUTE).await.expect(WELL);
            assert!(client.get("large").await.expect(WELL).expect("it is stored").value == large);
            assert_eq!(client.udp_counts().answered, 16);
            assert_eq!(network.connections.load(Ordering::SeqCst), 1);
        }
    }
}

/// Each task has keys of its own, and so knows what they must have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_is_wrong_whatever_becomes_of_datagrams() {
    const TASKS: u64 = 16;
    let faults = Faults { lost: 4, repeated: 10, turned: 10, late: 25, cut: 3 };
    let mut tasks = Vec::new();
    let servers = start_each(UDP);
    for (server, protocol) in servers.iter().flat_map(|server| PROTOCOLS.map(|protocol| (server, protocol))) {
        let network = Network::of(server, faults, 7).await;
        let builder = patient(protocol).server(network.address.clone());
        let client = builder.udp(gets(Duration::from_millis(250))).build();
        tasks.push(tokio::spawn(async move {
            let play = (0..TASKS).map(|task| tokio::spawn(play(client.clone(), protocol, task)));
            for task in play.collect::<Vec<_>>() {
                task.await.expect("every answer is right");
            }
            client.udp_counts()
        }));
    }
    for task in tasks {
        let counts = task.await.expect("every answer is right");
        eprintln!("{counts:?}");
        assert!(counts.answered > 0 && counts.stray > 0, "{counts:?}");
    }
}

async fn play(client: AsyncClient, protocol: Protocol, task: u64) {
    let mut random = fastrand::Rng::with_seed(task);
    let keys: Vec<_> = (0..3).map(|n| format!("{protocol:?}:{task}:{n}")).collect();
    let mut expected = vec![None; keys.len()];
    for round in 0..40_u32 {
        let at = random.usize(..keys.len());
        if random.u8(..5) == 0 {
            client.delete(&keys[at]).await.expect(WELL);
            expected[at] = None;
        } else {
            // Each value differs from all others in each of its datagrams.
            let value = format!("{task}:{round} ").repeat(random.usize(1..800)).into_bytes();
            client.set(&keys[at], &value[..], MINUTE).await.expect(WELL);
            expected[at] = Some(value);
        }
        let found = client.get(&keys[at]).await.expect(WELL).map(|item| item.value);
        assert!(found == expected[at], "{} has an old value, or another's", keys[at]);
        if round % 8 == 0 {
            let found = client.get_many(&keys).collect().await;
            assert!(found.failures.is_empty(), "{:?}", found.failures);
            let found: Vec<_> = found.items.into_iter().map(|item| item.map(|item| item.value)).collect();
            assert!(found == expected);
        }
    }
}

/// Reads a request of text from a datagram: its number, and the rest.
async fn request(socket: &UdpSocket) -> (std::net::SocketAddr, [u8; 2], Vec<u8>) {
    let mut buffer = [0; 2000];
    let (bytes, client) = timeout(MINUTE, socket.recv_from(&mut buffer)).await.expect("in time").expect(WELL);
    assert_eq!(buffer[2..8], [0, 0, 0, 1, 0, 0]);
    (client, [buffer[0], buffer[1]], buffer[8..bytes].to_vec())
}

fn reply(id: [u8; 2], value: &str) -> Vec<u8> {
    let text = format!("VALUE k 0 {}\r\n{value}\r\nEND\r\n", value.len());
    [&id[..], &[0, 0, 0, 1, 0, 0], text.as_bytes()].concat()
}

#[tokio::test]
async fn a_late_reply_is_not_that_of_the_next_get() {
    let (listener, socket) = bind().await;
    let address: Address =
        listener.local_addr().expect("it is bound").to_string().parse().expect("an address");
    let client = patient(Protocol::Text).server(address).udp(gets(Duration::from_millis(300))).build();
    let get = || {
        let client = client.clone();
        tokio::spawn(async move { client.get("k").await.expect(WELL).map(|item| item.value) })
    };
    let first = get();
    let (_, old_id, asked) = request(&socket).await;
    assert_eq!(asked, b"get k\r\n");
    // Nothing comes: it is asked for by TCP.
    let (mut tcp, _) = listener.accept().await.expect("it connects");
    let mut line = [0; 7];
    tcp.read_exact(&mut line).await.expect(WELL);
    tcp.write_all(b"VALUE k 0 3\r\nold\r\nEND\r\n").await.expect(WELL);
    assert_eq!(first.await.expect(WELL), Some(b"old".to_vec()));
    // By now it has another value; the first reply comes, then that of somebody else, then the right one.
    let second = get();
    let (from, id, _) = request(&socket).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("a port is free");
    socket.send_to(&reply(old_id, "old"), from).await.expect(WELL);
    stranger.send_to(&reply(id, "bad"), from).await.expect(WELL);
    socket.send_to(&reply(id, "new"), from).await.expect(WELL);
    let served = tokio::spawn(async move {
        // A busy machine may have let its time pass.
        if tcp.read_exact(&mut line).await.is_ok() {
            let _ = tcp.write_all(b"VALUE k 0 3\r\nnew\r\nEND\r\n").await;
        }
    });
    assert_eq!(second.await.expect(WELL), Some(b"new".to_vec()));
    served.abort();
}

/// A server that never answers by UDP costs a few waits, and then none.
#[tokio::test]
async fn silence_is_learned() {
    let (_server, _silent, client) = silent(gets(Duration::from_millis(5)), MINUTE).await;
    for _ in 0..1000 {
        assert_eq!(client.get("k").await.expect(WELL).map(|item| item.value), Some(b"x".to_vec()));
    }
    let counts = client.udp_counts();
    assert!((8..20).contains(&counts.asked) && counts.answered == 0, "{counts:?}");
}

/// A server that nobody hears over UDP, and a client of it that has stored `k`.
async fn silent(udp: Udp, timeout: Duration) -> (larder_conformance::server::Server, UdpSocket, AsyncClient) {
    let server = start_larderd(&[]);
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("a port is free");
    let at = silent.local_addr().expect("it is bound");
    let network = Network::to(server.address(), at, NOTHING_WRONG, 1).await;
    let client = patient(Protocol::Meta).server(network.address.clone()).timeout(timeout).udp(udp).build();
    client.with_timeout(MINUTE).set("k", "x", MINUTE).await.expect(WELL);
    (server, silent, client)
}

#[tokio::test]
async fn a_get_without_room_goes_over_tcp_and_tells_nothing_of_the_server() {
    const ROOM: usize = 64;
    let (_server, silent, client) = silent(gets(MINUTE), MINUTE * 10).await;
    let get = || {
        let client = client.clone();
        tokio::spawn(async move { client.get("k").await.expect(WELL).map(|item| item.value) })
    };
    let waiting: Vec<_> = (0..ROOM).map(|_| get()).collect();
    let mut buffer = [0; 2000];
    for _ in 0..ROOM {
        silent.recv(&mut buffer).await.expect(WELL);
    }
    for _ in 0..20 {
        let found = timeout(MINUTE / 2, get()).await.expect("it does not wait for room").expect(WELL);
        assert_eq!(found, Some(b"x".to_vec()));
    }
    assert_eq!(client.udp_counts().asked, ROOM as u64);
    for task in waiting {
        task.abort();
        assert!(task.await.expect_err("nothing has come").is_cancelled());
    }
    let again = get();
    timeout(MINUTE, silent.recv(&mut buffer)).await.expect("it is not ejected").expect(WELL);
    again.abort();
}

/// Who has no time does not find out that nobody answers.
#[tokio::test]
async fn gets_without_time_tell_nothing_of_the_server() {
    let (_server, _silent, client) = silent(gets(MINUTE), MINUTE).await;
    let hasty = client.with_timeout(Duration::from_millis(4));
    for _ in 0..20 {
        // Over TCP, or not at all.
        let _ = hasty.get("k").await;
    }
    let asked = client.udp_counts().asked;
    let patient = client.clone();
    let get = tokio::spawn(async move { patient.get("k").await });
    let is_asked = async {
        while client.udp_counts().asked == asked {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(MINUTE, is_asked).await.expect("it is not ejected");
    get.abort();
}

#[tokio::test]
async fn tcp_has_time_however_long_a_get_waits() {
    let (_server, _silent, client) = silent(gets(MINUTE), Duration::from_millis(400)).await;
    // Fewer than what UDP is given up after; one that is in time on a busy machine is enough.
    for _ in 0..7 {
        match client.get("k").await {
            Ok(found) => return assert_eq!(found.map(|item| item.value), Some(b"x".to_vec())),
            Err(error) => assert!(matches!(error, Error::Timeout), "{error}"),
        }
    }
    panic!("no get has time");
}

/// Deleted values would come back from old places.
#[tokio::test]
async fn changes_that_nobody_answers_have_no_warm_up() {
    let (_listener, socket) = bind().await;
    let address: Address = socket.local_addr().expect("it is bound").to_string().parse().expect("an address");
    let builder = patient(Protocol::Meta).server(address.clone()).warm_up(MINUTE);
    let client = builder.udp(Udp::FireAndForget).build();
    for error in [
        client.set("k", "x", Ttl::Never).await.err(),
        client.noreply().delete("k").await.err(),
        client.flush_all(Duration::ZERO).await.pop().expect("one server").1.err(),
    ] {
        let error = error.expect("it is refused");
        assert!(matches!(error, Error::Unsupported(reason) if reason.contains("warm-up")), "{error}");
    }
}

/// Neither when its time is over, nor of a key that has not moved.
#[tokio::test]
async fn a_miss_is_final_without_an_old_place() {
    for time in [Duration::from_millis(1), MINUTE * 60] {
        let servers = [start_larderd(UDP), start_larderd(UDP)];
        let first = Network::of(&servers[0], NOTHING_WRONG, 1).await;
        let second = Network::of(&servers[1], NOTHING_WRONG, 1).await;
        let list = Servers(vec![first.address.clone().into(), second.address.clone().into()]);
        let builder = patient(Protocol::Meta).server(first.address.clone()).warm_up(time);
        let client = builder.udp(gets(MINUTE)).build();
        client.set_servers(&list).expect("the protocol can");
        tokio::time::sleep(Duration::from_millis(10)).await;
        let is_over = time < MINUTE;
        let mut asked = 0;
        for key in (0..20).map(|n| format!("key:{n}")) {
            let has_moved = client.server_of(&key).is_some_and(|server| server.address == second.address);
            if is_over || !has_moved {
                assert_eq!(client.get(&key).await.expect(WELL), None);
                asked += 1;
            }
        }
        assert_eq!(client.udp_counts(), UdpCounts { asked, answered: asked, stray: 0 });
        let connections = [first, second].map(|network| network.connections.load(Ordering::SeqCst));
        assert!(asked > 0 && connections == [0, 0], "{asked} {connections:?}");
    }
}

#[tokio::test]
async fn a_cookie_is_returned() {
    let server = start_larderd(&["-U", "-1", "--udp-cookie"]);
    let network = Network::of(&server, NOTHING_WRONG, 1).await;
    let client = patient(Protocol::Meta).server(network.address).udp(gets(MINUTE)).build();
    let value = vec![b'v'; 20_000];
    client.set("k", &value[..], MINUTE).await.expect(WELL);
    for _ in 0..3 {
        assert!(client.get("k").await.expect(WELL).expect("it is stored").value == value);
    }
    assert_eq!(client.udp_counts(), UdpCounts { asked: 4, answered: 3, stray: 0 });
}

async fn until_it_has(client: &AsyncClient, key: &str, value: Option<&str>) {
    for _ in 0..6000 {
        let found = client.get(key).await.expect(WELL).map(|item| item.value);
        if found.as_deref() == value.map(str::as_bytes) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{key} never has {value:?}");
}

/// As the example of libmemcached's author: a client that stores over UDP, and one that reads over TCP.
#[tokio::test]
async fn changes_are_fired_and_forgotten() {
    for server in start_each(UDP) {
        for protocol in PROTOCOLS {
            let network = Network::of(&server, NOTHING_WRONG, 1).await;
            let address = || network.address.clone();
            let udp = patient(protocol).server(address()).udp(Udp::FireAndForget).build();
            let tcp = patient(protocol).server(address()).build();
            udp.set("foo", "when we sanitize", MINUTE).await.expect(WELL);
            until_it_has(&tcp, "foo", Some("when we sanitize")).await;
            for stored in udp.set_many([("n", "5"), ("gone", "x")], MINUTE).await {
                stored.expect(WELL);
            }
            until_it_has(&tcp, "gone", Some("x")).await;
            udp.noreply().delete("gone").await.expect(WELL);
            udp.noreply().incr("n", 3).await.expect(WELL);
            let append = StoreOptions { mode: Mode::Append, ..StoreOptions::default() };
            udp.noreply().store("foo", "!", append).await.expect(WELL);
            until_it_has(&tcp, "gone", None).await;
            until_it_has(&tcp, "n", Some("8")).await;
            until_it_has(&tcp, "foo", Some("when we sanitize!")).await;
            assert!(udp.flush_all(Duration::ZERO).await.into_iter().all(|(_, flushed)| flushed.is_ok()));
            until_it_has(&tcp, "foo", None).await;
            assert_eq!(network.connections.load(Ordering::SeqCst), 1, "of the client over TCP");
        }
    }
}

/// What leads nowhere else.
#[derive(Debug)]
struct Tunnel;

impl Connector for Tunnel {
    fn connect(&self, _: &Address) -> Connecting {
        Box::pin(async { Err(std::io::ErrorKind::Unsupported.into()) })
    }
}

#[tokio::test]
async fn what_needs_an_answer_is_refused() {
    let (_listener, socket) = bind().await;
    let address: Address = socket.local_addr().expect("it is bound").to_string().parse().expect("an address");
    let client = patient(Protocol::Text).server(address.clone()).udp(Udp::FireAndForget).build();
    let refused = |error: Option<Error>| {
        let error = error.expect("it is refused");
        assert!(matches!(error, Error::Unsupported(reason) if reason.contains("UDP")), "{error}");
    };
    refused(client.get("k").await.err());
    refused(client.gets("k").await.err());
    refused(client.add("k", "x", Ttl::Never).await.err());
    refused(client.cas("k", "x", Ttl::Never, 5).await.err());
    refused(client.incr("k", 1).await.err());
    refused(client.delete("k").await.err());
    refused(client.touch("k", MINUTE).await.err());
    refused(client.version().await.pop().expect("one server").1.err());
    refused(client.stats("").await.pop().expect("one server").1.err());
    refused(client.get_many(["k"]).collect().await.failures.pop().map(|failure| failure.error));
    // Each change says by itself that it wants no reply, and nothing of the above was sent.
    client.set("k", "x", Ttl::Never).await.expect(WELL);
    assert_eq!(request(&socket).await.2, b"set k 0 0 1 noreply\r\nx\r\n");
    // 1,400 bytes with the frame, and one more.
    let overhead = 8 + "set k 0 0 1360 noreply\r\n\r\n".len();
    client.set("k", vec![b'x'; 1400 - overhead], Ttl::Never).await.expect(WELL);
    assert_eq!(request(&socket).await.2.len(), 1392);
    let error = client.set("k", vec![b'x'; 1401 - overhead], Ttl::Never).await.expect_err("it is too long");
    assert!(matches!(error, Error::DatagramTooLarge { bytes: 1401 }), "{error}");

    // Nothing is mixed.
    let unix = || "/tmp/nobody".parse::<Address>().expect("a path");
    for udp in [Udp::FireAndForget, gets(MINUTE)] {
        let mixed = patient(Protocol::Text).server(address.clone()).server(unix()).udp(udp).build();
        refused(mixed.set("k", "x", Ttl::Never).await.err());
        mixed.set_servers(&Servers(vec![address.clone().into()])).expect("it has no unix socket");
        if udp == Udp::FireAndForget {
            mixed.set("k", "x", Ttl::Never).await.expect(WELL);
        }
        let tunnelled = patient(Protocol::Text).server(address.clone()).connector(Tunnel).udp(udp).build();
        refused(tunnelled.set("k", "x", Ttl::Never).await.err());
        let client = patient(Protocol::Text).server(address.clone()).udp(udp).build();
        refused(client.set_servers(&"127.0.0.1,/tmp/nobody".parse().expect("a list")).err());
        assert_eq!(client.servers().len(), 1);
        let tls = Tls::accepting_anything().expect("it is a configuration").anonymous();
        refused(
            patient(Protocol::Text).server(address.clone()).tls(tls).udp(udp).build().get("k").await.err(),
        );
    }
}
