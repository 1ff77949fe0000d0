//! Being run by systemd: sockets that it opened for us, and what it wants to know of us. Nothing here does anything
//! unless the environment says that it is wanted, so other supervisors that speak the same words (s6, runit's and
//! container wrappers) are served as well.

mod notify;
mod sockets;

pub use notify::Supervisor;
pub use sockets::Sockets;
