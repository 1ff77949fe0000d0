//! `/metrics`, in the Prometheus text format 0.0.4: the metrics of prometheus-memcached-exporter, under the names that
//! dashboards use, larder's own, and those of any process.

mod larder;
mod memcached;
mod process;
mod replication;
mod store;
mod text;

use super::state::State;
use text::Text;

/// The content type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics.
pub(super) fn text(state: &State) -> String {
    let mut text = Text::default();
    memcached::write(state, &mut text);
    larder::write(state, &mut text);
    store::write(state, &mut text);
    replication::write(state, &mut text);
    process::write(state, &mut text);
    text.finish()
}
