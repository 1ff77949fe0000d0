//! The client, with a few memcacheds.

use larder_client::client::{Item, StoreOutcome};
use larder_client::codec::{ErrorKind, Protocol, Store};
use larder_client::discovery::Discovery;
use larder_client::policy::{CircuitBreaker, Health};
use larder_client::{Address, Client, Distribution, Error, FailurePolicy, Servers};
use larder_conformance::server::{Server, free_port, refusing_address};

use crate::server::start;

fn address(server: &Server) -> Address {
    server.address().to_string().parse().expect("an address")
}

/// Three servers and a client of them.
fn three(protocol: Protocol, distribution: Distribution) -> (Vec<Server>, Client) {
    let servers: Vec<_> = (0..3).map(|_| start(&[])).collect();
    let builder = Client::builder().protocol(protocol).distribution(distribution);
    let builder = servers.iter().fold(builder, |builder, server| builder.server(address(server)));
    (servers, builder.build())
}

#[test]
fn every_request_is_answered_in_every_protocol() {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let (_servers, mut client) = three(protocol, Distribution::Ketama);
        let value = |item: Option<Item>| item.map(|item| String::from_utf8_lossy(&item.value).into_owned());
        let all_well = "all is well";

        assert_eq!(client.get("k").expect(all_well), None);
        assert_eq!(client.replace("k", "x", 0).expect(all_well), StoreOutcome::NotStored);
        assert_eq!(client.add("k", "1", 0).expect(all_well), StoreOutcome::Stored);
        assert_eq!(client.add("k", "2", 0).expect(all_well), StoreOutcome::NotStored);
        assert_eq!(client.append("k", "2").expect(all_well), StoreOutcome::Stored);
        assert_eq!(client.prepend("k", "0").expect(all_well), StoreOutcome::Stored);
        assert_eq!(value(client.get("k").expect(all_well)).as_deref(), Some("012"));
        assert_eq!(client.incr("k", 5).expect(all_well), Some(17));
        assert_eq!(client.decr("k", 100).expect(all_well), Some(0));
        assert_eq!(client.incr("nokey", 1).expect(all_well), None);
        assert!(client.touch("k", 100).expect(all_well) && !client.touch("nokey", 100).expect(all_well));

        let cas = client.gets("k").expect(all_well).and_then(|item| item.cas).expect("it is asked for");
        assert_eq!(client.cas("k", "x", 0, cas).expect(all_well), StoreOutcome::Stored);
        assert_eq!(client.cas("k", "y", 0, cas).expect(all_well), StoreOutcome::Exists);
        assert_eq!(client.cas("nokey", "y", 0, cas).expect(all_well), StoreOutcome::NotFound);
        if protocol != Protocol::Meta {
            // The server refuses it before it compares; in the meta protocol it deletes the item.
            client.cas("k", vec![0; 2 << 20], 0, cas).expect_err("it is too large");
        }
        assert_eq!(value(client.get_and_touch("k", -1).expect(all_well)).as_deref(), Some("x"));
        assert_eq!(client.get("k").expect(all_well), None);

        let store = Store { key: b"k", value: &[b"a", b"b"], client_flags: 77, ..Store::default() };
        assert_eq!(client.store(&store).expect(all_well), StoreOutcome::Stored);
        assert_eq!(client.get("k").expect(all_well).map(|item| item.client_flags), Some(77));
        assert!(client.delete("k").expect(all_well) && !client.delete("k").expect(all_well));

        client.set("word", "one", 0).expect(all_well);
        let error = client.incr("word", 1).expect_err("it is no number");
        assert!(matches!(error, Error::Refused { kind: ErrorKind::NonNumeric, .. }), "{error}");
        let error = client.set("large", vec![0; 2 << 20], 0).expect_err("it is too large");
        assert!(matches!(error, Error::Refused { kind: ErrorKind::TooLarge, .. }), "{error}");

        // A value beyond every buffer.
        let large = vec![b'x'; 1_000_000];
        client.set("large", &large, 0).expect(all_well);
        assert!(client.get("large").expect(all_well).is_some_and(|item| item.value == large));

        for (address, version) in client.version() {
            assert!(version.is_ok_and(|version| version.starts_with("1.")), "{address}");
        }
        for (_, stats) in client.stats("") {
            assert!(stats.expect(all_well).iter().any(|(name, _)| name == "uptime"));
        }
        let flushed = client.flush_all(0);
        assert_eq!(flushed.iter().filter(|(_, flushed)| flushed.is_ok()).count(), 3);
        assert_eq!(client.get("word").expect(all_well), None);

        for key in ["", &"x".repeat(251)] {
            assert!(matches!(client.get(key), Err(Error::InvalidKey)));
        }
        let injection = client.get("a\r\nflush_all");
        assert_eq!(matches!(injection, Err(Error::InvalidKey)), protocol != Protocol::Binary);
    }
}

