//! Computations whose end is lost, and changes that come between: nothing old stays, and nothing newer is lost.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, poll_immediate};
use larder_client::async_client::{ComputeError, ComputeOptions, Observer, Recache};
use larder_client::{AsyncClient, Protocol};
use tokio::time::{sleep, timeout};

use crate::compute::{Counts, OPTIONS, WELL, Work, observed, stored, text};
use crate::faults::Fake;
use crate::servers::{MINUTE, address, patient, start_each};

/// What a call returns that would compute this.
async fn computed(client: &AsyncClient, options: ComputeOptions, value: &'static str) -> String {
    let compute = async || Ok::<_, String>(value);
    text(client.get_or_compute_with("k", options, compute).await.expect(WELL))
}

/// Asks until the value is a new one.
async fn renewed(client: &AsyncClient, options: ComputeOptions) -> String {
    let renewed = async {
        loop {
            match computed(client, options, "new").await.as_str() {
                "old" => sleep(Duration::from_millis(10)).await,
                other => return other.to_owned(),
            }
        }
    };
    timeout(MINUTE, renewed).await.expect("in time")
}

async fn stale(client: &AsyncClient) {
    client.set("k", "old", MINUTE).await.expect(WELL);
    assert!(client.invalidate("k", None).await.expect(WELL));
}

#[tokio::test]
async fn an_old_value_whose_lease_is_lost_is_computed_after_a_while() {
    let impatient = ComputeOptions { wait: Duration::from_millis(50), ..OPTIONS };
    for server in start_each(&[]) {
        let (client, counts) = observed(Protocol::Meta, &server);
        // Who has won has died; a plain read has taken the lease.
        for is_plain in [false, true] {
            stale(&client).await;
            if is_plain {
                assert!(client.get("k").await.expect(WELL).is_some());
            } else {
                let won = client.get_or_recache("k", Recache::default()).await.expect(WELL);
                assert!(won.expect("it is there").has_won);
            }
            assert_eq!(computed(&client, OPTIONS, "too early").await, "old");
            assert_eq!(renewed(&client, impatient).await, "new");
            assert_eq!(counts.results(), ["Stored"], "{is_plain}");
            assert_eq!(stored(&client).await.as_deref(), Some("new"));
        }
        // Who has won has failed, and others get the old value for a while.
        stale(&client).await;
        let failed = client.get_or_compute_with("k", OPTIONS, async || Err::<&str, _>("no luck".to_owned()));
        assert_eq!(text(failed.await.expect(WELL)), "old");
        assert_eq!(computed(&client, OPTIONS, "too early").await, "old");
        assert_eq!(renewed(&client, impatient).await, "new");
        assert_eq!(counts.results(), ["Failed", "Stored"]);
    }
}

#[tokio::test]
async fn who_is_dropped_while_it_stores_gives_its_lease_back() {
    for server in start_each(&[]) {
        let (client, _) = observed(Protocol::Meta, &server);
        let (other, counts) = observed(Protocol::Meta, &server);
        for is_missing in [false, true] {
            stale(&client).await;
            if is_missing {
                assert!(client.delete("k").await.expect(WELL));
            }
            let work = Work::new();
            {
                let mut call = pin!(work.call(&client, OPTIONS, Ok("never stored")));
                tokio::select! {
                    _ = &mut call => panic!("it waits"),
                    () = work.begun() => {}
                }
                work.end();
                // It has computed, and its store is not sent yet.
                assert!(poll_immediate(&mut call).await.is_none());
            }
            assert_eq!(renewed(&other, OPTIONS).await, "new", "{is_missing}");
            assert_eq!(counts.results(), ["Stored"]);
        }
    }
}

/// Others need not wait for what was refused.
#[tokio::test]
async fn who_cannot_store_gives_its_lease_back() {
    for server in start_each(&[]) {
        let small = patient(Protocol::Meta).server(address(&server)).value_bytes_max(10).build();
        let (other, counts) = observed(Protocol::Meta, &server);
        assert_eq!(computed(&small, OPTIONS, "more than it may store").await, "more than it may store");
        assert_eq!(timeout(MINUTE, computed(&other, OPTIONS, "new")).await.expect("in time"), "new");
        assert_eq!(counts.results(), ["Stored"]);
    }
}

/// It is better than none.
#[tokio::test]
async fn an_old_value_stays_if_the_new_one_cannot_be_stored() {
    for server in start_each(&[]) {
        let small = patient(Protocol::Meta).server(address(&server)).value_bytes_max(10).build();
        let (other, counts) = observed(Protocol::Meta, &server);
        stale(&other).await;
        assert_eq!(computed(&small, OPTIONS, "more than it may store").await, "more than it may store");
        assert_eq!(stored(&other).await.as_deref(), Some("old"));
        assert!(counts.results().is_empty());
    }
}

#[tokio::test]
async fn a_lease_is_given_back_within_the_time_of_the_whole() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let client = builder.build();
    let call = tokio::spawn(async move {
        let options = ComputeOptions { timeout: Duration::from_secs(2), ..OPTIONS };
        let failed = async || Err::<&str, _>("no luck".to_owned());
        client.get_or_compute_with("k", options, failed).await
    });
    let mut peer = server.accept().await;
    assert!(peer.line().await.starts_with("mg k "));
    peer.send("VA 0 f0 c7 t1 W O0\r\n\r\n").await;
    // The request that gives it back has no reply.
    let failed = timeout(MINUTE / 2, call).await.expect("in time").expect("no panic");
    assert!(matches!(failed, Err(ComputeError::Computation(_))), "{failed:?}");
}

#[tokio::test]
async fn without_leases_nothing_newer_is_deleted() {
    #[derive(Debug)]
    enum Change {
        Set,
        Append,
        Unmet,
    }
    for server in start_each(&[]) {
        for protocol in [Protocol::Text, Protocol::Binary] {
            let counts = Arc::new(Counts::default());
            let observer = Arc::clone(&counts) as Arc<dyn Observer>;
            // Requests come to the server as they were made.
            let builder = patient(protocol).server(address(&server)).connections(1);
            let client = builder.observer(observer).build();
            for (change, left) in [
                (Change::Set, Some("set")),
                (Change::Append, Some("computed, and more")),
                (Change::Unmet, None),
            ] {
                client.delete("k").await.expect(WELL);
                let work = Work::new();
                let mut call = pin!(work.call(&client, OPTIONS, Ok("computed")));
                tokio::select! {
                    _ = &mut call => panic!("it waits"),
                    () = work.begun() => {}
                }
                work.end();
                // The add is under way when the change begins.
                let changed = async {
                    match change {
                        Change::Set => client.set("k", "set", MINUTE).await,
                        Change::Append => client.append("k", ", and more").await.map(drop),
                        Change::Unmet => client.cas("k", "never", MINUTE, u64::MAX).await.map(drop),
                    }
                };
                let (item, changed) = join(call, changed).await;
                changed.expect(WELL);
                assert_eq!(text(item.expect(WELL)), "computed");
                assert_eq!(stored(&client).await.as_deref(), left, "{protocol:?} {change:?}");
                assert_eq!(counts.results(), ["Outdated"]);
            }
        }
    }
}
