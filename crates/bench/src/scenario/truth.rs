//! Checks of replies, and their tolerance.

use serde::{Deserialize, Serialize};

/// Checks. Failures are counted by kind, and any failure makes the run fail.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Truth {
    /// Share of the gets (0 to 1) whose value is checked. It must contain its key and version, with the right checksum,
    /// and flags and length as stored. The version must be possible: not older than the last one acknowledged before
    /// the get was sent, not newer than the last one sent.
    pub verify: f64,
    /// Share of the gets of keys with a TTL that check it: found after the expiry, or missing before it.
    /// `expiry_slack_secs` is tolerated on both sides.
    pub verify_expiry: f64,
    /// See `verify_expiry`. memcached's clock ticks once a second, so less than 2 is not possible.
    pub expiry_slack_secs: f64,
    /// A stored key that has not expired, was not deleted and is missing is a failure. For runs that fit into the
    /// server's memory.
    pub misses_fail: bool,
    /// At the end, read every key from every replica and compare (with `target.replicate`). Differences have
    /// `expiry_slack_secs` to settle. Keys whose last changes overlapped are skipped: replicas may have executed them
    /// in any order.
    pub compare_replicas: bool,
    /// No reply for so long is a failure, and the connection is reopened.
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
