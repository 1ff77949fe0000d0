//! What comes later than it was asked for, and servers that answer without an end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_client::async_client::NearCache;
use tokio::time::sleep;

use super::scripted::Scripted;
use super::{HOUR, NEAR, WATCHED, WELL, get, spawn_get, spawn_set, stats, until};

#[tokio::test]
async fn a_change_that_was_given_up_is_awaited_as_long_as_it_may_live() {
    let (server, builder, _logs) = Scripted::start().await;
    let client = builder.near_cache(NEAR).build();
    server.sets.hold();
    let change = spawn_set(&client);
    server.sets.come(1).await;
    change.abort();
    assert!(change.await.expect_err("it is aborted").is_cancelled());
    // It has the minute that it was made with.
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(get(&client, "k").await.as_deref(), Some("old"));
    server.sets.release();
    until(async || server.value() == "new").await;
    assert_eq!(get(&client, "k").await.as_deref(), Some("new"));
}

/// Nothing says whether it was made.
#[tokio::test]
async fn a_change_without_an_answer_is_awaited() {
    let (server, builder, _logs) = Scripted::start().await;
    let client = builder.near_cache(NEAR).build();
    server.sets.hold();
    client.noreply().set("k", "new", HOUR).await.expect(WELL);
    assert_eq!(get(&client, "k").await.as_deref(), Some("old"));
    server.sets.release();
    until(async || server.value() == "new").await;
    assert_eq!(get(&client, "k").await.as_deref(), Some("new"));

    server.breaks.store(true, Ordering::SeqCst);
    let failed = client.set("l", "newer", HOUR).await.expect_err("there is no answer");
    assert!(failed.is_unknown(), "{failed}");
    server.breaks.store(false, Ordering::SeqCst);
    assert_eq!(get(&client, "l").await.as_deref(), Some("new"));
    *server.value.lock().expect(WELL) = "newer".into();
    assert_eq!(get(&client, "l").await.as_deref(), Some("newer"));
}

#[tokio::test]
async fn a_delayed_flush_is_seen_when_it_takes_effect() {
    let (server, builder, _logs) = Scripted::start().await;
    let client = builder.near_cache(NEAR).build();
    client.flush_all(HOUR).await.pop().expect("one").1.expect(WELL);
    get(&client, "k").await;
    get(&client, "k").await;
    assert_eq!(stats(&client).hits, 1, "it is kept until then");
    client.flush_all(Duration::from_secs(3)).await.pop().expect("one").1.expect(WELL);
    assert_eq!(get(&client, "k").await.as_deref(), Some("old"));
    // Servers count whole seconds.
    sleep(Duration::from_millis(1100)).await;
    *server.value.lock().expect(WELL) = "new".into();
    assert_eq!(get(&client, "k").await.as_deref(), Some("new"));
}

#[tokio::test]
async fn the_time_to_live_counts_from_the_request() {
    let (server, builder, _logs) = Scripted::start().await;
    let limits = NearCache { ttl: Duration::from_millis(200), ..NEAR };
    let client = builder.clone().near_cache(limits).build();
    server.gets.hold();
    let read = spawn_get(&client);
    server.gets.come(1).await;
    sleep(Duration::from_millis(250)).await;
    server.gets.release();
    assert_eq!(read.await.expect("no panic").as_deref(), Some("old"));
    assert_eq!(stats(&client).entries, 0);

    let client = builder.near_cache(NearCache { ttl: Duration::MAX, ..NEAR }).build();
    get(&client, "k").await;
    get(&client, "k").await;
    assert_eq!(stats(&client).hits, 1);
}

#[tokio::test]
async fn statistics_without_an_end_end_the_connection_and_drop_what_is_kept() {
    let (server, builder, _logs) = Scripted::start().await;
    let client = builder.near_cache(WATCHED).build();
    until(async || {
        get(&client, "k").await;
        stats(&client).hits > 0
    })
    .await;
    server.floods.store(true, Ordering::SeqCst);
    until(async || stats(&client).watched == 0 && !server.flooded.lock().expect(WELL).is_empty()).await;
    let hits = stats(&client).hits;
    get(&client, "k").await;
    assert_eq!(stats(&client).hits, hits);
    // What the system's buffers take.
    let flooded = server.flooded.lock().expect(WELL).clone();
    assert!(flooded.iter().all(|bytes| *bytes < 24 << 20), "{flooded:?}");
}
