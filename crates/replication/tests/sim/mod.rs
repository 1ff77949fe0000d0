//! A cluster, simulated: one thread, one seed, the same run each time.
//!
//! What runs is the crate's own code: both ends of each connection, members, merging. Around it is simulated what
//! larderd will be: clients, a log that loses what is not synced, connections that are cut, stall and linger, crashes,
//! clocks that are set, sites that are away for longer than the bound or restored from a backup, cleaning, states that
//! a site loses silently. At the end
//! all is healed; then every site has to have the same data, and these have to be what the truth (`truth.rs`) says: an
//! account of all changes that became durable, which knows nothing of joins.

mod cluster;
mod compare;
mod data;
mod driver;
mod network;
mod scenario;
mod site;
mod truth;

pub(crate) use scenario::Scenario;
