//! The keys of all servers, as far as they tell.

use std::ffi::c_void;

use super::{fail, query, session, versions};
use crate::abi::{Array, DumpFn, Memc, Return, export_calling, guarded};

export_calling! {
    fn memcached_dump(memc: Memc, callbacks: Array<DumpFn>, context: *mut c_void, count: u32) -> Return {
        let begun = guarded(|| {
            let Some((mut session, options)) = query(&memc) else { return Return::INVALID_ARGUMENTS };
            if let Err(code) = session.core.begin(&options) {
                return code;
            }
            if options.binary {
                let text = "Binary protocol is not supported for memcached_dump()";
                return session.core.fail(&options, Return::NOT_SUPPORTED, text);
            }
            drop(session);
            versions::fetch(&memc);
            Return::SUCCESS
        });
        if begun != Return::SUCCESS {
            return begun;
        }
        dump(&memc, callbacks.slice(count as usize).unwrap_or_default(), context)
    }
}

fn dump(memc: &Memc, callbacks: &[DumpFn], context: *mut c_void) -> Return {
    let servers = memc.read(|core| core.instances.len()).unwrap_or(0);
    let mut result = Return::SUCCESS;
    for class in 0..CLASSES {
        for at in 0..servers {
            let told = guarded(|| {
                let (mut session, options) = session(memc).ok_or(Return::FAILURE)?;
                let told = session.core.statistics(&options, at, format!("cachedump {class} 0").as_bytes());
                if told == Err(Return::CLIENT_ERROR) {
                    // There is no such class.
                    session.core.errors.clear();
                    return Ok(Vec::new());
                }
                told
            });
            let items = match told {
                Ok(items) => items,
                Err(code) => return code,
            };
            for (mut key, _) in items {
                let length = key.len();
                key.push(0);
                for callback in callbacks {
                    let code = callback(memc.address(), key.as_ptr().cast(), length, context);
                    if code != Return::SUCCESS {
                        guarded(|| fail(memc, code, ""));
                        result = Return::SOME_ERRORS;
                        break;
                    }
                }
            }
        }
    }
    result
}

/// memcached has had no more slab classes since 1.4.23.
const CLASSES: u32 = 64;
