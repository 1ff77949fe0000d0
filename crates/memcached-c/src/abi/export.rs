//! Functions of the interface.
//!
//! Invariant: no panic leaves one, since C cannot unwind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};

use super::Return;

/// Defines functions of the C interface. A panic in one makes it return its [`Fallback`].
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident : $type:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[expect(unsafe_code, reason = "C programs look it up by this name, which no other function here has")]
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) $(-> $ret)? {
            $crate::abi::guarded(move || $body)
        }
    )*};
}
pub(crate) use export;

/// What a function returns after a panic.
pub(crate) trait Fallback {
    /// The value.
    fn fallback() -> Self;
}

/// Calls `body`, and catches a panic.
pub(crate) fn guarded<R: Fallback>(body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| R::fallback())
}

impl Fallback for Return {
    fn fallback() -> Self {
        Self::FAILURE
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
