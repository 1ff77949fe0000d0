//! A request and its response.

use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use larder_protocol::Error;
use larder_protocol::http::HttpRefusal;

use super::api::Refused;
use super::endpoint::AdminEndpoint;
use super::state::State;
use super::{api, backup, metrics, page};
use crate::conn::client::Peer;

/// The response to a client.
pub(super) type Reply = Response<backup::Content>;

/// Answers cheap requests: probes, files and refusals. `None`: the request waits for its turn to [`render`]. Every
/// request is answered, and none but POST changes anything.
fn answer_at_once<B>(request: &Request<B>, endpoint: &AdminEndpoint, state: &State) -> Option<Reply> {
    let path = request.uri().path();
    let (methods, text, allowed): (&[Method], _, _) = match path {
        api::FLUSH => (&[Method::POST], "only POST", "POST"),
        api::READ_ONLY => {
            (&[Method::GET, Method::HEAD, Method::POST], "only GET, HEAD and POST", "GET, HEAD, POST")
        }
        // Otherwise a HEAD would begin a backup that nobody reads.
        backup::PATH => (&[Method::GET], "only GET", "GET"),
        _ => (&[Method::GET, Method::HEAD], "only GET and HEAD", "GET, HEAD"),
    };
    if !methods.contains(request.method()) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, text);
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        return Some(refusal);
    }
    if !endpoint.access.hosts.admit(host(request.uri(), request.headers())) {
        return Some(refuse(HttpRefusal::Misdirected));
    }
    // Browsers add one of these to what a page of any site makes them send; our page asks for neither.
    if (request.method() == Method::POST || path == backup::PATH)
        && [header::ORIGIN, SEC_FETCH_SITE].iter().any(|name| request.headers().contains_key(name))
    {
        return Some(refuse(HttpRefusal::CrossSite));
    }
    // Paths without data of the cache need no token: orchestrators probe without one, and the page asks the user for
    // it.
    match path {
        "/healthz" => return Some(plain(StatusCode::OK, "ok")),
        // A store that has become read-only still serves reads, and people decide on a restart: an alert says so.
        "/readyz" if state.is_ready() && state.is_store_read_only() => {
            return Some(plain(StatusCode::OK, "ready, but the store is read-only"));
        }
        "/readyz" if state.is_ready() && state.is_read_only() => {
            return Some(plain(StatusCode::OK, "ready, but read-only for maintenance"));
        }
        "/readyz" if state.is_ready() => return Some(plain(StatusCode::OK, "ready")),
        "/readyz" => {
            return Some(plain(StatusCode::SERVICE_UNAVAILABLE, "not accepting connections"));
        }
        _ => {}
    }
    if let Some((content_type, content)) = page::file(path) {
        return Some(found(content_type, Bytes::from_static(content.as_bytes())));
    }
    let authorization = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let is_admitted = if path == backup::PATH {
        let Some(token) = &state.shared.backup_token else {
            return Some(plain(
                StatusCode::FORBIDDEN,
                "backups as streams are not enabled (--backup-token-file)",
            ));
        };
        token.is_named_in(authorization)
    } else {
        state.shared.admin_token.as_ref().is_none_or(|token| token.is_named_in(authorization))
    };
    if !is_admitted {
        let mut refusal = refuse(HttpRefusal::Unauthorized);
        refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Some(refusal);
    }
    if request.method() == Method::POST && !endpoint.takes_changes {
        return Some(plain(
            StatusCode::FORBIDDEN,
            "a change needs the token of --admin-token-file, or a Unix socket that others cannot open \
             (docs/admin.md#access)",
        ));
    }
    None
}

/// Answers a request. It may wait for others, and for the disk.
pub(super) async fn answer<B>(
    request: &Request<B>,
    peer: Peer,
    endpoint: &AdminEndpoint,
    state: &State,
) -> Reply {
    match answer_at_once(request, endpoint, state) {
        Some(reply) => reply,
        None if request.method() == Method::POST => change(request.uri(), state).await,
        None => state.renderer.in_turn(|| render(request, peer, endpoint, state)).await,
    }
}

