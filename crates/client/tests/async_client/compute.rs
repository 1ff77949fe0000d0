//! Values that are computed where they are missing, by one of all that want them.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use larder_client::async_client::{
    Computation, ComputationResult, ComputeError, ComputeOptions, Observer, Operation, Recache,
};
use larder_client::client::Item;
use larder_client::{AsyncClient, Error, Protocol, Ttl};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle, yield_now};
use tokio::time::timeout;

use crate::servers::{MINUTE, PROTOCOLS, address, patient, start_each};

pub(crate) const WELL: &str = "all is well";
/// Longer than a test waits.
const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const OPTIONS: ComputeOptions =
    ComputeOptions { ttl: Ttl::Never, before_expiry: None, timeout: HOUR, wait: HOUR };

pub(crate) type Result = std::result::Result<Item, ComputeError<String>>;
type Made = std::result::Result<String, String>;

/// Counts what clients do.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    looks: AtomicUsize,
    results: std::sync::Mutex<Vec<String>>,
}

impl Observer for Counts {
    fn ended(&self, operation: &Operation<'_>) {
        if ["get_or_recache", "get"].contains(&operation.name) {
            self.looks.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn computed(&self, computation: &Computation<'_>) {
        let result = match computation.result {
            ComputationResult::NotStored(_) => "NotStored".to_owned(),
            result => format!("{result:?}"),
        };
        self.results.lock().expect(WELL).push(result);
    }
}

impl Counts {
    /// Waits until clients have looked so often.
    async fn looked(&self, looks: usize) {
        let looked = async {
            while self.looks.load(Ordering::SeqCst) < looks {
                yield_now().await;
            }
        };
        timeout(MINUTE, looked).await.expect("in time");
    }

    pub(crate) fn results(&self) -> Vec<String> {
        std::mem::take(&mut *self.results.lock().expect(WELL))
    }
}

/// A computation that the test lets end.
#[derive(Debug)]
pub(crate) struct Work {
    begun: Semaphore,
    may_end: Semaphore,
}

impl Work {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { begun: Semaphore::new(0), may_end: Semaphore::new(0) })
    }

    /// A task that wants the value, and computes this one if it has to.
    fn spawn(
        self: &Arc<Self>,
        client: &AsyncClient,
        options: ComputeOptions,
        result: std::result::Result<&'static str, &'static str>,
    ) -> JoinHandle<Result> {
        tokio::spawn(self.call(client, options, result))
    }

    /// The same, but not as a task.
    pub(crate) fn call(
        self: &Arc<Self>,
        client: &AsyncClient,
        options: ComputeOptions,
        result: std::result::Result<&'static str, &'static str>,
    ) -> impl Future<Output = Result> + use<> {
        let (this, client) = (Arc::clone(self), client.clone());
        let compute = async move || {
            this.begun.add_permits(1);
            this.may_end.acquire().await.expect(WELL).forget();
            result.map(str::to_owned).map_err(str::to_owned)
        };
        async move { client.get_or_compute_with("k", options, compute).await }
    }

    pub(crate) async fn begun(&self) {
        timeout(MINUTE, self.begun.acquire()).await.expect("in time").expect(WELL).forget();
    }

    pub(crate) fn end(&self) {
        self.may_end.add_permits(1);
    }
}

pub(crate) fn text(item: Item) -> String {
    String::from_utf8(item.value).expect("text")
}

async fn made(task: impl Future<Output = std::result::Result<Result, JoinError>>) -> String {
    text(timeout(MINUTE, task).await.expect("in time").expect("no panic").expect(WELL))
}

pub(crate) async fn stored(client: &AsyncClient) -> Option<String> {
    client.get("k").await.expect(WELL).map(text)
}

pub(crate) fn observed(
    protocol: Protocol,
    server: &larder_conformance::server::Server,
) -> (AsyncClient, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let observer = Arc::clone(&counts) as Arc<dyn Observer>;
    (patient(protocol).server(address(server)).observer(observer).build(), counts)
}

#[tokio::test]
async fn many_tasks_compute_once() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let (client, counts) = observed(protocol, &server);
            client.delete("k").await.expect(WELL);
            let work = Work::new();
            let tasks: Vec<_> = (0..100).map(|_| work.spawn(&client, OPTIONS, Ok("made"))).collect();
            counts.looked(100).await;
            work.end();
            for task in tasks {
                assert_eq!(made(task).await, "made");
            }
            assert_eq!(counts.results(), ["Stored"], "{protocol:?}");
            assert_eq!(stored(&client).await.as_deref(), Some("made"));
            // It is there.
            assert_eq!(made(work.spawn(&client, OPTIONS, Ok("not needed"))).await, "made");
        }
    }
}

