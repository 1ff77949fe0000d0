//! Hashes of keys, for a client.

use std::ffi::c_char;

use super::hashkit::name;
use super::{fail, session};
use crate::abi::{Chars, HashkitSt, Kit, Memc, Return, digest, export};

export! {
    fn memcached_generate_hash_value(key: Chars, length: usize, algorithm: u32) -> u32 {
        digest(key.bytes(length), algorithm).unwrap_or(1)
    }

    /// The position of the key's server.
    fn memcached_generate_hash(memc: Memc, key: Chars, length: usize) -> u32 {
        match session(&memc) {
            Some((session, options)) => session.core.place(&options, key.bytes(length)) as u32,
            None => u32::MAX,
        }
    }

    fn memcached_get_hashkit(memc: Memc) -> *const HashkitSt {
        memc.kit().address()
    }

    fn memcached_set_hashkit(memc: Memc, kit: Kit) -> Return {
        let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
        let is_set = match kit.get() {
            Some(kit) => settings.hashkit.copy(kit),
            None => settings.hashkit.copy(&HashkitSt::default()),
        };
        if is_set { Return::SUCCESS } else { fail(&memc, Return::MEMORY_ALLOCATION_FAILURE, "") }
    }

    fn libmemcached_string_hash(algorithm: u32) -> *const c_char {
        name(algorithm)
    }
}
