//! A recorded file of requests that is replayed.

use serde::{Deserialize, Serialize};

/// A recorded sequence of requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trace {
    /// Its path. A file whose name ends in `.xz` is unpacked by the program `xz`.
    pub file: String,
    /// Its format.
    pub format: TraceFormat,
    /// Replay it so many times.
    pub repeat: u32,
}

impl Default for Trace {
    fn default() -> Self {
        Self { file: String::new(), format: TraceFormat::Kv, repeat: 1 }
    }
}

/// Format of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceFormat {
    /// Records of 12 bytes, little endian: u64 number of the key, u32 length of its value. Each is a get, with a set if
    /// it misses.
    #[default]
    Kv,
    /// Lines of `<micros since the start> <command> <key> [<value bytes> [<ttl secs>]]`.
    Text,
}
