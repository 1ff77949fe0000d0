//! The structs that C programs allocate, or whose fields they read. Sizes, offsets and meanings are those of
//! libmemcached 1.0 and 1.1 on x86-64 and AArch64; `structs/tests.rs` compares them with both headers.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{c_char, c_double, c_int, c_ulong, c_ulonglong, c_void};

use super::Return;
use crate::core::{Cipher, Core, Instance};

/// `memcached_st`: the settings of a client. The state that C never sees is behind `ketama_continuum`. Fields are
/// cells, since a callback can change a setting in the middle of a call.
#[repr(C)]
pub(crate) struct MemcachedSt {
    pub(super) state: u8,
    pub(crate) flags: Cell<Flags>,
    pub(crate) distribution: Cell<u32>,
    pub(crate) hashkit: HashkitSt,
    pub(crate) server_version: Cell<u32>,
    pub(crate) number_of_hosts: Cell<u32>,
    pub(super) servers: Cell<*const Instance>,
    pub(super) last_disconnected_server: Cell<*const Instance>,
    pub(crate) snd_timeout: Cell<i32>,
    pub(crate) rcv_timeout: Cell<i32>,
    pub(crate) server_failure_limit: Cell<u32>,
    pub(crate) server_timeout_limit: Cell<u32>,
    pub(crate) io_msg_watermark: Cell<u32>,
    pub(crate) io_bytes_watermark: Cell<u32>,
    pub(crate) io_key_prefetch: Cell<u32>,
    pub(crate) tcp_keepidle: Cell<u32>,
    pub(crate) poll_timeout: Cell<i32>,
    pub(crate) connect_timeout: Cell<i32>,
    pub(crate) retry_timeout: Cell<i32>,
    pub(crate) dead_timeout: Cell<i32>,
    pub(crate) send_size: Cell<c_int>,
    pub(crate) recv_size: Cell<c_int>,
    pub(crate) user_data: Cell<*mut c_void>,
    pub(crate) query_id: Cell<u64>,
    pub(crate) number_of_replicas: Cell<u32>,
    pub(super) result: UnsafeCell<ResultSt>,
    pub(crate) ketama_weighted: Cell<bool>,
    pub(super) ketama_continuum_count: u32,
    pub(super) ketama_continuum_points_counter: u32,
    /// When an ejected server may return; C code can set it.
    pub(super) ketama_next_distribution_rebuild: Cell<i64>,
    /// Made by `memcached_create`, freed by `memcached_free`, and in no other struct.
    pub(super) ketama_continuum: Cell<*const RefCell<Core>>,
    pub(super) virtual_bucket: *mut c_void,
    pub(crate) allocators: Cell<AllocatorSt>,
    pub(crate) on_clone: Cell<Option<CloneFn>>,
    pub(crate) on_cleanup: Cell<Option<CleanupFn>>,
    pub(crate) get_key_failure: Cell<Option<TriggerKeyFn>>,
    pub(crate) delete_trigger: Cell<Option<TriggerDeleteKeyFn>>,
    pub(super) callbacks: *mut c_void,
    pub(crate) sasl: Cell<SaslSt>,
    pub(super) error_messages: *mut c_void,
    pub(super) namespace: *mut c_void,
    pub(crate) configure: Cell<ConfigureSt>,
    pub(super) options: Cell<u8>,
}

/// Settings that are on or off, as C's compilers lay out a struct of `bool : 1`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Flags([u8; 2]);

/// The place of a setting among the [`Flags`].
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Flag {
    AutoEjectHosts = 0,
    BinaryProtocol,
    BufferRequests,
    HashWithNamespace,
    NoBlock,
    Reply,
    RandomizeReplicaRead,
    SupportCas,
    TcpNodelay,
    UseSortHosts,
    UseUdp,
    VerifyKey,
    TcpKeepalive,
    #[expect(dead_code, reason = "its place among the others")]
    IsAes,
    IsFetchingVersion,
}

impl Flags {
    /// Only replies are expected.
    pub(super) const DEFAULT: Self = Self([1 << Flag::Reply as u8, 0]);

    pub(crate) fn has(self, flag: Flag) -> bool {
        let bit = flag as usize;
        self.0.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
    }

