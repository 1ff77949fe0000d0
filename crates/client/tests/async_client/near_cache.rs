//! Values kept in the process: never older than they may be.

mod late;
mod scripted;
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use larder_client::async_client::{Coherence, NearCache, NearCacheStats};
use larder_client::{AsyncClient, Protocol, Ttl};
use larder_conformance::server::Server;
use scripted::Scripted;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::servers::{MINUTE, PROTOCOLS, address, patient, start_each};

const WELL: &str = "all is well";
const HOUR: Duration = Duration::from_secs(3600);
const NEAR: NearCache =
    NearCache { entries_max: 1000, bytes_max: 1 << 20, ttl: HOUR, coherence: Coherence::Ttl };
const WATCHED: NearCache = NearCache { coherence: Coherence::Watch, ..NEAR };

async fn get(client: &AsyncClient, key: &str) -> Option<String> {
    let item = client.get(key).await.expect(WELL)?;
    Some(String::from_utf8(item.value).expect("text"))
}

fn stats(client: &AsyncClient) -> NearCacheStats {
    client.near_cache_stats().expect("there is one")
}

/// Asks until it is so.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let asked = timeout(MINUTE, async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    });
    asked.await.expect("within a minute");
}

#[tokio::test]
async fn own_changes_are_seen_at_once_and_those_of_others_in_time() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let client = patient(protocol).server(address(&server)).near_cache(NEAR).build();
            let other = patient(protocol).server(address(&server)).build();
            client.delete("k").await.expect(WELL);
            assert_eq!(get(&client, "k").await, None);
            client.set("k", "1", HOUR).await.expect(WELL);
            assert_eq!(get(&client, "k").await.as_deref(), Some("1"));
            other.set("k", "2", HOUR).await.expect(WELL);
            assert_eq!(get(&client, "k").await.as_deref(), Some("1"), "from near");
            assert_eq!(stats(&client).hits, 1);
            client.incr("k", 5).await.expect(WELL);
            assert_eq!(get(&client, "k").await.as_deref(), Some("7"));
            client.append("k", "0").await.expect(WELL);
            assert_eq!(get(&client, "k").await.as_deref(), Some("70"));
            client.set_many([("k", "3")], HOUR).await.pop().expect("one").expect(WELL);
            assert_eq!(get(&client.clone(), "k").await.as_deref(), Some("3"));
            client.touch("k", Ttl::After(Duration::ZERO)).await.expect(WELL);
            assert_eq!(get(&client, "k").await, None);
            client.set("k", "4", HOUR).await.expect(WELL);
            assert_eq!(get(&client, "k").await.as_deref(), Some("4"));
            client.flush_all(Duration::ZERO).await.pop().expect("one").1.expect(WELL);
            assert_eq!(get(&client, "k").await, None);
            // Another list of servers may have other values.
            client.set("k", "5", HOUR).await.expect(WELL);
            assert_eq!(get(&client, "k").await.as_deref(), Some("5"));
            let servers = larder_client::Servers(client.servers());
            client.set_servers(&"127.0.0.1:1".parse().expect("a list")).expect(WELL);
            assert!(client.get("k").await.is_err());
            client.set_servers(&servers).expect(WELL);
            // Without a reply, the change may come later: nothing is kept for a while.
            assert_eq!(get(&client, "k").await.as_deref(), Some("5"));
            client.noreply().delete("k").await.expect(WELL);
            until(async || get(&client, "k").await.is_none()).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_kept_longer_than_it_lives() {
    for server in start_each(&[]) {
        let client = patient(Protocol::Meta).server(address(&server)).near_cache(NEAR).build();
        let other = patient(Protocol::Meta).server(address(&server)).build();
        client.set("soon", "1", Duration::from_secs(1)).await.expect(WELL);
        get(&client, "soon").await;
        get(&client, "soon").await;
        assert_eq!(stats(&client).hits, 0);
        // Nor is one that is kept until somebody computes it.
        client.set("stale", "1", HOUR).await.expect(WELL);
        other.invalidate("stale", None).await.expect(WELL);
        assert_eq!(get(&client, "stale").await.as_deref(), Some("1"));
        other.set("stale", "2", HOUR).await.expect(WELL);
        assert_eq!(get(&client, "stale").await.as_deref(), Some("2"));
        // With the limit of the cache alone.
        let short = NearCache { ttl: Duration::from_millis(50), ..NEAR };
        let short = patient(Protocol::Meta).server(address(&server)).near_cache(short).build();
        assert_eq!(get(&short, "stale").await.as_deref(), Some("2"));
        other.set("stale", "3", HOUR).await.expect(WELL);
        until(async || get(&short, "stale").await.as_deref() == Some("3")).await;
    }
}

