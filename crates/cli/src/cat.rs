//! `larder cat`: unchanged values.

use crate::target::Target;
use crate::troubles::Troubles;
use crate::{Failure, output};

/// Write values to standard output exactly as they are stored
///
/// Nothing is written between the values, nor after the last. Exit code 1: a key was not found.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut client = args.target.client()?;
    let mut troubles = Troubles::of("cat");
    output::write(|out| {
        for keys in args.keys.chunks(KEYS_AT_ONCE) {
            let found = client.multi_get(keys);
            let all_answered = found.failures.is_empty();
            for (key, item) in keys.iter().zip(&found.items) {
                match item {
                    Some(item) => out.write_all(&item.value).map_err(Failure::of_output)?,
                    // If its server failed, the key may exist.
                    None if all_answered => troubles.not_found(key),
                    None => {}
                }
            }
            for (address, error) in &found.failures {
                let whom = address.as_ref().map_or_else(|| "keys".to_owned(), ToString::to_string);
                troubles.add(Failure::of(whom, error));
            }
        }
        Ok(())
    })?;
    troubles.end()
}

/// Values in memory at the same time, at most.
const KEYS_AT_ONCE: usize = 64;
