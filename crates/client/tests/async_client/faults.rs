//! Servers that do wrong: what each request is told, and what becomes of its connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use larder_client::async_client::{AsyncBuilder, StoreOptions};
use larder_client::codec::{ErrorKind, Mode, ViolationKind};
use larder_client::error::Interruption;
use larder_client::{AsyncClient, Error, Login, Protocol};
use larder_conformance::server::resident_bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::servers::{MINUTE, patient};

/// A server of the test's own: it does what the test says, connection by connection.
pub(crate) struct Fake {
    connections: mpsc::UnboundedReceiver<Peer>,
}

/// The server's end of a connection.
pub(crate) struct Peer(TcpStream);

impl Fake {
    /// And a client of it with one connection at a time.
    pub(crate) async fn start(protocol: Protocol) -> (Self, AsyncBuilder) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (accepted, connections) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("somebody connects");
                if accepted.send(Peer(stream)).is_err() {
                    return;
                }
            }
        });
        let builder =
            patient(protocol).server(address.parse::<larder_client::Address>().expect("an address"));
        (Self { connections }, builder.connections(1))
    }

    pub(crate) async fn accept(&mut self) -> Peer {
        timeout(MINUTE, self.connections.recv()).await.expect("the client connects").expect("it listens")
    }
}

impl Peer {
    /// Reads exactly this.
    pub(crate) async fn expect(&mut self, request: &str) {
        let mut read = vec![0; request.len()];
        let asked = timeout(MINUTE, self.0.read_exact(&mut read)).await;
        asked.expect("the client asks in time").expect("the client asks");
        assert_eq!(String::from_utf8_lossy(&read), request);
    }

    /// Reads a line.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let byte = timeout(MINUTE, self.0.read_u8()).await.expect("the client asks in time");
            line.push(byte.expect("the client asks"));
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    pub(crate) async fn send(&mut self, reply: &str) {
        self.0.write_all(reply.as_bytes()).await.expect("the client listens");
    }

    /// Waits until the client has closed. Nothing more came from it.
    async fn expect_end(mut self) {
        let end = timeout(MINUTE, self.0.read(&mut [0; 100])).await.expect("the client closes");
        assert!(matches!(end, Ok(0) | Err(_)), "the client goes on: {end:?}");
    }
}

/// Polls a future once; it must not be done.
pub(crate) async fn begin<F: Future + Unpin>(future: &mut F) {
    let is_pending = poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await;
    assert!(is_pending);
}

pub(crate) fn spawn_get(
    client: &AsyncClient,
    key: &'static str,
) -> tokio::task::JoinHandle<Result<Option<String>, Error>> {
    let client = client.clone();
    tokio::spawn(async move {
        let item = client.get(key).await?;
        Ok(item.map(|item| String::from_utf8_lossy(&item.value).into_owned()))
    })
}

fn spawn_set(client: &AsyncClient, key: &'static str) -> tokio::task::JoinHandle<Result<(), Error>> {
    let client = client.clone();
    tokio::spawn(async move { client.set(key, "x", larder_client::Ttl::Never).await })
}

fn why(error: &Error) -> Option<&Error> {
    match error {
        Error::Unknown(reason) => Some(reason),
        _ => None,
    }
}

#[tokio::test]
async fn a_timeout_ends_its_connection_and_others_on_it_are_told() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.build();
    // Before the others, so that their order is known.
    let mut impatient = Box::pin({
        let client = client.with_timeout(Duration::from_secs(2));
        async move { client.get("late").await }
    });
    begin(&mut impatient).await;
    let mut first = server.accept().await;
    first.expect("mg late v f O0\r\n").await;
    let set = spawn_set(&client, "a");
    first.expect("ms a 1 O1\r\nx\r\n").await;
    let get = spawn_get(&client, "b");
    first.expect("mg b v f O2\r\n").await;
    assert!(matches!(impatient.await, Err(Error::Timeout)));
    let error = set.await.expect("no panic").expect_err("its reply is lost");
    assert!(matches!(why(&error), Some(Error::Interrupted(Interruption::Timeout))), "{error}");
    // The read is sent again, on another connection.
    let mut second = server.accept().await;
    second.expect("mg b v f O0\r\n").await;
    second.send("VA 1 f0 O0\r\ny\r\n").await;
    assert_eq!(get.await.expect("no panic").expect("it is answered").as_deref(), Some("y"));
    first.expect_end().await;
}

