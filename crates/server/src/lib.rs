//! larderd, the server.
