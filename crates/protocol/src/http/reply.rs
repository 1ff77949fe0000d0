//! Replies (RFC 9110, section 15).

use super::refusal::{self, CONDITION_FAILS, NO_SUCH_ITEM};
use super::tags::{Condition, is_listed};
use super::{HttpForm, Method, Subject};
use crate::reply::Hit;
use crate::{Error, Reply, Sink, number};

/// Writes a reply to a request over HTTP.
pub(crate) fn encode<S: Sink>(form: &HttpForm<'_>, reply: &Reply<'_, S::Value>, sink: &mut S) {
    let mut response = Response { form, closes: form.ends_with(reply), sink };
    match reply {
        Reply::Fetched(hit, detail) => response.item(hit, detail.ttl_secs),
        Reply::Hit(hit) => response.record(hit),
        Reply::Miss if form.is_list() => {}
        Reply::End if form.is_list() => response.end_list(),
        Reply::Miss => response.text(404, NO_SUCH_ITEM),
        Reply::Stored { cas, is_new: true, .. } => response.empty(201, *cas),
        Reply::Stored { cas, .. } | Reply::Touched { cas, .. } => response.empty(204, *cas),
        Reply::Deleted => response.empty(204, 0),
        Reply::Number { number, cas, ttl_secs, .. } => response.number(*number, *cas, *ttl_secs),
        // A PUT without a condition would have stored it. What others need is not there (RFC 9110, section 13.2.1).
        Reply::NotStored | Reply::NotFound if form.method == Method::Put => {
            response.text(412, CONDITION_FAILS)
        }
        Reply::NotStored | Reply::NotFound => response.text(404, NO_SUCH_ITEM),
        Reply::Exists => response.text(412, CONDITION_FAILS),
        Reply::Error(error) => response.error(*error),
        // No request over HTTP gets these replies.
        Reply::Peeked(_)
        | Reply::End
        | Reply::Ok
        | Reply::Noop
        | Reply::Bye
        | Reply::Version(_)
        | Reply::Stat(..)
        | Reply::Reset
        | Reply::Mechanisms(_)
        | Reply::Challenge(_)
        | Reply::LoggedIn(_) => {}
    }
}

/// Begins the reply to a request for several keys. The replies to its keys follow, and [`Reply::End`].
pub fn begin_list<S: Sink>(form: &HttpForm<'_>, sink: &mut S) {
    let mut response = Response { form, closes: !form.is_persistent(), sink };
    response.head(200);
    response.sink.bytes(b"Content-Type: application/octet-stream\r\n");
    if form.has_chunks() {
        response.sink.bytes(b"Transfer-Encoding: chunked\r\n");
    }
    response.sink.bytes(b"\r\n");
}

/// Tells a client that expects it to send the content.
pub fn write_continue<S: Sink>(sink: &mut S) {
    sink.bytes(b"HTTP/1.1 100 Continue\r\n\r\n");
}

struct Response<'r, 'f, S> {
    form: &'r HttpForm<'f>,
    closes: bool,
    sink: &'r mut S,
}

impl<S: Sink> Response<'_, '_, S> {
    fn item(&mut self, hit: &Hit<'_, S::Value>, ttl_secs: Option<u32>) {
        match self.form.subject {
            Subject::Item(Condition::Match) if !is_listed(self.form.tags, hit.cas, false) => {
                return self.text(412, CONDITION_FAILS);
            }
            Subject::Item(Condition::NoneMatch) if is_listed(self.form.tags, hit.cas, true) => {
                return self.empty(304, hit.cas);
            }
            _ => {}
        }
        self.head(200);
        self.sink.bytes(b"Content-Type: application/octet-stream\r\nContent-Length: ");
        number::write(hit.value_bytes, self.sink);
        self.sink.bytes(b"\r\n");
        self.tag(hit.cas);
        self.sink.bytes(b"Larder-Flags: ");
        number::write(hit.client_flags, self.sink);
        self.sink.bytes(b"\r\n");
        self.ttl(ttl_secs);
        self.sink.bytes(b"\r\n");
        if !self.form.is_head() {
            self.sink.value(&hit.value);
        }
    }

