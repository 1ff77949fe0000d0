//! Copies of items on several servers, of which some die.

use std::time::Duration;

use larder_client::async_client::{AsyncBuilder, ReadRule, Replication, WriteRule};
use larder_client::client::StoreOutcome;
use larder_client::policy::CircuitBreaker;
use larder_client::{AsyncClient, Distribution, Error, Protocol};
use larder_conformance::server::{Server, larderd, reference};

use crate::faults::Fake;
use crate::servers::{MINUTE, PROTOCOLS, address, patient, start_larderd};

const WELL: &str = "all is well";

fn kinds() -> Vec<Vec<Server>> {
    let programs = [Some(larderd().expect("it builds")), reference()];
    let start = |program| (0..4).map(|_| Server::start(program, &[""; 0]).expect("it starts")).collect();
    programs.iter().flatten().map(|program| start(program)).collect()
}

fn builder(servers: &[Server], protocol: Protocol, writes: WriteRule, reads: ReadRule) -> AsyncBuilder {
    let day = Duration::from_secs(86_400);
    let breaker = CircuitBreaker { failure_limit: 1, retry_after: day, retry_after_max: day };
    let builder = patient(protocol).distribution(Distribution::Ketama).circuit_breaker(breaker);
    let builder = servers.iter().fold(builder, |builder, server| builder.server(address(server)));
    builder.replication(Replication { copies: 3, writes, reads })
}

fn keys() -> Vec<String> {
    (0..100).map(|n| format!("key:{n}")).collect()
}

/// In how many servers a key is.
async fn copies(servers: &[Server], key: &str) -> usize {
    let mut copies = 0;
    for server in servers {
        let client = patient(Protocol::Meta).server(address(server)).build();
        copies += usize::from(client.get(key).await.expect(WELL).is_some());
    }
    copies
}

