//! A request: where its head ends, how long its content is, and what it asks for.

use std::ops::Range;

use super::headers::{Headers, is_token_byte};
use super::tags::{Condition, Tag};
use super::target::{self, Operation, Target};
use super::{HEAD_BYTES_MAX, HttpForm, HttpRefusal, Method, Persistence, Subject, TTL_SECS_MAX};
use crate::command::{Arith, Command, Delete, Fetch, Get, Mode, Parsed, Store, Touch, VALUE_BYTES_MAX};
use crate::{Form, Key, Request, number};

/// Parses the head at the start of `input`. The content of a store is not looked at. `scanned`: bytes that were passed
/// before, when they were no whole head.
pub(crate) fn parse(input: &[u8], scanned: usize) -> Parsed<'_> {
    match find_head(input, scanned) {
        None => Parsed::NeedInput,
        Some(Ok(head)) => Parsed::Request { head_bytes: head.bytes, request: parse_head(&head) },
        Some(Err((refusal, head_bytes))) => {
            Parsed::Request { request: HttpForm::UNKNOWN.refuse(refusal), head_bytes }
        }
    }
}

/// See [`crate::Dialect::first_key`]: where most requests have it.
pub(crate) fn first_key(input: &[u8]) -> Option<Range<usize>> {
    let line = &input[..input.len().min(FIRST_KEY_BYTES)];
    let start = memchr::memchr(b' ', line)? + 1 + PREFIX.len();
    let key = line.get(start..).filter(|_| line[..start].ends_with(PREFIX))?;
    let bytes = key.iter().position(|byte| b" ?%".contains(byte))?;
    (bytes > 0 && key[bytes] == b' ').then_some(start..start + bytes)
}

/// A head that has arrived whole.
struct Head<'a> {
    first: RequestLine<'a>,
    /// The lines after the first, each with its CR LF, without the empty line.
    lines: &'a [u8],
    /// All of it, with the empty line.
    bytes: usize,
}

/// Finds the head. `None`: it has not arrived whole. Errors: what is wrong, and where that was found. However the head
/// is cut into packets, the result is the same.
fn find_head(input: &[u8], scanned: usize) -> Option<Result<Head<'_>, (HttpRefusal, usize)>> {
    // At once: nobody who begins like this will send an empty line.
    if !is_token_byte(*input.first()?) && !b"\r\n".starts_with(&input[..input.len().min(2)]) {
        return Some(Err((HttpRefusal::BadRequestLine, 1)));
    }
    // One empty line before a request is skipped (RFC 9112, section 2.2).
    let start = if input.starts_with(b"\r\n") { 2 } else { 0 };
    let window = &input[..input.len().min(HEAD_BYTES_MAX)];
    let mut from = scanned.max(start).min(window.len());
    // Where the lines after the first begin, and the first, unless an earlier call has seen it.
    let mut lines_at = memchr::memchr(b'\n', &window[start..from]).map(|at| start + at + 1);
    let mut first = None;
    while let Some(at) = memchr::memchr(b'\n', &window[from..]) {
        let line_feed = from + at;
        let line = &window[start..line_feed];
        if !line.ends_with(b"\r") {
            return Some(Err((HttpRefusal::BareLineFeed, line_feed + 1)));
        }
        let lines_at = *lines_at.get_or_insert(line_feed + 1);
        // At once, so that a client of another protocol is not kept waiting for more.
        if first.is_none() {
            let line = window[start..lines_at].strip_suffix(b"\r\n").unwrap_or_default();
            match RequestLine::parse(line) {
                Ok(line) => first = Some(line),
                Err(refusal) => return Some(Err((refusal, lines_at))),
            }
        }
        if line.ends_with(b"\n\r")
            && let Some(first) = first
        {
            let lines = &window[lines_at..line_feed - 1];
            return Some(Ok(Head { first, lines, bytes: line_feed + 1 }));
        }
        from = line_feed + 1;
    }
    (window.len() == HEAD_BYTES_MAX).then_some(Err((HttpRefusal::HeadTooLong, HEAD_BYTES_MAX)))
}

