//! Versions of servers.

use super::query;
use crate::abi::{InstancePtr, Memc, Return, export};

export! {
    fn memcached_version(memc: Memc) -> Return {
        fetch(&memc)
    }

    fn memcached_server_major_version(server: InstancePtr) -> u8 {
        server.get().map_or(u8::MAX, |server| server.release[0])
    }

    fn memcached_server_minor_version(server: InstancePtr) -> u8 {
        server.get().map_or(u8::MAX, |server| server.release[1])
    }

    fn memcached_server_micro_version(server: InstancePtr) -> u8 {
        server.get().map_or(u8::MAX, |server| server.release[2])
    }
}

/// Asks servers whose versions are not known.
pub(super) fn fetch(memc: &Memc) -> Return {
    match query(memc) {
        Some((mut session, options)) => session.core.fetch_versions(&options),
        None => Return::INVALID_ARGUMENTS,
    }
}