#[test]
fn many_keys_come_from_all_servers() {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        for distribution in [Distribution::Modula, Distribution::Ketama, Distribution::KetamaWeighted] {
            let (servers, mut client) = three(protocol, distribution);
            let keys: Vec<_> = (0..2000).map(|n| format!("key-{n}-{}", "x".repeat(n % 50))).collect();
            for (n, key) in keys.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
                client.set(key, n.to_string(), 0).expect("all is well");
            }
            let found = client.multi_get(&keys);
            assert!(found.failures.is_empty(), "{:?}", found.failures);
            for (n, item) in found.items.iter().enumerate() {
                let value = item.as_ref().map(|item| String::from_utf8_lossy(&item.value).into_owned());
                assert_eq!(value, (n % 3 != 0).then(|| n.to_string()));
            }
            for (address, stats) in client.stats("") {
                let stats = stats.expect("all is well");
                let items =
                    stats.iter().find(|(name, _)| name == "curr_items").map(|(_, value)| value.parse());
                let Some(Ok(items)) = items else { panic!("{address} has no curr_items") };
                // A third of 1333, give or take what a ring of a hundred points does.
                assert!((200..800).contains(&items), "{distribution:?} {items}");
            }
            drop(servers);
        }
    }
}

#[test]
fn a_server_that_is_gone_fails_alone_and_is_found_again() {
    // While the second one is away, nobody else gets its port.
    let port = free_port().to_string();
    let mut servers = vec![start(&[]), start(&["-p", &port])];
    let mut client = Client::builder().server(address(&servers[0])).server(address(&servers[1])).build();
    let keys: Vec<_> = (0..20).map(|n| format!("key-{n}")).collect();
    for key in &keys {
        client.set(key, "x", 0).expect("both run");
    }
    let second = address(&servers[1]);
    servers.pop();
    let found = client.multi_get(&keys);
    let hits = found.items.iter().flatten().count();
    assert!(hits > 0 && hits < keys.len(), "{hits}");
    assert_eq!(found.failures.len(), 1, "{:?}", found.failures);
    assert_eq!(found.failures[0].0, Some(second));
    let refused = keys.iter().filter(|key| matches!(client.get(key), Err(Error::Connect(_)))).count();
    assert_eq!(refused, keys.len() - hits);

    let _again = start(&["-p", &port]);
    assert!(keys.iter().all(|key| client.get(key).is_ok()));
}

#[test]
fn a_server_that_is_away_is_left_out_as_the_policy_says() {
    let day = std::time::Duration::from_secs(86_400);
    let breaker = CircuitBreaker { failure_limit: 1, retry_after: day, retry_after_max: day };
    let keys: Vec<_> = (0..100).map(|n| format!("key-{n}")).collect();
    for policy in [FailurePolicy::Miss, FailurePolicy::Eject, FailurePolicy::Failover] {
        let mut servers = vec![start(&[]), start(&[]), start(&["-p", &free_port().to_string()])];
        let builder = Client::builder().distribution(Distribution::Ketama).failure_policy(policy);
        let builder = servers.iter().fold(builder, |builder, server| builder.server(address(server)));
        let mut client = builder.circuit_breaker(breaker).build();
        let gone = address(&servers.pop().expect("there are three"));
        let is_of = |client: &Client, key: &String| client.server_of(key).expect("three").address == gone;
        let first = keys.iter().find(|key| is_of(&client, key)).expect("it has keys");
        assert_eq!(client.set(first, "x", 0).is_ok(), policy == FailurePolicy::Failover);
        let state = &client.server_states()[2];
        assert!(matches!(state.health, Health::Ejected { .. }) && state.failures == 1, "{state:?}");
        for key in &keys {
            let is_lost = policy == FailurePolicy::Miss && is_of(&client, key);
            assert_eq!(client.set(key, "x", 0).is_err(), is_lost, "{policy:?}");
            assert_eq!(client.get(key).expect("a hit or a miss").is_none(), is_lost);
        }
        let found = client.multi_get(&keys);
        assert!(found.failures.is_empty(), "{:?}", found.failures);
        let lost = keys.iter().filter(|key| policy == FailurePolicy::Miss && is_of(&client, key)).count();
        assert_eq!(found.items.iter().filter(|item| item.is_none()).count(), lost);
    }
}

