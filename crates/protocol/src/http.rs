//! HTTP for items: one key is one resource, `/v1/items/<key>`. Sources: RFC 9110 (semantics), RFC 9112 (HTTP/1.1).
//! `docs/http.md` describes what clients may send.
//!
//! | module | contents |
//! |---|---|
//! | `request` | a head: where it ends, where the next one begins, and its [`Command`] |
//! | `headers` | the lines of a head |
//! | `target` | the path and what its query asks for |
//! | `query` | the parameters of a query |
//! | `tags` | entity tags, and the conditions made of them |
//! | `refusal` | every refusal and failure, its status and its words |
//! | `reply` | replies |
//!
//! A head is understood in one way or refused: where two readers could disagree on where a request ends, the connection
//! is closed (RFC 9112, section 11.2, "Request Smuggling").

mod headers;
pub(crate) mod query;
mod refusal;
mod reply;
mod request;
mod tags;
mod target;

pub use query::{Parameter, Parameters};
pub use refusal::{HttpRefusal, TOO_MANY_CONNECTIONS};
pub(crate) use reply::encode;
pub use reply::{begin_list, write_continue};
pub(crate) use request::{first_key, parse};
use tags::Condition;
pub use target::KEYS_MAX;

use crate::{Command, Error, Reply, Request, command::Malformed};

/// The longest head of a request, its empty line included.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The longest `Larder-TTL`: thirty days. memcached takes a larger number for a Unix time.
pub const TTL_SECS_MAX: u32 = 30 * 24 * 60 * 60;

/// How a request over HTTP wants to be answered, and what it shows to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpForm<'a> {
    method: Method,
    subject: Subject,
    persistence: Persistence,
    /// The client waits for a word before it sends the content (`Expect: 100-continue`).
    expects_continue: bool,
    content_bytes: u32,
    /// Those of the condition, as the header lists them.
    tags: &'a [u8],
    host: &'a [u8],
    authorization: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Get,
    Head,
    Put,
    Delete,
    Post,
    /// Any other: refused.
    Other,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// The item of one key.
    Item(Condition),
    /// The items of several keys.
    List,
}

/// What becomes of the connection after a request (RFC 9112, section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persistence {
    /// HTTP/1.0: it ends, and so does a list.
    None,
    /// It ends, as the client asked. A list is sent in chunks.
    Ends,
    /// It stays open. A list is sent in chunks.
    Persistent,
}

impl<'a> HttpForm<'a> {
    /// The host and port that the request is for; empty if it names none.
    pub fn host(&self) -> &'a [u8] {
        self.host
    }

    /// The credentials: the value of `Authorization`.
    pub fn authorization(&self) -> Option<&'a [u8]> {
        self.authorization
    }

    /// The client sends the content once it has been told to: [`write_continue`].
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// The same request, refused. Its content is skipped, unless the client may still decide not to send it.
    pub fn refuse(self, refusal: HttpRefusal) -> Request<'a> {
        let swallow_bytes = if self.expects_continue || refusal.closes() { 0 } else { self.content_bytes };
        let command = Command::Malformed(Malformed { error: Error::Http(refusal), swallow_bytes });
        Request { command, form: crate::Form::Http(self) }
    }

    /// No request follows this reply.
    pub fn ends_with<V>(&self, reply: &Reply<'_, V>) -> bool {
        // RFC 9110, section 10.1.1: who expected to be told may send the content after a refusal, or may not.
        !self.is_persistent()
            || matches!(reply, Reply::Error(error) if self.expects_continue || error.is_fatal())
    }

    /// The same without what it borrows from the request.
    pub fn without_request(&self) -> HttpForm<'static> {
        HttpForm { tags: &[], host: &[], authorization: None, ..*self }
    }

    fn is_head(&self) -> bool {
        self.method == Method::Head
    }

    /// The reply is a list, which has no place for an error.
    pub fn is_list(&self) -> bool {
        self.subject == Subject::List
    }

    fn is_persistent(&self) -> bool {
        self.persistence == Persistence::Persistent
    }

    /// A list is sent in chunks. Else its end is that of the connection.
    fn has_chunks(&self) -> bool {
        self.persistence != Persistence::None
    }
}
