//! Configuration strings: `--SERVER=host:port/?weight --NAMESPACE="a" …`, as libmemcached's manual
//! (`libmemcached_configuration`) has them, and options of this library's own for TLS.

mod parser;
mod tls;
mod token;

use std::ffi::{CStr, c_char};
use std::fs;

use tls::TlsOptions;

use crate::abi::{Chars, Memc, Out, Return, export};
use crate::face::{clients, fail, session};

export! {
    fn libmemcached_check_configuration(
        string: Chars, length: usize, error: Out<c_char>, error_size: usize,
    ) -> Return {
        if string.is_null() || length == 0 {
            return Return::INVALID_ARGUMENTS;
        }
        let memc = Memc::at(Memc::null().create());
        let code = apply(&memc, string.bytes(length));
        let message = match code.is_failure() {
            true => memc.read(|core| core.errors.message().map(CStr::to_owned)).flatten().unwrap_or_default(),
            false => Default::default(),
        };
        if let Some(room) = error_size.checked_sub(1) {
            let text = message.as_bytes();
            let text = text.get(..room).unwrap_or(text);
            error.set_all(text.iter().chain([&0]).map(|byte| c_char::from_ne_bytes([*byte])), error_size);
        }
        clients::free(&memc);
        code
    }
}

/// Applies a configuration string, and then the file that it names. Options of TLS count together.
pub(crate) fn apply(memc: &Memc, string: &[u8]) -> Return {
    let mut tls = TlsOptions::default();
    let mut code = parser::parse(memc, string, 0, &mut tls);
    if code.is_success()
        && let Some(file) = memc.read(|core| core.configuration_file.clone()).flatten()
    {
        code = load(memc, &file, 0, &mut tls);
    }
    if code.is_failure() {
        return code;
    }
    tls.apply(memc).map_or_else(|text| fail(memc, Return::PARSE_ERROR, &text), |()| code)
}

/// Applies a file of configuration strings, one a line. `depth`: how many files have included it.
fn load(memc: &Memc, file: &CStr, depth: u32, tls: &mut TlsOptions) -> Return {
    let name = file.to_string_lossy();
    let text = match fs::read(name.as_ref()) {
        Ok(text) => text,
        Err(error) => {
            let Some((mut session, options)) = session(memc) else { return Return::FAILURE };
            return session.core.fail_with_errno(&options, error.raw_os_error().unwrap_or(0), &name);
        }
    };
    let mut code = Return::INVALID_ARGUMENTS;
    for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| *line != b"\n") {
        code = parser::parse(memc, line, depth, tls);
        if code.is_failure() {
            return code;
        }
    }
    if code == Return::INVALID_ARGUMENTS { fail(memc, code, "") } else { code }
}

#[cfg(test)]
mod tests;
