//! The list of servers changes while requests are under way.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_client::async_client::{AsyncBuilder, StoreOptions};
use larder_client::client::StoreOutcome;
use larder_client::policy::CircuitBreaker;
use larder_client::{AsyncClient, Distribution, Error, FailurePolicy, Protocol, Servers, Ttl};
use larder_conformance::server::{Server, larderd, reference};

use crate::faults::Fake;
use crate::replicas_lost::Scripted;
use crate::servers::{MINUTE, address, patient, start_larderd};

const WELL: &str = "all is well";
const LONG: Duration = Duration::from_secs(3600);

/// Three servers of a kind, of each kind.
fn kinds() -> Vec<Vec<Server>> {
    let programs = [Some(larderd().expect("it builds")), reference()];
    let start = |program| (0..3).map(|_| Server::start(program, &[""; 0]).expect("it starts")).collect();
    programs.iter().flatten().map(|program| start(program)).collect()
}

fn list(servers: &[Server]) -> Servers {
    Servers(servers.iter().map(|server| address(server).into()).collect())
}

fn warm(servers: &[Server]) -> AsyncBuilder {
    patient(Protocol::Meta).distribution(Distribution::Ketama).servers(list(servers)).warm_up(LONG)
}

fn keys() -> Vec<String> {
    (0..300).map(|n| format!("key:{n}")).collect()
}

fn moved(before: &AsyncClient, after: &AsyncClient) -> Vec<String> {
    keys().into_iter().filter(|key| before.server_of(key) != after.server_of(key)).collect()
}

#[tokio::test]
async fn values_move_with_flags_and_time_to_live() {
    for servers in kinds() {
        let client = warm(&servers[..2]).build();
        let (before, after) = (warm(&servers[..2]).build(), warm(&servers).build());
        for key in keys() {
            let ttl = if key.ends_with('7') { Ttl::Never } else { LONG.into() };
            let options = StoreOptions { ttl, client_flags: 77, ..StoreOptions::default() };
            client.store(&key, &key[..], options).await.expect(WELL);
        }
        client.set_servers(&list(&servers)).expect("the protocol can");
        let moved = moved(&before, &after);
        assert!(moved.len() > 30, "{}", moved.len());
        let (one_by_one, together) = moved.split_at(moved.len() / 2);
        for key in one_by_one {
            let item = client.get(key).await.expect(WELL).expect("it is at the old place");
            assert_eq!((&item.value[..], item.client_flags), (key.as_bytes(), 77));
        }
        let found = client.gets_many(together).collect().await;
        assert!(found.failures.is_empty(), "{:?}", found.failures);
        for (item, key) in found.items.iter().zip(together) {
            let item = item.as_ref().expect("it is at the old place");
            assert!(item.value == key.as_bytes() && item.cas.is_some());
        }
        // They are at the new place alone.
        for key in &moved {
            assert_eq!(before.get(key).await.expect(WELL), None);
            let item = after.get_or_recache(key, Default::default()).await.expect(WELL).expect("it moved");
            assert_eq!((&item.item.value[..], item.item.client_flags), (key.as_bytes(), 77));
            match item.ttl {
                None => assert!(key.ends_with('7')),
                Some(ttl) => assert!(ttl > LONG - MINUTE * 5 && ttl <= LONG, "{ttl:?}"),
            }
        }
    }
}

/// Each server's connections so far.
async fn connections(client: &AsyncClient) -> Vec<String> {
    let mut connections = Vec::new();
    for (_, stats) in client.stats("").await {
        let stats = stats.expect(WELL);
        let total = stats.into_iter().find(|(name, _)| name == "total_connections");
        connections.push(total.expect("every server counts them").1);
    }
    connections
}

/// The new server has nothing to delete, and says so.
#[tokio::test]
async fn deletes_without_a_reply_keep_the_connections() {
    for servers in kinds() {
        let (before, after) = (warm(&servers[..2]).build(), warm(&servers).build());
        let client = warm(&servers[..2]).connections(1).build();
        client.set_servers(&list(&servers)).expect("the protocol can");
        let moved = moved(&before, &after);
        for key in &moved {
            before.set(key, "1", MINUTE).await.expect(WELL);
        }
        let known = connections(&client).await;
        for key in &moved {
            client.noreply().delete(key).await.expect(WELL);
        }
        assert_eq!(connections(&client).await, known);
        for key in &moved {
            assert_eq!(client.get(key).await.expect(WELL), None);
        }
    }
}

