//! A request and its response.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use larder_protocol::http::HttpRefusal;

use super::api::Refused;
use super::endpoint::AdminEndpoint;
use super::state::State;
use super::{api, metrics, page};

/// The response to a client.
pub(super) type Reply = Response<Full<Bytes>>;

/// Answers cheap requests: probes, files and refusals. `None`: the request waits for its turn to [`render`]. Every
/// request is answered, and none but POST of [`api::FLUSH`] changes anything.
pub(super) fn answer_at_once<B>(
    request: &Request<B>,
    endpoint: &AdminEndpoint,
    state: &State,
) -> Option<Reply> {
    let changes = request.uri().path() == api::FLUSH;
    let is_known = if changes {
        request.method() == Method::POST
    } else {
        [Method::GET, Method::HEAD].contains(request.method())
    };
    if !is_known {
        let (text, allowed) =
            if changes { ("only POST", "POST") } else { ("only GET and HEAD", "GET, HEAD") };
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, text);
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        return Some(refusal);
    }
    if !endpoint.access.hosts.admit(host(request.uri(), request.headers())) {
        return Some(refuse(HttpRefusal::Misdirected));
    }
    // Browsers add one of these to what a page of any site makes them send; our page changes nothing.
    if changes && [header::ORIGIN, SEC_FETCH_SITE].iter().any(|name| request.headers().contains_key(name)) {
        return Some(refuse(HttpRefusal::CrossSite));
    }
    let path = request.uri().path();
    // Paths without data of the cache need no token: orchestrators probe without one, and the page asks the user for
    // it.
    match path {
        "/healthz" => return Some(plain(StatusCode::OK, "ok")),
        // A store that has become read-only still serves reads, and people decide on a restart: an alert says so.
        "/readyz" if state.is_ready() && state.is_store_read_only() => {
            return Some(plain(StatusCode::OK, "ready, but the store is read-only"));
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
    if state.shared.admin_token.as_ref().is_some_and(|token| !token.is_named_in(authorization)) {
        let mut refusal = refuse(HttpRefusal::Unauthorized);
        refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Some(refusal);
    }
    None
}

/// Answers what is put together from all counters.
pub(super) fn render<B>(request: &Request<B>, endpoint: &AdminEndpoint, state: &State) -> Reply {
    let path = request.uri().path();
    if path == "/metrics" {
        return found(metrics::CONTENT_TYPE, metrics::text(state).into());
    }
    if path == api::FLUSH {
        return match api::change(request.uri().query().unwrap_or_default(), state) {
            Ok(()) => plain(StatusCode::OK, "flushed"),
            Err(Refused::BadQuery) => plain(StatusCode::BAD_REQUEST, "prefix, and perhaps delay, are needed"),
            Err(Refused::NoSuchNamespace) => plain(StatusCode::NOT_FOUND, "there is no such namespace"),
            Err(Refused::NotAllowed) => plain(StatusCode::FORBIDDEN, "flushing is not allowed (-F)"),
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
    let mut reply = Response::new(Full::new(content));
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
