//! Servers that are watched, and others that answer in their place.

use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_client::policy::CircuitBreaker;
use larder_client::{Distribution, FailurePolicy, Servers};
use tokio::io::AsyncWriteExt;

use super::scripted::Scripted;
use super::{WATCHED, WELL, get, stats, until};

#[tokio::test]
async fn a_server_that_is_slow_to_count_is_heard_meanwhile() {
    let (server, builder, mut logs) = Scripted::start().await;
    let client = builder.near_cache(WATCHED).build();
    get(&client, "k").await;
    let mut log = logs.recv().await.expect("it is watched");
    until(async || {
        get(&client, "k").await;
        stats(&client).hits > 0
    })
    .await;
    server.stats.hold();
    let come = server.stats.come.load(Ordering::SeqCst);
    server.stats.come(come + 1).await;
    let drops = stats(&client).drops;
    *server.value.lock().expect(WELL) = "new".into();
    log.write_all(b"ts=1.5 gid=4 type=deleted key=k cmd=delete clsid=1 size=5\n").await.expect(WELL);
    until(async || get(&client, "k").await.as_deref() == Some("new")).await;
    assert_eq!(stats(&client).drops, drops, "it is known by the line alone");
    server.stats.release();
}

#[tokio::test]
async fn what_another_server_says_is_not_kept() {
    for policy in [FailurePolicy::Failover, FailurePolicy::Eject] {
        let (own, builder, mut logs) = Scripted::start().await;
        let (other, other_builder, _other_logs) = Scripted::start().await;
        let servers = [builder.clone().build().servers(), other_builder.build().servers()].concat();
        let soon = Duration::from_millis(10);
        let breaker = CircuitBreaker { failure_limit: 1, retry_after: soon, retry_after_max: soon };
        let builder = builder.servers(Servers(servers)).distribution(Distribution::Ketama);
        let client = builder.failure_policy(policy).circuit_breaker(breaker).near_cache(WATCHED).build();
        let first = client.servers().swap_remove(0);
        let is_own = |key: &String| client.server_of(key).is_some_and(|server| server == first);
        let key = (0..1000).map(|n| format!("k{n}")).find(is_own).expect("it has some of them");
        get(&client, &key).await;
        let _log = logs.recv().await.expect("it is watched");
        until(async || stats(&client).watched == 1).await;
        *own.value.lock().expect(WELL) = "new".into();
        own.breaks.store(true, Ordering::SeqCst);
        // What it had before it was away the last time.
        let old =
            async || client.get(&key).await.is_ok_and(|item| item.is_some_and(|item| item.value == b"old"));
        until(old).await;
        let come = other.gets.come.load(Ordering::SeqCst);
        get(&client, &key).await;
        assert_eq!(other.gets.come.load(Ordering::SeqCst), come + 1, "{policy:?}: it is not kept");
        own.breaks.store(false, Ordering::SeqCst);
        until(async || get(&client, &key).await.as_deref() == Some("new")).await;
    }
}