/// Without numbers a late reply could be taken for another's.
#[tokio::test]
async fn a_dropped_future_ends_its_connection_in_the_text_protocol() {
    let (mut server, builder) = Fake::start(Protocol::Text).await;
    let client = builder.build();
    let mut dropped = Box::pin(client.get("late"));
    begin(&mut dropped).await;
    let mut first = server.accept().await;
    first.expect("get late\r\n").await;
    let set = spawn_set(&client, "a");
    first.expect("set a 0 0 1\r\nx\r\n").await;
    drop(dropped);
    let error = set.await.expect("no panic").expect_err("its reply is lost");
    assert!(matches!(why(&error), Some(Error::Interrupted(Interruption::Cancelled))), "{error}");
    first.expect_end().await;
}

#[tokio::test]
async fn the_reply_to_a_dropped_future_is_nobodys() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.build();
    let mut dropped = Box::pin(client.get("late"));
    begin(&mut dropped).await;
    let mut first = server.accept().await;
    first.expect("mg late v f O0\r\n").await;
    let get = spawn_get(&client, "a");
    first.expect("mg a v f O1\r\n").await;
    drop(dropped);
    first.send("VA 3 f0 O0\r\nold\r\nVA 3 f0 O1\r\nnew\r\n").await;
    assert_eq!(get.await.expect("no panic").expect("it is answered").as_deref(), Some("new"));
    // The connection goes on, and as before it ends with a reply that has a wrong number.
    let mut dropped = Box::pin(client.get("late"));
    begin(&mut dropped).await;
    first.expect("mg late v f O2\r\n").await;
    let set = spawn_set(&client, "b");
    first.expect("ms b 1 O3\r\nx\r\n").await;
    drop(dropped);
    first.send("HD O3\r\n").await;
    let error = set.await.expect("no panic").expect_err("its reply is lost");
    assert!(matches!(why(&error), Some(Error::Violation(_))), "{error}");
    first.expect_end().await;
}

/// A server that stalls is found out, though nobody waits for it any more.
#[tokio::test]
async fn the_reply_to_a_dropped_future_has_its_time() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.build();
    let impatient = client.with_timeout(Duration::from_secs(2));
    let mut dropped = Box::pin(impatient.get("late"));
    begin(&mut dropped).await;
    let mut first = server.accept().await;
    first.expect("mg late v f O0\r\n").await;
    drop(dropped);
    let set = spawn_set(&client, "a");
    first.expect("ms a 1 O1\r\nx\r\n").await;
    let error = set.await.expect("no panic").expect_err("its reply is lost");
    assert!(matches!(why(&error), Some(Error::Interrupted(Interruption::Timeout))), "{error}");
    first.expect_end().await;
}

#[tokio::test]
async fn a_future_that_is_dropped_before_it_is_sent_is_never_sent() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let login = Login { user: "ann".into(), password: "pass".into() };
    let client = builder.login(login).build();
    let mut dropped = Box::pin(client.set("dropped", "x", MINUTE));
    begin(&mut dropped).await;
    let kept = spawn_set(&client, "kept");
    let mut peer = server.accept().await;
    peer.expect("set login 0 0 8\r\nann pass\r\n").await;
    drop(dropped);
    peer.send("STORED\r\n").await;
    peer.expect("ms kept 1 O0\r\nx\r\n").await;
    peer.send("HD O0\r\n").await;
    kept.await.expect("no panic").expect("on the same connection");
}

