//! Making, copying and freeing clients.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::{query, session};
use crate::abi::{Chars, Memc, MemcachedSt, Return, export, export_calling, guarded};
use crate::configuration;
use crate::core::{Cipher, Instance};

export! {
    fn memcached_create(memc: Memc) -> *mut MemcachedSt {
        memc.create()
    }

    fn memcached(string: Chars, length: usize) -> *mut MemcachedSt {
        of_string(&string, length)
    }

    fn memcached_push(destination: Memc, source: Memc) -> Return {
        push(&destination, &source)
    }

    fn memcached_get_user_data(memc: Memc) -> *mut c_void {
        memc.settings().map_or(null_mut(), |settings| settings.user_data.get())
    }

    fn memcached_set_user_data(memc: Memc, data: *mut c_void) -> *mut c_void {
        memc.settings().map_or(null_mut(), |settings| settings.user_data.replace(data))
    }

    fn memcached_quit(memc: Memc) {
        if let Some((mut session, options)) = query(&memc) {
            session.core.quit(&options);
            session.core.errors.clear();
        }
    }

    fn memcached_servers_reset(memc: Memc) {
        if let Some((mut session, options)) = session(&memc) {
            session.core.remove_servers(&options);
        }
    }

    fn memcached_reset_last_disconnected_server(memc: Memc) {
        if let Some((mut session, _)) = session(&memc) {
            session.core.last_disconnected = None;
        }
    }

    fn memcached_server_get_last_disconnect(memc: Memc) -> *const Instance {
        let last = memc.read(|core| core.last_disconnected.as_ref().map(|last| &raw const **last));
        last.flatten().unwrap_or(std::ptr::null())
    }

    fn memcached_query_id(memc: Memc) -> u64 {
        memc.settings().map_or(0, |settings| settings.query_id.get())
    }

    fn memcached_flush_buffers(memc: Memc) -> Return {
        match session(&memc) {
            Some((mut session, options)) => session.core.flush_buffers(&options),
            None => Return::INVALID_ARGUMENTS,
        }
    }

    fn memcached_lib_version() -> *const std::ffi::c_char {
        c"1.1.4".as_ptr()
    }

    fn memcached_set_encoding_key(memc: Memc, key: Chars, length: usize) -> Return {
        let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
        if !key.is_null() && isize::try_from(length).is_err() {
            return super::fail(&memc, Return::INVALID_ARGUMENTS, "");
        }
        let cipher = (!key.is_null()).then(|| Cipher::of(key.bytes(length)));
        match settings.hashkit.set_cipher(cipher) {
            true => Return::SUCCESS,
            false => super::fail(&memc, Return::MEMORY_ALLOCATION_FAILURE, ""),
        }
    }

    fn memcached_get_memory_allocators_context(memc: Memc) -> *mut c_void {
        memc.settings().map_or(null_mut(), |settings| settings.allocators.get().context)
    }

}

export_calling! {
    fn memcached_free(memc: Memc) {
        free(&memc);
    }

    fn memcached_reset(memc: Memc) -> Return {
        reset(&memc)
    }

    fn memcached_clone(clone: Memc, source: Memc) -> *mut MemcachedSt {
        if source.is_null() {
            return guarded(|| clone.create());
        }
        if clone.is_allocated() {
            return null_mut();
        }
        copy(&clone, &source).map_or(null_mut(), |clone| clone.address())
    }
}

/// A client of a configuration string; of the environment's, if there is none. Null: it is wrong.
pub(super) fn of_string(string: &Chars, length: usize) -> *mut MemcachedSt {
    if (length == 0) != string.is_null() {
        return null_mut();
    }
    let environment = std::env::var("LIBMEMCACHED").unwrap_or_default();
    let string = if length == 0 { environment.as_bytes() } else { string.bytes(length) };
    let memc = Memc::at(Memc::null().create());
    if string.is_empty() || configuration::apply(&memc, string).is_success() {
        return memc.address();
    }
    free(&memc);
    null_mut()
}

/// Closes connections, calls the program's clean-up, and frees the client.
pub(crate) fn free(memc: &Memc) {
    farewell(memc);
    guarded(|| {
        super::sasl::forget(memc);
        memc.free(true);
    });
}

fn farewell(memc: &Memc) {
    guarded(|| {
        if let Some((mut session, options)) = session(memc) {
            session.core.remove_servers(&options);
        }
        memc.result().free();
    });
    if let Some(clean_up) = memc.settings().and_then(|settings| settings.on_cleanup.get()) {
        clean_up(memc.address());
    }
}

/// Makes a client as if it were new, but for its number of queries. As in libmemcached, its configuration file is
/// forgotten as well. Errors: there is no memory, and no call can use the client.
pub(crate) fn reset(memc: &Memc) -> Return {
    let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
    let query_id = settings.query_id.get();
    let is_allocated = memc.is_allocated();
    farewell(memc);
    guarded(|| {
        super::sasl::forget(memc);
        memc.free(false);
        if memc.create().is_null() {
            return Return::MEMORY_ALLOCATION_FAILURE;
        }
        memc.set_allocated(is_allocated);
        if let Some(settings) = memc.settings() {
            settings.query_id.set(query_id);
        }
        Return::SUCCESS
    })
}

/// Copies a client into this struct, or into a new one.
pub(super) fn copy(clone: &Memc, source: &Memc) -> Result<Memc, Return> {
    let mut made = Memc::null();
    let copied = guarded(|| {
        made = Memc::at(clone.create());
        copy_state(&made, source)
    });
    if made.is_null() {
        return Err(Return::MEMORY_ALLOCATION_FAILURE);
    }
    if copied.is_failure() {
        free(&made);
        return Err(copied);
    }
    if let Some(on_clone) = source.settings().and_then(|settings| settings.on_clone.get()) {
        on_clone(made.address(), source.address());
    }
    Ok(made)
}

/// Gives a new client all that a clone has of its source.
fn copy_state(made: &Memc, source: &Memc) -> Return {
    let (Some(to), Some(from)) = (made.settings(), source.settings()) else {
        return Return::INVALID_ARGUMENTS;
    };
    if !to.copy_settings(from) {
        return Return::MEMORY_ALLOCATION_FAILURE;
    }
    let code = push(made, source);
    if code.is_failure() {
        return code;
    }
    let copied = source.read(|core| (core.namespace.clone(), core.tls.clone()));
    if let (Some((mut session, options)), Some((namespace, tls))) = (session(made), copied) {
        session.core.namespace = namespace;
        session.core.tls = tls;
        if let Err(code) = session.core.distribute(&options) {
            return code;
        }
    }
    super::sasl::copy(made, source)
}

/// Adds the servers of another client.
fn push(destination: &Memc, source: &Memc) -> Return {
    let servers = source.read(|core| {
        let parts =
            |instance: &Instance| (instance.host.clone(), instance.port, instance.weight, instance.kind);
        core.instances.iter().map(|instance| parts(instance)).collect::<Vec<_>>()
    });
    let Some(servers) = servers else { return Return::INVALID_ARGUMENTS };
    if servers.is_empty() {
        return Return::SUCCESS;
    }
    let servers = servers.iter().map(|(host, port, weight, kind)| (host.as_bytes(), *port, *weight, *kind));
    super::lists::push(destination, servers)
}
