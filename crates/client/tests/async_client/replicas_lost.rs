//! Copies that cannot be made or read: nothing deletes the only one, and nothing old stays.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_client::async_client::{ReadRule, Replication, WriteRule};
use larder_client::{Address, AsyncClient, Distribution, Error, Protocol};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::servers::{MINUTE, patient};

/// A server that answers each line of a request as it is told, or not at all.
pub(crate) struct Scripted {
    pub(crate) address: Address,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// `answer`: to a line, and how many such commands came before. In it ` O` stands for the request's opaque.
    pub(crate) async fn start(
        answer: impl Fn(&str, usize) -> Option<&'static str> + Copy + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let lines = Arc::default();
        let this = Self { address: address.parse().expect("an address"), lines: Arc::clone(&lines) };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("somebody connects");
                let lines = Arc::clone(&lines);
                tokio::spawn(async move {
                    let (reader, mut writer) = stream.into_split();
                    let mut reader = BufReader::new(reader).lines();
                    while let Ok(Some(line)) = reader.next_line().await {
                        let before = count(&lines, line.split(' ').next().unwrap_or_default());
                        let opaque = line.split(' ').find(|word| word.starts_with('O')).unwrap_or_default();
                        let reply =
                            answer(&line, before).map(|reply| reply.replace(" O", &format!(" {opaque}")));
                        lines.lock().expect("no panic").push(line);
                        if let Some(reply) = reply {
                            let _ = writer.write_all(reply.as_bytes()).await;
                        }
                    }
                });
            }
        });
        this
    }

    /// How many such commands have come.
    fn count(&self, command: &str) -> usize {
        count(&self.lines, command)
    }

    /// The only delete that has come, up to its opaque.
    pub(crate) fn only_delete(&self) -> String {
        let lines = self.lines.lock().expect("no panic");
        let deletes: Vec<_> = lines.iter().filter(|line| line.starts_with("md ")).collect();
        assert_eq!(deletes.len(), 1, "{deletes:?}");
        deletes[0].split(" O").next().unwrap_or_default().to_owned()
    }

    async fn gets(&self, command: &str, times: usize) {
        let come = async {
            while self.count(command) < times {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(MINUTE, come).await.expect("it comes in time");
    }
}

fn count(lines: &Mutex<Vec<String>>, command: &str) -> usize {
    lines.lock().expect("no panic").iter().filter(|line| line.split(' ').next() == Some(command)).count()
}

/// A client of both, and a key whose first place is the first.
fn client(first: &Scripted, second: &Scripted, timeout: Duration) -> (AsyncClient, String) {
    let replication = Replication { copies: 2, writes: WriteRule::One, reads: ReadRule::First };
    let builder = patient(Protocol::Meta).server(first.address.clone()).server(second.address.clone());
    let builder = builder.distribution(Distribution::Ketama).replication(replication);
    let client = builder.timeout(timeout).build();
    let is_first = |key: &String| client.server_of(key).is_some_and(|server| server.address == first.address);
    let key = (0..).map(|n| format!("k{n}")).find(is_first).expect("it has keys");
    (client, key)
}

/// Has nothing, and stores what comes.
fn empty(line: &str, _: usize) -> Option<&'static str> {
    match line.get(..2)? {
        "mg" => Some("EN O\r\n"),
        "ms" => Some("HD O\r\n"),
        "ma" | "md" => Some("NF O\r\n"),
        _ => None,
    }
}

/// Each change that depends on the item. None is made.
async fn changes(client: &AsyncClient, key: &str) -> [Error; 3] {
    [
        client.incr(key, 1).await.map(drop).expect_err("no incr"),
        client.add(key, "new", MINUTE).await.map(drop).expect_err("no add"),
        client.append(key, "new").await.map(drop).expect_err("no append"),
    ]
}

#[tokio::test]
async fn a_copy_that_is_not_read_in_time_is_not_deleted() {
    let first = Scripted::start(empty).await;
    let second = Scripted::start(|line, _| line.starts_with("md ").then_some("HD O\r\n")).await;
    let (client, key) = client(&first, &second, Duration::from_millis(300));
    for error in changes(&client, &key).await {
        assert!(matches!(error, Error::Timeout), "{error}");
    }
    assert_eq!(second.count("md"), 0);
}

