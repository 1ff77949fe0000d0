//! A ring of Linux's io_uring for one thread that serves sockets, with a safe boundary.
//!
//! What a ring does for its thread:
//! - [`Ring::poll`] arms one operation on a descriptor and reports once when it is ready. To arm it again costs no
//!   system call, since it is submitted with the next wait. [`Ring::watch`] is a poll that the ring itself arms again.
//! - [`Ring::wait`] submits what was armed and waits; [`Ring::take_ready`] reports what that wait has found.
//! - [`Ring::cancel`] ends an operation. Its completion is not reported for a later socket with the same number.
//! - [`Ring::send_all`] sends to many sockets with one system call.
//!
//! Nothing is held of a descriptor: an operation is submitted with the number that the descriptor had. Call
//! [`Ring::cancel`] before closing one, even if nothing may be armed on it.
//!
//! Needs Linux 5.19; from 6.1 on completions arrive only while the thread waits.
//!
//! | module | what it knows | unsafe |
//! |---|---|---|
//! | `ring` | submission, completion, waiting | entries that name memory, `io_uring_enter` |
//! | `slots` | which operation of a descriptor is the current one | none |

mod ring;
mod slots;

pub use ring::{Exclusive, Readiness, Ring, SocketSend};