#[tokio::test]
async fn it_has_no_more_than_it_may_and_keeps_what_is_read_often() {
    let server = start_each(&[]).swap_remove(0);
    for (limits, value_bytes) in
        [(NearCache { entries_max: 200, ..NEAR }, 10), (NearCache { bytes_max: 200_000, ..NEAR }, 2000)]
    {
        let client = patient(Protocol::Meta).server(address(&server)).near_cache(limits).build();
        let keys: Vec<_> = (0..2000).map(|n| format!("key{n}")).collect();
        client.set_many(keys.iter().map(|key| (key, vec![b'x'; value_bytes])), HOUR).await;
        let often = &keys[..20];
        for _ in 0..3 {
            for key in often {
                get(&client, key).await;
            }
        }
        for key in &keys[20..] {
            get(&client, key).await;
            let NearCacheStats { entries, bytes, .. } = stats(&client);
            assert!(entries <= limits.entries_max && bytes <= limits.bytes_max as u64, "{entries} {bytes}");
        }
        let before = stats(&client).hits;
        for key in often {
            get(&client, key).await;
        }
        let kept = stats(&client).hits - before;
        assert!(kept >= 15, "{kept} of 20 are left after a scan");
    }
}

#[tokio::test]
async fn changes_of_others_are_seen_where_servers_are_watched() {
    join_all(start_each(&[]).into_iter().map(see_changes_of_others)).await;
}

async fn see_changes_of_others(server: Server) {
    let other = patient(Protocol::Meta).server(address(&server)).build();
    let client = |protocol| patient(protocol).server(address(&server)).near_cache(WATCHED).build();
    let clients = PROTOCOLS.map(client);
    let keys = ["k", "gr\u{f6}\u{df}e", "a%20b"];
    // Nothing is kept before the server is watched.
    let each_has = async |value: &str| {
        let near = clients.iter().flat_map(|client| keys.map(|key| (client, key)));
        let near = near.map(async |(client, key)| {
            until(async || {
                let hits = stats(client).hits;
                get(client, key).await.as_deref() == Some(value) && stats(client).hits > hits
            })
            .await;
        });
        for near in near {
            near.await;
        }
    };
    for value in ["1", "2"] {
        for key in keys {
            other.set(key, value, HOUR).await.expect(WELL);
        }
        each_has(value).await;
    }
    let each_misses = async || {
        for client in &clients {
            for key in keys {
                until(async || get(client, key).await.is_none()).await;
            }
        }
    };
    for key in keys {
        other.delete(key).await.expect(WELL);
    }
    each_misses().await;
    for key in keys {
        other.set(key, "3", HOUR).await.expect(WELL);
    }
    each_has("3").await;
    // Servers do not tell of it, but count it.
    other.flush_all(Duration::ZERO).await.pop().expect("one").1.expect(WELL);
    each_misses().await;
    for client in &clients {
        client.set("k", "4", HOUR).await.expect(WELL);
        assert_eq!(stats(client).watched, 1);
    }
    server.kill().expect("it runs");
    for client in &clients {
        until(async || client.get("k").await.is_err() && stats(client).watched == 0).await;
    }
}

fn spawn_get(client: &AsyncClient) -> JoinHandle<Option<String>> {
    let client = client.clone();
    tokio::spawn(async move { get(&client, "k").await })
}

fn spawn_set(client: &AsyncClient) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move { client.set("k", "new", HOUR).await.expect(WELL) })
}

