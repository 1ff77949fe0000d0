//! Functions of a program: those that name the user and the password (SASL), and those that it sets by number.
//!
//! Invariant: a list of callbacks ends with [`LIST_END`], and each has the type that SASL's manual gives for its id.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};
use std::slice;

use super::Heap;
use super::heap::copied;
use super::structs::*;

/// The callbacks of a client, perhaps none.
#[derive(Clone, Copy)]
pub(crate) struct LoginCallbacks(*const SaslCallbackSt);

/// What the callbacks named, in any bytes.
pub(crate) struct Credentials {
    pub(crate) user: Vec<u8>,
    pub(crate) password: Vec<u8>,
}

/// The head of a `sasl_secret_t`, which the password follows.
#[repr(C)]
struct SaslSecretSt {
    length: c_ulong,
    data: [u8; 1],
}

type TextFn = extern "C-unwind" fn(*mut c_void, c_int, *mut *const c_char, *mut c_uint) -> c_int;
type SecretFn = extern "C-unwind" fn(*mut c_void, *mut c_void, c_int, *mut *const SaslSecretSt) -> c_int;

impl LoginCallbacks {
    /// Those of a client.
    pub(crate) fn of(memc: &MemcachedSt) -> Self {
        Self(memc.sasl.get().callbacks)
    }

    /// Are there any?
    pub(crate) fn exist(self) -> bool {
        !self.0.is_null()
    }

    fn entries(self) -> impl Iterator<Item = SaslCallbackSt> {
        let mut next = self.0;
        std::iter::from_fn(move || {
            // SAFETY: the list is null, or ends with `LIST_END`, behind which nothing is read.
            let entry = unsafe { next.as_ref() }?;
            if entry.id == LIST_END {
                return None;
            }
            // SAFETY: it is not the last.
            next = unsafe { next.add(1) };
            Some(*entry)
        })
    }

    /// Calls them. `None`: they name no user or no password.
    pub(crate) fn credentials(self) -> Option<Credentials> {
        let user = self.entries().find(|entry| entry.id == AUTHNAME || entry.id == USER).and_then(name)?;
        let password = self.entries().find(|entry| entry.id == PASS).and_then(secret)?;
        Some(Credentials { user, password })
    }
}

fn name(entry: SaslCallbackSt) -> Option<Vec<u8>> {
    if entry.proc.is_null() {
        return None;
    }
    // SAFETY: the type of a callback with this id.
    let call: TextFn = unsafe { transmute(entry.proc) };
    let (mut text, mut length) = (null(), 0);
    if call(entry.context, entry.id as c_int, &raw mut text, &raw mut length) != 0 || text.is_null() {
        return None;
    }
    // SAFETY: the callback returned text that ends with a NUL.
    copied(unsafe { CStr::from_ptr(text) }.to_bytes(), 0)
}

fn secret(entry: SaslCallbackSt) -> Option<Vec<u8>> {
    if entry.proc.is_null() {
        return None;
    }
    // SAFETY: the type of a callback with this id.
    let call: SecretFn = unsafe { transmute(entry.proc) };
    let mut secret: *const SaslSecretSt = null();
    // It does nothing with the connection but compare it with null.
    let connection = (&raw mut secret).cast::<c_void>();
    if call(connection, entry.context, PASS as c_int, &raw mut secret) != 0 || secret.is_null() {
        return None;
    }
    // SAFETY: the callback returned a secret, whose length is right.
    let bytes =
        unsafe { slice::from_raw_parts((&raw const (*secret).data).cast::<u8>(), (*secret).length as usize) };
    copied(bytes, 0)
}

impl SaslSt {
    /// Callbacks that name this user and this password, of a client's heap. `None`: there is no memory.
    pub(crate) fn of(heap: Heap, user: &[u8], password: &[u8]) -> Option<Self> {
        let length = (password.len() as c_ulong).to_ne_bytes();
        let (user, secret) = (heap.store_text(user), heap.store_parts(&[&length, password, b"\0"]));
        let text: TextFn = give_user;
        let pass: SecretFn = give_secret;
        let entry = |id, proc, context: *mut c_void| SaslCallbackSt { id, proc, context };
        let callbacks = heap.store(&[
            entry(USER, text as *const c_void, user.cast()),
            entry(AUTHNAME, text as *const c_void, user.cast()),
            entry(PASS, pass as *const c_void, secret.cast()),
            entry(LIST_END, null(), null_mut()),
        ]);
        let made = Self { callbacks, is_allocated: true };
        if user.is_null() || secret.is_null() || callbacks.is_null() {
            heap.free(user.cast());
            heap.free(secret.cast());
            heap.free(callbacks.cast());
            return None;
        }
        Some(made)
    }

