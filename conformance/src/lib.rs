//! What "compatible with memcached" means, runnable.
