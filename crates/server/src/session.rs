//! One client.