/// A get of many finds out by itself that servers are away, and asks the next ones.
#[test]
fn a_get_of_many_moves_on() {
    let keys: Vec<_> = (0..300).map(|n| format!("key-{n}")).collect();
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let away = [refusing_address(), refusing_address()]
            .map(|address| address.to_string().parse::<Address>().expect("an address"));
        let server = start(&["-p", &free_port().to_string()]);
        let mut whole = Client::of(address(&server));
        keys.iter().for_each(|key| whole.set(key, key, 0).expect("all is well"));
        let builder = Client::builder().protocol(protocol).distribution(Distribution::Ketama);
        let builder = away.iter().fold(builder, |builder, away| builder.server(away.clone()));
        let builder = builder.server(address(&server)).failure_policy(FailurePolicy::Failover);
        let mut client = builder.build();
        let found = client.multi_get(&keys);
        assert!(found.failures.is_empty(), "{:?}", found.failures);
        assert!(
            found
                .items
                .iter()
                .zip(&keys)
                .all(|(item, key)| { item.as_ref().is_some_and(|item| item.value == key.as_bytes()) })
        );
        // Nobody is left.
        drop(server);
        let found = client.multi_get(&keys);
        assert!(found.items.iter().all(Option::is_none) && !found.failures.is_empty());
    }
}

#[test]
fn a_list_of_servers_can_be_replaced() {
    let (mut servers, mut client) = three(Protocol::Text, Distribution::Ketama);
    let keys: Vec<_> = (0..100).map(|n| format!("key-{n}")).collect();
    keys.iter().for_each(|key| client.set(key, key, 0).expect("all is well"));
    let connections = |server: &Server| {
        let mut told = Client::of(address(server)).stats("");
        let told = told.pop().expect("one server").1.expect("all is well");
        let total = told.into_iter().find(|(name, _)| name == "total_connections").expect("it counts");
        total.1.parse::<u64>().expect("a number")
    };
    let before = connections(&servers[0]);
    let moved = servers.pop().expect("there are three");
    let added = start(&[]);
    let list = [&added, &servers[0], &servers[1]].map(|server| larder_client::Server::from(address(server)));
    client.set_servers(&Servers(list.to_vec()));
    assert!(
        client
            .servers()
            .map(|server| server.address.clone())
            .eq(list.iter().map(|server| server.address.clone()))
    );
    for key in &keys {
        let server = client.server_of(key).expect("there are servers").address.clone();
        let item = client.get(key).expect("all is well");
        // It is where it was, or nowhere: never at a server that has left.
        assert!(server != address(&moved) && item.is_none_or(|item| item.value == key.as_bytes()));
        client.set(key, "new", 0).expect("all is well");
    }
    assert!(client.multi_get(&keys).items.iter().flatten().all(|item| item.value == b"new"));
    // The connection stayed open: only those that count have come.
    assert_eq!(connections(&servers[0]), before + 1);
    // It is also looked up.
    client.discover(&Discovery::Dns { host: "localhost".into(), port: 11 }).expect("it has an address");
    assert!(client.servers().all(|server| server.address.to_string().ends_with(":11")));
    let refused = client.discover(&Discovery::Cluster(address(&added)));
    assert!(matches!(refused, Err(Error::Discovery(_))), "{refused:?}");
}

#[test]
fn a_client_without_servers_says_so() {
    let mut client = Client::builder().build();
    assert!(matches!(client.get("k"), Err(Error::NoServers)));
    assert!(matches!(client.multi_get(&["k"]).failures[..], [(None, Error::NoServers)]));
    assert!(client.version().is_empty());
}