    pub(crate) fn set(&mut self, flag: Flag, is_on: bool) {
        let bit = flag as usize;
        if let Some(byte) = self.0.get_mut(bit / 8) {
            *byte = *byte & !(1 << (bit % 8)) | (u8::from(is_on) << (bit % 8));
        }
    }
}

/// `memcached_st.configure`: what a configuration string says about pools.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConfigureSt {
    pub(crate) initial_pool_size: u32,
    pub(crate) max_pool_size: u32,
    pub(crate) version: i32,
    pub(crate) filename: *mut c_void,
}

/// `memcached_allocator_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocatorSt {
    pub(crate) calloc: Option<CallocFn>,
    pub(crate) free: Option<FreeFn>,
    pub(crate) malloc: Option<MallocFn>,
    pub(crate) realloc: Option<ReallocFn>,
    pub(crate) context: *mut c_void,
}

/// `memcached_sasl_st`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SaslSt {
    pub(crate) callbacks: *mut SaslCallbackSt,
    pub(crate) is_allocated: bool,
}

/// `sasl_callback_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SaslCallbackSt {
    pub(super) id: c_ulong,
    pub(super) proc: *const c_void,
    pub(super) context: *mut c_void,
}

/// `memcached_string_st`: bytes of the C heap.
#[repr(C)]
pub(crate) struct StringSt {
    pub(super) end: *mut c_char,
    pub(super) string: *mut c_char,
    pub(super) current_size: usize,
    pub(super) root: *mut MemcachedSt,
    pub(super) options: u8,
}

/// `memcached_result_st`: an item.
#[repr(C)]
pub(crate) struct ResultSt {
    pub(crate) item_flags: u32,
    pub(crate) item_expiration: i64,
    pub(super) key_length: usize,
    pub(crate) item_cas: u64,
    pub(super) root: *mut MemcachedSt,
    pub(super) value: StringSt,
    pub(crate) numeric_value: u64,
    pub(crate) count: u64,
    pub(super) item_key: [c_char; KEY_SIZE],
    pub(super) options: u8,
}

/// `memcached_server_st`: an entry of a list of servers.
#[repr(C)]
pub(crate) struct ServerSt {
    pub(super) options: u8,
    pub(super) number_of_hosts: u32,
    pub(super) cursor_active: u32,
    pub(super) port: u16,
    pub(super) io_bytes_sent: u32,
    pub(super) request_id: u32,
    pub(super) server_failure_counter: u32,
    pub(super) server_failure_counter_query_id: u64,
    pub(super) server_timeout_counter: u32,
    pub(super) server_timeout_counter_query_id: u64,
    pub(super) weight: u32,
    pub(super) version: u32,
    pub(super) state: u32,
    pub(super) io_wait_count: IoWaitCountSt,
    pub(super) major_version: u8,
    pub(super) micro_version: u8,
    pub(super) minor_version: u8,
    pub(super) kind: u32,
    pub(super) next_retry: i64,
    pub(super) root: *mut MemcachedSt,
    pub(super) limit_maxbytes: u64,
    pub(super) error_messages: *mut c_void,
    pub(super) hostname: [c_char; HOST_SIZE],
}

/// `memcached_server_st.io_wait_count`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct IoWaitCountSt {
    read: u32,
    write: u32,
    timeouts: u32,
    bytes_read: usize,
}

/// `memcached_stat_st`: a server's statistics.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct StatSt {
    pub(crate) connection_structures: c_ulong,
    pub(crate) curr_connections: c_ulong,
    pub(crate) curr_items: c_ulong,
    pub(crate) pid: i32,
    pub(crate) pointer_size: c_ulong,
    pub(crate) rusage_system_microseconds: c_ulong,
    pub(crate) rusage_system_seconds: c_ulong,
    pub(crate) rusage_user_microseconds: c_ulong,
    pub(crate) rusage_user_seconds: c_ulong,
    pub(crate) threads: c_ulong,
    pub(crate) time: c_ulong,
    pub(crate) total_connections: c_ulong,
    pub(crate) total_items: c_ulong,
    pub(crate) uptime: c_ulong,
    pub(crate) bytes: c_ulonglong,
    pub(crate) bytes_read: c_ulonglong,
    pub(crate) bytes_written: c_ulonglong,
    pub(crate) cmd_get: c_ulonglong,
    pub(crate) cmd_set: c_ulonglong,
    pub(crate) evictions: c_ulonglong,
    pub(crate) get_hits: c_ulonglong,
    pub(crate) get_misses: c_ulonglong,
    pub(crate) limit_maxbytes: c_ulonglong,
    /// Ends with a NUL.
    pub(crate) version: [u8; VERSION_SIZE],
    pub(crate) future: *mut c_void,
    pub(crate) root: *mut MemcachedSt,
}

