//! Requests to bytes and bytes to replies: the client's side of memcached's protocols, without I/O.
//!
//! A [`Pipeline`] stands for one connection. Each of its request methods appends a request to a buffer that the caller
//! sends, and records the expected reply. [`Pipeline::receive`] takes received bytes, in pieces of any size, and
//! returns what they mean. Replies come in the order of the requests. The caller gives each request a tag, and gets it
//! back with the reply. Nothing is allocated per request.
//!
//! A reply that does not fit the expected one is a [`Violation`]. It is then unknown where the next reply begins, so
//! the connection has to be closed. The same holds after a timeout: a late reply would be taken for that of another
//! request.
//!
//! ```
//! use larder_client::codec::{Event, Get, Outcome, Pipeline, Protocol, Store};
//!
//! let mut pipeline = Pipeline::new(Protocol::Text);
//! let mut output = Vec::new();
//! pipeline.store(&mut output, &Store { key: b"colour", value: &[b"green"], ..Store::default() }, Some(1));
//! pipeline.get(&mut output, &Get::default(), b"colour", 2);
//! assert_eq!(output, b"set colour 0 0 5\r\ngreen\r\nget colour\r\n");
//!
//! let mut input = &b"STORED\r\nVALUE colour 0 5\r\ngreen\r\nEN"[..];
//! let stored = pipeline.receive(&mut input)?;
//! assert_eq!(stored, Some(Event::Done(1, Outcome::Stored { cas: None })));
//! let Some(Event::Value(found)) = pipeline.receive(&mut input)? else { unreachable!() };
//! assert_eq!(found.bytes, b"green");
//! // The rest has not arrived yet; what is not taken has to be there again next time.
//! assert_eq!((pipeline.receive(&mut input)?, input), (None, &b"EN"[..]));
//! # Ok::<(), larder_client::codec::Violation>(())
//! ```

mod binary;
mod due;
mod event;
mod meta;
mod request;
mod text;
mod udp;
mod usual;

use std::collections::TryReserveError;

use binary::Sent;
use due::{Due, Kind};
pub use event::{ErrorKind, ErrorReply, Event, Outcome, Value, Violation, ViolationKind};
use larder_protocol::binary::opcode;
pub use larder_protocol::command::Mode;
pub use request::{Arith, Delete, Get, Protocol, Store, Touch};
pub use udp::{DatagramCounts, DatagramFailure, DatagramPipeline};

/// The requests of a connection that wait for replies, with a tag `T` for each.
///
/// The caller ensures that keys are 1 to 250 bytes long, and for the text and meta protocols without spaces and control
/// characters; prefixes as keys, groups of statistics and meta flags without control characters. Whatever else they
/// have is sent as it is.
#[derive(Debug)]
pub struct Pipeline<T> {
    protocol: Protocol,
    due: due::Queue<T>,
}

