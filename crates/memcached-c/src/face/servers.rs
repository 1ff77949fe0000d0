//! Servers of a client.

use larder_client::address::DEFAULT_PORT;
use std::ffi::{c_char, c_void};
use std::ptr::null;

use super::lists::add;
use super::{fail, query, session};
use crate::abi::{Array, Chars, InstancePtr, Memc, Out, Return, ServerFn, export, export_calling};
use crate::core::{Instance, Kind};

export! {
    fn memcached_server_add(memc: Memc, host: Chars, port: u16) -> Return {
        add_inet(&memc, &host, port, 0)
    }

    fn memcached_server_add_with_weight(memc: Memc, host: Chars, port: u16, weight: u32) -> Return {
        add_inet(&memc, &host, port, weight)
    }

    fn memcached_server_add_unix_socket(memc: Memc, path: Chars) -> Return {
        add_socket(&memc, &path, 0)
    }

    fn memcached_server_add_unix_socket_with_weight(memc: Memc, path: Chars, weight: u32) -> Return {
        add_socket(&memc, &path, weight)
    }

    fn memcached_server_add_udp(memc: Memc, host: Chars, port: u16) -> Return {
        add_udp(&memc, &host, port, 0)
    }

    fn memcached_server_add_udp_with_weight(memc: Memc, host: Chars, port: u16, weight: u32) -> Return {
        add_udp(&memc, &host, port, weight)
    }

    fn memcached_server_count(memc: Memc) -> u32 {
        // Also in a callback of a call that has the state.
        memc.settings().map_or(0, |settings| settings.number_of_hosts.get())
    }

    fn memcached_server_instance_by_position(memc: Memc, position: u32) -> *const Instance {
        instance(&memc, position as usize)
    }

    fn memcached_server_by_key(
        memc: Memc, key: Chars, key_length: usize, error: Out<Return>,
    ) -> *const Instance {
        let Some((mut session, mut options)) = session(&memc) else {
            error.set(Return::INVALID_ARGUMENTS);
            return null();
        };
        // Nothing is sent: who does not ask for it has no key checked.
        options.binary |= !options.verify_key;
        if session.core.instances.is_empty() {
            error.set(Return::NO_SERVERS);
            return null();
        }
        let key = key.bytes(key_length);
        if let Err(code) = session.core.check_keys(&options, &[key]) {
            error.set(code);
            return null();
        }
        let at = session.core.place(&options, key);
        drop(session);
        error.set(Return::SUCCESS);
        instance(&memc, at)
    }

    fn memcached_server_name(server: InstancePtr) -> *const c_char {
        server.get().map_or(null(), |server| server.host.as_ptr())
    }

    fn memcached_server_port(server: InstancePtr) -> u16 {
        server.get().map_or(0, |server| server.port)
    }

    fn memcached_server_srcport(server: InstancePtr) -> u16 {
        server.get().map_or(0, |server| server.source_port())
    }

    fn memcached_server_response_count(server: InstancePtr) -> u32 {
        server.get().map_or(0, |server| server.response_count())
    }

    fn memcached_server_type(server: InstancePtr) -> *const c_char {
        let name = match server.get().map(|server| server.kind) {
            Some(Kind::Tcp) => c"TCP",
            Some(Kind::Udp) => c"UDP",
            Some(Kind::Unix) => c"SOCKET",
            None => c"UNKNOWN",
        };
        name.as_ptr()
    }

    fn memcached_instance_next_retry(server: InstancePtr, time: i64) {
        if let Some(server) = server.get() {
            server.next_retry.set(time);
        }
    }

    fn memcached_verbosity(memc: Memc, level: u32) -> Return {
        let Some((mut session, options)) = session(&memc) else { return Return::INVALID_ARGUMENTS };
        if let Err(code) = session.core.begin(&options) {
            return code;
        }
        session.core.set_verbosity(&options, level)
    }

    fn memcached_flush(memc: Memc, expiration: i64) -> Return {
        let Some((mut session, options)) = query(&memc) else { return Return::INVALID_ARGUMENTS };
        session.core.flush_all(&options, expiration.clamp(0, u32::MAX.into()) as u32)
    }

    fn memcached_autoeject(memc: Memc) {
        if let Some((mut session, options)) = session(&memc) {
            session.core.rebuild_if_due(&options);
        }
    }
}

export_calling! {
    fn memcached_server_cursor(
        memc: Memc, callbacks: Array<ServerFn>, context: *mut c_void, count: u32,
    ) -> Return {
        let Some(servers) = memc.read(|core| core.instances.len()) else { return Return::INVALID_ARGUMENTS };
        if servers == 0 {
            return Return::NO_SERVERS;
        }
        let mut result = Return::SUCCESS;
        for at in 0..servers {
            for callback in callbacks.slice(count as usize).unwrap_or_default() {
                let instance = instance(&memc, at);
                if instance.is_null() {
                    // A callback has removed it.
                    return result;
                }
                if callback(memc.address(), instance, context).is_failure() {
                    result = Return::SOME_ERRORS;
                }
            }
        }
        result
    }
}

/// The server at a position; null: there is none.
pub(super) fn instance(memc: &Memc, position: usize) -> *const Instance {
    let found = memc.read(|core| core.instances.get(position).map(|instance| &raw const **instance));
    found.flatten().unwrap_or(null())
}

pub(crate) fn add_inet(memc: &Memc, host: &Chars, port: u16, weight: u32) -> Return {
    add_named(memc, named(host), port, weight)
}

/// Adds a server by its name, or by the path of its socket.
pub(crate) fn add_named(memc: &Memc, host: &[u8], port: u16, weight: u32) -> Return {
    let kind = if host.first() == Some(&b'/') { Kind::Unix } else { Kind::Tcp };
    add(memc, host, or_default(port), weight, kind)
}

fn add_socket(memc: &Memc, path: &Chars, weight: u32) -> Return {
    let path = path.text().map_or(&b""[..], |path| path.to_bytes());
    add_path(memc, path, weight)
}

/// Adds a server by the path of its socket.
pub(crate) fn add_path(memc: &Memc, path: &[u8], weight: u32) -> Return {
    if path.is_empty() {
        return fail(memc, Return::INVALID_ARGUMENTS, "Invalid filename for socket provided");
    }
    add(memc, path, 0, weight, Kind::Unix)
}

/// Only for a client that uses UDP: one client's servers are all of one kind.
fn add_udp(memc: &Memc, host: &Chars, port: u16, weight: u32) -> Return {
    let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
    if !settings.flags.get().has(crate::abi::Flag::UseUdp) {
        return fail(memc, Return::INVALID_HOST_PROTOCOL, "");
    }
    add(memc, named(host), or_default(port), weight, Kind::Udp)
}

/// A host, or the local one without a name.
fn named(host: &Chars) -> &[u8] {
    host.text().map(|host| host.to_bytes()).filter(|host| !host.is_empty()).unwrap_or(DEFAULT_HOST)
}

/// A port, or memcached's for 0.
pub(super) fn or_default(port: u16) -> u16 {
    if port == 0 { DEFAULT_PORT } else { port }
}

pub(super) const DEFAULT_HOST: &[u8] = b"localhost";
