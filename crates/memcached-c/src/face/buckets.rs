//! Virtual buckets.

use super::behaviors::set_distribution;
use super::{fail, session};
use crate::abi::{Array, Memc, Return, export};
use crate::core::Distribution;

export! {
    /// Forward maps are for a move of buckets that no libmemcached makes.
    fn memcached_bucket_set(
        memc: Memc, hosts: Array<u32>, _forward: Array<u32>, buckets: u32, _replicas: u32,
    ) -> Return {
        if memc.is_null() || hosts.is_null() {
            return Return::INVALID_ARGUMENTS;
        }
        let old = memc.settings().map_or(Distribution::MODULA, |settings| settings.distribution.get());
        let code = set_distribution(&memc, Distribution::VIRTUAL_BUCKET);
        if code.is_failure() {
            return code;
        }
        let Some(hosts) = hosts.slice(buckets as usize).filter(|hosts| !hosts.is_empty()) else {
            set_distribution(&memc, old);
            return Return::INVALID_ARGUMENTS;
        };
        // A shared slice cannot be asked for. There has to be room for it and for the one that it is made of, which
        // another thread may still take before.
        if Vec::<u32>::new().try_reserve_exact(hosts.len().saturating_mul(2)).is_err() {
            set_distribution(&memc, old);
            return fail(&memc, Return::MEMORY_ALLOCATION_FAILURE, "");
        }
        let placed = session(&memc).map_or(Ok(()), |(mut session, options)| {
            let before = session.core.buckets.replace(hosts.into());
            session.core.distribute(&options).inspect_err(|_| session.core.buckets = before)
        });
        match placed {
            Ok(()) => Return::SUCCESS,
            Err(code) => {
                set_distribution(&memc, old);
                code
            }
        }
    }
}
