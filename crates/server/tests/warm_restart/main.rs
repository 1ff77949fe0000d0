//! `-e FILE`: a server that goes on with the cache of the one before, however that ended.
//!
//! Expected results are memcached's (`memcached -e`), but where it gives up: a start in the second of the stop, another
//! stop than by SIGUSR1, other options, namespaces. `LARDER_WARM_ROUNDS=100` kills more often than the tests by
//! themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod killed;
mod load;
mod namespaces;
mod restart;
mod server;