#[tokio::test]
async fn changes_find_what_has_moved() {
    for servers in kinds() {
        let (before, after) = (warm(&servers[..2]).build(), warm(&servers).build());
        let moved = moved(&before, &after);
        for key in &moved {
            before.set(key, "1", MINUTE).await.expect(WELL);
        }
        let client = warm(&servers[..2]).build();
        client.set_servers(&list(&servers)).expect("the protocol can");
        let [add, incr, append, cas, touch, delete, gone, set, ..] = &moved[..] else {
            panic!("more keys move")
        };
        assert_eq!(client.add(add, "2", MINUTE).await.expect(WELL), StoreOutcome::NotStored);
        assert_eq!(client.incr(incr, 1).await.expect(WELL), Some(2));
        assert_eq!(client.append(append, "2").await.expect(WELL), StoreOutcome::Stored);
        let unique = client.gets(cas).await.expect(WELL).and_then(|item| item.cas).expect("it is there");
        assert_eq!(client.cas(cas, "2", MINUTE, unique).await.expect(WELL), StoreOutcome::Stored);
        assert!(client.touch(touch, MINUTE).await.expect(WELL));
        assert!(client.delete(delete).await.expect(WELL));
        client.noreply().set(set, "2", MINUTE).await.expect(WELL);
        assert!(client.delete_many([gone]).await.pop().expect("one").expect(WELL));
        for (key, expected) in
            [(add, Some("1")), (incr, Some("2")), (append, Some("12")), (cas, Some("2")), (delete, None)]
        {
            let value = after.get(key).await.expect(WELL).map(|item| item.value);
            assert_eq!(value.as_deref(), expected.map(str::as_bytes));
            assert_eq!(before.get(key).await.expect(WELL), None, "nothing old is left");
        }
        for key in [delete, gone] {
            assert_eq!(client.get(key).await.expect(WELL), None);
        }
        // What is flushed stays away.
        client.flush_all(Duration::ZERO).await;
        for key in &moved {
            assert_eq!(client.get(key).await.expect(WELL), None);
        }
    }
}

/// Another process has found what was moved, deleted it at the old place, and changed it.
#[tokio::test]
async fn a_change_of_what_was_moved_is_not_taken_back() {
    let old = Scripted::start(|line, _| match line.get(..2)? {
        "mg" => Some("VA 1 f0 c9 t-1 O\r\n5\r\n"),
        "md" => Some("NF O\r\n"),
        _ => None,
    });
    let new = Scripted::start(|line, before| match (line.get(..2)?, before) {
        ("mg", 0) => Some("EN O\r\n"),
        ("mg", _) => Some("VA 1 f0 O\r\n6\r\n"),
        ("ms", _) => Some("HD c7 O\r\n"),
        ("md", _) => Some("EX O\r\n"),
        _ => None,
    });
    let (old, new) = (old.await, new.await);
    let client = patient(Protocol::Meta).server(old.address.clone()).warm_up(LONG).build();
    client.set_servers(&Servers(vec![new.address.clone().into()])).expect("the protocol can");
    assert_eq!(client.get("n").await.expect(WELL).expect("it is there").value, b"6");
    assert_eq!(new.only_delete(), "md n C7");
}

/// Another process still reads servers that have left the list.
#[tokio::test]
async fn what_was_flushed_comes_back_from_no_server_that_has_left() {
    for servers in kinds() {
        let old = list(&servers[..2]);
        let new = list(&servers[1..]);
        let process = || warm(&servers[..2]).build();
        let (before, client, late) = (process(), process(), process());
        for key in keys() {
            before.set(&key, "flushed", MINUTE).await.expect(WELL);
        }
        client.set_servers(&new).expect("the protocol can");
        late.set_servers(&new).expect("the protocol can");
        let flushed = client.flush_all(Duration::ZERO).await;
        let at: HashSet<_> = flushed.iter().map(|(address, _)| address.clone()).collect();
        assert!(flushed.len() == 3 && flushed.iter().all(|(_, flushed)| flushed.is_ok()), "{flushed:?}");
        assert!(old.0.iter().chain(&new.0).all(|server| at.contains(&server.address)), "{at:?}");
        for key in keys() {
            assert_eq!(late.get(&key).await.expect(WELL), None);
        }
        // Nor does what is deleted after the flush, of a process that has got the list later.
        for key in keys() {
            before.set(&key, "deleted", MINUTE).await.expect(WELL);
            client.delete(&key).await.expect(WELL);
            assert_eq!(late.get(&key).await.expect(WELL), None);
        }
    }
}

