//! Every request, in every protocol, of larderd and of memcached.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_client::async_client::{Recache, StoreOptions};
use larder_client::client::{Item, StoreOutcome};
use larder_client::codec::{ErrorKind, Mode};
use larder_client::{AsyncClient, Distribution, Error, Protocol, Ttl};

use crate::servers::{MINUTE, PROTOCOLS, address, patient, start_each, start_larderd};

const WELL: &str = "all is well";

fn text(item: Option<Item>) -> Option<String> {
    item.map(|item| String::from_utf8_lossy(&item.value).into_owned())
}

/// Several tasks may share one, and any thread may poll a future.
#[test]
fn clients_and_futures_are_send() {
    fn is_shareable<T: Clone + Send + Sync>() {}
    fn is_send<T: Send>(_: T) {}
    is_shareable::<AsyncClient>();
    let client = AsyncClient::of("127.0.0.1".parse().expect("an address"));
    is_send(client.get("a"));
    is_send(client.set("a", "x", Ttl::Never));
    is_send(client.incr("a", 1));
    is_send(client.get_or_recache("a", Recache::default()));
    is_send(client.noreply().set("a", "x", Ttl::Never));
    is_send(client.set_many([("a", "x")], Ttl::Never));
    is_send(client.delete_many(["a"]));
    is_send(client.flush_all(Duration::ZERO));
    is_send(client.stats(""));
    is_send(async move { client.get_many(["a"]).collect().await });
}

#[tokio::test]
async fn every_request_is_answered_in_every_protocol() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let client = patient(protocol).server(address(&server)).build();
            for (_, flushed) in client.flush_all(Duration::ZERO).await {
                flushed.expect(WELL);
            }
            assert_eq!(client.get("k").await.expect(WELL), None);
            assert_eq!(client.replace("k", "x", MINUTE).await.expect(WELL), StoreOutcome::NotStored);
            assert_eq!(client.append("k", "x").await.expect(WELL), StoreOutcome::NotStored);
            assert_eq!(client.add("k", "1", MINUTE).await.expect(WELL), StoreOutcome::Stored);
            assert_eq!(client.add("k", "2", MINUTE).await.expect(WELL), StoreOutcome::NotStored);
            assert_eq!(client.append("k", "2").await.expect(WELL), StoreOutcome::Stored);
            assert_eq!(client.prepend("k", "0").await.expect(WELL), StoreOutcome::Stored);
            assert_eq!(text(client.get("k").await.expect(WELL)).as_deref(), Some("012"));
            assert_eq!(client.incr("k", 5).await.expect(WELL), Some(17));
            assert_eq!(client.decr("k", 100).await.expect(WELL), Some(0));
            assert_eq!(client.incr("nokey", 1).await.expect(WELL), None);
            assert!(client.touch("k", MINUTE).await.expect(WELL));
            assert!(!client.touch("nokey", MINUTE).await.expect(WELL));

            let cas = client.gets("k").await.expect(WELL).and_then(|item| item.cas).expect("it is asked for");
            assert_eq!(client.cas("k", "x", MINUTE, cas).await.expect(WELL), StoreOutcome::Stored);
            assert_eq!(client.cas("k", "y", MINUTE, cas).await.expect(WELL), StoreOutcome::Exists);
            assert_eq!(client.cas("nokey", "y", MINUTE, cas).await.expect(WELL), StoreOutcome::NotFound);
            assert!(matches!(client.cas("k", "y", MINUTE, 0).await, Err(Error::Unsupported(_))));
            assert_eq!(text(client.get_and_touch("k", MINUTE).await.expect(WELL)).as_deref(), Some("x"));
            let item = client.gets_and_touch("k", MINUTE).await.expect(WELL).expect("it is there");
            assert!(item.cas.is_some());

            let options = StoreOptions { client_flags: 77, ttl: MINUTE.into(), ..StoreOptions::default() };
            assert_eq!(client.store("k", "", options).await.expect(WELL), StoreOutcome::Stored);
            let item = client.get("k").await.expect(WELL).expect("it is there");
            assert_eq!((item.client_flags, item.value.len()), (77, 0));
            assert!(client.delete("k").await.expect(WELL) && !client.delete("k").await.expect(WELL));

            client.set("word", "one", MINUTE).await.expect(WELL);
            let error = client.incr("word", 1).await.expect_err("it is no number");
            assert!(matches!(error, Error::Refused { kind: ErrorKind::NonNumeric, .. }), "{error}");
            let error = client.set("large", vec![0; 2 << 20], MINUTE).await.expect_err("it is too large");
            assert!(matches!(error, Error::Refused { kind: ErrorKind::TooLarge, .. }), "{error}");
            // A value beyond every buffer.
            let large: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
            client.set("large", &large[..], MINUTE).await.expect(WELL);
            assert_eq!(client.get("large").await.expect(WELL).map(|item| item.value), Some(large));

            for (_, version) in client.version().await {
                assert!(version.expect(WELL).starts_with(|c: char| c.is_ascii_digit()));
            }
            for (_, stats) in client.stats("").await {
                let stats: BTreeMap<_, _> = stats.expect(WELL).into_iter().collect();
                assert_eq!(stats.get("pid"), Some(&server.pid().to_string()));
            }
        }
    }
}

