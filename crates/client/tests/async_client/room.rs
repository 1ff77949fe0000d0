//! Room for requests and values on the client's side: who gives it back, and who is blamed where there is none.

use std::time::Duration;

use larder_client::policy::CircuitBreaker;
use larder_client::{Error, Protocol};

use crate::faults::{Fake, begin};

/// The rest of a get of many waits for another server meanwhile.
#[tokio::test]
async fn values_that_are_taken_leave_all_their_room() {
    let (mut prompt, builder) = Fake::start(Protocol::Meta).await;
    let (mut hung, other) = Fake::start(Protocol::Meta).await;
    let builder = builder.server(other.build().servers().remove(0)).buffered_bytes(64 << 10);
    let client = builder.build();
    let own = client.servers().remove(0);
    let (prompts, hungs): (Vec<_>, Vec<_>) =
        (0..).map(|n| n.to_string()).take(300).partition(|key| client.server_of(key).as_ref() == Some(&own));
    let keys: Vec<_> = prompts.iter().take(60).chain(hungs.first()).collect();
    let mut peers = None;
    let mut waiting = Vec::new();
    // Together, what each has taken without telling the connection is more than may wait there.
    for round in 0..9 {
        let mut values = client.get_many(&keys);
        begin(&mut Box::pin(values.next())).await;
        if peers.is_none() {
            peers = Some((prompt.accept().await, hung.accept().await));
        }
        let (peer, _) = peers.as_mut().expect("they are connected");
        for (n, key) in prompts.iter().take(60).enumerate() {
            let opaque = round * 60 + n;
            peer.expect(&format!("mg {key} v f O{opaque}\r\n")).await;
            peer.send(&format!("VA 8 f0 O{opaque}\r\n12345678\r\n")).await;
        }
        for _ in 0..60 {
            assert!(matches!(values.next().await, Some(Ok(_))));
        }
        begin(&mut Box::pin(values.next())).await;
        waiting.push(values);
    }
    let mut get = Box::pin(client.get(&prompts[60]));
    begin(&mut get).await;
    let (peer, _) = peers.as_mut().expect("they are connected");
    peer.expect(&format!("mg {} v f O540\r\n", prompts[60])).await;
    peer.send("EN O540\r\n").await;
    assert_eq!(get.await.expect("it is read"), None);
}

/// A server that is not asked, or not listened to, has not failed.
#[tokio::test]
async fn who_finds_no_room_blames_nobody() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let breaker = CircuitBreaker { failure_limit: 100, ..CircuitBreaker::default() };
    let builder = builder.requests_in_flight(1).buffered_bytes(64 << 10).circuit_breaker(breaker);
    let client = builder.build();
    let failures = || client.server_states()[0].failures;
    let times_out = async |time| {
        let found = client.with_timeout(time).get("b").await;
        assert!(matches!(found, Err(Error::Timeout)), "{found:?}");
        failures()
    };
    let mut get = Box::pin(client.get("a"));
    begin(&mut get).await;
    let mut peer = server.accept().await;
    peer.expect("mg a v f O0\r\n").await;
    let without_place = times_out(Duration::from_millis(50)).await;
    peer.send("EN O0\r\n").await;
    assert_eq!(get.await.expect("it is answered"), None);

    let mut values = client.get_many(["a"]);
    begin(&mut Box::pin(values.next())).await;
    peer.expect("mg a v f O1\r\n").await;
    peer.send(&format!("VA 100000 f0 O1\r\n{}\r\n", "x".repeat(100_000))).await;
    // However soon the value is read: it has the only place until then.
    let unread = times_out(Duration::from_millis(100)).await;
    let without_time = times_out(Duration::ZERO).await;
    assert_eq!([without_place, unread, without_time], [0, 0, 0]);
}
