//! libhashkit.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;

use larder_client::placement::md5_sum;

use crate::abi::{
    Chars, HASH_CUSTOM, HASH_MAX, HashFn, HashFunctionSt, HashkitSt, Kit, KitText, Out, digest, export,
};
use crate::core::Cipher;

/// `libhashkit_NAME`, by number.
macro_rules! hashes {
    ($($name:ident: $algorithm:literal;)*) => {
        export! {$(
            fn $name(key: Chars, length: usize) -> u32 {
                digest(key.bytes(length), $algorithm).unwrap_or(1)
            }
        )*}
    };
}

hashes! {
    libhashkit_one_at_a_time: 0;
    libhashkit_md5: 1;
    libhashkit_crc32: 2;
    libhashkit_fnv1_64: 3;
    libhashkit_fnv1a_64: 4;
    libhashkit_fnv1_32: 5;
    libhashkit_fnv1a_32: 6;
    libhashkit_hsieh: 7;
    libhashkit_murmur: 8;
    libhashkit_jenkins: 9;
    libhashkit_murmur3: 10;
}

export! {
    fn hashkit_create(kit: Kit) -> *mut HashkitSt {
        kit.create()
    }

    fn hashkit_free(kit: Kit) {
        kit.free();
    }

    fn hashkit_clone(destination: Kit, source: Kit) -> *mut HashkitSt {
        let made = destination.create();
        if let (Some(to), Some(from)) = (Kit::made(made).get(), source.get()) {
            to.copy(from);
        }
        made
    }

    fn hashkit_compare(first: Kit, second: Kit) -> bool {
        match (first.get(), second.get()) {
            (Some(first), Some(second)) => first.equals(second),
            _ => false,
        }
    }

    fn hashkit_digest(kit: Kit, key: Chars, length: usize) -> u32 {
        kit.get().map_or(0, |kit| kit.base_hash.get().callable().of(key.bytes(length)))
    }

    fn libhashkit_digest(key: Chars, length: usize, algorithm: u32) -> u32 {
        digest(key.bytes(length), algorithm).unwrap_or(1)
    }

    fn libhashkit_md5_signature(key: Chars, length: usize, sum: Out<u8>) {
        let bytes = md5_sum(key.bytes(length));
        sum.set_all(bytes, bytes.len());
    }

    fn libhashkit_has_algorithm(algorithm: u32) -> bool {
        algorithm == HASH_CUSTOM || HashFunctionSt::of(algorithm).is_some()
    }

    fn libhashkit_string_hash(algorithm: u32) -> *const c_char {
        name(algorithm)
    }

    fn hashkit_strerror(_kit: Kit, code: u32) -> *const c_char {
        ERRORS.get(code as usize).unwrap_or(&c"INVALID hashkit_return_t").as_ptr()
    }

    fn hashkit_set_function(kit: Kit, algorithm: u32) -> u32 {
        set(kit.get().map(|kit| &kit.base_hash), algorithm)
    }

    fn hashkit_set_distribution_function(kit: Kit, algorithm: u32) -> u32 {
        set(kit.get().map(|kit| &kit.distribution_hash), algorithm)
    }

    fn hashkit_set_custom_function(kit: Kit, function: Option<HashFn>, context: *mut c_void) -> u32 {
        set_custom(kit.get().map(|kit| &kit.base_hash), function, context)
    }

    fn hashkit_set_custom_distribution_function(
        kit: Kit, function: Option<HashFn>, context: *mut c_void,
    ) -> u32 {
        set_custom(kit.get().map(|kit| &kit.distribution_hash), function, context)
    }

    fn hashkit_get_function(kit: Kit) -> u32 {
        kit.get().map_or(0, |kit| kit.base_hash.get().algorithm())
    }

    fn hashkit_get_distribution_function(kit: Kit) -> u32 {
        kit.get().map_or(0, |kit| kit.distribution_hash.get().algorithm())
    }

    fn hashkit_key(kit: Kit, key: Chars, length: usize) -> bool {
        let cipher = (!key.is_null()).then(|| Cipher::of(key.bytes(length)));
        kit.get().is_some_and(|kit| kit.set_cipher(cipher) && cipher.is_some())
    }

    fn hashkit_encrypt(kit: Kit, source: Chars, length: usize) -> *mut Vec<u8> {
        let cipher = kit.get().and_then(HashkitSt::cipher);
        KitText::of(cipher.and_then(|cipher| cipher.encrypt(source.bytes(length))))
    }

    fn hashkit_decrypt(kit: Kit, source: Chars, length: usize) -> *mut Vec<u8> {
        let cipher = kit.get().and_then(HashkitSt::cipher);
        KitText::of(cipher.and_then(|cipher| cipher.decrypt(source.bytes(length)).ok()))
    }

    fn hashkit_string_free(text: KitText) {
        text.free();
    }

    fn hashkit_string_length(text: KitText) -> usize {
        text.with_nul().map_or(0, |bytes| bytes.len() - 1)
    }

    fn hashkit_string_c_str(text: KitText) -> *const c_char {
        text.with_nul().map_or(null(), |bytes| bytes.as_ptr().cast())
    }
}

/// The name of a hash function.
pub(super) fn name(algorithm: u32) -> *const c_char {
    NAMES.get(algorithm as usize).unwrap_or(&c"INVALID").as_ptr()
}

fn set(place: Option<&Cell<HashFunctionSt>>, algorithm: u32) -> u32 {
    let Some(place) = place else { return INVALID_ARGUMENT };
    match HashFunctionSt::of(algorithm) {
        Some(function) => {
            place.set(function);
            SUCCESS
        }
        None if algorithm >= HASH_MAX => INVALID_HASH,
        None => INVALID_ARGUMENT,
    }
}

fn set_custom(place: Option<&Cell<HashFunctionSt>>, function: Option<HashFn>, context: *mut c_void) -> u32 {
    match (place, function) {
        (None, _) => INVALID_ARGUMENT,
        (_, None) => FAILURE,
        (Some(place), function) => {
            place.set(HashFunctionSt { function, context });
            SUCCESS
        }
    }
}

/// Texts of `hashkit_return_t`.
const ERRORS: [&CStr; 5] = [
    c"SUCCESS",
    c"FAILURE",
    c"MEMORY ALLOCATION FAILURE",
    c"INVALID hashkit_hash_algorithm_t",
    c"INVALID ARGUMENT",
];
const SUCCESS: u32 = 0;
const FAILURE: u32 = 1;
const INVALID_HASH: u32 = 3;
const INVALID_ARGUMENT: u32 = 4;
/// Names of `hashkit_hash_algorithm_t`.
const NAMES: [&CStr; 12] = [
    c"DEFAULT",
    c"MD5",
    c"CRC",
    c"FNV1_64",
    c"FNV1A_64",
    c"FNV1_32",
    c"FNV1A_32",
    c"HSIEH",
    c"MURMUR",
    c"JENKINS",
    c"MURMUR3",
    c"CUSTOM",
];