/// It waits for values that are being moved.
#[tokio::test]
async fn a_flush_has_one_time_for_all_that_it_does() {
    let server = start_larderd(&[]);
    let (mut hung, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.warm_up(LONG).build();
    client.set_servers(&Servers(vec![address(&server).into()])).expect("the protocol can");
    let changing = tokio::spawn({
        let client = client.clone();
        async move { client.incr("n", 1).await }
    });
    let _peer = hung.accept().await;
    let flushed = client.with_timeout(Duration::from_millis(200)).flush_all(Duration::ZERO).await;
    let is_late = |flushed: &Result<(), Error>| matches!(flushed, Err(Error::Timeout));
    assert!(flushed.len() == 2 && flushed.iter().all(|(_, flushed)| is_late(flushed)), "{flushed:?}");
    changing.abort();
}

#[tokio::test]
async fn an_old_server_that_is_gone_costs_one_failure() {
    for mut servers in kinds() {
        let (before, after) = (warm(&servers[1..]).build(), warm(&servers[1..2]).build());
        let moved: HashSet<_> = moved(&before, &after).into_iter().collect();
        let breaker = CircuitBreaker { failure_limit: 1000, ..CircuitBreaker::default() };
        let builder = warm(&servers[1..]).failure_policy(FailurePolicy::Error).circuit_breaker(breaker);
        let client = builder.build();
        client.set_servers(&list(&servers[1..2])).expect("the protocol can");
        servers.truncate(2);
        for key in &moved {
            assert_eq!(client.get(key).await.expect("a miss"), None);
            client.set(key, "x", MINUTE).await.expect(WELL);
        }
    }
}

#[tokio::test]
async fn a_protocol_that_tells_no_ttl_has_no_warm_up() {
    let client = AsyncClient::builder().protocol(Protocol::Binary).warm_up(LONG).build();
    let changed = client.set_servers(&"a".parse().expect("a list"));
    assert!(matches!(changed, Err(Error::Unsupported(_))) && client.servers().is_empty());
}

/// Each key has one writer, which counts: a reader must find no count below the last one that was acknowledged before
/// it began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_stale_value_is_read_while_the_list_changes() {
    for servers in kinds() {
        let client = warm(&servers[..2]).connections(3).build();
        let is_over = Arc::new(AtomicBool::new(false));
        let hits = Arc::new(AtomicU64::new(0));
        let stale = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for n in 0..WRITERS {
            let acknowledged = Arc::new(AtomicU64::new(0));
            let (client, key) = (client.clone(), format!("key:{n}"));
            tasks.push(tokio::spawn(write(client.clone(), key.clone(), n, Arc::clone(&acknowledged))));
            for _ in 0..2 {
                let (client, key, is_over) = (client.clone(), key.clone(), Arc::clone(&is_over));
                let (acknowledged, hits) = (Arc::clone(&acknowledged), Arc::clone(&hits));
                let stale = Arc::clone(&stale);
                tokio::spawn(async move {
                    while !is_over.load(Ordering::SeqCst) {
                        let least = acknowledged.load(Ordering::SeqCst);
                        let Some(item) = client.get(&key).await.expect(WELL) else { continue };
                        let text = String::from_utf8_lossy(&item.value).into_owned();
                        let found: u64 = text.parse().expect("a count");
                        if found < least {
                            let what = format!("{key}: {found} after {least} was acknowledged");
                            stale.lock().expect("no panic").push(what);
                        }
                        hits.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        }
        let flips = tokio::spawn({
            let (client, is_over) = (client.clone(), Arc::clone(&is_over));
            let lists = [list(&servers), list(&servers[..2])];
            async move {
                let mut flips = 0;
                while !is_over.load(Ordering::SeqCst) {
                    client.set_servers(&lists[flips % 2]).expect("the protocol can");
                    flips += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                flips
            }
        });
        for task in tasks {
            task.await.expect(WELL);
        }
        is_over.store(true, Ordering::SeqCst);
        let (flips, hits) = (flips.await.expect(WELL), hits.load(Ordering::SeqCst));
        let stale = stale.lock().expect("no panic").clone();
        assert!(stale.is_empty(), "{stale:?}");
        eprintln!("{flips} changes of the list, {hits} hits");
        assert!(flips > 1 && hits > WRITES, "{flips} {hits}");
    }
}

async fn write(client: AsyncClient, key: String, seed: u64, acknowledged: Arc<AtomicU64>) {
    let mut random = fastrand::Rng::with_seed(seed);
    for count in 1..=WRITES {
        match random.u8(..4) {
            0 => drop(client.delete(&key).await.expect(WELL)),
            _ => client.set(&key, count.to_string(), MINUTE).await.expect(WELL),
        }
        acknowledged.store(count, Ordering::SeqCst);
    }
}

const WRITERS: u64 = 12;
const WRITES: u64 = 150;