    /// Frees what [`SaslSt::of`] made.
    pub(crate) fn free(self, heap: Heap) {
        if !self.is_allocated {
            return;
        }
        for entry in LoginCallbacks(self.callbacks).entries().filter(|entry| entry.id != AUTHNAME) {
            heap.free(entry.context);
        }
        heap.free(self.callbacks.cast());
    }
}

extern "C-unwind" fn give_user(
    context: *mut c_void,
    id: c_int,
    text: *mut *const c_char,
    length: *mut c_uint,
) -> c_int {
    if context.is_null() || text.is_null() || (id as c_ulong != USER && id as c_ulong != AUTHNAME) {
        return BAD_PARAMETER;
    }
    // SAFETY: SASL, or this module, passes room for both; the context is the user's name.
    unsafe {
        text.write(context.cast());
        if !length.is_null() {
            length.write(CStr::from_ptr(context.cast()).count_bytes() as c_uint);
        }
    }
    0
}

extern "C-unwind" fn give_secret(
    connection: *mut c_void,
    context: *mut c_void,
    id: c_int,
    secret: *mut *const SaslSecretSt,
) -> c_int {
    if connection.is_null() || secret.is_null() || id as c_ulong != PASS {
        return BAD_PARAMETER;
    }
    // SAFETY: SASL, or this module, passes room for it; the context is the secret.
    unsafe { secret.write(context.cast()) };
    0
}

/// `SASL_CB_USER`.
const USER: c_ulong = 0x4001;
/// `SASL_CB_AUTHNAME`.
const AUTHNAME: c_ulong = 0x4002;
/// `SASL_CB_PASS`.
const PASS: c_ulong = 0x4004;
/// `SASL_CB_LIST_END`.
const LIST_END: c_ulong = 0;
/// `SASL_BADPARAM`.
const BAD_PARAMETER: c_int = -7;

/// What `memcached_callback_set` sets.
#[derive(Clone, Copy)]
pub(crate) enum Callback {
    Namespace,
    UserData,
    CleanUp,
    Clone,
    GetFailure,
    DeleteTrigger,
}

impl Callback {
    /// The one with this number (a `memcached_callback_t`).
    pub(crate) fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Namespace,
            1 => Self::UserData,
            2 => Self::CleanUp,
            3 => Self::Clone,
            7 => Self::GetFailure,
            8 => Self::DeleteTrigger,
            _ => return None,
        })
    }

    /// Sets it; the namespace is set otherwise.
    pub(crate) fn set(self, memc: &MemcachedSt, data: *const c_void) {
        // SAFETY: C code passes a function of the type that the manual gives for the number, or null, which is `None`.
        unsafe {
            match self {
                Self::Namespace => {}
                Self::UserData => memc.user_data.set(data.cast_mut()),
                Self::CleanUp => memc.on_cleanup.set(transmute::<*const c_void, Option<CleanupFn>>(data)),
                Self::Clone => memc.on_clone.set(transmute::<*const c_void, Option<CloneFn>>(data)),
                Self::GetFailure => {
                    memc.get_key_failure.set(transmute::<*const c_void, Option<TriggerKeyFn>>(data));
                }
                Self::DeleteTrigger => {
                    memc.delete_trigger.set(transmute::<*const c_void, Option<TriggerDeleteKeyFn>>(data));
                }
            }
        }
    }

    /// What was set.
    pub(crate) fn get(self, memc: &MemcachedSt) -> *mut c_void {
        let function: Option<*mut c_void> = match self {
            Self::Namespace => None,
            Self::UserData => Some(memc.user_data.get()),
            Self::CleanUp => memc.on_cleanup.get().map(|function| function as *mut c_void),
            Self::Clone => memc.on_clone.get().map(|function| function as *mut c_void),
            Self::GetFailure => memc.get_key_failure.get().map(|function| function as *mut c_void),
            Self::DeleteTrigger => memc.delete_trigger.get().map(|function| function as *mut c_void),
        };
        function.unwrap_or(null_mut())
    }
}
