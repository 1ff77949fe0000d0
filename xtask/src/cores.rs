//! Which cores a measurement uses.

use larder_conformance::Result;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Two cores: one for the server, one for the load.
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cores {
    pub(crate) fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let (Some(server), Some(load)) = (cores.next(), cores.next()) else {
            return Err("server and load need a core each, and this machine has one".into());
        };
        Ok(Self { server, load })
    }
}
