//! A client of memcached's protocols.

#![forbid(unsafe_code)]