#[tokio::test]
async fn it_is_known_whether_a_change_was_sent() {
    // Sent, and not answered.
    for reply in ["", "HD", "HD O"] {
        let (mut server, builder) = Fake::start(Protocol::Meta).await;
        let set = spawn_set(&builder.build(), "a");
        let mut peer = server.accept().await;
        peer.expect("ms a 1 O0\r\nx\r\n").await;
        peer.send(reply).await;
        drop(peer);
        let error = set.await.expect("no panic").expect_err("its reply is lost");
        assert!(matches!(why(&error), Some(Error::Closed)), "{error}");
    }
    // Never sent: nobody listens, the login is refused, or nothing of it comes in time.
    let nobody = AsyncClient::of("127.0.0.1:1".parse().expect("an address"));
    let error = nobody.set("a", "x", MINUTE).await.expect_err("nobody listens");
    assert!(matches!(error, Error::Connect(_)), "{error}");

    let (mut server, builder) = Fake::start(Protocol::Text).await;
    let client = builder.login(Login { user: "ann".into(), password: "pass".into() }).build();
    let set = spawn_set(&client, "a");
    let mut peer = server.accept().await;
    peer.expect("set login 0 0 8\r\nann pass\r\n").await;
    peer.send("CLIENT_ERROR authentication failure\r\n").await;
    let error = set.await.expect("no panic").expect_err("the login is refused");
    assert!(matches!(error, Error::Refused { kind: ErrorKind::Unauthenticated, .. }), "{error}");

    let set = Box::pin(client.with_timeout(Duration::from_millis(100)).set("a", "x", MINUTE).await);
    assert!(matches!(*set, Err(Error::Timeout)));

    // Refused before the request is sent, the change may be sent again.
    let set = spawn_set(&client, "a");
    drop(server.accept().await);
    let mut peer = server.accept().await;
    peer.expect("set login 0 0 8\r\nann pass\r\n").await;
    peer.send("STORED\r\n").await;
    peer.expect("set a 0 0 1\r\nx\r\n").await;
    peer.send("STORED\r\n").await;
    set.await.expect("no panic").expect("it is stored");
}

#[tokio::test]
async fn a_reply_to_nothing_ends_its_connection() {
    for stray in ["HD O0\r\n", "HD", "EN O1\r\n", "\r\n"] {
        let (mut server, builder) = Fake::start(Protocol::Meta).await;
        let client = builder.build();
        let set = spawn_set(&client, "a");
        let mut first = server.accept().await;
        first.expect("ms a 1 O0\r\nx\r\n").await;
        first.send("HD O0\r\n").await;
        set.await.expect("no panic").expect("it is stored");
        first.send(stray).await;
        // Once it has come.
        first.expect_end().await;
        let get = spawn_get(&client, "b");
        let mut second = server.accept().await;
        second.expect("mg b v f O0\r\n").await;
        second.send("EN O0\r\n").await;
        assert_eq!(get.await.expect("no panic").expect("it is answered"), None);
    }
    // In the place of a reply: each attempt gets one.
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let get = spawn_get(&builder.retries(1).build(), "b");
    for _ in 0..2 {
        let mut peer = server.accept().await;
        peer.expect("mg b v f O0\r\n").await;
        peer.send("VA 1 f0 O7\r\ny\r\n").await;
        peer.expect_end().await;
    }
    let error = get.await.expect("no panic").expect_err("both are wrong");
    assert!(matches!(&error, Error::Violation(wrong) if wrong.kind == ViolationKind::WrongOpaque), "{error}");
}