#[tokio::test]
async fn a_read_that_meets_an_own_change_leaves_nothing_old() {
    let (server, builder, _logs) = Scripted::start().await;
    let client = builder.near_cache(NEAR).build();
    server.gets.hold();
    let read = spawn_get(&client);
    server.gets.come(1).await;
    spawn_set(&client).await.expect("no panic");
    server.gets.release();
    // It began before the change was done.
    assert_eq!(read.await.expect("no panic").as_deref(), Some("old"));
    assert_eq!(get(&client, "k").await.as_deref(), Some("new"));
    assert_eq!(get(&client, "k").await.as_deref(), Some("new"));
    assert_eq!(server.gets.come.load(Ordering::SeqCst), 2);

    // A change that was given up may be made a moment later.
    *server.value.lock().expect(WELL) = "old".into();
    server.sets.hold();
    let change = spawn_set(&client);
    server.sets.come(2).await;
    change.abort();
    assert!(change.await.expect_err("it is aborted").is_cancelled());
    assert_eq!(get(&client, "k").await.as_deref(), Some("old"));
    server.sets.release();
    until(async || server.value() == "new").await;
    assert_eq!(get(&client, "k").await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_read_that_meets_a_line_of_the_log_leaves_nothing_old() {
    let (server, builder, mut logs) = Scripted::start().await;
    let client = builder.near_cache(WATCHED).build();
    let log = async |log: &mut OwnedWriteHalf, line: &str| log.write_all(line.as_bytes()).await.expect(WELL);
    get(&client, "k").await;
    let mut open = logs.recv().await.expect("it is watched");
    let watched = async || until(async || stats(&client).watched == 1).await;
    watched().await;
    for (line, is_of_key) in [
        ("ts=1.5 gid=4 type=deleted key=k cmd=delete clsid=1 size=5\n", true),
        ("ts=1.5 gid=4 type=item_store key=k status=stored cmd=set ttl=0 clsid=1 cfd=9 size=3\n", true),
        ("skipped=12\n", false),
        ("what is this\n", false),
        ("", false),
    ] {
        // Of another key, so that it is known when a line has been read.
        get(&client, "other").await;
        *server.value.lock().expect(WELL) = "old".into();
        server.gets.hold();
        let (read, come) = (spawn_get(&client), server.gets.come.load(Ordering::SeqCst));
        server.gets.come(come + 1).await;
        *server.value.lock().expect(WELL) = "new".into();
        let NearCacheStats { drops, entries, .. } = stats(&client);
        if is_of_key {
            log(&mut open, line).await;
            log(&mut open, &line.replace("key=k", "key=other")).await;
            until(async || stats(&client).entries < entries).await;
        } else if line.is_empty() {
            drop(open);
            until(async || stats(&client).drops > drops).await;
            server.gets.release();
            assert_eq!(read.await.expect("no panic").as_deref(), Some("old"));
            open = logs.recv().await.expect("it is watched again");
            watched().await;
            assert_eq!(get(&client, "k").await.as_deref(), Some("new"));
            break;
        } else {
            log(&mut open, line).await;
            until(async || stats(&client).drops > drops).await;
        }
        server.gets.release();
        assert_eq!(read.await.expect("no panic").as_deref(), Some("old"), "{line}");
        for _ in 0..2 {
            assert_eq!(get(&client, "k").await.as_deref(), Some("new"), "{line}");
        }
        assert_eq!(server.gets.come.load(Ordering::SeqCst), come + 2, "{line}: it is kept");
        log(&mut open, "ts=1.5 gid=4 type=deleted key=k cmd=delete clsid=1 size=5\n").await;
        until(async || stats(&client).entries < 2).await;
    }
    // Lines that the server has lost before they came so far.
    until(async || {
        let hits = stats(&client).hits;
        get(&client, "k").await.is_some() && stats(&client).hits > hits
    })
    .await;
    *server.value.lock().expect(WELL) = "newer".into();
    server.dropped.fetch_add(1, Ordering::SeqCst);
    until(async || get(&client, "k").await.as_deref() == Some("newer")).await;
    drop(open);
}

/// Readers and writers at once: nobody reads what is older than a change that was done before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_never_go_back() {
    for server in start_each(&[]) {
        let client = patient(Protocol::Meta).server(address(&server)).near_cache(NEAR).build();
        let done = Arc::new(AtomicU64::new(0));
        client.set("n", "0", HOUR).await.expect(WELL);
        let writer = tokio::spawn({
            let (client, done) = (client.clone(), Arc::clone(&done));
            async move {
                for n in 1..=1000_u64 {
                    client.set("n", n.to_string(), HOUR).await.expect(WELL);
                    done.store(n, Ordering::SeqCst);
                    if n % 8 == 0 {
                        // So that some reads meet no change.
                        tokio::task::yield_now().await;
                    }
                }
            }
        });
        let readers = (0..8).map(|_| {
            let (client, done) = (client.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                while done.load(Ordering::SeqCst) < 1000 {
                    let before = done.load(Ordering::SeqCst);
                    let read: u64 = get(&client, "n").await.expect("it is there").parse().expect("a number");
                    assert!(read >= before, "{read} after {before}");
                    tokio::task::yield_now().await;
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await.expect("nothing old");
        }
        writer.await.expect(WELL);
        assert!(stats(&client).hits > 0);
    }
}
