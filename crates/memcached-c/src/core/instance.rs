//! A server of a client.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::CString;

use larder_client::Address;

use super::failure::Errors;
use super::fetch::Wanted;
use super::link::Link;
use super::{Core, Options};
use crate::abi::HOST_SIZE;

/// A server. C code has pointers to it, and reads it between requests.
#[repr(C)]
pub(crate) struct Instance {
    face: Face,
    pub(crate) host: CString,
    pub(crate) port: u16,
    pub(crate) weight: u32,
    pub(crate) kind: Kind,
    /// Its number among all that the client ever had.
    pub(crate) version: u32,
    /// Major, minor and micro version of the server, each 255 as long as it is not known.
    pub(crate) versions: [u8; 3],
    pub(crate) errors: Errors,
    /// When it may be tried again, in seconds since 1970.
    pub(crate) next_retry: Cell<i64>,
    pub(super) timeouts: u32,
    pub(super) is_in_timeout: bool,
    pub(super) failures: Count,
    pub(super) timed_out: Count,
    pub(super) link: Option<Link>,
    /// The keys of multi-gets whose values have not all been fetched.
    pub(super) wanted: VecDeque<Wanted>,
}

/// Where libmemcached 1.1 keeps the port and the host: its tool `memcping` reads them there itself.
#[repr(C)]
struct Face {
    before_port: [u8; 16],
    port: u16,
    before_host: [u8; 16_576 - 18],
    host: [u8; HOST_SIZE],
}

impl Face {
    fn new(host: &[u8], port: u16) -> Self {
        let mut face =
            Self { before_port: [0; 16], port, before_host: [0; 16_576 - 18], host: [0; HOST_SIZE] };
        face.host.iter_mut().zip(host.iter().take(HOST_SIZE - 1)).for_each(|(place, byte)| *place = *byte);
        face
    }
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
    pub(super) fn new(host: &[u8], port: u16, weight: u32, kind: Kind, version: u32) -> Self {
        Self {
            face: Face::new(host, port),
            host: CString::new(host).unwrap_or_default(),
            port,
            weight: weight.max(1),
            kind,
            version,
            versions: [u8::MAX; 3],
            errors: Errors::default(),
            next_retry: Cell::new(0),
            timeouts: 0,
            is_in_timeout: false,
            failures: Count::default(),
            timed_out: Count::default(),
            link: None,
            wanted: VecDeque::new(),
        }
    }

    /// The same server, without connection and history.
    pub(super) fn copy(&self) -> Self {
        Self::new(self.host.as_bytes(), self.port, self.weight, self.kind, self.version)
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

    /// Closes the connection, without a word.
    pub(super) fn close(&mut self) {
        self.link = None;
        self.wanted.clear();
    }

    /// A connection is there: all is well.
    pub(super) fn mark_sound(&mut self) {
        self.failures.count = 0;
        self.timed_out.count = 0;
        self.next_retry.set(0);
        self.is_in_timeout = false;
    }

    /// A connection could not be made. True: the server is left alone for a while.
    pub(super) fn mark_failed(&mut self, options: &Options, now: i64) -> bool {
        if self.is_in_timeout {
            return false;
        }
        self.timed_out.add(options.query_id);
        if self.timed_out.count < options.timeout_limit {
            return false;
        }
        self.next_retry.set(now.saturating_add(options.retry_timeout_secs.into()));
        self.is_in_timeout = true;
        self.failures.add(options.query_id);
        true
    }
}

impl Count {
    fn add(&mut self, query_id: u64) {
        if self.query_id != query_id || self.count == 0 {
            self.count = self.count.saturating_add(1);
            self.query_id = query_id;
        }
    }
}

impl Core {
    /// Adds a server.
    pub(crate) fn add_server(&mut self, host: &[u8], port: u16, weight: u32, kind: Kind) {
        self.versions = self.versions.wrapping_add(1);
        self.instances.push(Box::new(Instance::new(host, port, weight, kind, self.versions)));
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