#[tokio::test]
async fn numbers_are_created_where_the_protocol_can() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let client = patient(protocol).server(address(&server)).build();
            client.delete("n").await.expect(WELL);
            let created = client.incr_or_create("n", 1, 40, MINUTE).await;
            match protocol {
                Protocol::Text => assert!(matches!(created, Err(Error::Unsupported(_)))),
                Protocol::Meta | Protocol::Binary => {
                    assert_eq!(created.expect(WELL), 40);
                    assert_eq!(client.incr_or_create("n", 2, 40, MINUTE).await.expect(WELL), 42);
                }
            }
        }
    }
}

/// What a server says of the time that an item has left, `-1` for ever.
async fn ttl_secs(client: &AsyncClient, key: &str) -> Option<i64> {
    let item = client.get_or_recache(key, Recache::default()).await.expect(WELL)?;
    Some(item.ttl.map_or(-1, |ttl| ttl.as_secs() as i64))
}

#[tokio::test]
async fn items_live_as_long_as_they_are_told() {
    for server in start_each(&[]) {
        let meta = patient(Protocol::Meta).server(address(&server)).build();
        for protocol in PROTOCOLS {
            let client = patient(protocol).server(address(&server)).build();
            let day = Duration::from_secs(24 * 60 * 60);
            for duration in [MINUTE, 30 * day, 31 * day, 4000 * day] {
                let ttl = Ttl::from(duration);
                client.set("k", "x", ttl).await.expect(WELL);
                let secs = ttl_secs(&meta, "k").await.expect("it lives");
                let asked = duration.as_secs() as i64;
                // A busy machine may take its time between the two, and servers count in seconds.
                assert!((asked - 60..=asked + 60).contains(&secs), "{protocol:?} {asked} {secs}");
                client.set("k", "x", MINUTE).await.expect(WELL);
                assert!(client.touch("k", ttl).await.expect(WELL));
                let secs = ttl_secs(&meta, "k").await.expect("it lives");
                assert!((asked - 60..=asked + 60).contains(&secs), "{protocol:?} {asked} {secs}");
            }
            client.set("k", "x", Duration::from_secs(u32::MAX.into())).await.expect(WELL);
            let secs = ttl_secs(&meta, "k").await.expect("it lives");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
            assert!((secs + now - i64::from(i32::MAX)).abs() <= 60, "{protocol:?} {secs}");
            client.set("k", "x", Ttl::Never).await.expect(WELL);
            assert_eq!(ttl_secs(&meta, "k").await, Some(-1));
            // The shortest time is neither 0 nor for ever.
            client.set("k", "x", Duration::from_nanos(1)).await.expect(WELL);
            assert!(ttl_secs(&meta, "k").await.is_none_or(|secs| (0..=1).contains(&secs)));
            for expired in [Ttl::After(Duration::ZERO), Ttl::At(UNIX_EPOCH), Ttl::At(SystemTime::now())] {
                client.set("k", "x", expired).await.expect(WELL);
                assert_eq!(client.get("k").await.expect(WELL), None, "{protocol:?} {expired:?}");
                client.set("k", "x", MINUTE).await.expect(WELL);
                assert!(client.get_and_touch("k", expired).await.expect(WELL).is_some());
                assert_eq!(client.get("k").await.expect(WELL), None, "{protocol:?} {expired:?}");
            }
        }
    }
}