fn parse_head<'a>(Head { first, lines, .. }: &Head<'a>) -> Request<'a> {
    let lines = lines.split_inclusive(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r\n").unwrap_or(line));
    let mut form = HttpForm { method: first.method, ..HttpForm::UNKNOWN };
    let command = Headers::parse(lines).and_then(|headers| {
        form.frame(first, &headers)?;
        form.command(first, &headers)
    });
    match command {
        Ok(command) => Request { command, form: Form::Http(form) },
        Err(refusal) => form.refuse(refusal),
    }
}

/// `<method> <target> HTTP/1.1`
#[derive(Clone, Copy)]
struct RequestLine<'a> {
    method: Method,
    is_connect: bool,
    target: &'a [u8],
    is_1_1: bool,
}

impl<'a> RequestLine<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, HttpRefusal> {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(HttpRefusal::BadRequestLine);
        };
        // Others may take a control character for the end of the line.
        if method.is_empty()
            || !method.iter().all(|byte| is_token_byte(*byte))
            || target.is_empty()
            || target.iter().any(u8::is_ascii_control)
        {
            return Err(HttpRefusal::BadRequestLine);
        }
        let is_1_1 = match version {
            // RFC 9110, section 2.5: a higher minor version is served as the highest that is known.
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9'] => *minor != b'0',
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                return Err(HttpRefusal::BadVersion);
            }
            _ => return Err(HttpRefusal::BadRequestLine),
        };
        let is_connect = method == b"CONNECT";
        let method = match method {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"POST" => Method::Post,
            _ => Method::Other,
        };
        Ok(Self { method, is_connect, target, is_1_1 })
    }
}

impl<'a> HttpForm<'a> {
    /// Before anything is known of the request.
    const UNKNOWN: Self = Self {
        method: Method::Other,
        subject: Subject::Item(Condition::None),
        persistence: Persistence::None,
        expects_continue: false,
        content_bytes: 0,
        tags: &[],
        host: &[],
        authorization: None,
    };

    /// Finds out where the request ends and whether another may follow, before its meaning is looked at. Errors: that
    /// is not certain.
    fn frame(&mut self, first: &RequestLine<'a>, headers: &Headers<'a>) -> Result<(), HttpRefusal> {
        self.authorization = headers.authorization;
        let content_bytes = content_bytes(headers, first.is_1_1)?;
        match headers.host {
            Some(host) if is_host(host) => self.host = host,
            None if !first.is_1_1 => {}
            _ => return Err(HttpRefusal::BadHost),
        }
        // HTTP/1.0 has no expectations (RFC 9110, section 10.1.1).
        let expect = headers.expect.filter(|_| first.is_1_1);
        if expect.is_some_and(|expect| !expect.eq_ignore_ascii_case(b"100-continue")) {
            return Err(HttpRefusal::BadExpectation);
        }
        if first.is_connect {
            return Err(HttpRefusal::Connect);
        }
        let has_content = content_bytes.is_some_and(|bytes| bytes > 0);
        match self.method {
            Method::Get | Method::Head | Method::Delete if has_content => {
                return Err(HttpRefusal::NeedlessContent);
            }
            Method::Put if content_bytes.is_none() => return Err(HttpRefusal::LengthNeeded),
            _ => {}
        }
        self.content_bytes = content_bytes.unwrap_or(0);
        self.expects_continue = expect.is_some() && has_content;
        self.persistence = match first.is_1_1 {
            false => Persistence::None,
            true if headers.closes => Persistence::Ends,
            true => Persistence::Persistent,
        };
        Ok(())
    }

