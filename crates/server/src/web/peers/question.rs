//! A question to a peer: bounded in time and size.

use std::fmt::Display;
use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::PeerAddress;
use super::figures::Figures;
use crate::shared::Shared;

/// Asks a peer, with this server's token, and with TLS if this server's listeners have it. Errors: why there are no
/// figures.
pub(super) async fn ask(peer: &PeerAddress, shared: &Shared) -> Result<Figures, String> {
    // A look-up runs on a thread and cannot be stopped. Waiting for its end keeps it to one per peer.
    let addresses = match lookup_host((peer.host.as_str(), peer.port)).await {
        Ok(addresses) => addresses.collect::<Vec<_>>(),
        Err(error) => {
            let error = error.to_string();
            return Err(reason("its name cannot be looked up", &error.rsplit(": ").next().unwrap_or(&error)));
        }
    };
    let answer = timeout(ANSWER_MAX, connect(peer, &addresses, shared)).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {} seconds", ANSWER_MAX.as_secs())))
}

async fn connect(peer: &PeerAddress, addresses: &[SocketAddr], shared: &Shared) -> Result<Figures, String> {
    let stream = TcpStream::connect(addresses).await.map_err(|error| reason("no connection", &error))?;
    if !shared.settings.admin.tls {
        return exchange(stream, peer, shared).await;
    }
    let context = shared.tls.as_ref().and_then(|tls| tls.outgoing()).ok_or("no ssl_ca_cert")?;
    let name = ServerName::try_from(peer.host.clone()).map_err(|error| reason("no TLS", &error))?;
    let stream =
        TlsConnector::from(context).connect(name, stream).await.map_err(|error| reason("no TLS", &error))?;
    exchange(stream, peer, shared).await
}

/// One request, and its response.
async fn exchange<S>(stream: S, peer: &PeerAddress, shared: &Shared) -> Result<Figures, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |error: hyper::Error| reason("no HTTP", &error);
    let mut request = Request::get("/api/overview").header(HOST, &peer.text).header(CONNECTION, "close");
    if let Some(token) = &shared.admin_token {
        // A token is printable ASCII, so this is a header.
        let mut value = HeaderValue::from_maybe_shared(token.authorization())
            .map_err(|error| reason("no request", &error))?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| reason("no request", &error))?;
    let mut http = http1::Builder::new();
    http.max_buf_size(BUFFER_BYTES_MAX).max_headers(HEADERS_MAX);
    let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err("it refuses this server's token".to_owned()),
            StatusCode::MISDIRECTED_REQUEST => {
                return Err(
                    "it shows its data to its own machine only: name it by a loopback address".to_owned()
                );
            }
            status => return Err(format!("it answers with HTTP status {}", status.as_u16())),
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Figures::read(&body.map_err(|error| reason("no whole answer", &error))?.to_bytes())
    };
    let (mut connection, mut answer) = (pin!(connection), pin!(answer));
    let mut has_ended = false;
    poll_fn(|cx| {
        has_ended = has_ended || connection.as_mut().poll(cx).is_ready();
        answer.as_mut().poll(cx)
    })
    .await
}

/// What failed, and why, in bounded length: a peer may choose part of the text of an error.
fn reason(what: &str, error: &dyn Display) -> String {
    let error = error.to_string();
    let error = error.split_once(" (os error").map_or(error.as_str(), |(error, _)| error);
    format!("{what}: {error}").chars().take(REASON_CHARS_MAX).collect()
}

/// To connect, for the handshake and for the answer, together.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// An overview has some 2 KiB.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Greatest head of a response; hyper requires at least 8 KiB.
const BUFFER_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
const REASON_CHARS_MAX: usize = 160;
