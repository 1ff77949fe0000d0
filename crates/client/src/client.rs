//! A client of any number of servers, which waits for each reply.

mod builder;
mod connection;
mod every_server;
mod multi;
mod routing;
mod servers;
mod statistics;
mod timed_stream;

pub use builder::Builder;
use connection::Connection;
pub use multi::MultiGet;
pub(crate) use statistics::Statistics;

use larder_protocol::KEY_BYTES_MAX;

use crate::check::{check_compare, check_meta_flags, check_value, is_word};
use crate::codec::{
    Arith, Delete, Event, Get, Mode, Outcome, Pipeline, Protocol, Store, Touch, Value, Violation,
    ViolationKind,
};
use crate::policy::Router;
use crate::{Address, Error, Server};
use builder::Settings;

/// A client. It connects to a server at the first request, and again after a connection was lost.
///
/// Each connection has one request, or one batch, at a time. Anything that leaves its state in doubt closes it: a
/// timeout, a malformed reply, an error that the server may have sent before it had read the whole request. So no late
/// reply is taken for that of another request.
///
/// A request is sent once, except as [`FailurePolicy::Failover`](crate::FailurePolicy::Failover) says. If it fails with
/// [`Error::Io`], [`Error::Timeout`], [`Error::Closed`] or [`Error::Violation`], it is not known whether a change was
/// made; the caller decides what to repeat.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    router: Router,
    nodes: Vec<Node>,
}

/// A server, and its connection while no request is under way.
#[derive(Debug)]
struct Node {
    server: Server,
    idle: Option<Connection>,
}

/// An item that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The value.
    pub value: Vec<u8>,
    /// The client flags set by the client that stored it.
    pub client_flags: u32,
    /// For [`Client::cas`]. Present after [`Client::gets`], and always in the binary protocol.
    pub cas: Option<u64>,
}

/// The result of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// Stored.
    Stored,
    /// `add`: the key exists. `replace`, `append`, `prepend`: it does not.
    NotStored,
    /// `cas`: changed since.
    Exists,
    /// `cas`: the key does not exist.
    NotFound,
}

/// The reply or the error of each server.
pub type ByServer<T> = Vec<(Address, Result<T, Error>)>;

/// Requests. Keys have 1 to 250 bytes; except in the binary protocol, they contain neither spaces nor control
/// characters. Expiry times (`exptime`): 0 is never, up to 30 days (2,592,000) is seconds from now, more is a Unix
/// time, negative is expired at once.
///
/// All fail with an [`Error`].
impl Client {
    /// A builder, with all settings at their defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of one server, with all other settings at their defaults.
    pub fn of(address: Address) -> Self {
        Self::builder().server(address).build()
    }

