//! The heap of a client.

use std::ffi::c_void;

use super::fail;
use crate::abi::{AllocatorSt, CallocFn, FreeFn, MallocFn, Memc, Out, ReallocFn, Return, export};

export! {
    fn memcached_set_memory_allocators(
        memc: Memc, malloc: Option<MallocFn>, free: Option<FreeFn>, realloc: Option<ReallocFn>,
        calloc: Option<CallocFn>, context: *mut c_void,
    ) -> Return {
        let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
        match (malloc, free, realloc, calloc) {
            (None, None, None, None) => settings.allocators.set(AllocatorSt::DEFAULT),
            (Some(_), Some(_), Some(_), Some(_)) => {
                settings.allocators.set(AllocatorSt { calloc, free, malloc, realloc, context });
            }
            _ => {
                let text = "NULL parameter provided for one or more allocators";
                return fail(&memc, Return::INVALID_ARGUMENTS, text);
            }
        }
        Return::SUCCESS
    }

    fn memcached_get_memory_allocators(
        memc: Memc, malloc: Out<Option<MallocFn>>, free: Out<Option<FreeFn>>,
        realloc: Out<Option<ReallocFn>>, calloc: Out<Option<CallocFn>>,
    ) {
        let Some(allocators) = memc.settings().map(|settings| settings.allocators.get()) else { return };
        malloc.set(allocators.malloc);
        free.set(allocators.free);
        realloc.set(allocators.realloc);
        calloc.set(allocators.calloc);
    }
}
