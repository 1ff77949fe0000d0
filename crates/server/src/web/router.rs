//! A request and its response.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};

use super::endpoint::AdminEndpoint;
use super::state::State;
use super::{api, metrics, page};

/// What a client gets.
pub(super) type Reply = Response<Full<Bytes>>;

/// Answers what costs little: probes, files and refusals. `None`: [`render`] it when it is its turn. Whatever the
/// request is, it is answered, and changes nothing.
pub(super) fn answer_at_once<B>(
    request: &Request<B>,
    endpoint: &AdminEndpoint,
    state: &State,
) -> Option<Reply> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(refusal);
    }
    if !endpoint.is_meant(host(request.uri(), request.headers())) {
        let advice = "ask for this listener by its address, or as localhost; with a token any name will do\n";
        return Some(plain(StatusCode::MISDIRECTED_REQUEST, advice));
    }
    let path = request.uri().path();
    // What tells nothing of the cache needs no token: orchestrators probe without, and the page asks people for it.
    match path {
        "/healthz" => return Some(plain(StatusCode::OK, "ok\n")),
        "/readyz" if state.is_ready() => return Some(plain(StatusCode::OK, "ready\n")),
        "/readyz" => {
            return Some(plain(StatusCode::SERVICE_UNAVAILABLE, "not accepting connections\n"));
        }
        _ => {}
    }
    if let Some((content_type, content)) = page::file(path) {
        return Some(found(content_type, Bytes::from_static(content.as_bytes())));
    }
    if state.shared.admin_token.as_ref().is_some_and(|token| !token.is_named_in(request.headers())) {
        let mut refusal = plain(StatusCode::UNAUTHORIZED, "a bearer token is needed\n");
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
    match api::answer(path, request.uri().query().unwrap_or_default(), endpoint, state) {
        Some(Ok(json)) => found("application/json", json.into()),
        // A number that JSON does not have, say: nobody's input can bring that about.
        Some(Err(_)) => plain(StatusCode::INTERNAL_SERVER_ERROR, "this cannot be told in JSON\n"),
        None => plain(StatusCode::NOT_FOUND, "there is nothing here\n"),
    }
}

/// The host that a request is for.
fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    uri.authority()
        .map(|authority| authority.as_str())
        .or_else(|| headers.get(header::HOST).and_then(|host| host.to_str().ok()))
}

fn plain(status: StatusCode, text: &'static str) -> Reply {
    let mut reply = found("text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()));
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

/// What browsers are told about every response: run and load nothing but our own files, show them in no frame, keep
/// nothing, and let no other site read it.
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
