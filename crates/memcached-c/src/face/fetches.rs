//! Requests for items.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use super::{fail, query, session};
use crate::abi::{
    Array, Chars, ExecuteFn, Flag, Keys, Memc, Out, ResultPtr, ResultSt, Return, export, export_calling,
    guarded,
};
use crate::core::{Found, Options};

export! {
    fn memcached_mget(memc: Memc, keys: Keys, lengths: Array<usize>, count: usize) -> Return {
        multi_get(&memc, None, &keys, &lengths, count)
    }

    fn memcached_mget_by_key(
        memc: Memc, group: Chars, group_length: usize, keys: Keys, lengths: Array<usize>, count: usize,
    ) -> Return {
        let group = Some(group.bytes(group_length)).filter(|group| !group.is_empty());
        multi_get(&memc, group, &keys, &lengths, count)
    }

    fn memcached_mget_execute(
        memc: Memc, keys: Keys, lengths: Array<usize>, count: usize, _callbacks: Array<ExecuteFn>,
        _context: *mut c_void, _callback_count: u32,
    ) -> Return {
        multi_get_to_execute(&memc, None, &keys, &lengths, count)
    }

    fn memcached_mget_execute_by_key(
        memc: Memc, group: Chars, group_length: usize, keys: Keys, lengths: Array<usize>, count: usize,
        _callbacks: Array<ExecuteFn>, _context: *mut c_void, _callback_count: u32,
    ) -> Return {
        let group = Some(group.bytes(group_length)).filter(|group| !group.is_empty());
        multi_get_to_execute(&memc, group, &keys, &lengths, count)
    }

    fn memcached_fetch(
        memc: Memc, key: Out<u8>, key_length: Out<usize>, value_length: Out<usize>, flags: Out<u32>,
        error: Out<Return>,
    ) -> *mut c_char {
        fetch_value(&memc, key, key_length, value_length, flags, error)
    }

    fn memcached_fetch_result(memc: Memc, result: ResultPtr, error: Out<Return>) -> *mut ResultSt {
        if memc.is_null() {
            error.set(Return::INVALID_ARGUMENTS);
            return null_mut();
        }
        // An error that no server was asked about: the program's result stays.
        let refusal = match session(&memc) {
            None => Some(Return::INVALID_ARGUMENTS),
            Some((_, options)) => options.udp.then_some(Return::NOT_SUPPORTED),
        };
        if let Some(code) = refusal {
            error.set(code);
            return null_mut();
        }
        let result = if result.is_null() { result.create(memc.address()) } else { result };
        if result.is_null() {
            error.set(Return::MEMORY_ALLOCATION_FAILURE);
            return null_mut();
        }
        let code = fetch(&memc, &result);
        error.set(code);
        if code == Return::SUCCESS { result.address() } else { null_mut() }
    }
}

export_calling! {
    fn memcached_get(
        memc: Memc, key: Chars, key_length: usize, value_length: Out<usize>, flags: Out<u32>, error: Out<Return>,
    ) -> *mut c_char {
        get(&memc, None, key.bytes(key_length), value_length, flags, error)
    }

    fn memcached_get_by_key(
        memc: Memc, group: Chars, group_length: usize, key: Chars, key_length: usize, value_length: Out<usize>,
        flags: Out<u32>, error: Out<Return>,
    ) -> *mut c_char {
        let group = Some(group.bytes(group_length)).filter(|group| !group.is_empty());
        get(&memc, group, key.bytes(key_length), value_length, flags, error)
    }

    fn memcached_fetch_execute(
        memc: Memc, callbacks: Array<ExecuteFn>, context: *mut c_void, count: u32,
    ) -> Return {
        let callbacks = callbacks.slice(count as usize).unwrap_or_default();
        let mut has_failed = false;
        loop {
            let code = guarded(|| fetch(&memc, &memc.result()));
            if code != Return::SUCCESS {
                return match has_failed {
                    true => Return::SOME_ERRORS,
                    false if code.is_success() => Return::SUCCESS,
                    false => code,
                };
            }
            for callback in callbacks {
                let told = callback(memc.address(), memc.result().address(), context);
                if told.is_failure() {
                    has_failed = true;
                    guarded(|| fail(&memc, told, ""));
                    break;
                }
            }
        }
    }
}

