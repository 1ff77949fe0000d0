//! Servers that are away: what becomes of requests, and what they cost.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larder_client::async_client::AsyncBuilder;
use larder_client::policy::{CircuitBreaker, Health};
use larder_client::{Address, AsyncClient, Distribution, Error, FailurePolicy, Protocol};
use larder_conformance::server::{Server, any, eventually, free_port, refusing_address};

use crate::faults::{Fake, spawn_get};
use crate::servers::{MINUTE, PROTOCOLS, address, patient, start_each, start_larderd};

const WELL: &str = "all is well";
const LONG: Duration = Duration::from_secs(3600);

/// Ejects after one failure, and for ever.
fn at_once() -> CircuitBreaker {
    CircuitBreaker { failure_limit: 1, retry_after: LONG, retry_after_max: LONG }
}

/// Nobody listens there.
fn nobody() -> Address {
    refusing_address().to_string().parse().expect("an address")
}

fn keys() -> Vec<String> {
    (0..200).map(|n| format!("key:{n}")).collect()
}

/// Two servers that run, and one that does not.
fn builder(servers: &[Server], protocol: Protocol, policy: FailurePolicy) -> (AsyncBuilder, Address) {
    let away = nobody();
    let builder = patient(protocol).distribution(Distribution::Ketama).failure_policy(policy);
    let builder = builder.circuit_breaker(at_once()).server(away.clone());
    (servers.iter().fold(builder, |builder, server| builder.server(address(server))), away)
}

#[tokio::test]
async fn keys_of_a_server_that_is_away_miss_or_move_or_fail() {
    let servers: Vec<_> = [start_each(&[]), start_each(&[])].into_iter().flatten().collect();
    for (policy, protocol) in [
        (FailurePolicy::Error, Protocol::Meta),
        (FailurePolicy::Miss, Protocol::Binary),
        (FailurePolicy::Eject, Protocol::Meta),
        (FailurePolicy::Failover, Protocol::Text),
    ] {
        let (builder, away) = builder(&servers, protocol, policy);
        let client = builder.build();
        let moves = matches!(policy, FailurePolicy::Eject | FailurePolicy::Failover);
        // The first failure ejects.
        let first = keys().into_iter().find(|key| server_of(&client, key) == away).expect("it has keys");
        let stored = client.set(&first, "x", MINUTE).await;
        assert_eq!(stored.is_ok(), policy == FailurePolicy::Failover, "{policy:?} {stored:?}");
        let health = client.server_states()[0].health;
        assert!(matches!(health, Health::Ejected { .. }), "{policy:?} {health:?}");
        for key in keys() {
            let is_away = server_of(&client, &key) == away;
            match client.set(&key, &key[..], MINUTE).await {
                Ok(()) => assert!(moves || !is_away, "{policy:?}"),
                Err(Error::Ejected(server)) => assert!(!moves && is_away && server == away),
                Err(error) => panic!("{policy:?} {error}"),
            }
            match client.get(&key).await {
                Ok(Some(item)) => assert!(item.value == key.as_bytes() && (moves || !is_away)),
                Ok(None) => assert!(policy == FailurePolicy::Miss && is_away, "{policy:?}"),
                Err(Error::Ejected(_)) => assert!(policy == FailurePolicy::Error && is_away),
                Err(error) => panic!("{policy:?} {error}"),
            }
        }
        let found = client.get_many(keys()).collect().await;
        let missing = found.items.iter().filter(|item| item.is_none()).count();
        let of_away = keys().iter().filter(|key| server_of(&client, key) == away).count();
        assert_eq!(missing, if moves { 0 } else { of_away }, "{policy:?}");
        let failed: usize = found.failures.iter().map(|failure| failure.places.len()).sum();
        assert_eq!(failed, if policy == FailurePolicy::Error { of_away } else { 0 });
        client.flush_all(Duration::ZERO).await;
    }
}

fn server_of(client: &AsyncClient, key: &str) -> Address {
    client.server_of(key).expect("there are servers").address
}

/// A get of many finds out by itself that a server is away, and asks the next one within its time.
#[tokio::test]
async fn a_get_of_many_moves_on() {
    let server = start_larderd(&[]);
    for protocol in PROTOCOLS {
        let (builder, away) = builder(&[], protocol, FailurePolicy::Failover);
        let client = builder.server(address(&server)).build();
        let whole = patient(protocol).server(address(&server)).build();
        for stored in whole.set_many(keys().iter().map(|key| (key, &key[..])), MINUTE).await {
            stored.expect(WELL);
        }
        let found = client.get_many(keys()).collect().await;
        assert!(found.failures.is_empty(), "{:?}", found.failures);
        assert!(
            found
                .items
                .iter()
                .zip(keys())
                .all(|(item, key)| { item.as_ref().is_some_and(|item| item.value == key.as_bytes()) })
        );
        assert_eq!(client.server_states()[0].server.address, away);
        let state = &client.server_states()[0];
        assert!(state.failures >= 1 && state.ejections == 1, "{state:?}");
    }
}

/// A server that accepts, and never answers.
fn black_hole() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let (address, accepted) = (listener.local_addr().expect("it is bound"), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            kept.push(stream);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, accepted)
}