#[tokio::test]
async fn after_a_refusal_that_may_have_come_early_the_connection_ends() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.build();
    let refused = spawn_set(&client, "a");
    let mut first = server.accept().await;
    first.expect("ms a 1 O0\r\nx\r\n").await;
    let other = spawn_set(&client, "b");
    first.expect("ms b 1 O1\r\nx\r\n").await;
    first.send("CLIENT_ERROR bad data chunk\r\nHD O1\r\n").await;
    let error = refused.await.expect("no panic").expect_err("it is refused");
    assert!(matches!(error, Error::Refused { kind: ErrorKind::Client, .. }), "{error}");
    let error = other.await.expect("no panic").expect_err("its reply is in doubt");
    assert!(matches!(why(&error), Some(Error::Interrupted(Interruption::Refused(_)))), "{error}");
    first.expect_end().await;

    // Others leave no doubt.
    let refused = spawn_set(&client, "a");
    let mut second = server.accept().await;
    second.expect("ms a 1 O0\r\nx\r\n").await;
    second.send("SERVER_ERROR out of memory storing object\r\n").await;
    let error = refused.await.expect("no panic").expect_err("it is refused");
    assert!(matches!(error, Error::Refused { kind: ErrorKind::OutOfMemory, .. }), "{error}");
    let stored = spawn_set(&client, "b");
    second.expect("ms b 1 O1\r\nx\r\n").await;
    second.send("HD O1\r\n").await;
    stored.await.expect("no panic").expect("on the same connection");
}

/// In words, and not as the library's own types are called.
#[tokio::test]
async fn why_a_change_without_a_reply_has_failed_is_told_in_words() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.build();
    let add = StoreOptions { mode: Mode::Add, ..StoreOptions::default() };
    client.noreply().store("a", "x", add).await.expect("it is sent");
    let mut peer = server.accept().await;
    assert!(peer.line().await.starts_with("ms a 1 "));
    peer.expect("x\r\n").await;
    let set = spawn_set(&client, "b");
    assert!(peer.line().await.starts_with("ms b 1 "));
    peer.send("NS Oq\r\n").await;
    let error = set.await.expect("no panic").expect_err("the connection ends");
    let told = "the connection was closed: the server refused another request: not stored";
    assert!(error.to_string().ends_with(told), "{error}");
}

#[tokio::test]
async fn the_error_of_a_change_without_a_reply_is_nobody_elses() {
    let (mut server, builder) = Fake::start(Protocol::Text).await;
    let client = builder.build();
    client.noreply().set("a", "x", Duration::from_secs(60)).await.expect("it is sent");
    let mut first = server.accept().await;
    first.expect("set a 0 60 1 noreply\r\nx\r\n").await;
    let set = spawn_set(&client, "b");
    first.expect("set b 0 0 1\r\nx\r\n").await;
    let get = spawn_get(&client, "c");
    first.expect("get c\r\n").await;
    // The second line is the reply to the set, which would be taken for a miss of the get.
    first.send("SERVER_ERROR out of memory storing object\r\nSTORED\r\nEND\r\n").await;
    let error = set.await.expect("no panic").expect_err("its reply is in doubt");
    assert!(matches!(why(&error), Some(Error::Interrupted(Interruption::Refused(_)))), "{error}");
    first.expect_end().await;
    let mut second = server.accept().await;
    second.expect("get c\r\n").await;
    second.send("VALUE c 0 1\r\ny\r\nEND\r\n").await;
    assert_eq!(get.await.expect("no panic").expect("it is answered").as_deref(), Some("y"));
}

#[tokio::test]
async fn a_connection_has_so_many_requests_and_no_more() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.requests_in_flight(2).build();
    let gets: Vec<_> = ["a", "b", "c", "d"].map(|key| spawn_get(&client, key)).into();
    let mut peer = server.accept().await;
    peer.expect("mg a v f O0\r\nmg b v f O1\r\n").await;
    // Whatever else it would send, it has had the time to.
    let mut more = [0; 1];
    let waited = timeout(Duration::from_millis(100), peer.0.read(&mut more)).await;
    assert!(waited.is_err(), "a third request came");
    peer.send("EN O0\r\n").await;
    peer.expect("mg c v f O2\r\n").await;
    peer.send("EN O1\r\nEN O2\r\n").await;
    peer.expect("mg d v f O3\r\n").await;
    peer.send("EN O3\r\n").await;
    for get in gets {
        assert_eq!(get.await.expect("no panic").expect("it is answered"), None);
    }
}