/// Puts an item into a result, decrypted if it is to be.
fn fill(result: &mut ResultSt, options: &Options, found: &Found<'_>) -> Return {
    result.reset();
    result.set_key(found.key);
    result.item_flags = found.client_flags;
    result.item_cas = found.cas;
    // An empty value is what it is: it was stored without a key.
    let is_kept = match options.cipher.filter(|_| !found.value.is_empty()) {
        None => result.append(found.value),
        Some(cipher) => match cipher.decrypt(found.value) {
            Ok(value) => result.append(&value),
            Err(code) => {
                result.reset();
                return code;
            }
        },
    };
    if is_kept { Return::SUCCESS } else { Return::MEMORY_ALLOCATION_FAILURE }
}

fn get(
    memc: &Memc,
    group: Option<&[u8]>,
    key: &[u8],
    value_length: Out<usize>,
    flags: Out<u32>,
    error: Out<Return>,
) -> *mut c_char {
    let mut code = Return::FAILURE;
    let value = guarded(|| {
        let result = memc.result();
        code = match (query(memc), result.get()) {
            (Some((mut session, options)), Some(result)) => {
                result.reset();
                session.core.get(&options, group, key, |found| fill(result, &options, &found))
            }
            _ => Return::INVALID_ARGUMENTS,
        };
        if code == Return::SUCCESS
            && let Some(result) = result.get()
        {
            value_length.set(result.value_length());
            flags.set(result.item_flags);
            return result.take_value();
        }
        value_length.set(0);
        if was_asked(code) {
            flags.set(0);
        }
        null_mut()
    });
    error.set(code);
    if code == Return::NOTFOUND
        && let Some(trigger) = memc.settings().and_then(|settings| settings.get_key_failure.get())
    {
        return store_missing(memc, key, trigger, (value_length, flags, error));
    }
    value
}

/// Whether a server was asked: libmemcached leaves the flags alone if none was.
fn was_asked(code: Return) -> bool {
    !matches!(
        code,
        Return::AUTH_FAILURE
            | Return::AUTH_PROBLEM
            | Return::BAD_KEY_PROVIDED
            | Return::CONNECTION_FAILURE
            | Return::ERRNO
            | Return::INVALID_ARGUMENTS
            | Return::NO_SERVERS
            | Return::NOT_SUPPORTED
            | Return::SERVER_MARKED_DEAD
            | Return::SERVER_TEMPORARILY_DISABLED
    )
}

/// Has the program make a value for a key that was not found, and stores it.
fn store_missing(
    memc: &Memc,
    key: &[u8],
    trigger: crate::abi::TriggerKeyFn,
    (value_length, flags, error): (Out<usize>, Out<u32>, Out<Return>),
) -> *mut c_char {
    let made = Made(guarded(|| ResultPtr::null().create(memc.address())));
    if made.0.is_null() {
        error.set(guarded(|| fail(memc, Return::MEMORY_ALLOCATION_FAILURE, "")));
        return null_mut();
    }
    let told = trigger(memc.address(), key.as_ptr().cast(), key.len(), made.0.address());
    guarded(|| {
        let (Return::SUCCESS | Return::BUFFERED, Some(result)) = (told, made.0.get()) else {
            return null_mut();
        };
        let before = (told == Return::BUFFERED).then(|| set_buffering(memc, true));
        let mode = larder_client::codec::Mode::Set;
        let stored = super::stores::encrypted(memc, mode, result.value_bytes(), |value| {
            let operation = crate::core::Operation::Store {
                mode,
                value,
                exptime: 0,
                client_flags: result.item_flags,
                compare: None,
            };
            super::stores::change(memc, key, key, &operation)
        });
        if let Some(before) = before {
            set_buffering(memc, before);
        }
        let (Return::SUCCESS | Return::BUFFERED) = stored else { return null_mut() };
        error.set(stored);
        value_length.set(result.value_length());
        flags.set(result.item_flags);
        result.take_value()
    })
}

