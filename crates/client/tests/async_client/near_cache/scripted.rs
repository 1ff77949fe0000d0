//! A server that does what a test says.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use larder_client::async_client::AsyncBuilder;
use larder_client::{Address, Protocol};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::{WELL, until};
use crate::servers::patient;

/// A server of the test's own, with one value for all keys, and a log that says what the test says.
pub(super) struct Scripted {
    pub(super) value: Mutex<String>,
    pub(super) gets: Gate,
    pub(super) sets: Gate,
    pub(super) stats: Gate,
    /// Gets and sets end their connections.
    pub(super) breaks: AtomicBool,
    pub(super) dropped: AtomicU64,
    /// Statistics have no end.
    pub(super) floods: AtomicBool,
    /// Bytes of them, of connections that the client has closed.
    pub(super) flooded: Mutex<Vec<usize>>,
    logs: mpsc::UnboundedSender<OwnedWriteHalf>,
}

/// Requests that are answered when the test says so.
pub(super) struct Gate {
    pub(super) come: AtomicU64,
    open: watch::Sender<bool>,
}

impl Gate {
    fn new() -> Self {
        Self { come: AtomicU64::new(0), open: watch::Sender::new(true) }
    }

    async fn pass(&self) {
        self.come.fetch_add(1, Ordering::SeqCst);
        self.open.subscribe().wait_for(|open| *open).await.expect(WELL);
    }

    pub(super) fn hold(&self) {
        self.open.send_replace(false);
    }

    pub(super) fn release(&self) {
        self.open.send_replace(true);
    }

    /// Waits until so many have come.
    pub(super) async fn come(&self, come: u64) {
        until(async || self.come.load(Ordering::SeqCst) >= come).await;
    }
}

impl Scripted {
    pub(super) async fn start() -> (Arc<Self>, AsyncBuilder, mpsc::UnboundedReceiver<OwnedWriteHalf>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address: Address = listener.local_addr().expect("it is bound").to_string().parse().expect(WELL);
        let (logs, opened) = mpsc::unbounded_channel();
        let this = Arc::new(Self {
            value: Mutex::new("old".into()),
            gets: Gate::new(),
            sets: Gate::new(),
            stats: Gate::new(),
            breaks: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            floods: AtomicBool::new(false),
            flooded: Mutex::default(),
            logs,
        });
        let server = Arc::clone(&this);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&server).serve(stream));
            }
        });
        (this, patient(Protocol::Meta).server(address).connections(4), opened)
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let (input, mut output) = stream.into_split();
        let mut lines = BufReader::new(input).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let opaque = line.split(' ').find(|word| word.starts_with('O')).unwrap_or_default();
            let reply = match &line[..2] {
                "wa" => {
                    output.write_all(b"OK\r\n").await.expect(WELL);
                    self.logs.send(output).expect(WELL);
                    let _ = lines.next_line().await;
                    return;
                }
                "mg" | "ms" if self.breaks.load(Ordering::SeqCst) => return,
                "mg" => {
                    let value = self.value();
                    self.gets.pass().await;
                    format!("VA {} f0 c7 t-1 {opaque}\r\n{value}\r\n", value.len())
                }
                "ms" => {
                    let value = lines.next_line().await.expect(WELL).expect(WELL);
                    if line.split(' ').any(|word| word == "q") {
                        // Whatever comes after it need not wait for it.
                        tokio::spawn(Arc::clone(&self).set(value));
                        continue;
                    }
                    Arc::clone(&self).set(value).await;
                    format!("HD {opaque}\r\n")
                }
                "fl" => "OK\r\n".to_owned(),
                "ve" => "VERSION 1.6.38\r\n".to_owned(),
                _ if self.floods.load(Ordering::SeqCst) => {
                    let (stat, mut sent) = (format!("STAT x {}\r\n", "x".repeat(1000)), 0);
                    while output.write_all(stat.as_bytes()).await.is_ok() {
                        sent += stat.len();
                    }
                    return self.flooded.lock().expect(WELL).push(sent);
                }
                _ => {
                    self.stats.pass().await;
                    let dropped = self.dropped.load(Ordering::SeqCst);
                    format!("STAT log_worker_dropped {dropped}\r\nEND\r\n")
                }
            };
            if output.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    async fn set(self: Arc<Self>, value: String) {
        self.sets.pass().await;
        *self.value.lock().expect(WELL) = value;
    }

    pub(super) fn value(&self) -> String {
        self.value.lock().expect(WELL).clone()
    }
}
