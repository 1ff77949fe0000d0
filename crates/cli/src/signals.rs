//! Signals that end a tool.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larder_bench::screen;

use crate::Failure;

/// Set when the system asks the program to end; the results so far are then shown. A second signal ends it at once. To
/// be called once.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    screen::stop_on_signals(&stop).map_err(|error| Failure::Failed(format!("signals: {error}")))?;
    Ok(stop)
}
