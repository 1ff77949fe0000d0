//! Functions of the interface.
//!
//! Invariant: no panic leaves one, since C cannot unwind. An exception of C++ that leaves a function of the program
//! passes through those of [`export_calling`] alone: there the client's state is not lent, and nothing is half done.
//! In all other code a thread cannot be cancelled, and an exception ends the program. A thread may end in a function
//! of the program (`pthread_exit`) only where nothing of the call has a destructor: Rust does not define how it passes
//! one.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};

use super::Return;

/// Defines functions of the C interface. A panic in one makes it return its [`Fallback`].
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident : $type:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {
        $crate::abi::export_calling! {$(
            $(#[$meta])* fn $name($($arg: $type),*) $(-> $ret)? { $crate::abi::guarded(move || $body) }
        )*}
    };
}
pub(crate) use export;

/// Defines functions of the C interface that call functions of the program: these may unwind. Whatever else the bodies
/// do is [`guarded`].
macro_rules! export_calling {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident : $type:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[expect(unsafe_code, reason = "C programs look it up by this name, which no other function here has")]
        #[unsafe(no_mangle)]
        extern "C-unwind" fn $name($($arg: $type),*) $(-> $ret)? $body
    )*};
}
pub(crate) use export_calling;

/// What a function returns after a panic.
pub(crate) trait Fallback {
    /// The value.
    fn fallback() -> Self;
}

/// Calls `body`, and catches a panic. Until it ends, the thread cannot be cancelled.
pub(crate) fn guarded<R: Fallback>(body: impl FnOnce() -> R) -> R {
    let before = set_cancel_state(CANCEL_DISABLE);
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| R::fallback());
    set_cancel_state(before);
    result
}

/// Whether the thread can be cancelled; returns whether it could before.
#[expect(unsafe_code, reason = "a function of the C library")]
fn set_cancel_state(state: c_int) -> c_int {
    unsafe extern "C-unwind" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    let mut before = 0;
    // SAFETY: the place is valid. A thread that is cancelled at once, in its asynchronous mode, unwinds from here.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// `PTHREAD_CANCEL_DISABLE`, of Linux.
const CANCEL_DISABLE: c_int = 1;

impl Fallback for Return {
    fn fallback() -> Self {
        Self::FAILURE
    }
}

impl<T> Fallback for Result<T, Return> {
    fn fallback() -> Self {
        Err(Return::FAILURE)
    }
}

impl<T> Fallback for *const T {
    fn fallback() -> Self {
        null()
    }
}

impl<T> Fallback for *mut T {
    fn fallback() -> Self {
        null_mut()
    }
}

macro_rules! fall_back_to {
    ($($type:ty: $value:expr),*) => {$(
        impl Fallback for $type {
            fn fallback() -> Self {
                $value
            }
        }
    )*};
}

fall_back_to!((): (), bool: false, u8: 0, u16: 0, u32: 0, u64: 0, usize: 0, i32: -1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_failure() {
        let code = || -> Return { panic!("expected by this test") };
        assert_eq!(guarded(code), Return::FAILURE);
        let pointer = || -> *const u8 { panic!("expected by this test") };
        assert!(guarded(pointer).is_null());
    }
}
