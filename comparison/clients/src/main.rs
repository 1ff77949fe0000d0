//! Asks servers through one client library and says what came of it. `cargo xtask bench clients` starts it beside the
//! Java clients (`conformance/clients/java/Bench.java`) and libmemcached (`libmemcached.c`), which are asked the same,
//! and print the same.

mod clients;
mod load;

use std::process::ExitCode;

use load::Load;

const HELP: &str = "\
usage: larder-comparison-clients CLIENT HOST:PORT[,HOST:PORT...] OBJECTS MIN_BYTES MAX_BYTES KEYS_PER_GET SECS
           THREADS...

  CLIENT   larder, larder-text, larder-blocking, memcache or async-memcached

Stores all objects, warms up, says \"ready\", and then a line for each number of threads (or tasks):
THREADS OPERATIONS_PER_SEC SET_MILLIS GET_MILLIS CPU_SECS_PER_SEC MISSES";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larder-comparison-clients: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> clients::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [client, servers, objects, min_bytes, max_bytes, keys_per_get, secs, threads @ ..] = &args[..] else {
        return Err(HELP.into());
    };
    let load = Load::new(
        objects.parse()?,
        min_bytes.parse()?,
        max_bytes.parse()?,
        keys_per_get.parse()?,
        secs.parse()?,
    )?;
    // Tasks may outlive everything but the program.
    let load: &'static Load = Box::leak(Box::new(load));
    let threads =
        threads.iter().map(|threads| threads.parse()).collect::<std::result::Result<Vec<usize>, _>>()?;
    clients::run(client, servers, load, &threads)
}