#[tokio::test]
async fn binary_keys_are_the_same_in_both_protocols_that_can_write_them() {
    for server in start_each(&[]) {
        let [text, meta, binary] =
            PROTOCOLS.map(|protocol| patient(protocol).server(address(&server)).build());
        let long = [b' '; 186];
        for key in [&b"a b"[..], b"\r\nflush_all\r\n", b"\0", &long] {
            meta.set(key, "of meta", MINUTE).await.expect(WELL);
            assert_eq!(self::text(binary.get(key).await.expect(WELL)).as_deref(), Some("of meta"));
            binary.set(key, "12", MINUTE).await.expect(WELL);
            assert_eq!(meta.incr(key, 1).await.expect(WELL), Some(13));
            assert!(meta.touch(key, MINUTE).await.expect(WELL));
            let found = meta.get_many([b"plain", key, b"b\0"]).collect().await;
            assert!(found.failures.is_empty(), "{:?}", found.failures);
            assert_eq!(
                found.items.into_iter().map(self::text).collect::<Vec<_>>(),
                [None, Some("13".into()), None]
            );
            assert!(meta.delete(key).await.expect(WELL));
            assert_eq!(binary.get(key).await.expect(WELL), None);
            assert!(matches!(text.get(key).await, Err(Error::InvalidKey)));
            assert!(matches!(text.set(key, "x", MINUTE).await, Err(Error::InvalidKey)));
        }
        for client in [&text, &meta, &binary] {
            for key in [&b""[..], &[b'x'; 251]] {
                assert!(matches!(client.get(key).await, Err(Error::InvalidKey)));
            }
            let (_, refused) = client.stats("a\r\nflush_all").await.pop().expect("there is a server");
            assert!(matches!(refused, Err(Error::Unsupported(_))));
        }
        for client in [&text, &meta] {
            let (_, refused) =
                client.flush_prefix("a\r\nb", Duration::ZERO).await.pop().expect("there is a server");
            assert!(matches!(refused, Err(Error::InvalidKey)));
        }
    }
}

#[tokio::test]
async fn a_time_without_end_can_be_set() {
    let server = start_larderd(&[]);
    let builder = AsyncClient::builder().server(address(&server)).timeout(Duration::MAX);
    let client = builder.connect_timeout(Duration::MAX).build();
    assert_eq!(client.get("nothing").await.expect(WELL), None);
}

#[tokio::test]
async fn one_reader_makes_a_value_anew() {
    for server in start_each(&[]) {
        let client = patient(Protocol::Meta).server(address(&server)).build();
        let recache = Recache { create: Some(MINUTE.into()), before_expiry: None };
        let first = client.get_or_recache("page", recache).await.expect(WELL).expect("it is created");
        assert!(first.has_won && first.item.value.is_empty(), "{first:?}");
        let second = client.get_or_recache("page", recache).await.expect(WELL).expect("it is there");
        assert!(!second.has_won && second.is_taken, "{second:?}");
        let cas = first.item.cas.expect("it is asked for");
        assert_eq!(client.cas("page", "made", MINUTE, cas).await.expect(WELL), StoreOutcome::Stored);
        let third = client.get_or_recache("page", recache).await.expect(WELL).expect("it is there");
        assert!(!third.has_won && !third.is_taken && !third.is_stale, "{third:?}");
        assert!(third.ttl.is_some_and(|ttl| ttl <= MINUTE));

        // Near its end, one is asked to make it anew.
        let early = Recache { create: None, before_expiry: Some(2 * MINUTE) };
        assert!(client.get_or_recache("page", early).await.expect(WELL).expect("it is there").has_won);
        assert!(!client.get_or_recache("page", early).await.expect(WELL).expect("it is there").has_won);

        client.set("page", "made", MINUTE).await.expect(WELL);
        assert!(client.invalidate("page", Some(MINUTE.into())).await.expect(WELL));
        assert!(!client.invalidate("nopage", None).await.expect(WELL));
        let stale =
            client.get_or_recache("page", Recache::default()).await.expect(WELL).expect("it is there");
        assert!(stale.is_stale && stale.has_won, "{stale:?}");
        assert_eq!(stale.item.value, b"made");
        assert_eq!(client.get_or_recache("nopage", Recache::default()).await.expect(WELL), None);
        let text = patient(Protocol::Text).server(address(&server)).build();
        assert!(matches!(text.invalidate("page", None).await, Err(Error::Unsupported(_))));
    }
}

