//! A server of a client.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::CString;

use larder_client::Address;

use super::failure::Errors;
use super::fetch::Wanted;
use super::link::Link;
use super::{Core, Options};
use crate::abi::{Faced, Return};

/// A server. C code has pointers to it, and reads it between requests.
pub(crate) type Instance = Faced<State>;

/// What a client knows of a server.
pub(crate) struct State {
    pub(crate) host: CString,
    pub(crate) port: u16,
    pub(crate) weight: u32,
    pub(crate) kind: Kind,
    /// Its number among all that the client ever had.
    pub(crate) serial: u32,
    /// Major, minor and micro version of the server, each 255 as long as it is not known.
    pub(crate) release: [u8; 3],
    pub(crate) errors: Errors,
    /// When it may be tried again, in seconds since 1970.
    pub(crate) next_retry: Cell<i64>,
    pub(super) is_in_timeout: bool,
    pub(super) failures: Count,
    pub(super) timed_out: Count,
    pub(super) link: Option<Link>,
    /// The keys of multi-gets whose values have not all been fetched.
    pub(super) wanted: VecDeque<Wanted>,
}

/// A number of queries that failed: each counts once.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) count: u32,
    query_id: u64,
}

/// How a server is reached (a `memcached_connection_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp = 0,
    Udp = 1,
    Unix = 2,
}

impl Instance {
    /// A server without connection and history. `None`: there is no memory.
    fn new(host: &[u8], port: u16, weight: u32, kind: Kind, serial: u32) -> Option<Box<Self>> {
        Self::create(host, port, State::new(host, port, weight, kind, serial))
    }

    /// The same server, without connection and history. `None`: there is no memory.
    pub(super) fn copy(&self) -> Option<Box<Self>> {
        Self::new(self.host.as_bytes(), self.port, self.weight, self.kind, self.serial)
    }
}

impl State {
    fn new(host: &[u8], port: u16, weight: u32, kind: Kind, serial: u32) -> Self {
        Self {
            host: CString::new(host).unwrap_or_default(),
            port,
            weight: weight.max(1),
            kind,
            serial,
            release: NO_RELEASE,
            errors: Errors::default(),
            next_retry: Cell::new(0),
            is_in_timeout: false,
            failures: Count::default(),
            timed_out: Count::default(),
            link: None,
            wanted: VecDeque::new(),
        }
    }

    /// As error messages name it.
    pub(super) fn label(&self) -> String {
        let host = self.host.to_string_lossy();
        match self.kind {
            Kind::Unix => format!(" socket: {host}"),
            Kind::Tcp | Kind::Udp => format!(" host: {host}:{}", self.port),
        }
    }

    /// Where it listens. A host that begins with a slash is a socket, whatever its type.
    pub(super) fn address(&self) -> Address {
        let host = self.host.to_string_lossy().into_owned();
        if self.is_socket() {
            return Address::Unix(host.into());
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
        Address::Inet { host: bare.unwrap_or(host), port: self.port }
    }

    pub(super) fn is_socket(&self) -> bool {
        self.kind == Kind::Unix || self.host.as_bytes().first() == Some(&b'/')
    }

    /// Requests that wait for replies.
    pub(crate) fn response_count(&self) -> u32 {
        self.link.as_ref().map_or(0, |link| link.due().try_into().unwrap_or(u32::MAX))
    }

    /// The local port of its connection; 0: none.
    pub(crate) fn source_port(&self) -> u16 {
        self.link.as_ref().map_or(0, Link::source_port)
    }

    /// Closes the connection without sending `quit`. As in libmemcached, this also ends the server's timeout, even if
    /// there was no connection, and its version is forgotten, since another server may answer next time.
    pub(super) fn close(&mut self) {
        self.link = None;
        self.wanted.clear();
        self.is_in_timeout = false;
        self.release = NO_RELEASE;
    }

    /// A connection is there: all is well.
    pub(super) fn mark_sound(&mut self) {
        self.failures.count = 0;
        self.timed_out.count = 0;
        self.next_retry.set(0);
        self.is_in_timeout = false;
    }

    /// A connection could not be made. After some, the server is left alone for a while.
    pub(super) fn mark_failed(&mut self, options: &Options, now: i64) {
        if self.is_in_timeout {
            return;
        }
        self.timed_out.add(options.query_id);
        if self.timed_out.count < options.timeout_limit {
            return;
        }
        self.next_retry.set(now.saturating_add(options.retry_timeout_secs.into()));
        self.is_in_timeout = true;
        self.failures.add(options.query_id);
    }
}

/// Version of a server that has not reported one.
const NO_RELEASE: [u8; 3] = [u8::MAX; 3];

impl Count {
    fn add(&mut self, query_id: u64) {
        if self.query_id != query_id {
            self.count = self.count.saturating_add(1);
            self.query_id = query_id;
        }
    }
}

impl Core {
    /// Adds a server. Errors: there is no memory.
    pub(crate) fn add_server(
        &mut self,
        options: &Options,
        host: &[u8],
        port: u16,
        weight: u32,
        kind: Kind,
    ) -> Result<(), Return> {
        let made = Instance::new(host, port, weight, kind, self.next_serial);
        self.next_serial = self.next_serial.wrapping_add(1);
        match made.filter(|_| self.instances.try_reserve(1).is_ok()) {
            Some(instance) => self.instances.push(instance),
            None => return Err(self.fail(options, Return::MEMORY_ALLOCATION_FAILURE, "")),
        }
        Ok(())
    }

    /// Forgets all servers, after a word of farewell.
    pub(crate) fn remove_servers(&mut self, options: &Options) {
        self.quit(options);
        self.instances.clear();
        self.last_disconnected = None;
        self.locator = None;
        self.next_rebuild = 0;
    }
}