#[tokio::test]
async fn bytes_of_requests_wait_for_room() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.buffered_bytes(64 << 10).build();
    let large = Arc::new(client);
    let set = |key: &'static str| {
        let client = Arc::clone(&large);
        tokio::spawn(async move { client.set(key, vec![b'x'; 40_000], larder_client::Ttl::Never).await })
    };
    let (first, second) = (set("a"), set("b"));
    let mut peer = server.accept().await;
    peer.expect("ms a 40000 O0\r\n").await;
    let mut value = vec![0; 40_002];
    peer.0.read_exact(&mut value).await.expect("the value");
    let waited = timeout(Duration::from_millis(100), peer.0.read(&mut value)).await;
    assert!(waited.is_err(), "the second request came");
    peer.send("HD O0\r\n").await;
    peer.expect("ms b 40000 O1\r\n").await;
    peer.0.read_exact(&mut value).await.expect("the value");
    peer.send("HD O1\r\n").await;
    for set in [first, second] {
        set.await.expect("no panic").expect("it is stored");
    }
}

#[tokio::test]
async fn an_announced_value_takes_no_memory_and_one_too_large_is_refused() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.value_bytes_max(1 << 30).build();
    let mut get = Box::pin(client.get("a"));
    begin(&mut get).await;
    let mut peer = server.accept().await;
    peer.expect("mg a v f O0\r\n").await;
    let before = resident_bytes(std::process::id()).expect("Linux tells");
    peer.send("VA 1000000000 f0 O0\r\nabc").await;
    // All the time that it would take to make room for it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let set = spawn_set(&client, "b");
    peer.expect("ms b 1 O1\r\nx\r\n").await;
    let after = resident_bytes(std::process::id()).expect("Linux tells");
    assert!(after < before + (500 << 20), "{before} {after}");
    drop((get, set));

    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.value_bytes_max(100_000).build();
    let get = spawn_get(&client, "a");
    let mut peer = server.accept().await;
    peer.expect("mg a v f O0\r\n").await;
    let set = spawn_set(&client, "b");
    peer.expect("ms b 1 O1\r\nx\r\n").await;
    peer.send("VA 1000000 f0 O0\r\nabc").await;
    let error = get.await.expect("no panic").expect_err("it is too large");
    assert!(matches!(error, Error::ValueTooLarge { .. }), "{error}");
    let error = set.await.expect("no panic").expect_err("its reply is in doubt");
    assert!(matches!(why(&error), Some(Error::Interrupted(Interruption::ValueTooLarge))), "{error}");
    peer.expect_end().await;
    let error = client.set("a", vec![0; 100_001], MINUTE).await.expect_err("it is too large");
    assert!(matches!(error, Error::ValueTooLarge { value_bytes: 100_001 }), "{error}");
}

#[tokio::test]
async fn values_that_nobody_takes_stop_the_reading_until_they_are_taken() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.buffered_bytes(64 << 10).build();
    let keys: Vec<_> = (0..64).map(|n| n.to_string()).collect();
    let mut values = client.get_many(&keys);
    let mut next = Box::pin(values.next());
    begin(&mut next).await;
    let mut peer = server.accept().await;
    let serving = tokio::spawn(async move {
        // 64 MB, which no buffer of a system has room for.
        for n in 0..64 {
            peer.expect(&format!("mg {n} v f O{n}\r\n")).await;
            peer.send(&format!("VA 1000000 f0 O{n}\r\n{}\r\n", "x".repeat(1_000_000))).await;
        }
        peer
    });
    assert!(matches!(next.await, Some(Ok((0, _)))));
    // All the time that it would take to read the rest.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!serving.is_finished(), "all is read though nobody takes it");
    for expected in 1..64 {
        let (place, item) = values.next().await.expect("there are more").expect("it is answered");
        assert_eq!((place, item.value.len()), (expected, 1_000_000));
    }
    assert!(values.next().await.is_none());
}

