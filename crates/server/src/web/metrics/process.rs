//! The standard metrics of a process (Prometheus documentation, "Writing client libraries").

use super::text::{Metric, Text};
use crate::observe::process;
use crate::web::state::State;

pub(super) fn write(state: &State, text: &mut Text) {
    let files = &state.process_files;
    if let Some(secs) = process::cpu_secs() {
        let help = "Total user and system CPU time spent in seconds.";
        text.single(&Metric::counter("process_cpu_seconds_total", help), secs);
    }
    if let Some(count) = files.open_descriptors() {
        text.single(&Metric::gauge("process_open_fds", "Number of open file descriptors."), count);
    }
    let help = "Maximum number of open file descriptors.";
    text.single(&Metric::gauge("process_max_fds", help), limit(process::descriptors_max()));
    if let Some(status) = files.status() {
        let help = "Virtual memory size in bytes.";
        text.single(&Metric::gauge("process_virtual_memory_bytes", help), status.virtual_bytes);
        let help = "Resident memory size in bytes.";
        text.single(&Metric::gauge("process_resident_memory_bytes", help), status.resident_bytes);
        let help = "Number of OS threads in the process.";
        text.single(&Metric::gauge("process_threads", help), status.threads);
    }
    let help = "Maximum amount of virtual memory available in bytes.";
    let metric = Metric::gauge("process_virtual_memory_max_bytes", help);
    text.single(&metric, limit(process::virtual_bytes_max()));
    if let Some(secs) = files.started_secs() {
        let help = "Start time of the process since unix epoch in seconds.";
        text.single(&Metric::gauge("process_start_time_seconds", help), secs);
    }
}

/// Without a limit, clients of Prometheus tell the largest number.
fn limit(limit: Option<u64>) -> u64 {
    limit.unwrap_or(u64::MAX)
}
