//! libmemcached's C interface, over [`larder_client`]: a program that was built against libmemcached 1.0 or 1.1 finds
//! its functions here. `docs/libmemcached.md` says how to use it, and what differs.
//!
//! | module | what it is |
//! |---|---|
//! | `abi` | the boundary to C: structs, pointers, the C heap; all `unsafe` code |
//! | `core` | the client: servers, connections, placement, errors |
//! | `face` | the functions, by what they are about |
//! | `configuration` | configuration strings |

mod abi;
mod configuration;
mod core;
mod face;
