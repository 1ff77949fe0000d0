//! A client of libmemcached's kind: servers, connections, placement and remembered errors. Safe code: of C it has
//! numbers, text, and settings that `options` copies from a `memcached_st`.
//!
//! | module | what it does |
//! |---|---|
//! | `options` | the settings, as a call finds them |
//! | `instance` | a server: its address, its connection, when to try it again |
//! | `link` | a connection: requests out, replies in |
//! | `failure` | why a request has no reply, and what of it is remembered |
//! | `place` | which server has a key |
//! | `cipher` | values that are encrypted |
//! | `change` | requests that change an item |
//! | `fetch` | requests for items |
//! | `all_servers` | requests to every server |

mod all_servers;
mod change;
mod cipher;
mod failure;
mod fetch;
mod instance;
mod link;
mod options;
mod place;

use std::ffi::CString;
use std::sync::Arc;

pub(crate) use change::Operation;
pub(crate) use cipher::Cipher;
pub(crate) use failure::Errors;
use failure::Failure;
pub(crate) use fetch::Found;
pub(crate) use instance::{Instance, Kind};
use larder_client::Tls;
use larder_client::placement::Locator;
pub(crate) use options::{Distribution, Options};

use crate::abi::Return;

/// The state of a client.
#[derive(Default)]
pub(crate) struct Core {
    /// The servers, each in a place of its own: C code has pointers to them.
    pub(crate) instances: Vec<Box<Instance>>,
    /// A copy of the server that failed last.
    pub(crate) last_disconnected: Option<Box<Instance>>,
    pub(crate) errors: Errors,
    /// Before every key that is sent.
    pub(crate) namespace: Option<CString>,
    /// The file of a configuration string.
    pub(crate) configuration_file: Option<CString>,
    pub(crate) tls: Option<Tls>,
    /// The servers of buckets (`memcached_bucket_set`).
    pub(crate) buckets: Option<Arc<[u32]>>,
    locator: Option<Locator>,
    /// When a server that was ejected may return, in seconds since 1970; 0: none was.
    pub(crate) next_rebuild: i64,
    /// A server was lost before all its items of the multi-get were fetched.
    has_lost_items: bool,
    /// The number of the server that is added next.
    next_serial: u32,
}

impl Core {
    /// Begins a request: forgets old errors. Fails without servers.
    pub(crate) fn begin(&mut self, options: &Options) -> Result<(), Return> {
        if self.instances.is_empty() {
            return Err(self.fail(options, Return::NO_SERVERS, ""));
        }
        self.errors.clear();
        Ok(())
    }

    /// Remembers an error, with more to say.
    pub(crate) fn fail(&mut self, options: &Options, code: Return, text: &str) -> Return {
        self.errors.add(options, Failure::new(code, text));
        code
    }

    /// Remembers an error of the system.
    pub(crate) fn fail_with_errno(&mut self, options: &Options, errno: i32, text: &str) -> Return {
        let failure = Failure::of_errno(errno, text);
        let code = failure.code;
        self.errors.add(options, failure);
        code
    }

    /// Remembers an error of a server.
    fn fail_at(&mut self, options: &Options, at: usize, failure: Failure) -> Return {
        let Some(instance) = self.instances.get_mut(at) else { return failure.code };
        let code = failure.code;
        let failure = failure.at(&instance.label());
        instance.errors.add(options, failure.clone());
        self.errors.add(options, failure);
        code
    }

    /// Checks keys as libmemcached does. Without `verify_key` it lets pass what it then sends for more than one key, or
    /// for a command of its own; that is refused here.
    pub(crate) fn check_keys(&mut self, options: &Options, keys: &[&[u8]]) -> Result<(), Return> {
        let namespace = self.namespace.as_ref().map_or(&b""[..], |namespace| namespace.as_bytes());
        let namespace_bytes = namespace.len();
        // One that was set for the binary protocol, which takes every byte.
        if !options.binary && !namespace.iter().all(u8::is_ascii_graphic) {
            return Err(self.fail(options, Return::BAD_KEY_PROVIDED, "Namespace had invalid character."));
        }
        for key in keys {
            if key.is_empty() || key.len() + namespace_bytes > KEY_BYTES_MAX {
                return Err(self.fail(options, Return::BAD_KEY_PROVIDED, "Key provided was too long."));
            }
            let is_graphic = !options.verify_key || key.iter().all(u8::is_ascii_graphic);
            if options.splits(key) || (!options.binary && !is_graphic) {
                let text = "Key provided had invalid character.";
                return Err(self.fail(options, Return::BAD_KEY_PROVIDED, text));
            }
        }
        Ok(())
    }

    /// A key as it is sent.
    fn prefixed(&self, key: &[u8]) -> Vec<u8> {
        match &self.namespace {
            Some(namespace) => [namespace.as_bytes(), key].concat(),
            None => key.to_vec(),
        }
    }

    /// Number of servers that hold a copy of an item besides the first: at most one copy per server. The text protocol
    /// has no copies.
    fn replicas(&self, options: &Options) -> usize {
        if !options.binary {
            return 0;
        }
        (options.replicas as usize).min(self.instances.len().saturating_sub(1))
    }

    /// Remembers which server failed last.
    fn note_disconnect(&mut self, at: usize) {
        let Some(instance) = self.instances.get(at) else { return };
        if self.last_disconnected.as_ref().is_none_or(|last| last.serial != instance.serial) {
            self.last_disconnected = instance.copy();
        }
    }
}

/// The longest key.
const KEY_BYTES_MAX: usize = 250;
