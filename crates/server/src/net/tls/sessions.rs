//! Sessions that clients may resume. A long one is not kept: it contains its client's certificate chain, and rustls
//! would make a ticket of it that is longer than its length field allows.

use std::sync::Arc;

use rustls::server::{ProducesTickets, StoresServerSessions};

/// Keeps short sessions in rustls's own store.
#[derive(Debug)]
pub(super) struct Short<S: ?Sized>(pub(super) Arc<S>);

impl<S: ProducesTickets + ?Sized> ProducesTickets for Short<S> {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if plain.len() <= SESSION_BYTES_MAX { self.0.encrypt(plain) } else { None }
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}

impl<S: StoresServerSessions + ?Sized> StoresServerSessions for Short<S> {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        value.len() <= SESSION_BYTES_MAX && self.0.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.take(key)
    }

    fn can_cache(&self) -> bool {
        self.0.can_cache()
    }
}

/// Several times the size of a usual chain. With 4096 sessions for each kind of listener that is at most 64 MiB.
const SESSION_BYTES_MAX: usize = 16 << 10;
