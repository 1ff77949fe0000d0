//! Against real servers: memcached, and larderd where the installed memcached was built without TLS or cannot be told a
//! password.

mod client;
mod commands;
mod doors;
mod server;
mod udp;
