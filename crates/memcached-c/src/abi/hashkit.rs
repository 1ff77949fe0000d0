//! Hash functions as C code sees them: pointers in a `hashkit_st`.
//!
//! Invariant: a function pointer is one of [`ALGORITHMS`], or C code set it, with its context. A key is null or of this
//! struct alone, which [`HashkitSt::set_cipher`] made.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::slice;

use larder_client::placement::{Chars as HashChars, KeyHash};

use super::heap::{boxed, free_struct, new_struct};
use super::structs::*;
use crate::core::Cipher;

/// A `hashkit_st` that C code passed, or null.
#[repr(transparent)]
pub(crate) struct Kit(*mut HashkitSt);

/// A hash function with its context.
#[derive(Clone, Copy)]
pub(crate) struct HashFunction(HashFunctionSt);

impl Kit {
    /// One that [`Kit::create`] made.
    pub(crate) fn made(address: *mut HashkitSt) -> Self {
        Self(address)
    }

    /// Makes one with the default function, in this struct or in a new one. Null: there is no memory.
    pub(crate) fn create(&self) -> *mut HashkitSt {
        let is_allocated = self.0.is_null();
        let kit = if is_allocated { new_struct() } else { self.0 };
        if !kit.is_null() {
            // SAFETY: there is room for one. Its content may be uninitialised, so it is neither read nor dropped.
            unsafe { kit.write(HashkitSt::new(if is_allocated { ALLOCATED } else { 0 })) };
        }
        kit
    }

    /// The functions. `None`: null.
    pub(crate) fn get(&self) -> Option<&HashkitSt> {
        // SAFETY: it is null or valid for the call; its fields are cells.
        unsafe { self.0.as_ref() }
    }

    /// Frees the key, and the struct if [`Kit::create`] made it.
    pub(crate) fn free(&self) {
        if let Some(kit) = self.get() {
            kit.set_cipher(None);
        }
        if self.get().is_some_and(|kit| kit.options.get() & ALLOCATED != 0) {
            // SAFETY: it came from `new_struct`, and C code gives it up.
            unsafe { free_struct(self.0) };
        }
    }

    pub(crate) fn address(&self) -> *mut HashkitSt {
        self.0
    }
}

impl HashkitSt {
    pub(super) fn new(options: u8) -> Self {
        Self {
            base_hash: Cell::new(HashFunctionSt::DEFAULT),
            distribution_hash: Cell::new(HashFunctionSt::DEFAULT),
            flags: Cell::new(SAME_DISTRIBUTED),
            options: Cell::new(options),
            key: Cell::new(null_mut()),
        }
    }

    /// Takes the functions and the key of another. False: there is no memory for the key.
    pub(crate) fn copy(&self, other: &Self) -> bool {
        self.base_hash.set(other.base_hash.get());
        self.distribution_hash.set(other.distribution_hash.get());
        self.flags.set(other.flags.get());
        self.set_cipher(other.cipher())
    }

    /// The key that values are encrypted with. `None`: they are not.
    pub(crate) fn cipher(&self) -> Option<Cipher> {
        // SAFETY: see the invariant.
        unsafe { self.key.get().as_ref() }.copied()
    }

    /// Sets it. False: there is no memory, and the old key stays.
    pub(crate) fn set_cipher(&self, cipher: Option<Cipher>) -> bool {
        let made = match cipher.map(boxed) {
            Some(None) => return false,
            made => made.flatten().map_or(null_mut(), Box::into_raw),
        };
        let old = self.key.replace(made);
        if !old.is_null() {
            // SAFETY: it came from `Box::into_raw`, and no other struct has it.
            drop(unsafe { Box::from_raw(old) });
        }
        true
    }

    /// Has it the same functions, with the same contexts?
    pub(crate) fn equals(&self, other: &Self) -> bool {
        let parts =
            |kit: &Self| [kit.base_hash.get(), kit.distribution_hash.get()].map(HashFunctionSt::address);
        parts(self) == parts(other) && self.flags.get() == other.flags.get()
    }
}

/// The default functions, and no key.
impl Default for HashkitSt {
    fn default() -> Self {
        Self::new(0)
    }
}

/// A `hashkit_string_st` that C code passed, or null: what was encrypted or decrypted.
#[repr(transparent)]
pub(crate) struct KitText(*mut Vec<u8>);

