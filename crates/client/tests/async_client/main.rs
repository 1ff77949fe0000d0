//! The client that many tasks share: against real servers, and against a network that does wrong.

mod chaos;
mod commands;
mod compute;
mod compute_lost;
mod discovery;
mod doors;
mod faults;
mod near_cache;
mod observer;
mod policies;
mod replicas;
mod replicas_lost;
mod room;
mod servers;
mod srv;
mod udp;
mod warm_up;