#[tokio::test]
async fn a_value_that_is_taken_leaves_its_room() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.buffered_bytes(64 << 10).build();
    let mut values = client.get_many(["a"]);
    let mut next = Box::pin(values.next());
    begin(&mut next).await;
    let mut peer = server.accept().await;
    peer.expect("mg a v f O0\r\n").await;
    peer.send(&format!("VA 100000 f0 O0\r\n{}\r\n", "x".repeat(100_000))).await;
    assert!(matches!(next.await, Some(Ok((0, _)))));
    // The stream has not been asked for more, and holds nothing.
    let get = spawn_get(&client, "b");
    peer.expect("mg b v f O1\r\n").await;
    peer.send("EN O1\r\n").await;
    assert_eq!(get.await.expect("no panic").expect("it is answered"), None);
    assert!(values.next().await.is_none());
}

#[test]
fn another_runtime_may_go_on_with_a_client() {
    let server = crate::servers::start_each(&[]).remove(0);
    let client = patient(Protocol::Meta).server(crate::servers::address(&server)).build();
    for n in 0..3_u8 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let found = client.get("n").await.expect("it is answered").map(|item| item.value);
            assert_eq!(found, n.checked_sub(1).map(|n| vec![n]));
            client.set("n", [n], MINUTE).await.expect("it is stored");
        });
    }
}

#[tokio::test]
async fn a_get_of_many_goes_on_with_the_keys_that_are_left() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.build();
    let found = tokio::spawn(async move { client.get_many(["a", "b", "c", "d"]).collect().await });
    let mut first = server.accept().await;
    first.expect("mg a v f O0\r\nmg b v f O1\r\nmg c v f O2\r\nmg d v f O3\r\n").await;
    // One is found, one is not, and half of a third.
    first.send("VA 1 f0 O0\r\nx\r\nEN O1\r\nVA 2 f0 O2\r\ny").await;
    drop(first);
    let mut second = server.accept().await;
    second.expect("mg b v f O0\r\nmg c v f O1\r\nmg d v f O2\r\n").await;
    second.send("EN O0\r\nVA 2 f0 O1\r\nyy\r\nSERVER_ERROR out of memory\r\n").await;
    let found = found.await.expect("no panic");
    let values: Vec<_> = found.items.iter().map(|item| item.as_ref().map(|item| &item.value[..])).collect();
    assert_eq!(values, [Some(&b"x"[..]), None, Some(b"yy"), None]);
    // One refusal is that of all keys without a value.
    assert_eq!(found.failures.len(), 1);
    assert_eq!(found.failures[0].places, [1, 3]);
    assert!(matches!(found.failures[0].error, Error::Refused { kind: ErrorKind::OutOfMemory, .. }));
}

#[tokio::test]
async fn a_get_of_many_ends_in_a_task_that_tokio_hurries() {
    let client = AsyncClient::builder().build();
    let task = tokio::spawn(async move {
        let mut values = client.get_many(["a"]);
        poll_fn(|cx| {
            // Until the task has to give others a turn.
            while let Poll::Ready(turn) = tokio::task::coop::poll_proceed(cx) {
                turn.made_progress();
            }
            let polled = futures_util::Stream::poll_next(std::pin::Pin::new(&mut values), cx);
            assert!(polled.is_pending());
            Poll::Ready(())
        })
        .await;
        assert!(matches!(values.next().await, Some(Err(_))));
        assert!(values.next().await.is_none());
    });
    task.await.expect("it ends");
}

#[tokio::test]
async fn the_last_handle_closes_the_connections() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.build();
    let set = spawn_set(&client, "a");
    let mut peer = server.accept().await;
    peer.expect("ms a 1 O0\r\nx\r\n").await;
    peer.send("HD O0\r\n").await;
    set.await.expect("no panic").expect("it is stored");
    drop(client);
    peer.expect_end().await;
}
