//! The figures of a server, as its `/api/overview` has them.

use serde::{Deserialize, Serialize};

/// A row of the page's table. Other fields of an answer are ignored.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::web) struct Figures {
    pub(super) version: String,
    /// Random, another one after each start.
    pub(in crate::web) process_id: String,
    uptime_secs: u64,
    is_ready: bool,
    items: u64,
    memory: Memory,
    recent: Rates,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Memory {
    limit_bytes: u64,
    used_bytes: u64,
}

/// Per second, but for the connections.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Rates {
    hits: f64,
    misses: f64,
    stores: f64,
    others: f64,
    evicted: f64,
    connections: u64,
}

impl Figures {
    /// Reads an answer. Errors: the reason.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        let figures: Self = serde_json::from_slice(json).map_err(|_| NO_FIGURES.to_owned())?;
        let is_short = |text: &str| text.len() <= TEXT_BYTES_MAX;
        if is_short(&figures.version) && is_short(&figures.process_id) {
            Ok(figures)
        } else {
            Err(NO_FIGURES.to_owned())
        }
    }
}

const NO_FIGURES: &str = "its answer has no figures of a larderd, or of an older version";
/// So a peer cannot make this server keep much.
const TEXT_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn overview(version: &str) -> String {
        format!(
            r#"{{"version":"{version}","process_id":"1","uptime_secs":2,"is_ready":true,"items":3,"later":[{{}}],
            "memory":{{"limit_bytes":5,"used_bytes":4}},
            "recent":{{"hits":1.5,"misses":0,"stores":0,"others":0,"evicted":0,"connections":6,"p50_micros":null}}}}"#
        )
    }

    #[test]
    fn an_answer_is_read_or_refused() {
        let figures = Figures::read(overview("1.2.3").as_bytes()).expect("it is one");
        assert_eq!(
            (figures.version.as_str(), figures.uptime_secs, figures.recent.connections),
            ("1.2.3", 2, 6)
        );
        let deep = "[".repeat(10_000);
        for answer in
            ["", "{}", "null", &deep, &overview(&"v".repeat(65)), &overview("1").replace("3,", "-3,")]
        {
            assert_eq!(Figures::read(answer.as_bytes()).expect_err("it is none"), NO_FIGURES);
        }
    }
}