async fn change(uri: &Uri, state: &State) -> Reply {
    match api::change(uri.path(), uri.query().unwrap_or_default(), state).await {
        Ok(()) if uri.path() == api::READ_ONLY => plain(StatusCode::OK, "done"),
        Ok(()) => plain(StatusCode::OK, "flushed"),
        Err(Refused::BadQuery) if uri.path() == api::READ_ONLY => {
            plain(StatusCode::BAD_REQUEST, "state=on or state=off is needed")
        }
        Err(Refused::BadQuery) => plain(StatusCode::BAD_REQUEST, "prefix, and perhaps delay, are needed"),
        Err(Refused::NoSuchNamespace) => plain(StatusCode::NOT_FOUND, "there is no such namespace"),
        Err(Refused::NotAllowed) => plain(StatusCode::FORBIDDEN, "flushing is not allowed (-F)"),
        Err(Refused::Answered(Error::ReadOnly)) => plain(StatusCode::FORBIDDEN, "the namespace is read-only"),
        Err(Refused::Answered(Error::Maintenance)) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "the server is read-only for maintenance")
        }
        Err(Refused::Answered(Error::NewSite)) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "the site is new, and has not heard all others yet")
        }
        Err(Refused::Answered(Error::OutdatedSite)) => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the site has an older copy of its store, and waits for a copy of another site",
        ),
        Err(Refused::Answered(Error::SameSite)) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "another server has the number of this site")
        }
        Err(Refused::Answered(Error::StoreFull)) => {
            plain(StatusCode::INSUFFICIENT_STORAGE, "the store is full")
        }
        Err(Refused::Answered(_)) => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the store cannot write; the log of larderd says why, and the flush may be lost",
        ),
    }
}

/// Answers what is put together from all counters.
fn render<B>(request: &Request<B>, peer: Peer, endpoint: &AdminEndpoint, state: &State) -> Reply {
    let path = request.uri().path();
    if path == "/metrics" {
        return found(metrics::CONTENT_TYPE, metrics::text(state).into());
    }
    if path == backup::PATH {
        return match backup::begin(peer, state) {
            Ok(receiver) => {
                let producer = receiver.producer.clone();
                let mut reply = reply("application/x-tar", backup::stream(receiver));
                reply.extensions_mut().insert(producer);
                reply
            }
            Err(Error::BackupRunning) => plain(StatusCode::CONFLICT, "another backup is being taken"),
            Err(_) => plain(StatusCode::NOT_FOUND, "there is no store"),
        };
    }
    match api::answer(path, request.uri().query().unwrap_or_default(), endpoint, state) {
        Some(Ok(json)) => found("application/json", json.into()),
        // For instance a number that JSON does not have; no input can cause it.
        Some(Err(_)) => plain(StatusCode::INTERNAL_SERVER_ERROR, "this cannot be written as JSON"),
        None => plain(StatusCode::NOT_FOUND, "there is nothing here"),
    }
}

/// The host that a request is for.
fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    uri.authority()
        .map(|authority| authority.as_str())
        .or_else(|| headers.get(header::HOST).and_then(|host| host.to_str().ok()))
}

/// A refusal that this listener has in common with those for items.
fn refuse(refusal: HttpRefusal) -> Reply {
    let (status, text) = refusal.status_and_text();
    plain(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), text)
}

/// A line for people.
fn plain(status: StatusCode, text: &str) -> Reply {
    let mut reply = found("text/plain; charset=utf-8", format!("{text}\n").into());
    *reply.status_mut() = status;
    reply
}

fn found(content_type: &'static str, content: Bytes) -> Reply {
    reply(content_type, Either::Left(Full::new(content)))
}

fn reply(content_type: &'static str, content: backup::Content) -> Reply {
    let mut reply = Response::new(content);
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in FENCES {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// Fetch Metadata (W3C): where a browser's request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Restrictions for browsers, in every response: run and load only our own files, show them in no frame, store nothing,
/// and let no other site read it.
const FENCES: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
