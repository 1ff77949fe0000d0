//! Connections, with bounds on their number, their input and their time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::endpoint::AdminEndpoint;
use super::peers::Peers;
use super::router;
use super::state::State;
use crate::conn::client::Peer;
use crate::net::listeners::Address;
use crate::persistence::backups::Producer;

/// Open connections at most. One more replaces the connection whose last request (or accept) is the oldest. So a probe,
/// which sends its request at once, is answered whatever other connections are open.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// Open connections, in the order of their last requests.
#[derive(Default)]
struct Places(Mutex<VecDeque<(u64, AbortHandle)>>);

/// A connection's place.
struct Place {
    id: u64,
    places: Arc<Places>,
}

impl Places {
    fn all(&self) -> MutexGuard<'_, VecDeque<(u64, AbortHandle)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. True if another was closed for it.
    fn enter(&self, id: u64, connection: AbortHandle) -> bool {
        let mut all = self.all();
        let leaver = if all.len() >= CONNECTIONS_MAX { all.pop_front() } else { None };
        all.push_back((id, connection));
        // Dropping a closed connection takes this lock again.
        drop(all);
        leaver.inspect(|(_, leaver)| leaver.abort()).is_some()
    }
}

impl Place {
    /// Takes the connection out: none replaces it. Backups have streams, one at a time.
    fn leave(&self) {
        self.places.all().retain(|(id, _)| *id != self.id);
    }

    /// Moves the connection to the end, after a request.
    fn renew(&self) {
        let mut all = self.places.all();
        let at = all.iter().position(|(id, _)| *id == self.id);
        if let Some(entry) = at.and_then(|at| all.remove(at)) {
            all.push_back(entry);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Serves all listeners, and takes a reading every second.
pub(super) async fn run(endpoints: Vec<AdminEndpoint>, state: Arc<State>) {
    let places = Arc::new(Places::default());
    for endpoint in endpoints {
        let (places, state) = (Arc::clone(&places), Arc::clone(&state));
        tokio::spawn(async move {
            if let Err(error) = attend(endpoint, &places, &state).await {
                tracing::error!("admin HTTP: {error}");
            }
        });
    }
    Peers::ask_all(&state);
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // The first tick comes at once, and a rate over no time would be a spike.
    seconds.tick().await;
    loop {
        seconds.tick().await;
        state.take_reading();
    }
}

/// Accepts on one listener. Errors: the runtime refuses the listener.
async fn attend(endpoint: AdminEndpoint, places: &Arc<Places>, state: &Arc<State>) -> io::Result<()> {
    let fd = endpoint.listener.fd.try_clone()?;
    match &endpoint.listener.address {
        Address::Tcp(_) => {
            let listener = TcpListener::from_std(fd.into())?;
            let endpoint = Arc::new(endpoint);
            loop {
                let Some((stream, address)) = accepted(listener.accept().await).await else { continue };
                admit(stream, Peer::Tcp(address), &endpoint, places, state).await;
            }
        }
        Address::Unix(_) => {
            let listener = UnixListener::from_std(fd.into())?;
            let endpoint = Arc::new(endpoint);
            loop {
                let Some((stream, _)) = accepted(listener.accept().await).await else { continue };
                admit(stream, Peer::Unix, &endpoint, places, state).await;
            }
        }
    }
}

/// The accepted connection, and its address. After an error, such as no descriptor, the next attempt waits a little.
async fn accepted<S, A>(result: io::Result<(S, A)>) -> Option<(S, A)> {
    match result {
        Ok(accepted) => Some(accepted),
        Err(_) => {
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Starts serving a connection.
async fn admit<S>(
    stream: S,
    peer: Peer,
    endpoint: &Arc<AdminEndpoint>,
    places: &Arc<Places>,
    state: &Arc<State>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    static IDS: AtomicU64 = AtomicU64::new(0);
    let id = IDS.fetch_add(1, Relaxed);
    let place = Place { id, places: Arc::clone(places) };
    let connection = tokio::spawn(serve(stream, peer, Arc::clone(endpoint), Arc::clone(state), place));
    if places.enter(id, connection.abort_handle()) {
        // So that its descriptor is closed before the next one is accepted.
        yield_now().await;
    }
}

/// Serves a connection until it ends, with TLS if the listener has it.
async fn serve<S>(stream: S, peer: Peer, endpoint: Arc<AdminEndpoint>, state: Arc<State>, place: Place)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(certificates) = endpoint.access.tls else {
        return converse(stream, peer, &endpoint, &state, &place).await;
    };
    // Read for each connection, because certificates may have been reloaded.
    let Some(context) = state.shared.tls.as_ref().map(|tls| tls.context(certificates)) else { return };
    let handshake = TlsAcceptor::from(context).accept(stream);
    if let Ok(Ok(stream)) = timeout(HANDSHAKE_MAX, handshake).await {
        converse(stream, peer, &endpoint, &state, &place).await;
    }
}

/// Answers requests until the client has no more, or its time is over.
async fn converse<S>(stream: S, peer: Peer, endpoint: &AdminEndpoint, state: &State, place: &Place)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let producer: Mutex<Option<Producer>> = Mutex::default();
    let producer = || producer.lock().unwrap_or_else(PoisonError::into_inner);
    let service = service_fn(|request| {
        place.renew();
        let producer = &producer;
        async move {
            let response = router::answer(&request, peer, endpoint, state).await;
            if let Some(of_response) = response.extensions().get::<Producer>() {
                place.leave();
                *producer() = Some(of_response.clone());
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    // Who sends no more may still read. Who has gone is noticed when bytes are sent, or at the end of its time.
    http.half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // Errors are the client's: it disconnected, or sent no HTTP. hyper has answered those.
    if timeout(LIFE_MAX, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    // A stream takes as long as it takes; its producer gives up a client that does not read.
    let is_streaming = || producer().as_ref().is_some_and(Producer::is_writing);
    loop {
        let was_streaming = is_streaming();
        let end = poll_fn(|cx| connection.as_mut().poll(cx).map(|_| Poll::Ready(())));
        if timeout(HEAD_MAX, end).await.is_ok() || !was_streaming {
            return;
        }
    }
}

/// Longest TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Longest time for the head of a request, including the pause before it.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// After this the connection ends with its next response, so a client that does not read cannot keep its place
/// forever.
const LIFE_MAX: Duration = Duration::from_secs(60);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Greatest head of a request; hyper requires at least 8 KiB.
const BUFFER_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
