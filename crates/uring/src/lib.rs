//! A ring of Linux's io_uring for one thread that serves sockets, with a safe boundary.
//!
//! What a ring does for its thread:
//! - [`Ring::poll`] and [`Ring::receive`] arm one operation on a descriptor: readiness, or the next bytes of a socket,
//!   received into a [`Buffer`] of the ring's own. Both are one-shot; to arm one again costs no system call, since it is
//!   submitted with the next wait. [`Ring::watch`] is a poll that the ring itself arms again.
//! - [`Ring::wait`] submits what was armed and waits; [`Ring::take_completion`] gives the completions of that wait.
//! - [`Ring::cancel`] ends an operation. Whoever gets the same descriptor next never sees its completion.
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
//! | `buffers` | memory that the kernel may write to | the ring of buffers, and who owns each |
//! | `slots` | which operation of a descriptor is the current one | none |

mod buffers;
mod ring;
mod slots;

pub use buffers::Buffer;
pub use ring::{Completion, Exclusive, Outcome, Readiness, Ring, Send};
