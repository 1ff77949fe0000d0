//! A client, for the time of a call.
//!
//! Invariant: `ketama_continuum` is made by [`Memc::create`] or null, and freed once, by [`Memc::free`], which no
//! [`Session`] outlives. A callback that uses the client while a session has its core gets none.

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell, RefMut, UnsafeCell};
use std::ptr::{null, null_mut};

use super::heap::{boxed, free_struct, new_struct};
use super::structs::*;
use super::{Kit, ResultPtr};
use crate::core::{Core, Instance};

/// A `memcached_st` that C code passed, or null.
#[repr(transparent)]
pub(crate) struct Memc(*mut MemcachedSt);

/// The settings and the state of a client. What C code reads of the state is copied to it at the end.
pub(crate) struct Session<'a> {
    pub(crate) settings: &'a MemcachedSt,
    pub(crate) core: RefMut<'a, Core>,
}

impl Memc {
    /// Makes a client, in this struct or in a new one. Null: there is no memory.
    pub(crate) fn create(&self) -> *mut MemcachedSt {
        let is_allocated = self.0.is_null();
        let memc = if is_allocated { new_struct() } else { self.0 };
        if memc.is_null() {
            return memc;
        }
        let Some(core) = boxed(RefCell::new(Core::default())) else {
            if is_allocated {
                // SAFETY: it came from `new_struct`, and nothing has it.
                unsafe { free_struct(memc) };
            }
            return null_mut();
        };
        // SAFETY: there is room for one. Its content may be uninitialised, so it is neither read nor dropped.
        unsafe { memc.write(MemcachedSt::new(if is_allocated { ALLOCATED } else { 0 })) };
        // SAFETY: it was just written.
        unsafe { (*memc).ketama_continuum.set(Box::into_raw(core)) };
        Self::result_of(memc).initialize(memc);
        memc
    }

    /// The settings. `None`: null.
    pub(crate) fn settings(&self) -> Option<&MemcachedSt> {
        // SAFETY: it is null or valid for the call; its fields are cells.
        unsafe { self.0.as_ref() }
    }

    /// Begins a session. `None`: null, or another one has begun.
    pub(crate) fn session(&self) -> Option<Session<'_>> {
        let settings = self.settings()?;
        // SAFETY: see the invariant.
        let core = unsafe { settings.ketama_continuum.get().as_ref() }?;
        let mut core = core.try_borrow_mut().ok()?;
        core.next_rebuild = settings.ketama_next_distribution_rebuild.get();
        Some(Session { settings, core })
    }

    /// The state, to read it. `None`: null, or a session has begun.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Core) -> R) -> Option<R> {
        // SAFETY: see the invariant.
        let core = unsafe { self.settings()?.ketama_continuum.get().as_ref() }?;
        Some(read(&*core.try_borrow().ok()?))
    }

    /// The client's own result.
    pub(crate) fn result(&self) -> ResultPtr {
        Self::result_of(self.0)
    }

    fn result_of(memc: *mut MemcachedSt) -> ResultPtr {
        // SAFETY: it is null or valid.
        ResultPtr::at(unsafe { memc.as_ref() }.map_or(null_mut(), |memc| memc.result.get()))
    }

    /// The client's hash functions.
    pub(crate) fn kit(&self) -> Kit {
        Kit::made(self.settings().map_or(null(), |settings| &raw const settings.hashkit).cast_mut())
    }

    /// Frees the state, and the struct itself unless C code owns it or it stays.
    pub(crate) fn free(&self, with_struct: bool) {
        let Some(settings) = self.settings() else { return };
        let core = settings.ketama_continuum.replace(null());
        // SAFETY: see the invariant.
        let is_lent = unsafe { core.as_ref() }.is_some_and(|core| core.try_borrow_mut().is_err());
        // A program that frees a client in its own callback would pull the state from under the call, and the struct,
        // which is written at its end: both stay for ever.
        if !core.is_null() && !is_lent {
            // SAFETY: it came from `Box::into_raw`, and nothing else has it: see the invariant.
            drop(unsafe { Box::from_raw(core.cast_mut()) });
        }
        settings.hashkit.set_cipher(None);
        if with_struct && !is_lent && settings.options.get() & ALLOCATED != 0 {
            // SAFETY: it came from `new_struct`, and C code gives it up.
            unsafe { free_struct(self.0) };
        }
    }

    /// Is the struct of the heap? Otherwise C code owns it.
    pub(crate) fn is_allocated(&self) -> bool {
        self.settings().is_some_and(|settings| settings.options.get() & ALLOCATED != 0)
    }

    /// Sets who owns the struct.
    pub(crate) fn set_allocated(&self, is_allocated: bool) {
        if let Some(settings) = self.settings() {
            settings.options.set(if is_allocated { ALLOCATED } else { 0 });
        }
    }

    /// The address, for callbacks.
    pub(crate) fn address(&self) -> *mut MemcachedSt {
        self.0
    }

    /// The client of a struct that has it for its root.
    pub(crate) fn at(memc: *const MemcachedSt) -> Self {
        Self(memc.cast_mut())
    }

    /// No client.
    pub(crate) fn null() -> Self {
        Self(null_mut())
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let first = self.core.instances.first().map_or(null(), |first| &raw const **first);
        let last = self.core.last_disconnected.as_ref().map_or(null(), |last| &raw const **last);
        self.settings.servers.set(first);
        self.settings.number_of_hosts.set(self.core.instances.len().try_into().unwrap_or(u32::MAX));
        self.settings.last_disconnected_server.set(last);
        self.settings.ketama_next_distribution_rebuild.set(self.core.next_rebuild);
    }
}

