//! Stores, deletions, expiry.

use larder_client::codec::Mode;
use larder_protocol::command::VALUE_BYTES_MAX;

use super::{fail, query};
use crate::abi::{Chars, Memc, Return, export, export_calling, guarded};
use crate::core::Operation;

/// Stores: `memcached_NAME` and `memcached_NAME_by_key`.
macro_rules! stores {
    ($($name:ident, $by_key:ident: $mode:ident;)*) => {
        export! {$(
            fn $name(
                memc: Memc, key: Chars, key_length: usize, value: Chars, value_length: usize, expiration: i64,
                flags: u32,
            ) -> Return {
                let key = key.bytes(key_length);
                with_value(&memc, Mode::$mode, &value, value_length, |value| {
                    change(&memc, key, key, &store(Mode::$mode, value, expiration, flags, None))
                })
            }

            fn $by_key(
                memc: Memc, group: Chars, group_length: usize, key: Chars, key_length: usize, value: Chars,
                value_length: usize, expiration: i64, flags: u32,
            ) -> Return {
                let (group, key) = (group.bytes(group_length), key.bytes(key_length));
                with_value(&memc, Mode::$mode, &value, value_length, |value| {
                    change(&memc, group, key, &store(Mode::$mode, value, expiration, flags, None))
                })
            }
        )*}
    };
}

stores! {
    memcached_set, memcached_set_by_key: Set;
    memcached_add, memcached_add_by_key: Add;
    memcached_replace, memcached_replace_by_key: Replace;
    memcached_append, memcached_append_by_key: Append;
    memcached_prepend, memcached_prepend_by_key: Prepend;
}

export! {
    fn memcached_cas(
        memc: Memc, key: Chars, key_length: usize, value: Chars, value_length: usize, expiration: i64, flags: u32,
        cas: u64,
    ) -> Return {
        let key = key.bytes(key_length);
        with_value(&memc, Mode::Set, &value, value_length, |value| {
            change(&memc, key, key, &compare(&memc, value, expiration, flags, cas))
        })
    }

    fn memcached_cas_by_key(
        memc: Memc, group: Chars, group_length: usize, key: Chars, key_length: usize, value: Chars,
        value_length: usize, expiration: i64, flags: u32, cas: u64,
    ) -> Return {
        let (group, key) = (group.bytes(group_length), key.bytes(key_length));
        with_value(&memc, Mode::Set, &value, value_length, |value| {
            change(&memc, group, key, &compare(&memc, value, expiration, flags, cas))
        })
    }

    fn memcached_touch(memc: Memc, key: Chars, key_length: usize, expiration: i64) -> Return {
        let key = key.bytes(key_length);
        change(&memc, key, key, &Operation::Touch { exptime: expiration })
    }

    fn memcached_touch_by_key(
        memc: Memc, group: Chars, group_length: usize, key: Chars, key_length: usize, expiration: i64,
    ) -> Return {
        let operation = Operation::Touch { exptime: expiration };
        change(&memc, group.bytes(group_length), key.bytes(key_length), &operation)
    }

    fn memcached_exist(memc: Memc, key: Chars, key_length: usize) -> Return {
        let key = key.bytes(key_length);
        change(&memc, key, key, &Operation::Exist)
    }

    fn memcached_exist_by_key(
        memc: Memc, group: Chars, group_length: usize, key: Chars, key_length: usize,
    ) -> Return {
        change(&memc, group.bytes(group_length), key.bytes(key_length), &Operation::Exist)
    }
}

export_calling! {
    fn memcached_delete(memc: Memc, key: Chars, key_length: usize, expiration: i64) -> Return {
        let key = key.bytes(key_length);
        delete(&memc, key, key, expiration)
    }

    fn memcached_delete_by_key(
        memc: Memc, group: Chars, group_length: usize, key: Chars, key_length: usize, expiration: i64,
    ) -> Return {
        delete(&memc, group.bytes(group_length), key.bytes(key_length), expiration)
    }
}

