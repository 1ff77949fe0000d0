//! Servers, as C code has pointers to them.
//!
//! Invariant: a [`Faced`] is made by [`Faced::create`] alone, in its place on the heap: it is larger than a frame of a
//! small stack should be.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::ops::{Deref, DerefMut};

use super::structs::HOST_SIZE;

/// Something behind what C code reads.
#[repr(C)]
pub(crate) struct Faced<T> {
    face: Face,
    inner: T,
}

/// Where libmemcached 1.1 keeps the port and the host: its tool `memcping` reads them there itself.
#[repr(C)]
struct Face {
    before_port: [u8; 16],
    port: u16,
    before_host: [u8; 16_576 - 18],
    host: [u8; HOST_SIZE],
}

impl<T> Faced<T> {
    /// One with this host, of which it shows 1024 bytes. `None`: there is no memory.
    pub(crate) fn create(host: &[u8], port: u16, inner: T) -> Option<Box<Self>> {
        // SAFETY: it has a size.
        let faced = unsafe { alloc_zeroed(Layout::new::<Self>()) }.cast::<Self>();
        if faced.is_null() {
            return None;
        }
        // SAFETY: the memory is new. Zeros are a value of the face, and the rest is written before it is read.
        let mut faced = unsafe {
            (&raw mut (*faced).inner).write(inner);
            Box::from_raw(faced)
        };
        faced.face.port = port;
        let shown = faced.face.host.iter_mut().zip(host.iter().take(HOST_SIZE - 1));
        shown.for_each(|(place, byte)| *place = *byte);
        Some(faced)
    }
}

impl<T> Deref for Faced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Faced<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