#[tokio::test]
async fn the_next_task_computes_if_one_is_dropped_or_panics_or_takes_too_long() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let (client, counts) = observed(protocol, &server);
            client.delete("k").await.expect(WELL);
            let dropped = Work::new();
            let first = dropped.spawn(&client, OPTIONS, Ok("dropped"));
            dropped.begun().await;
            let panicking = client.clone();
            let panicking = tokio::spawn(async move {
                let compute = async || -> Made { panic!("as planned") };
                panicking.get_or_compute_with("k", OPTIONS, compute).await
            });
            counts.looked(2).await;
            let slow = client.clone();
            let slow = tokio::spawn(async move {
                let options = ComputeOptions { timeout: Duration::from_millis(500), ..OPTIONS };
                slow.get_or_compute_with("k", options, pending::<Made>).await
            });
            counts.looked(3).await;
            let work = Work::new();
            let last = work.spawn(&client, OPTIONS, Ok("made"));
            counts.looked(4).await;
            first.abort();
            assert!(panicking.await.expect_err("it panics").is_panic());
            work.end();
            assert_eq!(made(last).await, "made");
            assert!(matches!(slow.await.expect("no panic"), Err(ComputeError::Client(Error::Timeout))));
            let results = counts.results();
            assert_eq!(results.last().map(String::as_str), Some("Stored"), "{protocol:?} {results:?}");
            assert!(results[..results.len() - 1].iter().all(|result| result == "Cancelled"), "{results:?}");
            assert_eq!(stored(&client).await.as_deref(), Some("made"));
        }
    }
}

#[tokio::test]
async fn an_error_is_that_of_all_who_wait_and_of_nobody_later() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let (client, counts) = observed(protocol, &server);
            client.delete("k").await.expect(WELL);
            let work = Work::new();
            let tasks: Vec<_> = (0..10).map(|_| work.spawn(&client, OPTIONS, Err("no luck"))).collect();
            counts.looked(10).await;
            work.end();
            for task in join_all(tasks).await {
                match task.expect("no panic") {
                    Err(ComputeError::Computation(error)) => assert_eq!(*error, "no luck"),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(counts.results(), ["Failed"], "{protocol:?}");
            // At once: nobody waits for who has failed.
            let (other, _) = observed(protocol, &server);
            let work = Work::new();
            work.end();
            assert_eq!(made(work.spawn(&other, OPTIONS, Ok("made"))).await, "made");
            assert_eq!(stored(&client).await.as_deref(), Some("made"));
        }
    }
}

#[tokio::test]
async fn an_error_of_another_type_is_nobody_elses() {
    for server in start_each(&[]) {
        let (client, counts) = observed(Protocol::Meta, &server);
        let work = Work::new();
        let failing = work.spawn(&client, OPTIONS, Err("no luck"));
        work.begun().await;
        let other = client.clone();
        let other = tokio::spawn(async move {
            other.get_or_compute_with("k", OPTIONS, async || Ok::<_, std::io::Error>("made")).await
        });
        counts.looked(2).await;
        work.end();
        assert!(failing.await.expect("no panic").is_err());
        assert_eq!(text(other.await.expect("no panic").expect(WELL)), "made");
    }
}

#[tokio::test]
async fn other_processes_wait_for_the_one_that_computes() {
    for server in start_each(&[]) {
        let (client, _) = observed(Protocol::Meta, &server);
        let (other, counts) = observed(Protocol::Meta, &server);
        let (work, none) = (Work::new(), Work::new());
        let first = work.spawn(&client, OPTIONS, Ok("made"));
        work.begun().await;
        let waiting: Vec<_> = (0..10).map(|_| none.spawn(&other, OPTIONS, Ok("not needed"))).collect();
        // All, and one of them again and again.
        counts.looked(13).await;
        work.end();
        assert_eq!(made(first).await, "made");
        for task in waiting {
            assert_eq!(made(task).await, "made");
        }
        assert_eq!(none.begun.available_permits(), 0);

        // Who is given up with nobody waiting gives its lease back.
        client.delete("k").await.expect(WELL);
        let given_up = work.spawn(&client, OPTIONS, Ok("never"));
        work.begun().await;
        given_up.abort();
        none.end();
        assert_eq!(made(none.spawn(&other, OPTIONS, Ok("by another"))).await, "by another");

        // Who has died does not: others wait for a while.
        client.delete("k").await.expect(WELL);
        let dead = Recache { create: Some(MINUTE.into()), before_expiry: None };
        assert!(client.get_or_recache("k", dead).await.expect(WELL).expect("it is created").has_won);
        let impatient = ComputeOptions { wait: Duration::from_millis(50), ..OPTIONS };
        none.end();
        assert_eq!(made(none.spawn(&other, impatient, Ok("for the dead"))).await, "for the dead");
        assert_eq!(stored(&client).await.as_deref(), Some("for the dead"));
    }
}