impl KitText {
    /// Bytes, with a NUL behind them. Null: there are none, or no memory.
    pub(crate) fn of(bytes: Option<Vec<u8>>) -> *mut Vec<u8> {
        let made = bytes.and_then(|mut bytes| {
            bytes.try_reserve_exact(1).ok()?;
            bytes.push(0);
            boxed(bytes)
        });
        made.map_or(null_mut(), Box::into_raw)
    }

    /// The bytes with their NUL. `None`: null.
    pub(crate) fn with_nul(&self) -> Option<&[u8]> {
        // SAFETY: it is null, or was made by `of` and not freed.
        unsafe { self.0.as_ref() }.map(Vec::as_slice)
    }

    pub(crate) fn free(self) {
        if !self.0.is_null() {
            // SAFETY: it came from `Box::into_raw`, and C code gives it up.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

impl HashFunctionSt {
    /// One-at-a-time.
    pub(crate) const DEFAULT: Self = Self { function: Some(one_at_a_time), context: null_mut() };

    fn address(self) -> (usize, usize) {
        (self.function.map_or(0, |function| function as usize), self.context as usize)
    }

    /// The function with this number (a `hashkit_hash_algorithm_t`). `None`: there is none.
    pub(crate) fn of(algorithm: u32) -> Option<Self> {
        let (function, _) = *ALGORITHMS.get(algorithm as usize)?;
        Some(Self { function: Some(function?), context: null_mut() })
    }

    /// Its number; of C code's own, [`CUSTOM`].
    pub(crate) fn algorithm(self) -> u32 {
        let same = |known: &(Option<HashFn>, KeyHash)| {
            known.0.map(|f| f as usize) == self.function.map(|f| f as usize)
        };
        ALGORITHMS.iter().position(same).map_or(CUSTOM, |place| place as u32)
    }

    /// To call it.
    pub(crate) fn callable(self) -> HashFunction {
        HashFunction(self)
    }
}

impl HashFunction {
    /// The hash of a key.
    pub(crate) fn of(self, key: &[u8]) -> u32 {
        match self.0.function {
            Some(function) => function(key.as_ptr().cast(), key.len(), self.0.context),
            None => 0,
        }
    }

    /// Which function of the library it is. `None`: one of C code.
    pub(crate) fn known(self) -> Option<KeyHash> {
        ALGORITHMS.get(self.0.algorithm() as usize).map(|(_, hash)| *hash)
    }
}

/// The hash of a key by the function with this number. `None`: there is none.
pub(crate) fn digest(key: &[u8], algorithm: u32) -> Option<u32> {
    HashFunctionSt::of(algorithm).map(|function| function.callable().of(key))
}

macro_rules! functions {
    ($($name:ident = $hash:ident),*) => {$(
        extern "C-unwind" fn $name(key: *const c_char, length: usize, _: *mut c_void) -> u32 {
            let key = match key.is_null() || length == 0 || isize::try_from(length).is_err() {
                true => b"",
                // SAFETY: C code passed the length with the key.
                false => unsafe { slice::from_raw_parts(key.cast(), length) },
            };
            KeyHash::$hash.of(key, HashChars::NATIVE) as u32
        }
    )*};
}

functions! {
    one_at_a_time = OneAtATime, md5 = Md5, crc = Crc, fnv1_64 = Fnv64, fnv1a_64 = Fnv64a, fnv1_32 = Fnv32,
    fnv1a_32 = Fnv32a, murmur = Murmur, jenkins = Jenkins, murmur3 = Murmur3
}

/// The functions, in the order of `hashkit_hash_algorithm_t`. libmemcached is built without Hsieh's.
static ALGORITHMS: [(Option<HashFn>, KeyHash); 11] = [
    (Some(one_at_a_time), KeyHash::OneAtATime),
    (Some(md5), KeyHash::Md5),
    (Some(crc), KeyHash::Crc),
    (Some(fnv1_64), KeyHash::Fnv64),
    (Some(fnv1a_64), KeyHash::Fnv64a),
    (Some(fnv1_32), KeyHash::Fnv32),
    (Some(fnv1a_32), KeyHash::Fnv32a),
    (None, KeyHash::Hsieh),
    (Some(murmur), KeyHash::Murmur),
    (Some(jenkins), KeyHash::Jenkins),
    (Some(murmur3), KeyHash::Murmur3),
];

/// `HASHKIT_HASH_CUSTOM`.
pub(crate) const CUSTOM: u32 = 11;
/// `HASHKIT_HASH_MAX`.
pub(crate) const MAX: u32 = 12;
/// `is_base_same_distributed`.
const SAME_DISTRIBUTED: u8 = 1;
