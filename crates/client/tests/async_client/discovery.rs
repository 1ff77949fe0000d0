//! Lists of servers that are looked up. No server of ours says what an ElastiCache says: here one does, in the form of
//! AWS's manual.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_client::discovery::Discovery;
use larder_client::{Address, AsyncClient, Distribution, Error, Protocol, Servers};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::servers::{MINUTE, address, patient, start_each};

/// A configuration endpoint. It answers `request` with what it holds, in small pieces, and other requests with `ERROR`.
async fn endpoint(request: &'static str, head: &'static str) -> (Address, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string().parse().expect("an address");
    let payload = Arc::new(Mutex::new(String::new()));
    let held = Arc::clone(&payload);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("somebody connects");
            let (input, mut output) = stream.into_split();
            let mut line = String::new();
            let _ = BufReader::new(input).read_line(&mut line).await;
            let payload = held.lock().expect("no panic").clone();
            let reply = if line.trim_end() == request {
                format!("{head} 0 {}\r\n{payload}\r\nEND\r\n", payload.len())
            } else {
                "ERROR\r\n".to_owned()
            };
            for piece in reply.as_bytes().chunks(7) {
                if output.write_all(piece).await.is_err() {
                    break;
                }
            }
        }
    });
    (address, payload)
}

fn nodes(version: u64, servers: &[&Address]) -> String {
    let node = |address: &&Address| {
        let text = address.to_string();
        let (host, port) = text.rsplit_once(':').expect("it has a port");
        format!("{host}|{host}|{port}")
    };
    format!("{version}\n{}\n", servers.iter().map(node).collect::<Vec<_>>().join(" "))
}

pub(crate) async fn until(condition: impl Fn() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not happen");
}

#[tokio::test]
async fn a_cluster_is_followed() {
    let servers: Vec<_> = [start_each(&[]), start_each(&[])].into_iter().flatten().collect();
    let (a, b) = (address(&servers[0]), address(&servers[1]));
    for (request, head) in [
        ("config get cluster", "CONFIG cluster"),
        ("get AmazonElastiCache:cluster", "VALUE AmazonElastiCache:cluster"),
    ] {
        let (at, payload) = endpoint(request, head).await;
        *payload.lock().expect("no panic") = nodes(1, &[&a]);
        let client = patient(Protocol::Meta).warm_up(MINUTE).build();
        client.discover(&Discovery::Cluster(at.clone())).await.expect("it is a cluster");
        assert_eq!(client.servers(), [a.clone().into()]);
        client.set("k", "x", MINUTE).await.expect("all is well");

        let watch = client.watch_servers(Discovery::Cluster(at), Duration::from_millis(10));
        *payload.lock().expect("no panic") = nodes(2, &[&b]);
        until(|| client.servers() == [b.clone().into()]).await;
        // It began warm.
        let found = client.get("k").await.expect("all is well");
        assert_eq!(found.map(|item| item.value), Some(b"x".to_vec()));
        // What is wrong or older changes nothing, and is told.
        *payload.lock().expect("no panic") = "3\nnonsense\n".to_owned();
        until(|| watch.failure().is_some_and(|failure| failure.contains("nonsense"))).await;
        *payload.lock().expect("no panic") = nodes(1, &[&a]);
        until(|| watch.failure().is_some_and(|failure| failure.contains("older"))).await;
        assert_eq!(client.servers(), [b.clone().into()]);
        client.delete("k").await.expect("all is well");
    }
}

#[tokio::test]
async fn a_server_without_a_cluster_says_so() {
    for server in start_each(&[]) {
        let client = AsyncClient::of(address(&server)).with_timeout(MINUTE);
        let error = client.discover(&Discovery::Cluster(address(&server))).await.expect_err("it has none");
        assert!(matches!(error, Error::Discovery(_)), "{error}");
        assert_eq!(client.servers().len(), 1);
    }
}

#[tokio::test]
async fn all_addresses_of_a_name_are_servers() {
    let client = patient(Protocol::Meta).build();
    client.discover(&Discovery::Dns { host: "localhost".into(), port: 11 }).await.expect("it has one");
    let names: Vec<_> = client.servers().iter().map(|server| server.address.to_string()).collect();
    assert!(
        names.contains(&"127.0.0.1:11".to_owned()) || names.contains(&"[::1]:11".to_owned()),
        "{names:?}"
    );
    let nobody = Discovery::Dns { host: "nobody.invalid".into(), port: 11 };
    assert!(matches!(client.discover(&nobody).await, Err(Error::Discovery(_))));
    assert_eq!(client.servers().len(), names.len());
}

/// PHP's memcache has points for each unit of weight: a list could take all memory.
#[tokio::test]
async fn a_list_whose_ring_is_too_large_is_refused() {
    let client = AsyncClient::builder().distribution(Distribution::PhpMemcacheConsistent).build();
    let list = |servers: usize| {
        Servers((0..servers).map(|n| format!("a{n}:1:1000").parse().expect("a server")).collect())
    };
    client.set_servers(&list(20)).expect("they have points enough");
    let changed = client.set_servers(&list(30));
    assert!(matches!(changed, Err(Error::Unsupported(_))) && client.servers().len() == 20, "{changed:?}");
}