    fn command(
        &mut self,
        first: &RequestLine<'a>,
        headers: &Headers<'a>,
    ) -> Result<Command<'a>, HttpRefusal> {
        if headers.is_cross_site {
            return Err(HttpRefusal::CrossSite);
        }
        if self.method == Method::Other {
            return Err(HttpRefusal::BadMethod);
        }
        let (host, path) = target::split(first.target)?;
        // RFC 9112, section 3.2.2: a host in the target replaces that of the header.
        self.host = host.unwrap_or(self.host);
        let (key, query) = match Target::parse(path)? {
            Target::Item(key, query) => (key, query.unwrap_or_default()),
            Target::List(keys) => {
                self.subject = Subject::List;
                if !matches!(self.method, Method::Get | Method::Head) {
                    return Err(HttpRefusal::BadListMethod);
                }
                return Ok(Command::Get(Get { keys, exptime: None }));
            }
        };
        if self.method == Method::Post {
            return self.post(key, Operation::parse(query)?, headers);
        }
        if !query.is_empty() {
            return Err(HttpRefusal::BadQuery);
        }
        match self.method {
            Method::Put => self.put(key, headers),
            Method::Delete => Ok(Command::Delete(Delete { key, compare: compare(headers)? })),
            _ => {
                let (condition, tags) = match (headers.if_match, headers.if_none_match) {
                    (None, None) => (Condition::None, &[][..]),
                    (Some(tags), None) => (Condition::Match, tags),
                    (None, Some(tags)) => (Condition::NoneMatch, tags),
                    (Some(_), Some(_)) => return Err(HttpRefusal::BadCondition),
                };
                (self.subject, self.tags) = (Subject::Item(condition), tags);
                Ok(Command::Fetch(Fetch::get(key)))
            }
        }
    }

    fn put(&self, key: Key<'a>, headers: &Headers<'a>) -> Result<Command<'a>, HttpRefusal> {
        check_content(headers)?;
        let client_flags = match headers.client_flags {
            Some(flags) => number::parse_u32(flags).ok_or(HttpRefusal::BadFlags)?,
            None => 0,
        };
        let exptime = ttl_secs(headers)?.unwrap_or(0);
        let (mode, compare) = match (headers.if_match, headers.if_none_match) {
            (None, None) => (Mode::Set, None),
            (None, Some(b"*")) => (Mode::Add, None),
            (Some(tag), None) => match Tag::parse(tag)? {
                Tag::Any => (Mode::Replace, None),
                Tag::Cas(cas) => (Mode::Set, Some(cas)),
            },
            _ => return Err(HttpRefusal::BadCondition),
        };
        Ok(Command::Store(Store {
            mode,
            compare,
            removes_on_refusal: mode == Mode::Set && compare.is_none(),
            ..Store::set(key, client_flags, exptime, self.content_bytes)
        }))
    }

    fn post(
        &self,
        key: Key<'a>,
        operation: Operation,
        headers: &Headers<'a>,
    ) -> Result<Command<'a>, HttpRefusal> {
        if !operation.has_content() && self.content_bytes > 0 {
            return Err(HttpRefusal::NeedlessContent);
        }
        let compare = compare(headers)?;
        let append = |mode| -> Result<Command<'a>, HttpRefusal> {
            check_content(headers)?;
            let set = Store::set(key, 0, 0, self.content_bytes);
            Ok(Command::Store(Store {
                mode,
                compare,
                removes_on_refusal: false,
                explains_refusal: true,
                ..set
            }))
        };
        match operation {
            Operation::Append => append(Mode::Append),
            Operation::Prepend => append(Mode::Prepend),
            Operation::Arith { decrement, delta, initial } => {
                let exptime = ttl_secs(headers)?;
                // With If-Match there has to be an item.
                let initial = initial.filter(|_| headers.if_match.is_none());
                let initial = initial.map(|number| (number, exptime.unwrap_or(0)));
                Ok(Command::Arith(Arith { key, delta, decrement, compare, initial, exptime, cas: None }))
            }
            Operation::Touch if compare.is_some() => Err(HttpRefusal::BadCondition),
            Operation::Touch => {
                let exptime = ttl_secs(headers)?.ok_or(HttpRefusal::BadTtl)?;
                Ok(Command::Touch(Touch { key, exptime }))
            }
        }
    }
}