#[tokio::test]
async fn many_keys_are_asked_of_all_servers() {
    for protocol in PROTOCOLS {
        let servers: Vec<_> = (0..2).flat_map(|_| start_each(&[])).collect();
        let builder = patient(protocol).distribution(Distribution::Ketama);
        let client = servers.iter().fold(builder, |builder, server| builder.server(address(server))).build();
        let keys: Vec<_> = (0..5000).map(|n| format!("key{n}")).collect();
        let even = || keys.iter().step_by(2);
        let stored = client.set_many(even().map(|key| (key, format!("value of {key}"))), MINUTE).await;
        assert_eq!(stored.len(), 2500);
        for result in stored {
            result.expect(WELL);
        }
        let found = client.get_many(&keys).collect().await;
        assert!(found.failures.is_empty(), "{:?}", found.failures);
        for (n, item) in found.items.into_iter().enumerate() {
            let expected = (n % 2 == 0).then(|| format!("value of key{n}"));
            assert_eq!(text(item), expected, "{protocol:?}");
        }
        let with_cas = client.gets_many(&keys[..1]).collect().await;
        assert!(with_cas.items[0].as_ref().is_some_and(|item| item.cas.is_some()));
        // Each server has some.
        assert!(keys.iter().any(|key| client.server_of(key) != client.server_of(&keys[0])));

        let deleted = client.delete_many(&keys).await;
        let deleted: Vec<_> = deleted.into_iter().map(|result| result.expect(WELL)).collect();
        assert_eq!(deleted, (0..5000).map(|n| n % 2 == 0).collect::<Vec<_>>());
        assert!(client.get_many(&keys).collect().await.items.iter().all(Option::is_none));
        assert!(client.get_many([""; 0]).collect().await.items.is_empty());

        // A bad key fails alone.
        let found = client.get_many(["", "key1"]).collect().await;
        assert_eq!((found.items.len(), found.failures.len()), (2, 1));
        assert_eq!(found.failures[0].places, [0]);
        let stored = client.set_many([("", "x"), ("key1", "x")], MINUTE).await;
        assert!(matches!(stored[..], [Err(Error::InvalidKey), Ok(())]));
    }
    let none = AsyncClient::builder().build();
    assert!(matches!(none.get("a").await, Err(Error::NoServers)));
    assert!(matches!(none.get_many(["a"]).collect().await.failures[0].error, Error::NoServers));
}

#[tokio::test]
async fn a_namespace_of_larderd_is_flushed() {
    let folder = larder_conformance::folder::Folder::create();
    let file = folder.write("namespaces", "[namespace.\"a:\"]\nmemory = \"16m\"\n");
    let server = start_larderd(&["--namespaces", file.to_str().expect("it is text")]);
    for protocol in [Protocol::Text, Protocol::Meta] {
        let client = patient(protocol).server(address(&server)).build();
        client.set("a:1", "x", MINUTE).await.expect(WELL);
        client.set("b:1", "x", MINUTE).await.expect(WELL);
        let (_, flushed) = client.flush_prefix("a:", Duration::ZERO).await.pop().expect("there is a server");
        assert!(flushed.expect(WELL));
        let (_, flushed) = client.flush_prefix("c:", Duration::ZERO).await.pop().expect("there is a server");
        assert!(!flushed.expect(WELL));
        assert_eq!(client.get("a:1").await.expect(WELL), None);
        assert!(client.get("b:1").await.expect(WELL).is_some());
    }
    let client = patient(Protocol::Binary).server(address(&server)).build();
    let (_, refused) = client.flush_prefix("a:", Duration::ZERO).await.pop().expect("there is a server");
    assert!(matches!(refused, Err(Error::Unsupported(_))));
}

#[tokio::test]
async fn changes_without_a_reply_are_made() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            // One connection, so that the order is known.
            let client = patient(protocol).server(address(&server)).connections(1).build();
            let noreply = client.noreply();
            noreply.set("k", "1", MINUTE).await.expect(WELL);
            let append = StoreOptions { mode: Mode::Append, ..StoreOptions::default() };
            noreply.store("k", "2", append).await.expect(WELL);
            noreply.incr("k", 30).await.expect(WELL);
            noreply.decr("k", 1).await.expect(WELL);
            assert_eq!(text(client.get("k").await.expect(WELL)).as_deref(), Some("41"));
            noreply.delete("k").await.expect(WELL);
            assert_eq!(client.get("k").await.expect(WELL), None);
        }
    }
}
