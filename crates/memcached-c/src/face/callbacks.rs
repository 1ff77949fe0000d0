//! A program's own functions, and the namespace.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::{fail, session};
use crate::abi::{Callback, Chars, Flag, Memc, Out, Return, export};

export! {
    fn memcached_callback_set(memc: Memc, callback: u32, data: Chars) -> Return {
        let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
        match Callback::of(callback) {
            Some(Callback::Namespace) => set_namespace(&memc, data.text().map(|text| text.to_bytes())),
            Some(Callback::DeleteTrigger) if !data.is_null() => {
                let flags = settings.flags.get();
                let text = match (flags.has(Flag::BufferRequests), flags.has(Flag::Reply)) {
                    (true, _) => "Delete triggers cannot be used if buffering is enabled",
                    (_, false) => "Delete triggers cannot be used if MEMCACHED_BEHAVIOR_NOREPLY is set",
                    _ => "",
                };
                if !text.is_empty() {
                    return fail(&memc, Return::INVALID_ARGUMENTS, text);
                }
                Callback::DeleteTrigger.set(settings, data.address().cast());
                Return::SUCCESS
            }
            Some(callback) => {
                callback.set(settings, data.address().cast());
                Return::SUCCESS
            }
            None if callback == CALLBACK_MAX => {
                fail(&memc, Return::INVALID_ARGUMENTS, "Invalid callback supplied")
            }
            // As in libmemcached.
            None => Return::SUCCESS,
        }
    }

    fn memcached_callback_get(memc: Memc, callback: u32, error: Out<Return>) -> *mut c_void {
        let Some(settings) = memc.settings() else {
            error.set(Return::INVALID_ARGUMENTS);
            return null_mut();
        };
        let Some(callback) = Callback::of(callback) else {
            error.set(Return::FAILURE);
            return null_mut();
        };
        if let Callback::Namespace = callback {
            error.set(Return::SUCCESS);
            let namespace = memc.read(|core| core.namespace.as_ref().map(|namespace| namespace.as_ptr()));
            return namespace.flatten().map_or(null_mut(), |namespace| namespace.cast_mut().cast());
        }
        let data = callback.get(settings);
        error.set(if data.is_null() { Return::FAILURE } else { Return::SUCCESS });
        data
    }
}

/// Sets what comes before every key. `None`: nothing.
pub(crate) fn set_namespace(memc: &Memc, namespace: Option<&[u8]>) -> Return {
    let Some((mut session, mut options)) = session(memc) else { return Return::INVALID_ARGUMENTS };
    let core = &mut session.core;
    let Some(namespace) = namespace else {
        core.namespace = None;
        return Return::SUCCESS;
    };
    if namespace.is_empty() {
        let text = "Invalid namespace, namespace string had value but length was 0";
        return core.fail(&options, Return::INVALID_ARGUMENTS, text);
    }
    let old = core.namespace.take();
    // The binary protocol takes every byte.
    options.verify_key = true;
    let checked = core.check_keys(&options, &[namespace]);
    core.namespace = old;
    if let Err(code) = checked {
        return code;
    }
    if namespace.len() > NAMESPACE_BYTES_MAX {
        return core.fail(&options, Return::KEY_TOO_BIG, "");
    }
    core.namespace = std::ffi::CString::new(namespace).ok();
    Return::SUCCESS
}

/// `MEMCACHED_MAX_NAMESPACE`, without its NUL.
const NAMESPACE_BYTES_MAX: usize = 127;
/// `MEMCACHED_CALLBACK_MAX`.
const CALLBACK_MAX: u32 = 9;