/// The length of the content (RFC 9112, section 6.3). `None`: none is given, so there is none.
fn content_bytes(headers: &Headers<'_>, is_1_1: bool) -> Result<Option<u32>, HttpRefusal> {
    match (headers.transfer_encoding, headers.content_length) {
        (None, None) => Ok(None),
        (None, Some(length)) => {
            if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
                return Err(HttpRefusal::BadLength);
            }
            let bytes = number::parse_u32(length).filter(|bytes| *bytes <= VALUE_BYTES_MAX);
            bytes.map(Some).ok_or(HttpRefusal::FarTooLarge)
        }
        (Some(_), Some(_)) => Err(HttpRefusal::AmbiguousLength),
        (Some(_), None) if !is_1_1 => Err(HttpRefusal::AmbiguousLength),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Err(HttpRefusal::LengthNeeded),
        (Some(_), None) => Err(HttpRefusal::BadTransferCoding),
    }
}

/// The values of items are what the content says, and all of it.
fn check_content(headers: &Headers<'_>) -> Result<(), HttpRefusal> {
    if headers.content_encoding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        return Err(HttpRefusal::BadContentCoding);
    }
    if headers.content_range.is_some() { Err(HttpRefusal::PartialContent) } else { Ok(()) }
}

/// The CAS value that a change of an item that must be there is made for.
fn compare(headers: &Headers<'_>) -> Result<Option<u64>, HttpRefusal> {
    match (headers.if_match, headers.if_none_match) {
        (_, Some(_)) => Err(HttpRefusal::BadCondition),
        (None, None) => Ok(None),
        (Some(tag), None) => Ok(match Tag::parse(tag)? {
            Tag::Any => None,
            Tag::Cas(cas) => Some(cas),
        }),
    }
}

fn ttl_secs(headers: &Headers<'_>) -> Result<Option<i64>, HttpRefusal> {
    let Some(digits) = headers.ttl else { return Ok(None) };
    let secs = number::parse_u32(digits).filter(|secs| *secs <= TTL_SECS_MAX);
    secs.map(|secs| Some(secs.into())).ok_or(HttpRefusal::BadTtl)
}

/// A host and port by their characters (RFC 3986, section 3.2.2), without a user. May be empty.
pub(super) fn is_host(host: &[u8]) -> bool {
    host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(byte))
}