#[tokio::test]
async fn a_copy_that_cannot_be_moved_is_not_deleted() {
    let refusing = |line: &str, before| match line.starts_with("ms ") {
        true => Some("SERVER_ERROR out of memory storing object\r\n"),
        false => empty(line, before),
    };
    let first = Scripted::start(refusing).await;
    let second = Scripted::start(|line, _| match line.get(..2)? {
        "mg" => Some("VA 1 f0 c9 t-1 O\r\n5\r\n"),
        "md" => Some("HD O\r\n"),
        _ => None,
    });
    let second = second.await;
    let (refused, key) = client(&first, &second, MINUTE);
    for error in changes(&refused, &key).await {
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    assert_eq!(second.count("md"), 0);
    // Somebody is to make it anew.
    let first = Scripted::start(empty).await;
    let second = Scripted::start(|line, _| match line.get(..2)? {
        "mg" => Some("VA 1 f0 c9 t-1 X Z O\r\n5\r\n"),
        "md" => Some("HD O\r\n"),
        _ => None,
    });
    let second = second.await;
    let (stale, key) = client(&first, &second, MINUTE);
    for error in changes(&stale, &key).await {
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
    assert_eq!(second.count("md"), 0);
    // Another client changes it meanwhile.
    let second = Scripted::start(|line, before| match (line.get(..2)?, before % 2) {
        ("mg", 0) => Some("VA 1 f0 c9 t-1 O\r\n5\r\n"),
        ("mg", _) => Some("VA 1 f0 c10 t-1 O\r\n6\r\n"),
        ("md", _) => Some("HD O\r\n"),
        _ => None,
    });
    let second = second.await;
    let (changed, key) = client(&first, &second, MINUTE);
    for error in changes(&changed, &key).await {
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
    assert_eq!(second.count("md"), 0);
}

/// Another client has found the copy, deleted the item that it was made of, and changed it.
#[tokio::test]
async fn a_change_of_a_copy_is_not_taken_back() {
    let first = Scripted::start(|line, before| match line.get(..2)? {
        "ms" => Some("HD c7 O\r\n"),
        "md" => Some("EX O\r\n"),
        _ => empty(line, before),
    });
    let first = first.await;
    let second = Scripted::start(|line, before| match (line.get(..2)?, before) {
        ("mg", 0) => Some("VA 1 f0 c9 t-1 O\r\n5\r\n"),
        ("mg", _) => Some("EN O\r\n"),
        _ => None,
    });
    let second = second.await;
    let (client, key) = client(&first, &second, MINUTE);
    assert!(client.get(&key).await.expect("it is read").is_some());
    assert_eq!(first.only_delete(), format!("md {key} C7"));
}

/// The first place has lost the item, and the second has it still.
#[tokio::test]
async fn what_an_empty_place_has_not_is_not_deleted_everywhere() {
    let first = Scripted::start(empty).await;
    let second = Scripted::start(|_, _| None).await;
    let (client, key) = client(&first, &second, Duration::from_millis(300));
    let deleted = client.delete(&key).await;
    assert!(matches!(deleted, Err(Error::Unknown(_))), "{deleted:?}");
    let touched = client.touch(&key, MINUTE).await;
    assert!(matches!(touched, Err(Error::Unknown(_))), "{touched:?}");
}

#[tokio::test]
async fn a_copy_that_nobody_vouches_for_is_taken_back() {
    for is_dropped in [false, true] {
        let first = Scripted::start(empty).await;
        // It answers one look, and not the second.
        let second = Scripted::start(|line, before| {
            (line.starts_with("mg ") && before == 0).then_some("VA 3 f0 c5 t-1 O\r\nold\r\n")
        });
        let second = second.await;
        let (client, key) = client(&first, &second, Duration::from_secs(2));
        let asking = client.clone();
        let get = tokio::spawn(async move { asking.get(&key).await });
        second.gets("mg", 2).await;
        if is_dropped {
            get.abort();
        } else {
            let found = get.await.expect("no panic");
            assert_eq!(found.expect("it is read").expect("it is there").value, b"old");
        }
        first.gets("md", 1).await;
    }
}
