//! How much of the answers is checked, and what is forgiven.

use serde::{Deserialize, Serialize};

/// What is checked. Each failure counts by its kind, and any makes the run fail.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Truth {
    /// Share of the gets (0 to 1) whose value is checked: it names its key and its version, the checksum is right,
    /// flags and length are as stored, and the version is one that could be read: not older than the last that was
    /// acknowledged before the get was sent, not newer than the last that was sent.
    pub verify: f64,
    /// Share of the gets of keys with a TTL that check it: found after it should be gone, or gone before it should.
    /// `expiry_slack_secs` is forgiven on both sides.
    pub verify_expiry: f64,
    /// See `verify_expiry`. memcached's clock ticks once a second, so less than 2 is not to be had.
    pub expiry_slack_secs: f64,
    /// A key that was stored, has not expired and was not deleted is missing: a failure. For runs that fit into the
    /// server's memory.
    pub misses_fail: bool,
    /// At the end, ask every replica for every key and compare (with `target.replicate`). What differs has
    /// `expiry_slack_secs` to settle. Keys whose last changes overlapped are passed over: replicas may have taken these
    /// in any order.
    pub compare_replicas: bool,
    /// No answer for so long is a failure, and the connection is opened anew.
    pub timeout_secs: f64,
}

impl Default for Truth {
    fn default() -> Self {
        Self {
            verify: 0.0,
            verify_expiry: 0.0,
            expiry_slack_secs: 2.0,
            misses_fail: false,
            compare_replicas: false,
            timeout_secs: 10.0,
        }
    }
}