#[tokio::test]
async fn items_outlive_servers() {
    for mut servers in kinds() {
        let client = builder(&servers, Protocol::Meta, WriteRule::Quorum, ReadRule::First).build();
        for key in keys() {
            client.set(&key, &key[..], MINUTE).await.expect(WELL);
            assert_eq!(copies(&servers, &key).await, 3);
        }
        // Two of three copies of some are lost with them.
        servers.truncate(2);
        for key in keys() {
            let item = client.get(&key).await.expect(WELL).expect("a copy is left");
            assert_eq!(item.value, key.as_bytes());
        }
        let found = client.get_many(keys()).collect().await;
        assert!(found.failures.is_empty() && found.items.iter().all(Option::is_some));
        let results = client.set_many(keys().iter().map(|key| (key, "y")), MINUTE).await;
        let (made, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        // With one place left of three there is no quorum, but one has made it.
        assert!(!made.is_empty() && !failed.is_empty());
        assert!(failed.iter().all(|error| error.as_ref().is_err_and(Error::is_unknown)), "{failed:?}");
    }
}

#[tokio::test]
async fn rules_say_how_many_must_have_made_a_change() {
    for mut servers in kinds() {
        servers.truncate(3);
        let rules = [WriteRule::One, WriteRule::Quorum, WriteRule::All];
        let clients = rules.map(|rule| builder(&servers, Protocol::Meta, rule, ReadRule::First).build());
        for alive in [3, 2, 1] {
            servers.truncate(alive);
            for (client, needed) in clients.iter().zip([1, 2, 3]) {
                let stored = client.set("k", "x", MINUTE).await;
                let is_unknown = stored.as_ref().is_err_and(Error::is_unknown);
                assert_eq!((stored.is_ok(), is_unknown), (alive >= needed, alive < needed), "{stored:?}");
            }
        }
        servers.clear();
        let error = clients[0].get("k").await.expect_err("nobody is left");
        assert!(
            matches!(error, Error::Connect(_) | Error::Closed | Error::Io(_) | Error::Ejected(_)),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_place_without_a_copy_is_filled() {
    for servers in kinds() {
        let client = builder(&servers, Protocol::Meta, WriteRule::All, ReadRule::First).build();
        for key in keys() {
            client.set(&key, "x", MINUTE).await.expect(WELL);
            let own = client.server_of(&key).expect("there are servers");
            let first = patient(Protocol::Meta).server(own).build();
            assert!(first.delete(&key).await.expect(WELL));
            assert!(client.get(&key).await.expect(WELL).is_some());
            let item = first.get_or_recache(&key, Default::default()).await.expect(WELL).expect("filled");
            assert!(item.ttl.is_some_and(|ttl| ttl <= MINUTE));
        }
    }
}

#[tokio::test]
async fn changes_that_depend_on_the_item_leave_no_old_copy() {
    for servers in kinds() {
        for protocol in PROTOCOLS {
            let client = builder(&servers, protocol, WriteRule::All, ReadRule::First).build();
            client.set("n", "1", MINUTE).await.expect(WELL);
            assert_eq!(client.incr("n", 1).await.expect(WELL), Some(2));
            assert_eq!(copies(&servers, "n").await, 1);
            assert_eq!(client.add("n", "7", MINUTE).await.expect(WELL), StoreOutcome::NotStored);
            let item = client.get("n").await.expect(WELL).expect("it is there");
            assert_eq!(item.value, b"2");
            assert!(client.touch("n", MINUTE).await.expect(WELL));
            assert!(client.delete("n").await.expect(WELL));
            assert_eq!(copies(&servers, "n").await, 0);
            assert!(!client.delete("n").await.expect(WELL));
        }
    }
}

/// As after a restart of its server.
#[tokio::test]
async fn what_the_first_place_has_lost_is_changed_all_the_same() {
    for servers in kinds() {
        let client = builder(&servers, Protocol::Meta, WriteRule::All, ReadRule::First).build();
        let lost = async |key: &str| {
            client.set(key, "5", MINUTE).await.expect(WELL);
            let own = client.server_of(key).expect("there are servers");
            assert!(patient(Protocol::Meta).server(own).build().delete(key).await.expect(WELL));
        };
        for key in ["incr", "add", "append", "cas", "touch"] {
            lost(key).await;
        }
        assert_eq!(client.incr("incr", 1).await.expect(WELL), Some(6));
        assert_eq!(client.add("add", "7", MINUTE).await.expect(WELL), StoreOutcome::NotStored);
        assert_eq!(client.append("append", "7").await.expect(WELL), StoreOutcome::Stored);
        let unique = client.gets("cas").await.expect(WELL).and_then(|item| item.cas).expect("it is there");
        assert_eq!(client.cas("cas", "7", MINUTE, unique).await.expect(WELL), StoreOutcome::Stored);
        assert!(client.get_and_touch("touch", MINUTE).await.expect(WELL).is_some());
        for (key, expected) in [("incr", "6"), ("add", "5"), ("append", "57"), ("cas", "7"), ("touch", "5")] {
            assert_eq!(copies(&servers, key).await, if key == "touch" { 3 } else { 1 }, "{key}");
            let item = client.get(key).await.expect(WELL).expect("it is there");
            assert_eq!(String::from_utf8_lossy(&item.value), expected, "{key}");
        }
    }
}

/// Another place's CAS value may be that of an older item at the first.
#[tokio::test]
async fn a_cas_value_is_that_of_the_first_place() {
    let server = start_larderd(&[]);
    let (_hung, hung) = Fake::start(Protocol::Meta).await;
    let replication = Replication { copies: 2, writes: WriteRule::One, reads: ReadRule::First };
    let builder = hung.server(address(&server)).replication(replication);
    let client = builder.timeout(Duration::from_millis(200)).build();
    let own: larder_client::Server = address(&server).into();
    let key = keys().into_iter().find(|key| client.server_of(key).as_ref() != Some(&own)).expect("a key");
    let other = patient(Protocol::Meta).server(address(&server)).build();
    other.set(&key, "x", MINUTE).await.expect(WELL);
    let found = client.gets(&key).await;
    assert!(matches!(found, Err(Error::Timeout)), "{found:?}");
}

#[tokio::test]
async fn the_newest_copy_is_that_with_the_highest_cas_value() {
    for servers in kinds() {
        let client = builder(&servers, Protocol::Meta, WriteRule::All, ReadRule::Newest).build();
        client.set("k", "old", MINUTE).await.expect(WELL);
        for server in &servers {
            let one: AsyncClient = patient(Protocol::Meta).server(address(server)).build();
            // CAS values of a server rise: here above those of the others.
            for _ in 0..10 {
                one.set("other", "x", MINUTE).await.expect(WELL);
            }
            if one.replace("k", "new", MINUTE).await.expect(WELL) == StoreOutcome::Stored {
                break;
            }
        }
        let found = client.get("k").await.expect(WELL).map(|item| item.value);
        assert_eq!(found.as_deref(), Some(&b"new"[..]));
        assert!(client.get_many(["k"]).collect().await.items[0].is_some());
    }
}
