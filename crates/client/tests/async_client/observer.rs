//! What an observer is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_client::async_client::{Coherence, Computation, NearCache, Observer, Operation};
use larder_client::{Address, Protocol, Ttl};

use crate::faults::Fake;
use crate::servers::{MINUTE, PROTOCOLS, address, patient, start_each};

const WELL: &str = "all is well";

/// Each operation in words: name, outcome, attempts, hits of keys, `near`, and the type of its error.
#[derive(Debug, Default)]
struct Words(Mutex<Vec<String>>);

/// Errors, as they are shown and debugged.
#[derive(Debug, Default)]
struct Errors(Mutex<Vec<String>>);

impl Observer for Errors {
    fn ended(&self, operation: &Operation<'_>) {
        self.0
            .lock()
            .expect(WELL)
            .push(operation.error.map_or(String::new(), |error| format!("{error} {error:?}")));
    }

    fn computed(&self, computation: &Computation<'_>) {
        self.0.lock().expect(WELL).push(format!("{:?}", computation.result));
    }
}

impl Observer for Words {
    fn ended(&self, operation: &Operation<'_>) {
        let Operation { name, outcome, attempts, keys, hits, .. } = operation;
        let near = if operation.is_near { " near" } else { "" };
        let error = operation.error_type.map_or(String::new(), |error| format!(" {error}"));
        let words = format!("{name} {} {attempts} {hits}/{keys}{near}{error}", outcome.name());
        let server = operation.server.map_or(String::new(), |_| " at".to_owned());
        self.0.lock().expect(WELL).push(words + &server);
    }
}

impl Words {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect(WELL))
    }
}

#[tokio::test]
async fn each_operation_is_told_once() {
    for server in start_each(&[]) {
        for protocol in PROTOCOLS {
            let words = Arc::new(Words::default());
            let builder =
                patient(protocol).server(address(&server)).observer(Arc::clone(&words) as Arc<dyn Observer>);
            let near =
                NearCache { entries_max: 10, bytes_max: 1 << 20, ttl: MINUTE, coherence: Coherence::Ttl };
            let client = builder.near_cache(near).build();
            client.delete("k").await.expect(WELL);
            words.take();
            client.get("k").await.expect(WELL);
            client.set("k", "1", MINUTE).await.expect(WELL);
            client.get("k").await.expect(WELL);
            client.get("k").await.expect(WELL);
            client.gets("k").await.expect(WELL);
            client.add("k", "1", MINUTE).await.expect(WELL);
            client.cas("k", "1", MINUTE, 1 << 60).await.expect(WELL);
            client.incr("k", 1).await.expect(WELL);
            client.touch("k", Ttl::Never).await.expect(WELL);
            client.noreply().set("k", "1", MINUTE).await.expect(WELL);
            client.append("nokey", "1").await.expect(WELL);
            client.delete("k").await.expect(WELL);
            assert_eq!(
                words.take(),
                [
                    "get miss 1 0/1 at",
                    "set done 1 0/1 at",
                    "get hit 1 1/1 at",
                    "get hit 0 1/1 near",
                    "gets hit 1 1/1 at",
                    "add unmet 1 0/1 at",
                    "cas unmet 1 0/1 at",
                    "incr done 1 0/1 at",
                    "touch done 1 0/1 at",
                    "set done 1 0/1 at",
                    "append unmet 1 0/1 at",
                    "delete done 1 0/1 at",
                ],
                "{protocol:?}"
            );
            client.set("k", "1", MINUTE).await.expect(WELL);
            client.get_many(["k", "nokey", "k"]).collect().await;
            client.get_many(["nokey"]).collect().await;
            drop(client.get_many(["k"]));
            assert_eq!(
                words.take()[1..],
                ["get_many hit 0 2/3", "get_many miss 0 0/1", "get_many cancelled 0 0/1 cancelled"]
            );
            client.version().await;
            client.stats("").await;
            client.stats("\n").await;
            client.flush_all(Duration::ZERO).await;
            // Nothing is asked.
            client.get("").await.expect_err("no key");
            assert_eq!(
                words.take(),
                [
                    "version done 1 0/0 at",
                    "stats done 1 0/0 at",
                    "stats failed 0 0/0 unsupported",
                    "flush_all done 1 0/0 at"
                ]
            );
        }
    }
}

