//! Logins.

use super::{behaviors, fail};
use crate::abi::{Chars, Heap, LoginCallbacks, Memc, Return, SaslCallbackSt, SaslSt, export};

export! {
    fn memcached_set_sasl_callbacks(memc: Memc, callbacks: *mut SaslCallbackSt) {
        if let Some(settings) = memc.settings() {
            settings.sasl.set(SaslSt { callbacks, is_allocated: false });
        }
    }

    fn memcached_get_sasl_callbacks(memc: Memc) -> *mut SaslCallbackSt {
        memc.settings().map_or(std::ptr::null_mut(), |settings| settings.sasl.get().callbacks)
    }

    fn memcached_set_sasl_auth_data(memc: Memc, user: Chars, password: Chars) -> Return {
        match (user.text(), password.text()) {
            (Some(user), Some(password)) => set(&memc, user.to_bytes(), password.to_bytes()),
            _ => Return::INVALID_ARGUMENTS,
        }
    }

    fn memcached_destroy_sasl_auth_data(memc: Memc) -> Return {
        if memc.is_null() {
            return Return::INVALID_ARGUMENTS;
        }
        forget(&memc);
        Return::SUCCESS
    }
}

/// Sets a login, which needs the binary protocol.
pub(super) fn set(memc: &Memc, user: &[u8], password: &[u8]) -> Return {
    let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
    let code = behaviors::set(memc, behaviors::Behavior::BINARY_PROTOCOL, 1);
    if code.is_failure() {
        return code;
    }
    forget(memc);
    match SaslSt::of(Heap::of(settings), user, password) {
        Some(callbacks) => {
            settings.sasl.set(callbacks);
            Return::SUCCESS
        }
        None => fail(memc, Return::MEMORY_ALLOCATION_FAILURE, ""),
    }
}

/// Forgets a login.
pub(super) fn forget(memc: &Memc) {
    if let Some(settings) = memc.settings() {
        let none = SaslSt { callbacks: std::ptr::null_mut(), is_allocated: false };
        settings.sasl.replace(none).free(Heap::of(settings));
    }
}

/// Gives a clone the login of its source.
pub(super) fn copy(clone: &Memc, source: &Memc) -> Return {
    let Some(callbacks) = source.settings().map(LoginCallbacks::of) else { return Return::INVALID_ARGUMENTS };
    if !callbacks.exist() {
        return Return::SUCCESS;
    }
    match callbacks.credentials() {
        Some(login) => set(clone, &login.user, &login.password),
        None => Return::NOT_SUPPORTED,
    }
}
