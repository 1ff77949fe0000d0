//! Adding and subtracting.

use super::{fail, query};
use crate::abi::{Chars, Flag, Memc, Out, Return, export};
use crate::core::Operation;

/// `memcached_NAME` and its kin.
macro_rules! numbers {
    ($($name:ident, $by_key:ident, $with_initial:ident, $with_initial_by_key:ident: $decrement:literal;)*) => {
        export! {$(
            fn $name(memc: Memc, key: Chars, key_length: usize, offset: u32, value: Out<u64>) -> Return {
                let key = key.bytes(key_length);
                add(&memc, key, key, $decrement, offset.into(), None, value)
            }

            fn $by_key(
                memc: Memc, group: Chars, group_length: usize, key: Chars, key_length: usize, offset: u64,
                value: Out<u64>,
            ) -> Return {
                let (group, key) = (group.bytes(group_length), key.bytes(key_length));
                add(&memc, group, key, $decrement, offset, None, value)
            }

            fn $with_initial(
                memc: Memc, key: Chars, key_length: usize, offset: u64, initial: u64, expiration: i64,
                value: Out<u64>,
            ) -> Return {
                let key = key.bytes(key_length);
                add(&memc, key, key, $decrement, offset, Some((initial, expiration)), value)
            }

            fn $with_initial_by_key(
                memc: Memc, group: Chars, group_length: usize, key: Chars, key_length: usize, offset: u64,
                initial: u64, expiration: i64, value: Out<u64>,
            ) -> Return {
                let (group, key) = (group.bytes(group_length), key.bytes(key_length));
                add(&memc, group, key, $decrement, offset, Some((initial, expiration)), value)
            }
        )*}
    };
}

numbers! {
    memcached_increment, memcached_increment_by_key, memcached_increment_with_initial,
    memcached_increment_with_initial_by_key: false;
    memcached_decrement, memcached_decrement_by_key, memcached_decrement_with_initial,
    memcached_decrement_with_initial_by_key: true;
}

fn add(
    memc: &Memc,
    group: &[u8],
    key: &[u8],
    decrement: bool,
    delta: u64,
    initial: Option<(u64, i64)>,
    value: Out<u64>,
) -> Return {
    let is_binary =
        |memc: &Memc| memc.settings().is_some_and(|settings| settings.flags.get().has(Flag::BinaryProtocol));
    let changed = {
        let Some((mut session, options)) = query(memc) else { return Return::INVALID_ARGUMENTS };
        if options.cipher.is_some() {
            if let Err(code) = session.core.begin(&options) {
                return code;
            }
            let text = match initial {
                None => "Operation not allowed while encyrption is enabled",
                Some(_) => "Operation not allowed while encryption is enabled",
            };
            return session.core.fail(&options, Return::NOT_SUPPORTED, text);
        }
        if initial.is_some() && !options.binary {
            let core = &mut session.core;
            if let Err(code) = core.begin(&options).and_then(|()| core.check_keys(&options, &[key])) {
                return code;
            }
            None
        } else {
            // An expiry of all ones says that nothing is created, as in the protocol.
            let initial = initial.filter(|(_, exptime)| *exptime as u32 != u32::MAX);
            let operation = Operation::Arith { delta, decrement, initial };
            Some(session.core.change(&options, group, key, &operation))
        }
    };
    let Some(changed) = changed else {
        debug_assert!(!is_binary(memc));
        value.set(u64::MAX);
        let text = "memcached_increment_with_initial_by_key() is not supported via the ASCII protocol";
        return fail(memc, Return::INVALID_ARGUMENTS, text);
    };
    value.set(changed.number.unwrap_or(u64::MAX));
    changed.code
}