impl MemcachedSt {
    fn new(options: u8) -> Self {
        Self {
            state: 0,
            flags: Cell::new(Flags::DEFAULT),
            distribution: Cell::new(0),
            hashkit: HashkitSt::new(0),
            server_version: Cell::new(0),
            number_of_hosts: Cell::new(0),
            servers: Cell::new(null()),
            last_disconnected_server: Cell::new(null()),
            snd_timeout: Cell::new(0),
            rcv_timeout: Cell::new(0),
            server_failure_limit: Cell::new(5),
            server_timeout_limit: Cell::new(0),
            io_msg_watermark: Cell::new(500),
            io_bytes_watermark: Cell::new(65 * 1024),
            io_key_prefetch: Cell::new(0),
            tcp_keepidle: Cell::new(0),
            poll_timeout: Cell::new(5000),
            connect_timeout: Cell::new(4000),
            retry_timeout: Cell::new(2),
            dead_timeout: Cell::new(0),
            send_size: Cell::new(-1),
            recv_size: Cell::new(-1),
            user_data: Cell::new(null_mut()),
            // 0 would be invalid.
            query_id: Cell::new(1),
            number_of_replicas: Cell::new(0),
            result: UnsafeCell::new(ResultSt::new(0)),
            ketama_weighted: Cell::new(false),
            ketama_continuum_count: 0,
            ketama_continuum_points_counter: 0,
            ketama_next_distribution_rebuild: Cell::new(0),
            ketama_continuum: Cell::new(null()),
            virtual_bucket: null_mut(),
            allocators: Cell::new(AllocatorSt::DEFAULT),
            on_clone: Cell::new(None),
            on_cleanup: Cell::new(None),
            get_key_failure: Cell::new(None),
            delete_trigger: Cell::new(None),
            callbacks: null_mut(),
            sasl: Cell::new(SaslSt { callbacks: null_mut(), is_allocated: false }),
            error_messages: null_mut(),
            namespace: null_mut(),
            configure: Cell::new(ConfigureSt {
                initial_pool_size: 1,
                max_pool_size: 1,
                version: -1,
                filename: null_mut(),
            }),
            options: Cell::new(options),
        }
    }
}

impl MemcachedSt {
    /// Takes the settings that a clone has of its source. As in libmemcached, whether a ring is weighted is not one.
    /// False: there is no memory.
    pub(crate) fn copy_settings(&self, from: &Self) -> bool {
        self.flags.set(from.flags.get());
        self.distribution.set(from.distribution.get());
        let is_copied = self.hashkit.copy(&from.hashkit);
        self.snd_timeout.set(from.snd_timeout.get());
        self.rcv_timeout.set(from.rcv_timeout.get());
        self.server_failure_limit.set(from.server_failure_limit.get());
        self.server_timeout_limit.set(from.server_timeout_limit.get());
        self.io_msg_watermark.set(from.io_msg_watermark.get());
        self.io_bytes_watermark.set(from.io_bytes_watermark.get());
        self.io_key_prefetch.set(from.io_key_prefetch.get());
        self.tcp_keepidle.set(from.tcp_keepidle.get());
        self.poll_timeout.set(from.poll_timeout.get());
        self.connect_timeout.set(from.connect_timeout.get());
        self.retry_timeout.set(from.retry_timeout.get());
        self.dead_timeout.set(from.dead_timeout.get());
        self.send_size.set(from.send_size.get());
        self.recv_size.set(from.recv_size.get());
        self.user_data.set(from.user_data.get());
        self.number_of_replicas.set(from.number_of_replicas.get());
        self.allocators.set(from.allocators.get());
        self.on_clone.set(from.on_clone.get());
        self.on_cleanup.set(from.on_cleanup.get());
        self.get_key_failure.set(from.get_key_failure.get());
        self.delete_trigger.set(from.delete_trigger.get());
        let version = from.configure.get().version;
        self.configure.set(ConfigureSt { version, ..self.configure.get() });
        is_copied
    }
}

/// A server of a client that C code passed, or null.
#[repr(transparent)]
pub(crate) struct InstancePtr(*const Instance);

impl InstancePtr {
    /// The server. `None`: null.
    pub(crate) fn get(&self) -> Option<&Instance> {
        // SAFETY: it is of a client that still has it; what C code reads or sets of it are cells.
        unsafe { self.0.as_ref() }
    }
}