impl<T> Pipeline<T> {
    /// For a new connection.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, due: due::Queue::new() }
    }

    /// For a new connection, where every request has a number (an opaque) that its reply repeats, and every key of a
    /// multi-get is answered, found or not: a reply that is lost, comes twice or in another order is a
    /// [`ViolationKind::WrongOpaque`]. The binary protocol always has these numbers, but quiet multi-gets. In the meta
    /// protocol, lines have none that report an error or that answer the classic commands. In the text protocol this is
    /// [`Pipeline::new`].
    ///
    /// The flags of a request ([`Get::meta_flags`] and so on) must not have an `O`.
    pub fn with_opaques(protocol: Protocol) -> Self {
        let mut pipeline = Self::new(protocol);
        pipeline.due.has_opaques = protocol != Protocol::Text;
        pipeline
    }

    /// The protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Requests that wait for a reply.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tag of the request whose reply is next, or has begun: [`Event::Value`] belongs to it.
    pub fn front(&self) -> Option<&T> {
        self.due.front_tag()
    }

    /// The least number of bytes with which [`Pipeline::receive`] can continue: the buffer must have this capacity.
    pub fn needed_bytes(&self) -> usize {
        self.due.needed_bytes
    }

    /// Drops all expected replies, as for a new connection. Returns the tags, oldest first.
    pub fn reset(&mut self) -> impl Iterator<Item = T> + use<T> {
        let mut due = due::Queue::new();
        due.has_opaques = self.due.has_opaques;
        std::mem::replace(&mut self.due, due).into_tags()
    }

    /// Takes the next event from the head of `input`. Call it until it returns `None`, which means that it needs more
    /// bytes. The bytes left in `input` have to be there again next time, with more after them.
    ///
    /// # Errors
    /// The server broke the protocol: close the connection.
    #[inline]
    pub fn receive<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i, T>>, Violation> {
        if self.due.is_answered {
            return Ok(self.due.end_get());
        }
        loop {
            if input.len() < self.due.needed_bytes.max(1) {
                return Ok(None);
            }
            self.due.needed_bytes = 0;
            let event = match self.protocol {
                Protocol::Text => text::receive(&mut self.due, input),
                Protocol::Meta => meta::receive(&mut self.due, input),
                Protocol::Binary => binary::receive(&mut self.due, input),
            };
            // No event, though no more bytes are needed: the reply of a request without a tag.
            if !matches!(event, Ok(None)) || self.due.needed_bytes > 0 {
                return event;
            }
        }
    }

    /// Gets one key. Reply: at most one [`Event::Value`], then [`Outcome::Found`].
    #[inline]
    pub fn get(&mut self, output: &mut Vec<u8>, get: &Get<'_>, key: &[u8], tag: T) {
        self.log_key(key);
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text => text::get(output, get, key),
            Protocol::Meta => sent = self.with_opaque(|opaque| meta::get(output, get, key, opaque)),
            Protocol::Binary => sent = binary::get(output, get, key, self.due.next_opaque(), false),
        }
        self.due.push(Due { sent, keys: 1, ..Due::new(Kind::Get, Some(tag)) });
    }

    /// Takes the memory that the next multi-get needs to know its keys: their bytes, and one for each. Without this
    /// [`Pipeline::multi_get`] takes it, and ends the program if there is none.
    ///
    /// # Errors
    /// There is no memory.
    pub fn try_reserve(&mut self, bytes: usize) -> Result<(), TryReserveError> {
        self.due.try_reserve(bytes)
    }

    /// Gets many keys at once: in one line, or by quiet requests and a final no-op, or
    /// [with opaques](Pipeline::with_opaques) by one request for each. Reply: an [`Event::Value`] for each
    /// key that is found, in the order of the keys, then [`Outcome::Found`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &mut self,
        output: &mut Vec<u8>,
        get: &Get<'_>,
        keys: impl IntoIterator<Item = K>,
        tag: T,
    ) {
        let mut due = Due::new(Kind::MultiGet, Some(tag));
        let is_quiet = !self.due.has_opaques;
        if self.protocol == Protocol::Text {
            text::begin_get(output, get);
        }
        if self.protocol == Protocol::Meta && !is_quiet && get.exptime.is_none() && get.meta_flags.is_empty()
        {
            due.keys = meta::get_many(output, get.with_cas, keys, || self.due.next_opaque());
            due.sent.opaque = self.due.last_opaque();
        } else {
            for key in keys {
                due.sent = self.write_key_of_many(output, get, key.as_ref(), is_quiet);
                due.keys += 1;
            }
        }
        match self.protocol {
            Protocol::Text => output.extend_from_slice(b"\r\n"),
            // The reply to the last key is the end.
            Protocol::Meta | Protocol::Binary if !is_quiet && due.keys > 0 => {}
            Protocol::Meta => output.extend_from_slice(b"mn\r\n"),
            Protocol::Binary => {
                due.sent.opaque = binary::plain(output, opcode::NOOP, b"", self.due.next_opaque()).opaque;
            }
        }
        self.due.push(due);
    }

    #[inline]
    fn write_key_of_many(&mut self, output: &mut Vec<u8>, get: &Get<'_>, key: &[u8], is_quiet: bool) -> Sent {
        self.log_key(key);
        match self.protocol {
            Protocol::Text => text::word(output, key),
            Protocol::Meta if is_quiet => meta::get_quietly(output, get, key),
            Protocol::Meta => return self.with_opaque(|opaque| meta::get(output, get, key, opaque)),
            Protocol::Binary => return binary::get(output, get, key, self.due.next_opaque(), is_quiet),
        }
        Sent::default()
    }

    /// Stores. Reply: [`Outcome::Stored`], [`Outcome::NotStored`], [`Outcome::Exists`], [`Outcome::NotFound`]. Without
    /// `tag` there is no reply to success; a failure is [`Event::QuietFailed`] or, in the text protocol, nothing.
    #[inline]
    pub fn store(&mut self, output: &mut Vec<u8>, store: &Store<'_>, tag: Option<T>) {
        let (is_quiet, kind) =
            (tag.is_none(), Kind::Store { mode: store.mode, compares: store.compare.is_some() });
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text => text::store(output, store, is_quiet),
            Protocol::Meta => sent = self.unless_quiet(is_quiet, |number| meta::store(output, store, number)),
            Protocol::Binary => sent = binary::store(output, store, self.due.next_opaque(), is_quiet),
        }
        self.push_change(Due { sent, ..Due::new(kind, tag) });
    }

    /// Deletes. Reply: [`Outcome::Deleted`], [`Outcome::NotFound`]; with `compare` also [`Outcome::Exists`]. Without
    /// `tag`: see [`Pipeline::store`]; a missing key is no failure.
    pub fn delete(&mut self, output: &mut Vec<u8>, delete: &Delete<'_>, tag: Option<T>) {
        let is_quiet = tag.is_none();
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text => text::delete(output, delete, is_quiet),
            Protocol::Meta => {
                sent = self.unless_quiet(is_quiet, |number| meta::delete(output, delete, number))
            }
            Protocol::Binary => sent = binary::delete(output, delete, self.due.next_opaque(), is_quiet),
        }
        self.push_change(Due { sent, ..Due::new(Kind::Delete, tag) });
    }

    /// Adds to a number, or subtracts from it. Reply: [`Outcome::Number`], [`Outcome::NotFound`]. Without `tag`: see
    /// [`Pipeline::store`].
    pub fn arith(&mut self, output: &mut Vec<u8>, arith: &Arith<'_>, tag: Option<T>) {
        let is_quiet = tag.is_none();
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text => text::arith(output, arith, is_quiet),
            Protocol::Meta => sent = self.unless_quiet(is_quiet, |number| meta::arith(output, arith, number)),
            Protocol::Binary => sent = binary::arith(output, arith, self.due.next_opaque(), is_quiet),
        }
        self.push_change(Due { sent, ..Due::new(Kind::Arith, tag) });
    }

    /// Sets an expiry. Reply: [`Outcome::Touched`], [`Outcome::NotFound`]. Without `tag`: see [`Pipeline::store`]; meta
    /// and binary have no quiet touch, so its reply is read and dropped.
    pub fn touch(&mut self, output: &mut Vec<u8>, touch: &Touch<'_>, tag: Option<T>) {
        let sent = match self.protocol {
            Protocol::Text => {
                text::touch(output, touch, tag.is_none());
                return self.push_change(Due::new(Kind::Touch, tag));
            }
            Protocol::Meta => self.with_opaque(|opaque| meta::touch(output, touch, opaque)),
            Protocol::Binary => binary::touch(output, touch, self.due.next_opaque()),
        };
        self.due.push(Due { sent, ..Due::new(Kind::Touch, tag) });
    }

    /// Flushes the server, now or in `delay_secs`; more than 30 days (2,592,000) is a Unix time. Reply:
    /// [`Outcome::Ok`]. Without `tag`: see [`Pipeline::store`].
    pub fn flush_all(&mut self, output: &mut Vec<u8>, delay_secs: u32, tag: Option<T>) {
        let is_quiet = tag.is_none();
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text | Protocol::Meta => text::flush_all(output, delay_secs, is_quiet),
            Protocol::Binary => {
                sent = binary::flush_all(output, delay_secs, self.due.next_opaque(), is_quiet)
            }
        }
        if !is_quiet {
            self.due.push(Due { sent, ..Due::new(Kind::Flush, tag) });
        }
    }

    /// Flushes a namespace of larderd, now or in `delay_secs`, by a line of the text dialect: the binary protocol has
    /// no such request. Reply: [`Outcome::Ok`], [`Outcome::NotFound`]. Without `tag`: see [`Pipeline::store`].
    pub fn flush_prefix(&mut self, output: &mut Vec<u8>, prefix: &[u8], delay_secs: u32, tag: Option<T>) {
        debug_assert!(self.protocol != Protocol::Binary, "it has no such request");
        text::flush_prefix(output, prefix, delay_secs, tag.is_none());
        if tag.is_some() {
            self.due.push(Due::new(Kind::FlushPrefix, tag));
        }
    }

    /// Sets how much the server logs, by a line of the text dialect. Reply: [`Outcome::Ok`].
    pub fn verbosity(&mut self, output: &mut Vec<u8>, level: u32, tag: T) {
        debug_assert!(self.protocol != Protocol::Binary, "servers have no such request");
        text::verbosity(output, level);
        self.due.push(Due::new(Kind::Flush, Some(tag)));
    }

    /// Requests the version. Reply: [`Outcome::Version`].
    pub fn version(&mut self, output: &mut Vec<u8>, tag: T) {
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text | Protocol::Meta => text::plain(output, b"version"),
            Protocol::Binary => sent = binary::plain(output, opcode::VERSION, b"", self.due.next_opaque()),
        }
        self.due.push(Due { sent, ..Due::new(Kind::Version, Some(tag)) });
    }

    /// Requests a reply after all earlier ones (text: by the version command). Reply: [`Outcome::Ok`].
    pub fn noop(&mut self, output: &mut Vec<u8>, tag: T) {
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text => text::plain(output, b"version"),
            Protocol::Meta => text::plain(output, b"mn"),
            Protocol::Binary => sent = binary::plain(output, opcode::NOOP, b"", self.due.next_opaque()),
        }
        self.due.push(Due { sent, ..Due::new(Kind::Noop, Some(tag)) });
    }

    /// Requests statistics: those of `group`, or the general ones if it is empty. Reply: [`Event::Stat`] for each, then
    /// [`Outcome::Ok`].
    pub fn stats(&mut self, output: &mut Vec<u8>, group: &[u8], tag: T) {
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text | Protocol::Meta => text::stats(output, group),
            Protocol::Binary => sent = binary::plain(output, opcode::STAT, group, self.due.next_opaque()),
        }
        self.due.push(Due { sent, ..Due::new(Kind::Stats, Some(tag)) });
    }

    /// Logs in: by SASL's mechanism PLAIN in the binary protocol, else by memcached's ASCII authentication (`-Y`).
    /// Reply: [`Outcome::LoggedIn`].
    pub fn login(
        &mut self,
        output: &mut Vec<u8>,
        user: impl AsRef<[u8]>,
        password: impl AsRef<[u8]>,
        tag: T,
    ) {
        let (user, password) = (user.as_ref(), password.as_ref());
        let mut sent = Sent::default();
        match self.protocol {
            Protocol::Text | Protocol::Meta => text::login(output, user, password),
            Protocol::Binary => sent = binary::login(output, user, password, self.due.next_opaque()),
        }
        self.due.push(Due { sent, ..Due::new(Kind::Login, Some(tag)) });
    }

    /// Requests that the server closes the connection. It sends the replies to earlier requests, and no more.
    pub fn quit(&mut self, output: &mut Vec<u8>) {
        match self.protocol {
            Protocol::Text | Protocol::Meta => text::plain(output, b"quit"),
            Protocol::Binary => {
                binary::plain(output, opcode::QUITQ, b"", self.due.next_opaque());
            }
        }
    }

    /// Remembers a key to compare the reply with. In meta replies with a number, the number stands for the key.
    #[inline]
    fn log_key(&mut self, key: &[u8]) {
        if self.protocol != Protocol::Meta || !self.due.has_opaques {
            self.due.push_key(key);
        }
    }

    /// Meta: writes a request that is answered, with a number if this pipeline has them.
    #[inline]
    fn with_opaque(&mut self, write: impl FnOnce(meta::Answer)) -> Sent {
        if !self.due.has_opaques {
            write(meta::Answer::Plain);
            return Sent::default();
        }
        let opaque = self.due.next_opaque();
        write(meta::Answer::Numbered(opaque));
        Sent { opaque, ..Sent::default() }
    }

    /// Meta: the same, or a quiet request.
    #[inline]
    fn unless_quiet(&mut self, is_quiet: bool, write: impl FnOnce(meta::Answer)) -> Sent {
        if is_quiet {
            write(meta::Answer::Quiet);
            return Sent::default();
        }
        self.with_opaque(write)
    }

    /// Records a change without a tag, which is sent quietly.
    #[inline]
    fn push_change(&mut self, due: Due<T>) {
        if due.tag.is_some() {
            self.due.push(due);
        } else if self.protocol == Protocol::Meta {
            self.due.push_quiet(due.kind);
        }
    }
}
