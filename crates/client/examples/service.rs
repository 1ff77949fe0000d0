//! A web service that keeps what is slow to make in memcached or larderd: `GET /<page>`.
//!
//! ```sh
//! MEMCACHED_SERVERS=127.0.0.1:11211 cargo run -p larder-client --example service
//! curl http://127.0.0.1:8080/start
//! ```
//!
//! One client serves all requests. A page is made by one of its readers, while the others get the old one; and if the
//! cache is slow or gone, the service is no slower than without it.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use larder_client::async_client::Recache;
use larder_client::{AsyncClient, Distribution, Error, Servers};
use tokio::net::TcpListener;

/// How long a page is kept, how long before its end it is made anew, and how long that may take.
const TTL: Duration = Duration::from_secs(60);
const BEFORE_EXPIRY: Duration = Duration::from_secs(10);
const MAKING: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = AsyncClient::builder()
        .servers(Servers::from_env()?)
        .distribution(Distribution::Ketama)
        .timeout(Duration::from_millis(50))
        .build();
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    eprintln!("http://{}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        let client = client.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(client.clone(), request));
            if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn answer(
    client: AsyncClient,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    // A task of its own: a browser that goes away drops this future, and would cost a connection to the cache.
    let page = tokio::spawn(async move { page(&client, &path).await }).await;
    Ok(Response::new(Full::new(page.unwrap_or_default().into())))
}

/// The page, from the cache if it is there.
async fn page(client: &AsyncClient, path: &str) -> Vec<u8> {
    let key = format!("page:{path}");
    let recache = Recache { create: Some(MAKING.into()), before_expiry: Some(BEFORE_EXPIRY) };
    let found = client.get_or_recache(&key, recache).await.unwrap_or_else(|error| {
        eprintln!("{key}: {error}");
        None
    });
    match found {
        // Another reader makes it at this moment.
        Some(found) if !found.has_won && !found.item.value.is_empty() => found.item.value,
        found => {
            let page = make(path).await;
            if let Some(cas) = found.filter(|found| found.has_won).and_then(|found| found.item.cas) {
                keep(client, &key, &page, cas).await;
            }
            page
        }
    }
}

/// Stores a page, unless somebody has changed it since.
async fn keep(client: &AsyncClient, key: &str, page: &[u8], cas: u64) {
    match client.cas(key, page, TTL, cas).await {
        Ok(_) => {}
        // It may be there or not: the next reader sees.
        Err(Error::Unknown(reason)) => eprintln!("{key}: stored or not: {reason}"),
        Err(error) => eprintln!("{key}: not stored: {error}"),
    }
}

/// What takes its time.
async fn make(path: &str) -> Vec<u8> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    format!("This is {path}\n").into_bytes()
}
