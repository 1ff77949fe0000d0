//! A web service that keeps what is slow to make in memcached or larderd: `GET /<page>`.
//!
//! ```sh
//! MEMCACHED_SERVERS=127.0.0.1:11211 cargo run -p larder-client --example service
//! curl http://127.0.0.1:8080/start
//! ```
//!
//! One client serves all requests. A page is made by one of its readers, while the others get the old one; pages that
//! are read all the time are kept in the process; and if the cache is slow or gone, each page is still made once at a
//! time. `/metrics` counts.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use larder_client::async_client::{
    Coherence, Computation, ComputationResult, ComputeOptions, NearCache, Observer, Operation, Outcome,
};
use larder_client::{AsyncClient, Distribution, Servers};
use tokio::net::TcpListener;

/// How long a page is kept, how long before its end it is made anew, and how long that may take.
const TTL: Duration = Duration::from_secs(60);
const BEFORE_EXPIRY: Duration = Duration::from_secs(10);
const MAKING: Duration = Duration::from_secs(5);
/// 16 MiB of pages in the process. Servers tell when others change them.
const NEAR: NearCache = NearCache {
    entries_max: 10_000,
    bytes_max: 16 << 20,
    ttl: Duration::from_secs(5),
    coherence: Coherence::Watch,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = Arc::new(Metrics::default());
    let client = AsyncClient::builder()
        .servers(Servers::from_env()?)
        .distribution(Distribution::Ketama)
        .timeout(Duration::from_millis(50))
        .near_cache(NEAR)
        .observer(Arc::clone(&metrics) as Arc<dyn Observer>)
        .build();
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    eprintln!("http://{}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        let (client, metrics) = (client.clone(), Arc::clone(&metrics));
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(client.clone(), Arc::clone(&metrics), request));
            if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn answer(
    client: AsyncClient,
    metrics: Arc<Metrics>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    if path == "/metrics" {
        return Ok(Response::new(Full::new(format!("{metrics:?}\n").into())));
    }
    // A task of its own: a browser that goes away drops this future, and would cancel the computation.
    let page = tokio::spawn(async move { page(&client, &path).await }).await;
    Ok(Response::new(Full::new(page.unwrap_or_default().into())))
}

/// The page. If it is missing, or soon will be, one of its readers makes it, of this process and of all others.
async fn page(client: &AsyncClient, path: &str) -> Vec<u8> {
    let options = ComputeOptions {
        ttl: TTL.into(),
        before_expiry: Some(BEFORE_EXPIRY),
        timeout: MAKING,
        ..ComputeOptions::default()
    };
    match client.get_or_compute_with(format!("page:{path}"), options, || make(path)).await {
        Ok(item) => item.value,
        Err(error) => format!("{path}: {error}\n").into_bytes(),
    }
}

/// What takes its time.
async fn make(path: &str) -> Result<String, Infallible> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(format!("This is {path}\n"))
}

/// What metrics are made of: how often each thing has happened, and why pages were not kept.
#[derive(Debug, Default)]
struct Metrics {
    hits: AtomicU64,
    near: AtomicU64,
    misses: AtomicU64,
    failures: AtomicU64,
    made: AtomicU64,
}

impl Observer for Metrics {
    fn ended(&self, operation: &Operation<'_>) {
        let count = match operation.outcome {
            Outcome::Hit if operation.is_near => &self.near,
            Outcome::Hit => &self.hits,
            Outcome::Miss => &self.misses,
            Outcome::Failed | Outcome::Cancelled => &self.failures,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn computed(&self, computation: &Computation<'_>) {
        self.made.fetch_add(1, Ordering::Relaxed);
        if let ComputationResult::NotStored(error) = computation.result {
            eprintln!("not kept: {error}");
        }
    }
}