    /// The servers, in order.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().map(|node| &node.server)
    }

    /// The server of a key, if all are up. `None`: there is no server.
    pub fn server_of(&self, key: impl AsRef<[u8]>) -> Option<&Server> {
        self.router.locator().server_of(key.as_ref()).map(|node| &self.nodes[node].server)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Item>, Error> {
        self.get_with(key.as_ref(), &Get::default())
    }

    /// The value of a key, with its CAS value.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn gets(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Item>, Error> {
        self.get_with(key.as_ref(), &Get { with_cas: true, ..Get::default() })
    }

    /// The value of a key, and a new expiry for it.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn get_and_touch(&mut self, key: impl AsRef<[u8]>, exptime: i64) -> Result<Option<Item>, Error> {
        self.get_with(key.as_ref(), &Get { exptime: Some(exptime), ..Get::default() })
    }

    fn get_with(&mut self, key: &[u8], get: &Get<'_>) -> Result<Option<Item>, Error> {
        // So that the reply contains its key, which is then compared.
        let get = Get { meta_flags: b"k", ..*get };
        let found = self.ask_server_of(
            key,
            get.exptime.is_none(),
            |pipeline, output| pipeline.get(output, &get, key, ()),
            |item, event| {
                if let Event::Value(value) = event {
                    *item = Some(Item::of(value));
                }
            },
        );
        match found {
            Err(error) if get.exptime.is_none() && self.hides(&error) => Ok(None),
            found => found,
        }
    }

    /// Stores a value unconditionally.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, exptime: i64) -> Result<(), Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store(&Store { key, value: &[value], exptime, ..Store::default() }).map(|_| ())
    }

    /// Stores a value if the key does not exist.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn add(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        exptime: i64,
    ) -> Result<StoreOutcome, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store(&Store { mode: Mode::Add, key, value: &[value], exptime, ..Store::default() })
    }

    /// Stores a value if the key exists.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn replace(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        exptime: i64,
    ) -> Result<StoreOutcome, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store(&Store { mode: Mode::Replace, key, value: &[value], exptime, ..Store::default() })
    }

    /// Appends bytes to an existing value.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn append(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<StoreOutcome, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store(&Store { mode: Mode::Append, key, value: &[value], ..Store::default() })
    }

    /// Prepends bytes to an existing value.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn prepend(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<StoreOutcome, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store(&Store { mode: Mode::Prepend, key, value: &[value], ..Store::default() })
    }

    /// Stores a value if it has not changed since [`Client::gets`] returned `cas`.
    ///
    /// # Errors
    /// See [`Client`]. [`Error::Unsupported`]: `cas` is 0, which no item has.
    pub fn cas(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        exptime: i64,
        cas: u64,
    ) -> Result<StoreOutcome, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store(&Store { key, value: &[value], exptime, compare: Some(cas), ..Store::default() })
    }

    /// Stores, with all options.
    ///
    /// # Errors
    /// See [`Client`]. [`Error::Unsupported`]: a comparison that is not one of [`Store::compare`], or meta flags with
    /// control characters or more than 250 bytes.
    pub fn store(&mut self, store: &Store<'_>) -> Result<StoreOutcome, Error> {
        let value_bytes = store.value.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        check_value(value_bytes, self.settings.value_bytes_max)?;
        check_meta_flags(store.meta_flags)?;
        check_compare(store.mode, store.compare)?;
        self.change(
            store.key,
            |pipeline, output| pipeline.store(output, store, Some(())),
            |outcome| match outcome {
                Outcome::Stored { .. } => Some(StoreOutcome::Stored),
                Outcome::NotStored => Some(StoreOutcome::NotStored),
                Outcome::Exists => Some(StoreOutcome::Exists),
                Outcome::NotFound => Some(StoreOutcome::NotFound),
                _ => None,
            },
        )
    }

    /// Deletes a key. `false`: it does not exist.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let delete = Delete { key: key.as_ref(), ..Delete::default() };
        self.change(
            delete.key,
            |pipeline, output| pipeline.delete(output, &delete, Some(())),
            |outcome| match outcome {
                Outcome::Deleted => Some(true),
                Outcome::NotFound => Some(false),
                _ => None,
            },
        )
    }

    /// Adds to a decimal number, modulo 2^64. Returns the sum; `None`: the key does not exist.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn incr(&mut self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.arith(&Arith { key: key.as_ref(), delta, ..Arith::default() })
    }

    /// Subtracts from a decimal number, down to 0. Returns the difference; `None`: the key does not exist.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn decr(&mut self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.arith(&Arith { key: key.as_ref(), delta, decrement: true, ..Arith::default() })
    }

    fn arith(&mut self, arith: &Arith<'_>) -> Result<Option<u64>, Error> {
        self.change(
            arith.key,
            |pipeline, output| pipeline.arith(output, arith, Some(())),
            |outcome| match outcome {
                Outcome::Number(number) => Some(Some(*number)),
                Outcome::NotFound => Some(None),
                _ => None,
            },
        )
    }

    /// Sets a new expiry. `false`: the key does not exist.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn touch(&mut self, key: impl AsRef<[u8]>, exptime: i64) -> Result<bool, Error> {
        let touch = Touch { key: key.as_ref(), exptime, ..Touch::default() };
        self.change(
            touch.key,
            |pipeline, output| pipeline.touch(output, &touch, Some(())),
            |outcome| match outcome {
                Outcome::Touched => Some(true),
                Outcome::NotFound => Some(false),
                _ => None,
            },
        )
    }

    /// Changes one key. `read` interprets an outcome; `None`: an impossible one.
    fn change<R>(
        &mut self,
        key: &[u8],
        request: impl Fn(&mut Pipeline<()>, &mut Vec<u8>),
        read: impl Fn(&Outcome<'_>) -> Option<R>,
    ) -> Result<R, Error> {
        let changed = self.ask_server_of(key, false, request, |result, event| {
            if let Event::Done((), outcome) = event {
                *result = read(outcome);
            }
        })?;
        changed.ok_or_else(|| Violation::new(ViolationKind::WrongForm, b"").into())
    }

    /// Sends a request to a server, and returns what `gather` makes of the events of its reply, unless that is a
    /// refusal. The connection is kept only if its state is certain.
    fn ask<R: Default>(
        &mut self,
        node: usize,
        request: impl FnOnce(&mut Pipeline<()>, &mut Vec<u8>),
        gather: impl Fn(&mut R, &Event<'_, ()>),
    ) -> Result<R, Error> {
        let (mut result, mut told) = (R::default(), Ok(()));
        let asked = self.connection(node).and_then(|mut connection| {
            connection.send(request)?;
            connection.receive(|event| match event {
                Event::Done((), Outcome::Error(error)) => told = Err(error.into()),
                event => gather(&mut result, &event),
            })?;
            Ok(connection)
        });
        let connection = self.noted(node, asked)?;
        if !told.as_ref().is_err_and(is_doubtful) {
            self.nodes[node].idle = Some(connection);
        }
        told.map(|()| result)
    }

    /// Takes the connection to a server out. If the caller does not put it back, it is closed.
    fn connection(&mut self, node: usize) -> Result<Connection, Error> {
        let node = &mut self.nodes[node];
        if let Some(mut connection) = node.idle.take()
            && connection.is_silent()
        {
            return Ok(connection);
        }
        Connection::open(&node.server.address, &self.settings)
    }

    fn check(&self, key: &[u8]) -> Result<(), Error> {
        let is_text = self.settings.protocol != Protocol::Binary;
        let is_valid = if is_text { is_word(key) } else { (1..=KEY_BYTES_MAX).contains(&key.len()) };
        if is_valid { Ok(()) } else { Err(Error::InvalidKey) }
    }
}

impl Item {
    pub(crate) fn of(value: &Value<'_>) -> Self {
        Self { value: value.bytes.to_vec(), client_flags: value.client_flags, cas: value.cas }
    }
}

/// True if the server may have sent this before it had read the whole request: the rest would be read as another.
fn is_doubtful(error: &Error) -> bool {
    matches!(error, Error::Refused { kind, .. } if kind.is_doubtful())
}
