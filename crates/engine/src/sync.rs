//! What the lock-free parts (`index`, `epoch`, the states of `segment`) synchronise with: the standard library's
//! primitives, or, when their tests are built with `--cfg loom`, those of the model checker, which tries every order in
//! which threads can meet.

#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(all(loom, test))]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