/// Passes a value of this length on, as [`encrypted`] does.
fn with_value(
    memc: &Memc,
    mode: Mode,
    value: &Chars,
    length: usize,
    then: impl FnOnce(&[u8]) -> Return,
) -> Return {
    match can_announce(length) {
        true => encrypted(memc, mode, value.bytes(length), then),
        false => fail(memc, Return::E2BIG, ""),
    }
}

/// Can any protocol announce a value of so many bytes?
fn can_announce(length: usize) -> bool {
    u32::try_from(length).is_ok_and(|length| length <= VALUE_BYTES_MAX)
}

/// Passes a value on, encrypted if it is to be, if any protocol can announce it.
pub(super) fn encrypted(memc: &Memc, mode: Mode, value: &[u8], then: impl FnOnce(&[u8]) -> Return) -> Return {
    let Some(cipher) = memc.settings().and_then(|settings| settings.hashkit.cipher()) else {
        return if can_announce(value.len()) { then(value) } else { fail(memc, Return::E2BIG, "") };
    };
    if let Mode::Append | Mode::Prepend = mode {
        return fail(memc, Return::NOT_SUPPORTED, "Operation not allowed while encyrption is enabled");
    }
    match cipher.encrypt(value) {
        Some(value) if can_announce(value.len()) => then(&value),
        Some(_) => fail(memc, Return::E2BIG, ""),
        None => fail(memc, Return::MEMORY_ALLOCATION_FAILURE, ""),
    }
}

fn store(mode: Mode, value: &[u8], exptime: i64, client_flags: u32, compare: Option<u64>) -> Operation<'_> {
    Operation::Store { mode, value, exptime, client_flags, compare }
}

/// In the binary protocol, 0 compares with nothing: it replaces.
fn compare<'v>(memc: &Memc, value: &'v [u8], exptime: i64, client_flags: u32, cas: u64) -> Operation<'v> {
    let is_binary =
        memc.settings().is_some_and(|settings| settings.flags.get().has(crate::abi::Flag::BinaryProtocol));
    match is_binary && cas == 0 {
        true => store(Mode::Replace, value, exptime, client_flags, None),
        false => store(Mode::Set, value, exptime, client_flags, Some(cas)),
    }
}

pub(super) fn change(memc: &Memc, group: &[u8], key: &[u8], operation: &Operation<'_>) -> Return {
    match query(memc) {
        Some((mut session, options)) => session.core.change(&options, group, key, operation).code,
        None => Return::INVALID_ARGUMENTS,
    }
}

fn delete(memc: &Memc, group: &[u8], key: &[u8], expiration: i64) -> Return {
    let trigger = memc.settings().and_then(|settings| settings.delete_trigger.get());
    let code = guarded(|| delete_now(memc, group, key, expiration, trigger.is_some()));
    if let Some(trigger) = trigger.filter(|_| code == Return::SUCCESS) {
        trigger(memc.address(), key.as_ptr().cast(), key.len());
    }
    code
}

fn delete_now(memc: &Memc, group: &[u8], key: &[u8], expiration: i64, has_trigger: bool) -> Return {
    let Some((mut session, options)) = query(memc) else { return Return::INVALID_ARGUMENTS };
    let core = &mut session.core;
    if let Err(code) = core.begin(&options).and_then(|()| core.check_keys(&options, &[key])) {
        return code;
    }
    let refusal = match (expiration, has_trigger) {
        (1.. | ..0, _) => "Memcached server version does not allow expiration of deleted items",
        (0, true) if options.buffering => "Delete triggers cannot be used if buffering is enabled",
        (0, true) if !options.replying => {
            "Delete triggers cannot be used if MEMCACHED_BEHAVIOR_NOREPLY is set"
        }
        _ => "",
    };
    if !refusal.is_empty() {
        return core.fail(&options, Return::INVALID_ARGUMENTS, refusal);
    }
    core.change(&options, group, key, &Operation::Delete).code
}
