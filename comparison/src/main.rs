//! Replays a workload through one cache and says what came of it: hits, memory, nanoseconds. A process for each run, so
//! that its resident memory is this cache's. `cargo xtask bench embedded` starts it, and says how it measures.

mod caches;
mod measure;
mod requests;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;

const HELP: &str = "\
usage: larder-comparison --cache NAME --capacity-bytes N --requests FILE [--gets N]

  --cache NAME        larder, larder-in-place, moka, quick_cache, foyer or foyer-lfu
  --capacity-bytes N  memory for larder; for the others the sum of the bytes of keys and values
  --requests FILE     requests: a key of 8 bytes and the length of its value in 4, little-endian, for each
  --gets N            after the replay measure N gets of each thread: with one thread, then with two

Prints a line for each figure: its name and its value.";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larder-comparison: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut cache, mut capacity_bytes, mut file, mut gets) = (None, None, None, 0);
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("cache") => cache = Some(parser.value()?.string()?),
            Long("capacity-bytes") => capacity_bytes = Some(parser.value()?.parse::<u64>()?),
            Long("requests") => file = Some(PathBuf::from(parser.value()?)),
            Long("gets") => gets = parser.value()?.parse()?,
            Long("help") => {
                println!("{HELP}");
                return Ok(());
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    let (Some(cache), Some(capacity_bytes), Some(file)) = (cache, capacity_bytes, file) else {
        return Err(HELP.into());
    };
    let requests = requests::read(&file)?;
    caches::run(&cache, capacity_bytes, &requests, gets)
}