const PREFIX: &[u8] = b"/v1/items/";
/// A method, the prefix and a key.
const FIRST_KEY_BYTES: usize = 280;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(input: &[u8]) -> Option<usize> {
        match parse(input, 0) {
            Parsed::Request { head_bytes, .. } => Some(head_bytes),
            _ => None,
        }
    }

    #[test]
    fn a_head_ends_with_its_empty_line_however_it_arrives() {
        for head in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\nGET / HTTP/1.1\r\n\r\n", "\r\n\r\n"] {
            let input = format!("{head}GET");
            assert_eq!(is_whole(input.as_bytes()), Some(head.len()), "{head:?}");
            for cut in 0..head.len() {
                assert_eq!(parse(&input.as_bytes()[..cut], 0), Parsed::NeedInput, "{head:?} {cut}");
                assert_eq!(parse(input.as_bytes(), cut), parse(input.as_bytes(), 0), "{head:?} {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_head_is_refused_where_that_is_seen() {
        assert_eq!(is_whole(b"\x16\x03\x01"), Some(1));
        assert_eq!(is_whole(b"\rG"), Some(1));
        assert_eq!(is_whole(b"GET / HTTP/1.1\nHost: a\r\n\r\n"), Some(15));
        let long = [b'x'; HEAD_BYTES_MAX + 1];
        assert_eq!(is_whole(&long[..HEAD_BYTES_MAX - 1]), None);
        assert_eq!(is_whole(&long[..HEAD_BYTES_MAX]), Some(HEAD_BYTES_MAX));
        assert_eq!(is_whole(&long), Some(HEAD_BYTES_MAX));
        // The longest one.
        let mut head = b"GET / HTTP/1.1\r\nX: ".to_vec();
        head.resize(HEAD_BYTES_MAX - 4, b'x');
        head.extend_from_slice(b"\r\n\r\n");
        assert_eq!(is_whole(&head), Some(HEAD_BYTES_MAX));
        head.insert(20, b'x');
        let Parsed::Request { request, .. } = parse(&head, 0) else { panic!("it is refused") };
        assert!(request.form.ends_with::<()>(&crate::Reply::End));
    }

    #[test]
    fn the_key_that_is_fetched_ahead_is_the_one_of_the_request() {
        let of = |input: &'static str| first_key(input.as_bytes()).map(|key| &input[key]);
        assert_eq!(of("GET /v1/items/abc HTTP/1.1\r\n"), Some("abc"));
        assert_eq!(of("DELETE /v1/items/a HTTP/1.1\r\n"), Some("a"));
        for none in [
            "",
            "GET",
            "GET /v1/items/",
            "GET /v1/items/a",
            "GET /v1/items/ HTTP",
            "GET /v1/items/%61 ",
            "GET /v1/items?key=a ",
            "POST /v1/items/a?op=incr ",
            "GET http://h/v1/items/a ",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn requests_mean_the_commands_of_other_dialects() {
        let command = |first: &str, headers: &str| {
            let head = format!("{first} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
            match parse(head.as_bytes(), 0) {
                Parsed::Request { request, .. } => format!("{:?}", request.command),
                other => panic!("{other:?}"),
            }
        };
        let key = Key::new(b"k").expect("a key");
        let is = |command: Command<'_>| format!("{command:?}");
        assert_eq!(command("GET /v1/items/k", ""), is(Command::Fetch(Fetch::get(key))));
        assert_eq!(command("HEAD /v1/items/k", ""), is(Command::Fetch(Fetch::get(key))));
        let set = Store::set(key, 7, 100, 5);
        let headers = "Content-Length: 5\r\nLarder-Flags: 7\r\nLarder-TTL: 100\r\n";
        let put = |condition: &str| command("PUT /v1/items/k", &format!("{headers}{condition}"));
        assert_eq!(put(""), is(Command::Store(set)));
        let kept = Store { removes_on_refusal: false, ..set };
        assert_eq!(put("If-None-Match: *\r\n"), is(Command::Store(Store { mode: Mode::Add, ..kept })));
        assert_eq!(put("If-Match: *\r\n"), is(Command::Store(Store { mode: Mode::Replace, ..kept })));
        assert_eq!(put("If-Match: \"9\"\r\n"), is(Command::Store(Store { compare: Some(9), ..kept })));
        let delete = Delete { key, compare: Some(9) };
        assert_eq!(command("DELETE /v1/items/k", "If-Match: \"9\"\r\n"), is(Command::Delete(delete)));
        let post = |query: &str, headers: &str| command(&format!("POST /v1/items/k?{query}"), headers);
        let append = Store { mode: Mode::Append, ..Store::set(key, 0, 0, 0) };
        let append = Store { removes_on_refusal: false, explains_refusal: true, ..append };
        assert_eq!(post("op=append", ""), is(Command::Store(append)));
        // The expiry of an item stays, so its header means nothing here.
        assert_eq!(post("op=append", "Larder-TTL: soon\r\n"), is(Command::Store(append)));
        let arith =
            Arith { key, delta: 2, decrement: true, compare: None, initial: None, exptime: None, cas: None };
        assert_eq!(post("op=decr&delta=2", ""), is(Command::Arith(arith)));
        let created = Arith { initial: Some((5, 30)), exptime: Some(30), ..arith };
        assert_eq!(post("op=decr&delta=2&initial=5", "Larder-TTL: 30\r\n"), is(Command::Arith(created)));
        assert_eq!(post("op=touch", "Larder-TTL: 0\r\n"), is(Command::Touch(Touch { key, exptime: 0 })));
    }
}
