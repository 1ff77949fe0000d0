//! What went wrong.

use std::ffi::{CStr, c_char};
use std::io::{self, Write};
use std::ptr::null;

use crate::abi::{InstancePtr, Memc, Return, export};

export! {
    fn memcached_strerror(_memc: Memc, code: Return) -> *const c_char {
        text(code)
    }

    fn memcached_last_error(memc: Memc) -> Return {
        last(&memc)
    }

    fn memcached_last_error_message(memc: Memc) -> *const c_char {
        message(&memc)
    }

    fn memcached_error(memc: Memc) -> *const c_char {
        message(&memc)
    }

    fn memcached_last_error_errno(memc: Memc) -> i32 {
        memc.read(|core| core.errors.errno()).unwrap_or(0)
    }

    fn memcached_error_print(memc: Memc) {
        memc.read(|core| {
            let lists = std::iter::once(&core.errors).chain(core.instances.iter().map(|instance| &instance.errors));
            let mut output = io::stderr().lock();
            for (code, message) in lists.flat_map(|errors| errors.all()) {
                // There is nobody left to tell.
                let _ = writeln!(output, "\t{} {}", code.text(), message.to_string_lossy());
            }
        });
    }

    fn memcached_server_error(instance: InstancePtr) -> *const c_char {
        let Some(instance) = instance.get() else { return null() };
        instance.errors.message().map_or_else(|| text(Return::SUCCESS), CStr::as_ptr)
    }

    fn memcached_server_error_return(instance: InstancePtr) -> Return {
        let Some(instance) = instance.get() else { return Return::INVALID_ARGUMENTS };
        instance.errors.code().unwrap_or(Return::SUCCESS)
    }
}

/// The code of the latest error.
pub(super) fn last(memc: &Memc) -> Return {
    if memc.is_null() {
        return Return::INVALID_ARGUMENTS;
    }
    memc.read(|core| core.errors.code()).flatten().unwrap_or(Return::SUCCESS)
}

fn text(code: Return) -> *const c_char {
    code.text_with_nul().as_ptr().cast()
}

fn message(memc: &Memc) -> *const c_char {
    if memc.is_null() {
        return text(Return::INVALID_ARGUMENTS);
    }
    let message = memc.read(|core| core.errors.message().map(CStr::as_ptr)).flatten();
    message.unwrap_or_else(|| text(Return::SUCCESS))
}