#[tokio::test]
async fn failures_are_told_with_their_attempts() {
    let (mut server, builder) = Fake::start(Protocol::Meta).await;
    let words = Arc::new(Words::default());
    let client = builder.observer(Arc::clone(&words) as Arc<dyn Observer>).build();
    let get = tokio::spawn({
        let client = client.clone();
        async move { client.get("k").await }
    });
    let mut first = server.accept().await;
    first.expect("mg k v f O0\r\n").await;
    drop(first);
    let mut second = server.accept().await;
    second.expect("mg k v f O0\r\n").await;
    second.send("VA 1 f0 O0\r\nx\r\n").await;
    get.await.expect("no panic").expect("the second answers");
    assert_eq!(words.take(), ["get hit 2 1/1 at"]);

    let late = client.with_timeout(Duration::from_secs(1));
    late.set("k", "1", MINUTE).await.expect_err("it is not answered");
    assert_eq!(words.take(), ["set failed 1 0/1 timeout at"]);
    let dropped = tokio::spawn(async move { client.get("k").await });
    let mut third = server.accept().await;
    third.expect("mg k v f O0\r\n").await;
    dropped.abort();
    assert!(dropped.await.expect_err("it is aborted").is_cancelled());
    assert_eq!(words.take(), ["get cancelled 1 0/1 cancelled at"]);

    let nobody = "127.0.0.1:1".parse::<Address>().expect("an address");
    let client =
        patient(Protocol::Meta).server(nobody).observer(Arc::clone(&words) as Arc<dyn Observer>).build();
    client.get("k").await.expect_err("nobody listens");
    client.get_many(["k", "l"]).collect().await;
    assert_eq!(words.take(), ["get failed 1 0/1 connect at", "get_many failed 0 0/2 connect at"]);
}

#[tokio::test]
async fn stores_of_computations_are_told_without_the_words_of_the_server() {
    let (mut server, builder) = Fake::start(Protocol::Text).await;
    let errors = Arc::new(Errors::default());
    let client = builder.observer(Arc::clone(&errors) as Arc<dyn Observer>).build();
    let compute = async || Ok::<_, String>("x");
    let computed =
        tokio::spawn(async move { client.get_or_compute("k", Duration::from_secs(60), compute).await });
    let mut peer = server.accept().await;
    peer.expect("get k\r\n").await;
    peer.send("END\r\n").await;
    peer.expect("add k 0 60 1\r\nx\r\n").await;
    peer.send("SERVER_ERROR hunter2\r\n").await;
    assert_eq!(computed.await.expect("no panic").expect(WELL).value, b"x");
    let told = std::mem::take(&mut *errors.0.lock().expect(WELL));
    assert!(told.iter().any(|told| told.contains("NotStored")), "{told:?}");
    assert!(!told.concat().contains("hunter2"), "{told:?}");
}

#[tokio::test]
async fn errors_are_told_without_the_words_of_the_server() {
    for reply in ["VALUE user:hunter2 is secret", "SERVER_ERROR hunter2", "CLIENT_ERROR hunter2"] {
        for is_change in [false, true] {
            let (mut server, builder) = Fake::start(Protocol::Meta).await;
            let errors = Arc::new(Errors::default());
            let client = builder.retries(0).observer(Arc::clone(&errors) as Arc<dyn Observer>).build();
            let asked = tokio::spawn(async move {
                if is_change {
                    client.delete("k").await.map(|_| ())
                } else {
                    client.get("k").await.map(|_| ())
                }
            });
            let mut peer = server.accept().await;
            peer.expect(if is_change { "md k O0\r\n" } else { "mg k v f O0\r\n" }).await;
            peer.send(&format!("{reply}\r\n")).await;
            let error = asked.await.expect("no panic").expect_err("no answer");
            assert!(error.to_string().contains("hunter2"), "{error}: the caller sees it");
            let told = std::mem::take(&mut *errors.0.lock().expect(WELL));
            assert!(told.len() == 1 && told[0].len() > 10 && !told[0].contains("hunter2"), "{told:?}");
            let words = match &reply[..6] {
                "SERVER" => "refused: an error of the server",
                "CLIENT" => "refused: an error of the client",
                _ => "not shown",
            };
            assert!(told[0].contains(words), "{told:?}");
        }
    }
}
