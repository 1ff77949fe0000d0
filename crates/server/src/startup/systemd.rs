//! Running under systemd: its sockets, and its notifications. All of it is inactive unless the environment asks for it,
//! so other supervisors with the same conventions (s6, runit's and container wrappers) work as well.

mod notify;
mod sockets;

pub use notify::Supervisor;
pub use sockets::Sockets;