/// A result that is freed even if the program's function throws.
struct Made(ResultPtr);

impl Drop for Made {
    fn drop(&mut self) {
        self.0.free();
    }
}

/// Whether stores are buffered; returns whether they were before.
fn set_buffering(memc: &Memc, is_on: bool) -> bool {
    let Some(settings) = memc.settings() else { return false };
    let mut flags = settings.flags.get();
    let before = flags.has(Flag::BufferRequests);
    flags.set(Flag::BufferRequests, is_on);
    settings.flags.set(flags);
    before
}

fn multi_get(memc: &Memc, group: Option<&[u8]>, keys: &Keys, lengths: &Array<usize>, count: usize) -> Return {
    let Some((mut session, options)) = query(memc) else { return Return::INVALID_ARGUMENTS };
    if let Some(result) = memc.result().get() {
        result.reset();
    }
    match keys.slices(lengths, count) {
        Ok(mut keys) => session.core.multi_get(&options, group, &mut keys),
        Err(_) if count == 0 => session.core.multi_get(&options, group, &mut Vec::new()),
        Err(Return::BAD_KEY_PROVIDED) => {
            let text = "Key was NULL or length of key was zero.";
            session.core.fail(&options, Return::BAD_KEY_PROVIDED, text)
        }
        Err(code) => session.core.fail(&options, code, ""),
    }
}

/// The callbacks are called for what [`memcached_fetch_execute`] then fetches; libmemcached calls them sooner only if
/// its buffers are full.
fn multi_get_to_execute(
    memc: &Memc,
    group: Option<&[u8]>,
    keys: &Keys,
    lengths: &Array<usize>,
    count: usize,
) -> Return {
    {
        let Some((mut session, options)) = session(memc) else { return Return::INVALID_ARGUMENTS };
        if let Err(code) = session.core.begin(&options) {
            return code;
        }
        if options.udp {
            return session.core.fail(&options, Return::NOT_SUPPORTED, "");
        }
        if !options.binary {
            let text = "ASCII protocol is not supported for memcached_mget_execute_by_key()";
            return session.core.fail(&options, Return::NOT_SUPPORTED, text);
        }
    }
    multi_get(memc, group, keys, lengths, count)
}

/// Takes the next item of a multi-get. After the last, a result of the heap is freed.
fn fetch(memc: &Memc, result: &ResultPtr) -> Return {
    let code = match (session(memc), result.get()) {
        (Some((mut session, options)), Some(result)) => {
            let count = result.count;
            session.core.fetch(&options, count, |found| fill(result, &options, &found))
        }
        _ => Return::INVALID_ARGUMENTS,
    };
    if let Some(item) = result.get() {
        if code == Return::SUCCESS {
            item.count += 1;
        } else if item.is_allocated() {
            result.free();
        } else {
            item.count = 0;
            item.empty_value();
        }
    }
    code
}

fn fetch_value(
    memc: &Memc,
    key: Out<u8>,
    key_length: Out<usize>,
    value_length: Out<usize>,
    flags: Out<u32>,
    error: Out<Return>,
) -> *mut c_char {
    let result = memc.result();
    let code = if memc.is_null() { Return::INVALID_ARGUMENTS } else { fetch(memc, &result) };
    error.set(code);
    match result.get().filter(|_| code == Return::SUCCESS) {
        Some(result) => {
            value_length.set(result.value_length());
            if !key.is_null() {
                key.set_all(result.key_bytes(), crate::abi::KEY_SIZE);
                key_length.set(result.key_length());
            }
            flags.set(result.item_flags);
            result.take_value()
        }
        None => {
            value_length.set(0);
            key_length.set(0);
            flags.set(0);
            key.set(0);
            null_mut()
        }
    }
}