    /// `VALUE <key> <flags> <bytes> <cas unique>\r\n<data block>\r\n`, as `gets` answers, with the key percent-encoded.
    fn record(&mut self, hit: &Hit<'_, S::Value>) {
        if self.form.is_head() {
            return;
        }
        let mut tail = number::Tail::default();
        tail.prepend(hit.cas);
        tail.prepend(hit.value_bytes as u64);
        tail.prepend(hit.client_flags.into());
        if self.form.has_chunks() {
            let key_bytes: usize = hit.key.iter().map(|byte| if is_unreserved(*byte) { 1 } else { 3 }).sum();
            let record_bytes = b"VALUE ".len() + key_bytes + tail.bytes().len() + hit.value_bytes + 2;
            write_hex(record_bytes, self.sink);
            self.sink.bytes(b"\r\n");
        }
        self.sink.bytes(b"VALUE ");
        for run in hit.key.chunk_by(|left, right| is_unreserved(*left) == is_unreserved(*right)) {
            if is_unreserved(run[0]) {
                self.sink.bytes(run);
                continue;
            }
            for byte in run {
                self.sink.bytes(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        self.sink.bytes(tail.bytes());
        self.sink.value(&hit.value);
        self.sink.bytes(if self.form.has_chunks() { b"\r\n\r\n" } else { b"\r\n" });
    }

    fn end_list(&mut self) {
        if self.form.is_head() {
            return;
        }
        self.sink.bytes(if self.form.has_chunks() { b"5\r\nEND\r\n\r\n0\r\n\r\n" } else { b"END\r\n" });
    }

    fn number(&mut self, number: u64, cas: u64, ttl_secs: Option<u32>) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        self.head(200);
        self.sink.bytes(b"Content-Type: text/plain\r\nContent-Length: ");
        number::write(digits.len(), self.sink);
        self.sink.bytes(b"\r\n");
        self.tag(cas);
        self.ttl(ttl_secs);
        self.sink.bytes(b"\r\n");
        self.sink.bytes(digits);
    }

    fn error(&mut self, error: Error) {
        let (status, text) = refusal::status_and_text(error);
        self.text(status, text);
    }

    /// A response for people.
    fn text(&mut self, status: u16, text: &str) {
        self.head(status);
        self.sink.bytes(match status {
            401 => b"WWW-Authenticate: Bearer\r\n",
            405 if self.form.is_list() => b"Allow: GET, HEAD\r\n",
            405 => b"Allow: GET, HEAD, PUT, DELETE, POST\r\n",
            _ => b"",
        });
        self.sink.bytes(b"Content-Type: text/plain\r\nContent-Length: ");
        number::write(text.len() + 1, self.sink);
        self.sink.bytes(b"\r\n\r\n");
        if !self.form.is_head() {
            self.sink.bytes(text.as_bytes());
            self.sink.bytes(b"\n");
        }
    }

    /// A response without content.
    fn empty(&mut self, status: u16, cas: u64) {
        self.head(status);
        // The others never have any (RFC 9112, section 6.3).
        if status == 201 {
            self.sink.bytes(b"Content-Length: 0\r\n");
        }
        self.tag(cas);
        self.sink.bytes(b"\r\n");
    }

    /// The first line, and the headers of every response. Caches must revalidate, and no page of another origin may
    /// embed it.
    fn head(&mut self, status: u16) {
        self.sink.bytes(status_line(status));
        self.sink.bytes(
            b"Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\n\
              Cross-Origin-Resource-Policy: same-origin\r\n",
        );
        if self.closes {
            self.sink.bytes(b"Connection: close\r\n");
        }
    }

    fn tag(&mut self, cas: u64) {
        if cas != 0 {
            self.sink.bytes(b"ETag: \"");
            number::write(cas, self.sink);
            self.sink.bytes(b"\"\r\n");
        }
    }

    fn ttl(&mut self, ttl_secs: Option<u32>) {
        self.sink.bytes(b"Larder-TTL: ");
        // In the last second of its life an item has 1 left: 0 is never.
        number::write(ttl_secs.map_or(0, |secs| secs.max(1)), self.sink);
        self.sink.bytes(b"\r\n");
    }
}

fn status_line(status: u16) -> &'static [u8] {
    match status {
        200 => b"HTTP/1.1 200 OK\r\n",
        201 => b"HTTP/1.1 201 Created\r\n",
        204 => b"HTTP/1.1 204 No Content\r\n",
        304 => b"HTTP/1.1 304 Not Modified\r\n",
        401 => b"HTTP/1.1 401 Unauthorized\r\n",
        403 => b"HTTP/1.1 403 Forbidden\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        405 => b"HTTP/1.1 405 Method Not Allowed\r\n",
        409 => b"HTTP/1.1 409 Conflict\r\n",
        411 => b"HTTP/1.1 411 Length Required\r\n",
        412 => b"HTTP/1.1 412 Precondition Failed\r\n",
        413 => b"HTTP/1.1 413 Content Too Large\r\n",
        415 => b"HTTP/1.1 415 Unsupported Media Type\r\n",
        417 => b"HTTP/1.1 417 Expectation Failed\r\n",
        421 => b"HTTP/1.1 421 Misdirected Request\r\n",
        431 => b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
        501 => b"HTTP/1.1 501 Not Implemented\r\n",
        503 => b"HTTP/1.1 503 Service Unavailable\r\n",
        505 => b"HTTP/1.1 505 HTTP Version Not Supported\r\n",
        507 => b"HTTP/1.1 507 Insufficient Storage\r\n",
        _ => b"HTTP/1.1 400 Bad Request\r\n",
    }
}

fn write_hex<S: Sink>(number: usize, sink: &mut S) {
    let mut digits = [b'0'; 2 * size_of::<usize>()];
    let mut from = digits.len();
    let mut rest = number;
    while rest > 0 || from == digits.len() {
        from -= 1;
        digits[from] = HEX[rest & 15];
        rest >>= 4;
    }
    sink.bytes(&digits[from..]);
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";
