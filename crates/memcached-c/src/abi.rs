//! The boundary to C: structs, pointers and the C heap. All `unsafe` code of the crate is in here.
//!
//! A function of the interface has parameters of these types and a safe body. What it takes for granted is what
//! libmemcached's manual demands of a caller: pointers are null or valid for the call, lengths are right, a
//! `memcached_st` was made by `memcached_create` and is used by one thread at a time.

mod callbacks;
mod export;
mod faced;
mod hashkit;
mod heap;
mod list;
mod pointer;
mod result;
mod returns;
mod session;
mod structs;

pub(crate) use callbacks::{Callback, Credentials, LoginCallbacks};
pub(crate) use export::{Fallback, export, export_calling, guarded};
pub(crate) use faced::Faced;
pub(crate) use hashkit::{CUSTOM as HASH_CUSTOM, HashFunction, Kit, KitText, MAX as HASH_MAX, digest};
pub(crate) use heap::{Heap, boxed, copied};
pub(crate) use list::ServerList;
pub(crate) use pointer::{AnalysisPtr, Array, Chars, Keys, Out, PoolPtr, Ref, SharedMemc, StatArray};
pub(crate) use result::ResultPtr;
pub(crate) use returns::Return;
pub(crate) use session::{InstancePtr, Memc, Session};
pub(crate) use structs::*;
