//! Spans of the shared client, by OpenTelemetry's names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fmt, mem};

use larder_client::{Address, AsyncClient};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Fields of a span, in words.
type Fields = BTreeMap<String, String>;

/// Collects spans, in the order of their ends.
#[derive(Default)]
struct Spans {
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, Fields>>,
    closed: Mutex<Vec<Fields>>,
}

#[derive(Clone)]
struct Collector(Arc<Spans>);

struct Visitor<'a>(&'a mut Fields);

impl Visit for Visitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.last.fetch_add(1, Ordering::SeqCst) + 1;
        let mut fields = Fields::new();
        span.record(&mut Visitor(&mut fields));
        self.0.open.lock().expect("no panic").insert(id, fields);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(fields) = self.0.open.lock().expect("no panic").get_mut(&span.into_u64()) {
            values.record(&mut Visitor(fields));
        }
    }

    fn try_close(&self, span: Id) -> bool {
        let fields = self.0.open.lock().expect("no panic").remove(&span.into_u64());
        self.0.closed.lock().expect("no panic").extend(fields);
        true
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A server that has `hit`, and ends the connection at `bad`.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let (input, mut output) = stream.into_split();
            let mut lines = BufReader::new(input).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let opaque = line.rsplit(' ').next().unwrap_or_default();
                let reply = match line.split(' ').nth(1) {
                    Some("hit") => format!("VA 6 f0 {opaque}\r\nsecret\r\n"),
                    Some("bad") => return,
                    _ => format!("EN {opaque}\r\n"),
                };
                output.write_all(reply.as_bytes()).await.expect("the client reads");
            }
        });
    }
}

#[tokio::test]
async fn a_span_says_how_an_operation_went_and_no_secrets() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(serve(listener));
    let spans = Arc::new(Spans::default());
    let _guard = tracing::subscriber::set_default(Collector(Arc::clone(&spans)));
    let take = || mem::take(&mut *spans.closed.lock().expect("no panic"));
    let server: Address = address.to_string().parse().expect("an address");
    let builder = AsyncClient::builder().server(server).timeout(Duration::from_secs(60)).retries(0);

    let client = builder.clone().build();
    client.get("hit").await.expect("it is there");
    client.get("nokey").await.expect("it is answered");
    client.get("bad").await.expect_err("the connection is closed");
    drop(client.get("hit"));
    let port = address.port().to_string();
    let span = |outcome: &str, more: &[(&str, &str)]| -> Fields {
        let fields = [
            ("otel.kind", "client"),
            ("otel.name", "get"),
            ("db.system.name", "memcached"),
            ("db.operation.name", "get"),
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
            ("larder.attempts", "1"),
            ("larder.outcome", outcome),
        ];
        fields.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let failed = span("failed", &[("error.type", "closed"), ("otel.status_code", "ERROR")]);
    assert_eq!(take(), [span("hit", &[]), span("miss", &[]), failed]);

    client.get_many(["hit", "nokey"]).collect().await;
    let many = take().pop().expect("one");
    let fields =
        ["db.operation.name", "db.operation.batch.size", "larder.hits"].map(|name| many[name].as_str());
    assert_eq!(fields, ["get_many", "2", "1"]);

    // If it is asked for, the key.
    let client = builder.trace_keys(true).build();
    client.get("hit").await.expect("it is there");
    assert_eq!(take(), [span("hit", &[("db.query.text", "get hit")])]);
}