/// `memcached_analysis_st`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AnalysisSt {
    pub(super) root: *mut MemcachedSt,
    pub(crate) average_item_size: u32,
    pub(crate) longest_uptime: u32,
    pub(crate) least_free_server: u32,
    pub(crate) most_consumed_server: u32,
    pub(crate) oldest_server: u32,
    pub(crate) pool_hit_ratio: c_double,
    pub(crate) most_used_bytes: u64,
    pub(crate) least_remaining_bytes: u64,
}

/// `hashkit_st`.
#[repr(C)]
pub(crate) struct HashkitSt {
    pub(crate) base_hash: Cell<HashFunctionSt>,
    pub(crate) distribution_hash: Cell<HashFunctionSt>,
    pub(super) flags: Cell<u8>,
    pub(super) options: Cell<u8>,
    pub(super) key: Cell<*mut Cipher>,
}

/// `hashkit_function_st`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HashFunctionSt {
    pub(crate) function: Option<HashFn>,
    pub(crate) context: *mut c_void,
}

/// `hashkit_hash_fn`.
pub(crate) type HashFn = extern "C-unwind" fn(*const c_char, usize, *mut c_void) -> u32;
/// `memcached_clone_fn`.
pub(crate) type CloneFn = extern "C-unwind" fn(*mut MemcachedSt, *const MemcachedSt) -> Return;
/// `memcached_cleanup_fn`.
pub(crate) type CleanupFn = extern "C-unwind" fn(*const MemcachedSt) -> Return;
/// `memcached_trigger_key_fn`.
pub(crate) type TriggerKeyFn =
    extern "C-unwind" fn(*const MemcachedSt, *const c_char, usize, *mut ResultSt) -> Return;
/// `memcached_trigger_delete_key_fn`.
pub(crate) type TriggerDeleteKeyFn = extern "C-unwind" fn(*const MemcachedSt, *const c_char, usize) -> Return;
/// `memcached_execute_fn`.
pub(crate) type ExecuteFn = extern "C-unwind" fn(*const MemcachedSt, *mut ResultSt, *mut c_void) -> Return;
/// `memcached_server_fn`.
pub(crate) type ServerFn = extern "C-unwind" fn(*const MemcachedSt, *const Instance, *mut c_void) -> Return;
/// `memcached_stat_fn`.
pub(crate) type StatFn =
    extern "C-unwind" fn(*const Instance, *const c_char, usize, *const c_char, usize, *mut c_void) -> Return;
/// `memcached_dump_fn`.
pub(crate) type DumpFn =
    extern "C-unwind" fn(*const MemcachedSt, *const c_char, usize, *mut c_void) -> Return;
/// `memcached_malloc_fn`.
pub(crate) type MallocFn = extern "C-unwind" fn(*const MemcachedSt, usize, *mut c_void) -> *mut c_void;
/// `memcached_free_fn`.
pub(crate) type FreeFn = extern "C-unwind" fn(*const MemcachedSt, *mut c_void, *mut c_void);
/// `memcached_realloc_fn`.
pub(crate) type ReallocFn =
    extern "C-unwind" fn(*const MemcachedSt, *mut c_void, usize, *mut c_void) -> *mut c_void;
/// `memcached_calloc_fn`.
pub(crate) type CallocFn = extern "C-unwind" fn(*const MemcachedSt, usize, usize, *mut c_void) -> *mut c_void;

/// `is_allocated`, the first bit of every `options`.
pub(crate) const ALLOCATED: u8 = 1;
/// `is_initialized`, the second bit of most.
pub(crate) const INITIALIZED: u8 = 2;
/// `MEMCACHED_MAX_KEY`: a key of 250 bytes, and NUL.
pub(crate) const KEY_SIZE: usize = 251;
/// `NI_MAXHOST`, NUL included.
pub(crate) const HOST_SIZE: usize = 1025;
/// `MEMCACHED_VERSION_STRING_LENGTH`, NUL included.
pub(crate) const VERSION_SIZE: usize = 24;

#[cfg(test)]
mod tests;
