//! What is asked.

use std::collections::HashMap;

use larder_bench::Recording;
use larder_bench::scenario::{Trace, TraceFormat};
use larder_conformance::Result;

/// A get; if it misses, a set follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) key: u64,
    pub(crate) value_bytes: u32,
    /// Of the set; 0: for ever.
    pub(crate) ttl_secs: u32,
}

/// Requests in their order.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) requests: Vec<Request>,
    /// At which they are asked; `None`: as fast as the server answers.
    pub(crate) requests_per_sec: Option<f64>,
}

impl Workload {
    pub(crate) fn new(name: &str, requests: Vec<Request>) -> Self {
        Self { name: name.into(), requests, requests_per_sec: None }
    }

    /// Reads `FILE`, or `FILE:N` with values N times as long.
    pub(crate) fn read(trace: &str) -> Result<Self> {
        let split = trace.rsplit_once(':').and_then(|(file, times)| Some((file, times.parse().ok()?)));
        let (file, times): (&str, u32) = split.unwrap_or((trace, 1));
        let recording = Recording::read(&Trace { file: file.into(), format: TraceFormat::Kv, repeat: 1 }, 1)?;
        let records = recording.parts.into_iter().flatten();
        let requests = records.map(|record| Request {
            key: record.number,
            value_bytes: record.value_bytes.unwrap_or(0).saturating_mul(times),
            ttl_secs: record.ttl_secs,
        });
        let name = file.rsplit('/').next().unwrap_or(file).split('.').next().unwrap_or(file);
        let name = if times == 1 { name.to_owned() } else { format!("{name}, values x {times}") };
        Ok(Self::new(&name, requests.collect()))
    }

    /// How many keys there are: so many misses nobody can avoid.
    pub(crate) fn keys(&self) -> u64 {
        self.sizes().len() as u64
    }

    /// What all items take, with [`OVERHEAD_BYTES`] for each.
    fn footprint_bytes(&self) -> u64 {
        self.sizes().values().map(|&value_bytes| u64::from(value_bytes) + OVERHEAD_BYTES).sum()
    }

    /// Parts of that: a twelfth for 12. At least 4 MiB each.
    pub(crate) fn memory_mib(&self, parts: &[u64]) -> Vec<u64> {
        let footprint_mib = self.footprint_bytes() >> 20;
        parts.iter().map(|part| (footprint_mib / part).max(4)).collect()
    }

    fn sizes(&self) -> HashMap<u64, u32> {
        self.requests.iter().map(|request| (request.key, request.value_bytes)).collect()
    }
}

/// A key of 16 bytes, and memcached's header.
const OVERHEAD_BYTES: u64 = 16 + 56;
