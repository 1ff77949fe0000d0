//! What engines a server has: the configuration of each, before there is one.

use larder_engine::{Config, Reservation};
use larder_policy::{DEFAULT, Keep, Table};

use super::NamespacesFile;
use crate::startup::address_space;
use crate::startup::options::{EXIT_FAILURE, Refusal};
use crate::startup::settings::Settings;

/// The engines of a server.
pub struct Plan {
    pub(super) file: Option<NamespacesFile>,
    /// What all engines share.
    pub(super) memory_bytes: u64,
    /// Not empty; by the numbers of their namespaces.
    pub(super) engines: Vec<EnginePlan>,
}

/// The engine of a namespace.
#[derive(Clone)]
pub(super) struct EnginePlan {
    pub(super) number: u8,
    pub(super) keep: Keep,
    pub(super) config: Config,
    pub(super) reservation: Reservation,
}

impl Plan {
    /// An engine for each namespace of the file; for everything, if there is none. `config` is that of an engine for
    /// everything. The address space of the process is divided as it is now. Errors: the quotas leave too little.
    pub fn new(file: Option<NamespacesFile>, settings: &Settings, config: &Config) -> Result<Self, Refusal> {
        let whole = address_space::reservation(config.memory_bytes, settings.threads);
        let memory_bytes = config.memory_bytes;
        let Some(NamespacesFile { path, table }) = &file else {
            let keep = settings.default_policy().keep;
            let engine = EnginePlan { number: DEFAULT, keep, config: config.clone(), reservation: whole };
            return Ok(Self { file, memory_bytes, engines: vec![engine] });
        };
        let shares = table.divide(memory_bytes).map_err(|error| {
            let path = path.iter().map(|path| format!(" {}", path.display())).collect::<String>();
            Refusal::new(EXIT_FAILURE, format!("larderd: namespaces{path}: {error}"))
        })?;
        let engine = |(number, share_bytes): (u8, &u64)| {
            let reservation = match number {
                DEFAULT if whole.address_space_bytes == u64::MAX => whole,
                _ => address_space::part(whole, *share_bytes, memory_bytes),
            };
            let policy = table.policy(number);
            let config = Config {
                memory_bytes: *share_bytes,
                item_bytes_max: policy.item_bytes_max.unwrap_or(settings.item_bytes_max),
                index_power: config.index_power.filter(|_| number == DEFAULT),
                ..config.clone()
            };
            EnginePlan { number, keep: policy.keep, config, reservation }
        };
        let engines = table.numbers().zip(&shares).map(engine).collect();
        Ok(Self { file, memory_bytes, engines })
    }

    /// The policies. `None`: there is the default alone, without one.
    pub(super) fn table(&self) -> Option<&Table> {
        self.file.as_ref().map(|file| &file.table)
    }
}
