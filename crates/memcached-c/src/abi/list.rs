//! Lists of servers: `memcached_server_list_st`, an array of `malloc`'s heap whose first element has their number.
//!
//! Invariant: a list is null, or was made by [`ServerList::append`], and has as many elements as its first one says.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::slice;

use super::structs::*;

/// A list that C code passed, or null.
#[repr(transparent)]
pub(crate) struct ServerList(*mut ServerSt);

impl ServerList {
    /// No servers.
    pub(crate) fn empty() -> Self {
        Self(null_mut())
    }

    /// The servers.
    pub(crate) fn servers(&self) -> &[ServerSt] {
        match self.count() {
            0 => &[],
            // SAFETY: see the invariant.
            count => unsafe { slice::from_raw_parts(self.0, count as usize) },
        }
    }

    /// How many servers the list says that it has.
    pub(crate) fn count(&self) -> u32 {
        // SAFETY: see the invariant.
        unsafe { self.0.as_ref() }.map_or(0, |first| first.number_of_hosts)
    }

    /// A list with one more server; the old one is not used any more. Null: there is no memory, and the old one is as
    /// it was.
    pub(crate) fn append(&self, host: &[u8], port: u16, weight: u32, kind: u32) -> Self {
        let count = self.count();
        let Some(bytes) = size_of::<ServerSt>().checked_mul(count as usize + 1) else { return Self::empty() };
        // SAFETY: a list is null or of `malloc`'s heap.
        let list: *mut ServerSt = unsafe { libc::realloc(self.0.cast(), bytes) }.cast();
        if !list.is_null() {
            // SAFETY: there is room for `count + 1`, and the first `count` were moved.
            unsafe {
                list.add(count as usize).write(ServerSt::new(host, port, weight, kind));
                (*list).number_of_hosts = count + 1;
            }
        }
        Self(list)
    }

    /// Frees the list.
    pub(crate) fn free(&self) {
        // SAFETY: a list is null or of `malloc`'s heap, and C code gives it up.
        unsafe { libc::free(self.0.cast()) }
    }

    pub(crate) fn address(&self) -> *mut ServerSt {
        self.0
    }
}

impl ServerSt {
    fn new(host: &[u8], port: u16, weight: u32, kind: u32) -> Self {
        let mut hostname = [0; HOST_SIZE];
        for (place, byte) in hostname.iter_mut().zip(host.iter().take(HOST_SIZE - 1)) {
            *place = c_char::from_ne_bytes([*byte]);
        }
        Self {
            options: INITIALIZED,
            number_of_hosts: 0,
            cursor_active: 0,
            port,
            io_bytes_sent: 0,
            request_id: 0,
            server_failure_counter: 0,
            server_failure_counter_query_id: 0,
            server_timeout_counter: 0,
            server_timeout_counter_query_id: 0,
            weight: weight.max(1),
            version: u32::MAX,
            state: 0,
            io_wait_count: IoWaitCountSt::default(),
            major_version: u8::MAX,
            micro_version: u8::MAX,
            minor_version: u8::MAX,
            kind,
            next_retry: 0,
            root: null_mut(),
            limit_maxbytes: 0,
            error_messages: null_mut(),
            hostname,
        }
    }

    /// The host, the port, the weight and the type (a `memcached_connection_t`).
    pub(crate) fn parts(&self) -> (&[u8], u16, u32, u32) {
        let host = bytes_of(&self.hostname);
        let host = CStr::from_bytes_until_nul(host).map_or(host, CStr::to_bytes);
        (host, self.port, self.weight, self.kind)
    }
}

fn bytes_of(chars: &[c_char]) -> &[u8] {
    // SAFETY: `c_char` and `u8` have the same size, and every value of one is a value of the other.
    unsafe { slice::from_raw_parts(chars.as_ptr().cast(), chars.len()) }
}
