//! Results.

use std::ffi::c_char;
use std::ptr::{null, null_mut};

use crate::abi::{Chars, Memc, ResultPtr, ResultSt, Return, export};

export! {
    fn memcached_result_create(memc: Memc, result: ResultPtr) -> *mut ResultSt {
        result.create(memc.address()).address()
    }

    fn memcached_result_free(result: ResultPtr) {
        result.free();
    }

    fn memcached_result_reset(result: ResultPtr) {
        if let Some(result) = result.get() {
            result.reset();
        }
    }

    fn memcached_result_key_value(result: ResultPtr) -> *const c_char {
        result.get().map_or(null(), |result| result.key())
    }

    fn memcached_result_key_length(result: ResultPtr) -> usize {
        result.get().map_or(0, |result| result.key_length())
    }

    fn memcached_result_value(result: ResultPtr) -> *const c_char {
        result.get().map_or(null(), |result| result.value())
    }

    fn memcached_result_take_value(result: ResultPtr) -> *mut c_char {
        result.get().map_or(null_mut(), ResultSt::take_value)
    }

    fn memcached_result_length(result: ResultPtr) -> usize {
        result.get().map_or(0, |result| result.value_length())
    }

    fn memcached_result_flags(result: ResultPtr) -> u32 {
        result.get().map_or(0, |result| result.item_flags)
    }

    fn memcached_result_cas(result: ResultPtr) -> u64 {
        result.get().map_or(0, |result| result.item_cas)
    }

    /// Appends, as libmemcached does.
    fn memcached_result_set_value(result: ResultPtr, value: Chars, length: usize) -> Return {
        match result.get().map(|result| result.append(value.bytes(length))) {
            Some(true) => Return::SUCCESS,
            Some(false) => Return::MEMORY_ALLOCATION_FAILURE,
            None => Return::INVALID_ARGUMENTS,
        }
    }

    fn memcached_result_set_flags(result: ResultPtr, flags: u32) {
        if let Some(result) = result.get() {
            result.item_flags = flags;
        }
    }

    fn memcached_result_set_expiration(result: ResultPtr, expiration: i64) {
        if let Some(result) = result.get() {
            result.item_expiration = expiration;
        }
    }
}