#[tokio::test]
async fn an_old_value_is_returned_while_one_computes_it_anew() {
    for server in start_each(&[]) {
        let (client, counts) = observed(Protocol::Meta, &server);
        let (other, _) = observed(Protocol::Meta, &server);
        let early = ComputeOptions { ttl: MINUTE.into(), before_expiry: Some(2 * MINUTE), ..OPTIONS };
        for (options, is_stale) in [(OPTIONS, true), (early, false)] {
            client.set("k", "old", MINUTE).await.expect(WELL);
            if is_stale {
                assert!(client.invalidate("k", None).await.expect(WELL));
            }
            let (work, none) = (Work::new(), Work::new());
            let first = work.spawn(&client, options, Ok("new"));
            work.begun().await;
            assert_eq!(made(none.spawn(&client, options, Ok("not needed"))).await, "old");
            assert_eq!(made(none.spawn(&other, options, Ok("not needed"))).await, "old");
            work.end();
            assert_eq!(made(first).await, "new");
            assert_eq!(stored(&other).await.as_deref(), Some("new"));
            assert_eq!(counts.results(), ["Stored"]);
        }
        // Who fails has it as well, and so has who is given up: then another is asked.
        client.set("k", "old", MINUTE).await.expect(WELL);
        let work = Work::new();
        let given_up = work.spawn(&client, early, Ok("never"));
        work.begun().await;
        given_up.abort();
        assert!(given_up.await.expect_err("it is aborted").is_cancelled());
        let next = loop {
            let mut next = work.spawn(&other, early, Err("no luck"));
            tokio::select! {
                () = work.begun() => break next,
                // The lease is not given back yet.
                old = made(&mut next) => assert_eq!(old, "old"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        work.end();
        assert_eq!(made(next).await, "old");
    }
}

#[tokio::test]
async fn what_is_changed_meanwhile_stays() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let (client, counts) = observed(protocol, &server);
            client.delete("k").await.expect(WELL);
            let (old, new) = (Work::new(), Work::new());
            let first = old.spawn(&client, OPTIONS, Ok("of old data"));
            old.begun().await;
            client.delete("k").await.expect(WELL);
            // A new computation, of new data.
            let second = new.spawn(&client, OPTIONS, Ok("of new data"));
            new.begun().await;
            old.end();
            assert_eq!(made(first).await, "of old data");
            assert_eq!(counts.results(), ["Outdated"], "{protocol:?}");
            new.end();
            assert_eq!(made(second).await, "of new data");
            assert_eq!(stored(&client).await.as_deref(), Some("of new data"));
            client.delete("k").await.expect(WELL);
            let third = old.spawn(&client, OPTIONS, Ok("computed"));
            old.begun().await;
            client.set("k", "set", MINUTE).await.expect(WELL);
            old.end();
            assert_eq!(made(third).await, "computed");
            assert_eq!(stored(&client).await.as_deref(), Some("set"));
        }
    }
}

#[tokio::test]
async fn without_a_cache_values_are_computed_once_in_a_process() {
    let counts = Arc::new(Counts::default());
    let observer = Arc::clone(&counts) as Arc<dyn Observer>;
    let nobody = "127.0.0.1:1".parse::<larder_client::Address>().expect("an address");
    let client = patient(Protocol::Meta).server(nobody).observer(observer).build();
    let work = Work::new();
    let tasks: Vec<_> = (0..10).map(|_| work.spawn(&client, OPTIONS, Ok("made"))).collect();
    counts.looked(10).await;
    work.end();
    for task in tasks {
        assert_eq!(made(task).await, "made");
    }
    assert_eq!(counts.results(), ["NotStored"]);
    // Keys and times are checked all the same.
    let wrong = client.get_or_compute("", MINUTE, async || Ok::<_, String>("x")).await;
    assert!(matches!(wrong, Err(ComputeError::Client(Error::InvalidKey))));
    let first = work.spawn(&client, OPTIONS, Ok("made"));
    work.begun().await;
    let options = ComputeOptions { timeout: Duration::from_millis(50), ..OPTIONS };
    let late = Work::new().spawn(&client, options, Ok("x")).await.expect("no panic");
    assert!(matches!(late, Err(ComputeError::Client(Error::Timeout))), "{late:?}");
    work.end();
    assert_eq!(made(first).await, "made");
    assert_eq!(counts.results(), ["NotStored"]);
}

/// A value that the server refuses is returned, and nobody waits for it.
#[tokio::test]
async fn a_value_that_cannot_be_stored_is_returned() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let (client, counts) = observed(protocol, &server);
            let (other, _) = observed(protocol, &server);
            client.delete("k").await.expect(WELL);
            for client in [&client, &other] {
                let large = async || Ok::<_, String>(vec![7; 2 << 20]);
                let item = client.get_or_compute_with("k", OPTIONS, large).await.expect(WELL);
                assert_eq!(item.value.len(), 2 << 20);
            }
            assert_eq!(counts.results(), ["NotStored"], "{protocol:?}");
        }
    }
}