#[tokio::test]
async fn a_server_that_never_answers_costs_one_timeout() {
    for policy in [FailurePolicy::Error, FailurePolicy::Miss, FailurePolicy::Eject, FailurePolicy::Failover] {
        let (hole, connections) = black_hole();
        let hole: Address = hole.to_string().parse().expect("an address");
        let builder = AsyncClient::builder().server(hole).timeout(Duration::from_secs(1));
        let client = builder.failure_policy(policy).circuit_breaker(at_once()).build();
        let mut timeouts = 0;
        for _ in 0..1000 {
            match client.set("k", "x", MINUTE).await {
                Err(Error::Unknown(_)) => timeouts += 1,
                Err(Error::Ejected(_)) => {}
                other => panic!("{policy:?} {other:?}"),
            }
            let read = client.get("k").await;
            let is_hidden = policy == FailurePolicy::Miss;
            assert!(matches!(read, Err(Error::Ejected(_))) != is_hidden, "{policy:?} {read:?}");
        }
        assert_eq!(timeouts, 1, "{policy:?}");
        assert!(connections.load(Ordering::SeqCst) <= 1, "{policy:?}");
    }
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_by_a_probe() {
    // While the server is away, nobody else gets this port.
    let port = free_port().to_string();
    let server = Server::start(&any().expect("it builds"), &["-p", &port]).expect("it starts");
    let own = address(&server);
    drop(server);
    let breaker = CircuitBreaker {
        failure_limit: 2,
        retry_after: Duration::from_millis(20),
        retry_after_max: Duration::from_millis(100),
    };
    let builder = patient(Protocol::Meta).server(own).failure_policy(FailurePolicy::Miss);
    let client = builder.circuit_breaker(breaker).build();
    for _ in 0..3 {
        assert_eq!(client.get("k").await.expect("a miss"), None);
    }
    assert!(client.server_states()[0].failures >= 2);
    let _again = Server::start(&any().expect("it builds"), &["-p", &port]).expect("it starts");
    for _ in 0..6000 {
        if client.set("k", "x", MINUTE).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(client.get("k").await.expect(WELL).map(|item| item.value), Some(b"x".to_vec()));
    let state = &client.server_states()[0];
    assert_eq!((state.health, state.failures), (Health::Up, 0));
    assert_eq!(state.ejections, 1);
}

/// A probe ends with the runtime of the call that has begun it.
#[test]
fn a_server_that_comes_back_is_found_with_a_runtime_for_each_call() {
    // While the server is away, nobody else gets this port.
    let port = free_port().to_string();
    let server = Server::start(&any().expect("it builds"), &["-p", &port]).expect("it starts");
    let own = address(&server);
    drop(server);
    let soon = Duration::from_millis(20);
    let breaker = CircuitBreaker { failure_limit: 1, retry_after: soon, retry_after_max: soon };
    let builder = patient(Protocol::Meta).server(own).failure_policy(FailurePolicy::Miss);
    let client = builder.circuit_breaker(breaker).build();
    let call = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(client.set("k", "x", MINUTE))
    };
    assert!(call().is_err() && matches!(client.server_states()[0].health, Health::Ejected { .. }));
    let _again = Server::start(&any().expect("it builds"), &["-p", &port]).expect("it starts");
    eventually(|| call().is_ok());
}

#[tokio::test]
async fn a_probe_without_an_end_is_one_probe() {
    let (hole, _) = black_hole();
    let soon = Duration::from_millis(1);
    let breaker = CircuitBreaker { failure_limit: 1, retry_after: soon, retry_after_max: Duration::MAX };
    let builder = AsyncClient::builder().server(hole.to_string().parse::<Address>().expect("an address"));
    let builder = builder.timeout(Duration::from_millis(100)).circuit_breaker(breaker);
    let client = builder.failure_policy(FailurePolicy::Miss).build();
    assert_eq!(client.get("k").await.expect("a miss"), None);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..10 {
        assert_eq!(client.get("k").await.expect("a miss"), None);
    }
    assert!(tasks() <= before + 3, "{} tasks", tasks());
}

/// A change that may have been made is not made again elsewhere.
#[tokio::test]
async fn failover_never_repeats_a_change() {
    let (hole, _) = black_hole();
    let server = start_larderd(&[]);
    let builder = AsyncClient::builder().distribution(Distribution::Ketama);
    let builder = builder.server(hole.to_string().parse::<Address>().expect("an address"));
    let builder = builder.server(address(&server)).timeout(Duration::from_secs(1));
    let client = builder.failure_policy(FailurePolicy::Failover).circuit_breaker(at_once()).build();
    let hole: Address = hole.to_string().parse().expect("an address");
    let key = keys().into_iter().find(|key| server_of(&client, key) == hole).expect("it has keys");
    let error = client.incr(&key, 1).await.expect_err("nobody answers");
    assert!(error.is_unknown(), "{error}");
    // Later ones go to the other server.
    let later = client.with_timeout(MINUTE);
    assert_eq!(later.incr(&key, 1).await.expect(WELL), None);
    later.set(&key, "1", MINUTE).await.expect(WELL);
    assert_eq!(later.incr(&key, 1).await.expect(WELL), Some(2));
}

#[tokio::test]
async fn a_connection_that_breaks_is_one_failure() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let breaker = CircuitBreaker { failure_limit: 100, ..CircuitBreaker::default() };
    let client = builder.retries(0).circuit_breaker(breaker).build();
    let gets = ["a", "b", "c"].map(|key| spawn_get(&client, key));
    let mut peer = server.accept().await;
    peer.expect("mg a v f O0\r\nmg b v f O1\r\nmg c v f O2\r\n").await;
    drop(peer);
    for get in gets {
        let found = get.await.expect("no panic");
        assert!(matches!(found, Err(Error::Closed)), "{found:?}");
    }
    assert_eq!(client.server_states()[0].failures, 1);
}
